"""Whether several data sets, whatever their formats, are the same samples in the same order.

Every image is read and decoded, and its digest compared with what the list says, and with the
others'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xfbench.data.manifest import Manifest
from xfbench.worker import pictures, prepared
from xfbench.worker.samples import Sample, sample_digest, stream_digest

Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Checked:
    """One data set: the digest of all its samples as they were read.

    `largest_pixel_difference` is from the first set, of 255, None where shapes or numbers differ;
    `defect` is what is wrong with the set itself.
    """

    folder: str
    format: str
    samples: int
    stream_digest: str
    largest_pixel_difference: int | None
    defect: str | None


def check(folders: Sequence[Path], report: Report = lambda *_: None) -> list[Checked]:
    """Read every sample of every set; `report` hears the folder, samples done, of how many.

    Raises Damaged where a folder is no data set, or an image cannot be read.
    """
    sets = [(folder, Manifest.read(folder), prepared.open_prepared(folder)) for folder in folders]
    first = sets[0][2]
    return [_checked(folder, manifest, one, first, report) for folder, manifest, one in sets]


def _checked(
    folder: Path,
    manifest: Manifest,
    one: prepared.Prepared,
    first: prepared.Prepared,
    report: Report,
) -> Checked:
    channels = manifest.preprocessing.channels
    total, done = sum(len(samples) for samples in one.splits.values()), 0
    digests, largest, defect = [], 0 if one.splits.keys() == first.splits.keys() else None, None
    for split, samples in one.splits.items():
        listed = one.listed[split]
        for index in range(len(samples)):
            sample = samples[index]
            pixels = pictures.decode_pixels(sample, channels)
            digests.append(sample_digest(pixels, sample.label))
            if digests[-1] != listed.digests[index] and defect is None:
                defect = f"{split} image {index}, {sample.key}, is not what the list says"
            if one is not first and largest is not None:
                difference = _difference(pixels, sample.label, first, split, index, digests[-1])
                largest = None if difference is None else max(largest, difference)
            done += 1
            if done % 100 == 0 or done == total:
                report(folder.name, done, total)
    return Checked(folder.name, manifest.format, done, stream_digest(digests), largest, defect)


def _difference(
    pixels: np.ndarray,
    label: int,
    first: prepared.Prepared,
    split: str,
    index: int,
    digest: str,
) -> int | None:
    samples = first.splits[split]
    if index >= len(samples):
        return None
    if first.listed[split].digests[index] == digest:
        return 0
    other: Sample = samples[index]
    theirs = pictures.decode_pixels(other, first.manifest["preprocessing"]["channels"])
    if theirs.shape != pixels.shape or other.label != label:
        return None
    return int(np.abs(theirs.astype(int) - pixels.astype(int)).max())


def document(found: Sequence[Checked]) -> dict[str, Any]:
    """As `data check --json` prints it."""
    equal = len({one.stream_digest for one in found}) == 1 and not any(one.defect for one in found)
    return {
        "samples": found[0].samples,
        "formats": [vars(one) for one in found],
        "equal": equal,
    }
