"""Comparison of data sets in any format: do they have the same samples in the same order?

Every image is read and decoded. The digest of an image is compared with the `SPLIT.samples` of its
data set. The pixels of an image are compared with those of the first data set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xfbench.datasets.manifest import Manifest
from xfbench.worker import pictures, prepared
from xfbench.worker.samples import Sample, sample_digest, stream_digest

Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class CheckedSet:
    """The result of checking one data set.

    - `samples`: number of samples that were read.
    - `stream_digest`: digest of these samples in order.
    - `largest_pixel_difference`: largest difference of a pixel value from the first data set, 0 to
      255. It is None if the first data set has other splits, fewer samples, or a sample with
      another shape or label.
    - `defect`: a message about the first sample that does not match `SPLIT.samples`, or None.
    """

    folder: str
    format: str
    samples: int
    stream_digest: str
    largest_pixel_difference: int | None
    defect: str | None


def compare_data_sets(
    folders: Sequence[Path], report_progress: Report = lambda *_: None
) -> list[CheckedSet]:
    """Read every sample of every data set, and compare the data sets with the first one.

    Return one result per data set. Raises Damaged if a folder is not a data set, or if an image
    cannot be read. `report_progress` gets these arguments:

    - the name of the folder
    - the number of samples in the folder that were read
    - the number of all samples in the folder
    """
    manifests = [(folder, Manifest.read(folder)) for folder in folders]
    sets = [(folder, manifest, prepared.open_prepared(folder)) for folder, manifest in manifests]
    reference_set = sets[0][2]
    return [
        _check_data_set(folder, manifest, prepared_set, reference_set, report_progress)
        for folder, manifest, prepared_set in sets
    ]


def _check_data_set(
    folder: Path,
    manifest: Manifest,
    prepared_set: prepared.Prepared,
    reference_set: prepared.Prepared,
    report_progress: Report,
) -> CheckedSet:
    channels = manifest.preprocessing.channels
    total, done = sum(len(samples) for samples in prepared_set.splits.values()), 0
    digests, max_difference, defect = (
        [],
        0 if prepared_set.splits.keys() == reference_set.splits.keys() else None,
        None,
    )
    for split, samples in prepared_set.splits.items():
        listed = prepared_set.listed[split]
        for index in range(len(samples)):
            sample = samples[index]
            pixels = pictures.decode_pixels(sample, channels)
            digests.append(sample_digest(pixels, sample.label))
            if digests[-1] != listed.digests[index] and defect is None:
                defect = f"{split} image {index}, {sample.key}, does not match the data set's list"
            if prepared_set is not reference_set and max_difference is not None:
                difference = _largest_pixel_difference(
                    pixels, sample.label, reference_set, split, index, digests[-1]
                )
                max_difference = None if difference is None else max(max_difference, difference)
            done += 1
            if done % 100 == 0 or done == total:
                report_progress(folder.name, done, total)
    return CheckedSet(
        folder.name, manifest.format, done, stream_digest(digests), max_difference, defect
    )


def _largest_pixel_difference(
    pixels: np.ndarray,
    label: int,
    reference_set: prepared.Prepared,
    split: str,
    index: int,
    digest: str,
) -> int | None:
    """Return the largest difference of `pixels` from sample `index` of `reference_set`, 0 to 255.

    Return None if that sample does not exist, or if its shape or label differs.
    """
    samples = reference_set.splits[split]
    if index >= len(samples):
        return None
    if reference_set.listed[split].digests[index] == digest:
        return 0
    reference_sample: Sample = samples[index]
    reference_pixels = pictures.decode_pixels(
        reference_sample, reference_set.manifest["preprocessing"]["channels"]
    )
    if reference_pixels.shape != pixels.shape or reference_sample.label != label:
        return None
    return int(np.abs(reference_pixels.astype(int) - pixels.astype(int)).max())


def build_comparison_document(checked_sets: Sequence[CheckedSet]) -> dict[str, Any]:
    """Return the document that `xfbench data check --json` prints."""
    equal = len({checked_set.stream_digest for checked_set in checked_sets}) == 1 and not any(
        checked_set.defect for checked_set in checked_sets
    )
    return {
        "samples": checked_sets[0].samples,
        "formats": [vars(checked_set) for checked_set in checked_sets],
        "equal": equal,
    }
