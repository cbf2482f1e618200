"""Creation of a data set from a source in one format, completely or not at all.

Until the data set is complete, its folder has the name `NAME.partial`. If a run is interrupted, the
next run continues. `SPLIT.samples` lists the samples that are on the disk. Lines are added to it
after each block of samples.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np

from xfbench.base import atomic_files, locks, paths, safe_read
from xfbench.base.errors import UsageError
from xfbench.base.shared_files import open_file
from xfbench.datasets import folder
from xfbench.datasets.ahead import map_in_order
from xfbench.datasets.manifest import ORDERED_MESSAGE, FormatName, Manifest, Preprocessing, Split
from xfbench.datasets.preparing import read_orientation, resize_and_encode_sample
from xfbench.datasets.sources import Source, listing_digest, sample_name
from xfbench.worker import pictures
from xfbench.worker.formats import Damaged
from xfbench.worker.samples import Sample, sample_digest, stream_digest

_SYNC_INTERVAL = 256  # samples between two syncs
_COMPARED_SAMPLES = 16  # finished samples that are compared before a run continues
_MAX_CLASSES = 10**6  # if the source has no class names
_ROTATED_TABS = 4  # tabs in the line of an image with an EXIF orientation
_MAX_SETTINGS_BYTES = 2**28
_OTHER_FOLDER = "choose a folder of your own with --to"
_MIN_RUNS = 20  # of equal labels, to call an order mixed or not
Report = Callable[[str, int, int], None]
_Converted = tuple[Sample, tuple[int, ...], str, int]


class Writer(Protocol):
    """The interface of writers, which append samples to a split. Each format has a writer class.

    Create a writer with the data set's folder, the split's name and `count`. The writers of some
    formats need further arguments. If an interrupted run wrote samples, the first `count` of them
    stay. Later samples are removed or overwritten.

    Methods raise OSError if the disk fails, and UsageError if the format cannot store a sample.
    """

    def add(self, sample: Sample) -> None: ...

    def sync(self) -> None:
        """Flush all added samples to the disk, so that a later writer finds them."""

    def close(self) -> None:
        """Sync all added samples, and complete the files of the split."""


def make_data_set(
    source: Source,
    target: Path,
    format_name: FormatName,
    preprocessing: Preprocessing,
    report_progress: Report = lambda *_: None,
    lock_timeout_s: float = 0,
    *,
    skip_damaged: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Manifest:
    """Write the data set to the folder `target` and return its manifest.

    `report_progress` gets the name of the split, the number of samples done in the split, and the
    number of samples of the split.

    If `skip_damaged` is true, samples that cannot be read are left out, and the manifest lists
    them. `tell` gets messages for the user.

    If another process is writing `target`, wait up to `lock_timeout_s` seconds. If the other
    process completes the data set, return the manifest of that data set.

    Raises UsageError if `target` exists, if the other process does not finish in time, or if the
    format cannot store the samples. Raises Damaged if a split of the source is empty, or if a
    sample is invalid.
    """
    if os.path.lexists(target):
        raise UsageError(f"{target} already exists: remove it, or choose another folder with --to")
    partial = target.with_name(f"{target.name}.partial")
    lock = target.with_name(f"{target.name}.lock")
    paths.make_folder(target.parent)
    paths.require_private(target.parent, _OTHER_FOLDER, sticky=True)
    try:
        with locks.exclusive(
            lock,
            f"is writing {target}",
            tell if lock_timeout_s else lambda _: None,
            timeout_s=lock_timeout_s,
        ):
            if target.exists():  # created meanwhile
                _remove_lock(lock)
                return Manifest.read(target)
            _create_or_check_partial(partial)
            _clear_and_store_settings_if_changed(
                partial, source, format_name, preprocessing, skip_damaged, tell
            )
            splits: dict[Any, Split] = {}
            shapes: set[tuple[int, ...]] = set()
            labels: set[int] = set()
            for split, samples in source.splits.items():
                lines, split_shapes = _write_split(
                    partial,
                    source,
                    split,
                    samples,
                    format_name,
                    preprocessing,
                    report_progress,
                    tell if skip_damaged else None,
                )
                skipped_names = tuple(_read_skipped(partial, split).values())
                splits[split] = Split(
                    skipped=skipped_names,
                    samples=len(lines),
                    stream_digest=stream_digest(line.split("\t")[2] for line in lines),
                    ordered=_is_ordered_by_class([int(line.split("\t")[1]) for line in lines]),
                    turned=sum(line.count("\t") == _ROTATED_TABS for line in lines),
                )
                labels.update(int(line.split("\t")[1]) for line in lines)
                shapes |= split_shapes
            if not source.classes and 0 not in labels:
                tell(f"no image has label 0: do labels begin at {min(labels)}? See --label-offset")
            if splits["train"].ordered and format_name not in ("raw", "folder"):
                tell(ORDERED_MESSAGE)
            manifest = Manifest(
                name=source.name,
                format=format_name,
                classes=source.classes or tuple(map(str, range(max(labels) + 1))),
                shape=shapes.pop() if len(shapes) == 1 else None,  # type: ignore[arg-type]
                splits=splits,
                preprocessing=_combined_preprocessing(source, preprocessing),
                source=source.note,
                patterns=source.selection.patterns,
                features=source.selection.features,
            )
            manifest.write(partial)
            for name in ("making.json", *(f"{split}.skipped" for split in splits)):
                (partial / name).unlink(missing_ok=True)
            partial.rename(target)
            _remove_lock(lock)
    except locks.HeldError:
        raise UsageError(f"another process is writing {target}: wait for it") from None
    return manifest


def _remove_lock(lock: Path) -> None:
    with contextlib.suppress(OSError):  # another user may have created it
        lock.unlink()


def _create_or_check_partial(partial: Path) -> None:
    """Create the folder of an incomplete data set, or check that an earlier run of this user did.

    Raises UsageError if another user could replace the files in it.
    """
    paths.make_folder(partial)
    if partial.is_symlink():
        raise UsageError(f"{partial} is a symbolic link: remove it, or {_OTHER_FOLDER}")
    paths.require_private(partial, f"remove it, or {_OTHER_FOLDER}")


def _is_ordered_by_class(labels: Sequence[int]) -> bool:
    """Return whether equal labels follow each other much more often than in a mixed order.

    In a mixed order of n labels with the shares p, 1 + n (1 − Σ p²) runs of equal labels are
    expected. Fewer than half of them is not chance if there are at least 20 runs to expect.
    """
    values = np.asarray(labels)
    shares = np.unique(values, return_counts=True)[1] / len(values)
    expected_runs = 1 + len(values) * (1 - float(np.square(shares).sum()))
    runs = 1 + int(np.count_nonzero(np.diff(values)))
    return expected_runs >= _MIN_RUNS and runs < expected_runs / 2


def _clear_and_store_settings_if_changed(
    partial: Path,
    source: Source,
    format_name: str,
    preprocessing: Preprocessing,
    skip_damaged: bool,
    tell: Callable[[str], None],
) -> None:
    """Empty the folder `partial` unless an earlier run with the same settings wrote to it.

    The source must be the same, too: its folder, its list of files, and some of the samples that
    the earlier run wrote.
    """
    settings = {
        "name": source.name,
        "format": format_name,
        "classes": source.classes and list(source.classes),
        "preprocessing": preprocessing.model_dump(mode="json"),
        "samples": {split: len(samples) for split, samples in source.splits.items()},
        "origin": source.origin,
        "patterns": list(source.selection.patterns),
        "features": source.selection.features,
        "files": {split: listing_digest(samples) for split, samples in source.splits.items()},
    }
    settings_file = partial / "making.json"
    if settings_file.exists():
        is_same = _read_json_or_none(settings_file) == settings
        is_same &= skip_damaged or not any(partial.glob("*.skipped"))
        if is_same and _finished_samples_agree(partial, source, format_name, preprocessing):
            return
        tell("An interrupted run had another source or other settings: starting from the beginning")
    shutil.rmtree(partial)
    partial.mkdir(mode=0o755)
    atomic_files.write(settings_file, json.dumps(settings, indent=1).encode())


def _read_text(path: Path) -> str:
    """Return the content of a file of an earlier run, or an empty text if there is none."""
    try:
        with open_file(path, "rb") as file:
            return file.read().decode()
    except FileNotFoundError:
        return ""


def _read_json_or_none(path: Path) -> Any:
    try:
        return json.loads(safe_read.read_bytes(path, _MAX_SETTINGS_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def _finished_samples_agree(
    partial: Path, source: Source, format_name: str, preprocessing: Preprocessing
) -> bool:
    """Return whether some samples that an earlier run wrote are still those of the source."""
    for split, samples in source.splits.items():
        lines = _repair_listing_and_read_lines(partial / f"{split}.samples")
        order = _unskipped_order(partial, split, samples, preprocessing)
        for number in range(0, len(lines), len(lines) // _COMPARED_SAMPLES + 1):
            try:
                sample = samples[order[number]]
                _, _, digest, _ = _convert_sample(sample, format_name, preprocessing)
            except (Damaged, IndexError):
                return False
            if digest != lines[number].split("\t")[2]:
                return False
    return True


def _read_skipped(partial: Path, split: str) -> dict[int, str]:
    """Return the names of the skipped samples by their positions in the source."""
    path = partial / f"{split}.skipped"
    text = _read_text(path)
    return {int(position): name for position, name in json.loads(text or "{}").items()}


def _unskipped_order(
    partial: Path, split: str, samples: Sequence[Sample], preprocessing: Preprocessing
) -> Sequence[int]:
    """Return the order to store the samples, without those that an earlier run skipped."""
    order, skipped = _sample_order(samples, preprocessing), _read_skipped(partial, split)
    return [index for index in order if index not in skipped] if skipped else order


def _write_split(
    partial: Path,
    source: Source,
    split: str,
    samples: Sequence[Sample],
    format_name: str,
    preprocessing: Preprocessing,
    report_progress: Report,
    tell_skipped: Callable[[str], None] | None,
) -> tuple[list[str], set[tuple[int, ...]]]:
    """Write one split. Return the lines of `SPLIT.samples` and the set of the images' shapes.

    If `tell_skipped` is not None, it gets a message for each sample that cannot be read, and the
    sample is left out. If it is None, such a sample raises Damaged.
    """
    if not len(samples):
        raise Damaged(f"{source.name} has no {split} images")
    listing = partial / f"{split}.samples"
    lines = _repair_listing_and_read_lines(listing)
    writer = _open_writer(format_name, partial, split, len(lines), source, preprocessing)
    keys = {line.split("\t")[0] for line in lines}
    shapes = {tuple(map(int, line.split("\t")[3].split("x"))) for line in lines}
    new_lines: list[str] = []
    repetitions: dict[str, int] = {}
    skipped = _read_skipped(partial, split)

    def commit_block() -> None:
        """Sync the new samples, and then add their lines to `SPLIT.samples`.

        This order ensures that every listed sample is on the disk. The skipped samples are stored
        before, because the position of a sample in the list depends on them.
        """
        writer.sync()
        _store_skipped(partial, split, skipped)
        with open_file(listing, "ab") as file:
            file.writelines(f"{line}\n".encode() for line in new_lines)
            file.flush()
            os.fsync(file.fileno())
        lines.extend(new_lines)
        new_lines.clear()
        report_progress(split, len(lines), len(samples))

    report_progress(split, len(lines), len(samples))
    remaining = _unskipped_order(partial, split, samples, preprocessing)[len(lines) :]

    def convert(index: int) -> _Converted | Damaged:
        try:
            return _convert_sample(samples[index], format_name, preprocessing)
        except Damaged as error:
            return error

    with contextlib.closing(map_in_order(convert, remaining)) as samples_to_write:
        for index, converted in zip(remaining, samples_to_write, strict=True):
            if isinstance(converted, Damaged):
                if tell_skipped is None:
                    raise converted
                tell_skipped(f"left out: {converted}")
                skipped[index] = sample_name(samples, index)
                continue
            sample, shape, digest, orientation = converted
            key = writer.key(sample) if isinstance(writer, folder.Writer) else sample.key
            sample = replace(sample, key=_unused_key(key, keys, repetitions))
            _check_sample(sample, source)
            shapes.add(shape)
            if format_name == "raw":
                _check_sizes_are_equal(shapes, partial)
            writer.add(sample)
            new_lines.append(_format_line(sample, shape, digest, orientation))
            keys.add(sample.key)
            if len(new_lines) == _SYNC_INTERVAL:
                commit_block()
    commit_block()
    writer.close()
    if not lines:
        raise Damaged(f"{source.name}: no {split} image can be read")
    return lines, shapes


def _check_sizes_are_equal(shapes: set[tuple[int, ...]], partial: Path) -> None:
    """Raise UsageError for several shapes. Remove `partial`, because no later run could use it."""
    if len(shapes) == 1:
        return
    shutil.rmtree(partial)
    sizes = " and ".join(f"{height}×{width}" for _, height, width in sorted(shapes))
    raise UsageError(f"images have {sizes} pixels: --format raw needs one size, set it with --size")


def _format_line(sample: Sample, shape: tuple[int, ...], digest: str, orientation: int) -> str:
    """Return the line of a sample in `SPLIT.samples`, without its end."""
    line = f"{sample.key}\t{sample.label}\t{digest}\t{'x'.join(map(str, shape))}"
    return line if orientation == 1 else f"{line}\t{orientation}"


def _store_skipped(partial: Path, split: str, skipped: dict[int, str]) -> None:
    """Store what `_read_skipped` reads."""
    if skipped:
        atomic_files.write(partial / f"{split}.skipped", json.dumps(skipped).encode())


def _convert_sample(
    source_sample: Sample, format_name: str, preprocessing: Preprocessing
) -> _Converted:
    """Preprocess a sample.

    Return (sample to store, shape of its pixels, digest of its pixels and label, EXIF orientation).
    """
    sample = resize_and_encode_sample(source_sample, preprocessing)
    pixels = pictures.decode_pixels(sample, preprocessing.channels)
    if format_name == "raw":
        sample = replace(sample, image=pixels)
    return sample, pixels.shape, sample_digest(pixels, sample.label), read_orientation(sample)


def _combined_preprocessing(source: Source, preprocessing: Preprocessing) -> Preprocessing:
    """Return the preprocessing of a prepared source, updated with the new preprocessing.

    For any other source, return the new preprocessing.
    """
    if source.before is None:
        return preprocessing
    changes = {
        name: value for name, value in preprocessing.model_dump().items() if value is not None
    }
    if preprocessing.size is None:
        del changes["fit"]
    return source.before.model_copy(update=changes)


def _repair_listing_and_read_lines(listing: Path) -> list[str]:
    """Remove an incomplete last line from the list of samples, and return the other lines."""
    complete_text, _, incomplete_line = _read_text(listing).rpartition("\n")
    if incomplete_line:
        atomic_files.write(listing, f"{complete_text}\n".encode() if complete_text else b"")
    return complete_text.split("\n") if complete_text else []


def _sample_order(samples: Sequence[Sample], preprocessing: Preprocessing) -> Sequence[int]:
    """Return the indices of the samples in the order to store them.

    This is the order of the source, or an order shuffled with the seed `preprocessing.shuffle`.
    The stored order matters, because readers of record files read the samples in this order.
    """
    if preprocessing.shuffle is None:
        return range(len(samples))
    order: list[int] = (
        np.random.RandomState(preprocessing.shuffle).permutation(len(samples)).tolist()
    )
    return order


def _unused_key(key: str, earlier_keys: set[str], repetitions: dict[str, int]) -> str:
    """Return `key`, with a number before its suffix if an earlier sample has this key.

    `repetitions` counts how often a key occurred, so that the search for a number is short.
    """
    suffix, unused = PurePosixPath(key).suffix, key
    while unused in earlier_keys:
        repetitions[key] = repetitions.get(key, 1) + 1
        unused = f"{key.removesuffix(suffix)}-{repetitions[key]}{suffix}"
    return unused


def _check_sample(sample: Sample, source: Source) -> None:
    if set(sample.key) & set("\0\t\n\r"):
        raise Damaged(f"{source.name}: the name {sample.key!r} has a tab or a line end or a zero")
    count = len(source.classes) if source.classes else _MAX_CLASSES
    if not 0 <= sample.label < count:
        classes = f"there are {count} classes" if source.classes else f"the maximum is {count}"
        raise Damaged(f"{source.name}: label {sample.label} of {sample.key} is invalid: {classes}")


def _open_writer(
    format_name: str,
    partial: Path,
    split: str,
    finished_count: int,
    source: Source,
    preprocessing: Preprocessing,
) -> Writer:
    format_arguments: dict[str, dict[str, Any]] = {
        "raw": {"channels": preprocessing.channels},
        "folder": {"classes": source.classes},
    }
    module = importlib.import_module(f"xfbench.datasets.{format_name}")
    writer: Writer = module.Writer(
        partial, split, finished_count, **format_arguments.get(format_name, {})
    )
    return writer
