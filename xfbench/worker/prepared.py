"""The reader of prepared data sets, for any framework's interpreter.

`xfbench data` writes a prepared data set. Its folder contains:

- `manifest.json`
- `SPLIT.samples` for each split, with one line per sample, in order. A line has the sample's key,
  label, digest and shape, separated by tabs. If a JPEG file must be shown mirrored or rotated, the
  line ends with its EXIF orientation.
- files with the images, in one of `FORMATS`
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from xfbench.worker import pictures
from xfbench.worker.formats import (
    Damaged,
    SampleList,
    iterate_lines,
    read_plain,
    resolve_file,
)
from xfbench.worker.samples import Sample, sample_digest, stream_digest

SCHEMA = "xfbench.data/1"
FORMATS = ("raw", "folder", "tfrecord", "lmdb", "recordio")
SPLITS = ("train", "test")
MAX_MANIFEST_BYTES = 2**25
MAX_MANIFEST_VALUES = 2**21  # most are names of classes
_COMPARED_IMAGES = 8


@dataclass(frozen=True)
class Prepared:
    """An open data set.

    - `manifest`: the content of `manifest.json`.
    - `listed`: the sample list of each split.
    - `splits`: the samples of each split.
    """

    manifest: Dict[str, Any]
    listed: Dict[str, SampleList]
    splits: Dict[str, Sequence[Sample]]


def open_prepared(folder: Path) -> Prepared:
    """Open the data set in `folder`. Raises Damaged if it does not match its manifest."""
    manifest = read_manifest(folder)
    listed = {split: read_sample_list(folder, split, manifest) for split in manifest["splits"]}
    splits = {
        split: open_split(folder, manifest["format"], split, sample_list)
        for split, sample_list in listed.items()
    }
    for split, split_samples in splits.items():
        if len(split_samples) != len(listed[split].keys):
            raise Damaged(
                f"{folder} has {len(split_samples)} samples in its split {split}, but the manifest "
                f"lists {len(listed[split].keys)}"
            )
    return Prepared(manifest, listed, splits)


def open_split(
    folder: Path, format_name: str, split: str, listed: SampleList | None
) -> Sequence[Sample]:
    """Return the samples of a split, whose files have the format `format_name`.

    `listed` is the split's sample list, or None. `xfbench.worker.formats` describes the formats.
    Raises Damaged if a file is damaged.
    """
    module = importlib.import_module(f"xfbench.worker.formats.{format_name}")
    split_samples: Sequence[Sample] = module.samples(folder, split, listed)
    return split_samples


def compare_first_images(folder: Path, samples: Sequence[Sample]) -> Dict[str, int]:
    """Decode the first training images, and compare their digests with the data set's list.

    Decoders of different versions may give other pixels. The result has these fields:

    - `compared`: number of compared images
    - `differing`: number of images with other pixels than listed
    """
    channels = read_manifest(folder)["preprocessing"]["channels"]
    lines = islice(iterate_lines(resolve_file(folder, "train.samples")), _COMPARED_IMAGES)
    digests = [line.decode("utf-8").split("\t")[2] for line in lines]
    differing = 0
    for index, digest in enumerate(digests):
        sample = samples[index]
        differing += sample_digest(pictures.decode_pixels(sample, channels), sample.label) != digest
    return {"compared": len(digests), "differing": differing}


def split_files(folder: Path, manifest: Dict[str, Any], split: str) -> List[Path]:
    """Return the files that contain a split's images. An epoch reads each file once."""
    if manifest["format"] == "folder":
        return [path for path in sorted((folder / split).rglob("*")) if path.is_file()]
    name_patterns = {
        "raw": ["{}.pixels"],
        "tfrecord": ["{}.tfrecord"],
        "lmdb": ["{}.lmdb/data.mdb"],
        "recordio": ["{}.rec"],
    }
    return [folder / name.format(split) for name in name_patterns[manifest["format"]]]


def read_manifest(folder: Path) -> Dict[str, Any]:
    """Return the content of the manifest in `folder`. Raises Damaged if it is not valid."""
    path = resolve_file(folder, "manifest.json")
    try:
        manifest = _parse_limited(read_plain(path, MAX_MANIFEST_BYTES, "a manifest"))
        if manifest["schema"] != SCHEMA or manifest["format"] not in FORMATS:
            raise ValueError(f"unknown schema {manifest['schema']} or format {manifest['format']}")
        if set(manifest["splits"]) - set(SPLITS) or "train" not in manifest["splits"]:
            raise ValueError(
                f"the splits are {', '.join(manifest['splits'])}, "
                "but must be train, or train and test"
            )
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise Damaged(f"{path} is not a manifest of xfbench: {error}") from error
    manifest_values: Dict[str, Any] = manifest
    return manifest_values


def _parse_limited(content: bytes) -> Any:
    """Return the value of a JSON text, as `xfbench.base.strict_json` does.

    Raises ValueError if the text may have more than MAX_MANIFEST_VALUES values, if a key occurs
    twice, or if it is no JSON. Values take many times the memory of their text.
    """
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_MANIFEST_VALUES:
        raise ValueError(f"it has more than {MAX_MANIFEST_VALUES:,} values")
    return json.loads(content.decode("utf-8"), object_pairs_hook=_unique_object)


def _unique_object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key occurs twice in an object")
    return document


def _read_lines(path: Path, count: int) -> List[str]:
    """Return the lines of a sample list. Raises Damaged if it has more than `count` lines."""
    lines: List[str] = []
    for line in iterate_lines(path):
        if not line.endswith(b"\n") or len(lines) >= count:
            raise Damaged(f"{path} differs from the manifest: prepare the set again")
        lines.append(line[:-1].decode("utf-8"))
    return lines


def read_sample_list(folder: Path, split: str, manifest: Dict[str, Any]) -> SampleList:
    """Return the list of a split's samples.

    Raises Damaged if the list is not valid or does not match `manifest`.
    """
    path = resolve_file(folder, f"{split}.samples")
    try:
        split_facts = manifest["splits"][split]
        lines = _read_lines(path, split_facts["samples"])
        rows = [line.split("\t") for line in lines]
        keys, labels = [key for key, *_ in rows], [int(label) for _, label, *_ in rows]
        digests = [digest for _, _, digest, *_ in rows]
        classes, shape = list(manifest["classes"]), manifest["shape"]
        is_complete = len(lines) == split_facts["samples"]
        is_complete = is_complete and stream_digest(digests) == split_facts["stream_digest"]
        shape = tuple(shape) if shape else None
    except (ValueError, LookupError, TypeError) as error:
        raise Damaged(f"{path}: {error}") from error
    if not is_complete:
        raise Damaged(f"{path} differs from the manifest: prepare the set again")
    if labels and not 0 <= min(labels) <= max(labels) < len(classes):
        raise Damaged(
            f"{path}: the labels are {min(labels)} to {max(labels)}, but there are "
            f"{len(classes)} classes"
        )
    return SampleList(keys, labels, digests, shape, classes)
