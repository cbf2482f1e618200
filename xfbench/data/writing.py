"""Makes a data set: out of a source, in one format, whole or not at all.

It grows in `NAME.partial` and gets its name when it is whole. An interrupted run goes on where it
was: `SPLIT.samples` lists what is safely on the disk, a block at a time.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from filelock import FileLock, Timeout

from xfbench.base import atomic_files
from xfbench.base.errors import UsageError
from xfbench.data import folder
from xfbench.data.ahead import in_order
from xfbench.data.manifest import FormatName, Manifest, Preprocessing, Split
from xfbench.data.preparing import prepared, turned
from xfbench.data.sources import Source
from xfbench.worker import pictures
from xfbench.worker.formats import Damaged
from xfbench.worker.samples import Sample, sample_digest, stream_digest

_BLOCK = 256  # samples between two syncs
_MOST_CLASSES = 10**6  # where nothing says how many there are
_TURNED = 4  # tabs in the line of an image that asks to be shown turned
Report = Callable[[str, int, int], None]


class Writer(Protocol):
    """Appends samples to a split, after its first `count`; what lies beyond those is cut off.

    Each format's is made with the folder, the split's name, `count`, and what it needs to know of
    the set. All raise OSError where the disk does not take it, and UsageError for what the format
    cannot hold.
    """

    def add(self, sample: Sample) -> None: ...

    def sync(self) -> None:
        """All that was added is on the disk, and a later writer finds it."""

    def close(self) -> None:
        """`sync`, and whatever makes the format complete."""


def make(
    source: Source,
    target: Path,
    form: FormatName,
    how: Preprocessing,
    report: Report = lambda *_: None,
    patience: float = 0,
) -> Manifest:
    """Write the data set and return its manifest; `report` hears split, samples done, of how many.

    Another process that is at the same is given `patience` seconds, and what it made is taken.
    Raises UsageError where the target is taken or another process is at it still, Damaged for a
    source that is not what it should be.
    """
    if target.exists():
        raise UsageError(f"{target} is there already: remove it, or name another folder with --to")
    partial = target.with_name(f"{target.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.with_name(f"{target.name}.lock"))
    try:
        with lock.acquire(timeout=patience):
            if target.exists():  # by now
                with contextlib.suppress(OSError):
                    partial.rmdir()
                Path(lock.lock_file).unlink(missing_ok=True)
                return Manifest.read(target)
            _begin(partial, source, form, how)
            splits: dict[Any, Split] = {}
            shapes: set[tuple[int, ...]] = set()
            labels: set[int] = set()
            for split, samples in source.splits.items():
                lines, seen = _write(partial, source, split, samples, form, how, report)
                splits[split] = Split(
                    samples=len(lines),
                    stream_digest=stream_digest(line.split("\t")[2] for line in lines),
                    turned=sum(line.count("\t") == _TURNED for line in lines),
                )
                labels.update(int(line.split("\t")[1]) for line in lines)
                shapes |= seen
            manifest = Manifest(
                name=source.name,
                format=form,
                classes=source.classes or tuple(map(str, range(max(labels) + 1))),
                shape=shapes.pop() if len(shapes) == 1 else None,  # type: ignore[arg-type]
                splits=splits,
                preprocessing=_all_of(source, how),
                source=source.note,
            )
            manifest.write(partial)
            (partial / "making.json").unlink()
            partial.rename(target)
            Path(lock.lock_file).unlink(missing_ok=True)
    except Timeout:
        raise UsageError(f"{target} is being made by another process: wait for it") from None
    return manifest


def _begin(partial: Path, source: Source, form: str, how: Preprocessing) -> None:
    """Go on only with what is the same; anything else begins anew."""
    making = {
        "name": source.name,
        "format": form,
        "classes": source.classes and list(source.classes),
        "preprocessing": how.model_dump(mode="json"),
        "samples": {split: len(samples) for split, samples in source.splits.items()},
    }
    kept = partial / "making.json"
    if kept.exists() and json.loads(kept.read_bytes()) == making:
        return
    shutil.rmtree(partial)
    partial.mkdir()
    atomic_files.write(kept, json.dumps(making, indent=1).encode())


def _write(
    partial: Path,
    source: Source,
    split: str,
    samples: Sequence[Sample],
    form: str,
    how: Preprocessing,
    report: Report,
) -> tuple[list[str], set[tuple[int, ...]]]:
    """One split; its list's lines, and the shapes of its images."""
    if not len(samples):
        raise Damaged(f"{source.name} has no {split} images")
    listing = partial / f"{split}.samples"
    lines = _whole_lines(listing)
    writer = _writer(form, partial, split, len(lines), source, how)
    keys = {line.split("\t")[0] for line in lines}
    shapes = {tuple(map(int, line.split("\t")[3].split("x"))) for line in lines}
    fresh: list[str] = []

    def settle() -> None:
        """What is listed is on the disk, never the other way round."""
        writer.sync()
        with listing.open("a", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in fresh)
            file.flush()
            os.fsync(file.fileno())
        lines.extend(fresh)
        fresh.clear()
        report(split, len(lines), len(samples))

    report(split, len(lines), len(samples))
    left = _order(samples, how)[len(lines) :]
    with contextlib.closing(in_order(lambda index: _kept(samples[index], form, how), left)) as kept:
        for one, shape, digest, orientation in kept:
            sample = replace(one, key=writer.key(one)) if isinstance(writer, folder.Writer) else one
            _check(sample, source, split, keys)
            shapes.add(shape)
            if form == "raw" and len(shapes) > 1:
                shutil.rmtree(partial)  # no later run could use it
                here = " and ".join(f"{one[1]}×{one[2]}" for one in sorted(shapes))
                raise UsageError(
                    f"images of {here} pixels: raw has one size for all, give it by --size"
                )
            writer.add(sample)
            sides = "x".join(map(str, shape))
            line = f"{sample.key}\t{sample.label}\t{digest}\t{sides}"
            fresh.append(line if orientation == 1 else f"{line}\t{orientation}")
            keys.add(sample.key)
            if len(fresh) == _BLOCK:
                settle()
    settle()
    writer.close()
    return lines, shapes


def _kept(given: Sample, form: str, how: Preprocessing) -> tuple[Sample, tuple[int, ...], str, int]:
    """A sample as it is kept, with its pixels' shape, its digest and its EXIF orientation."""
    sample = prepared(given, how)
    pixels = pictures.decode_pixels(sample, how.channels)
    if form == "raw":
        sample = replace(sample, image=pixels)
    return sample, pixels.shape, sample_digest(pixels, sample.label), turned(sample)


def _all_of(source: Source, how: Preprocessing) -> Preprocessing:
    """What was done to the images before, and now."""
    if source.before is None:
        return how
    done = {name: value for name, value in how.model_dump().items() if value is not None}
    if how.size is None:
        del done["fit"]
    return source.before.model_copy(update=done)


def _whole_lines(listing: Path) -> list[str]:
    """What is listed; a line that was not finished is taken away."""
    if not listing.exists():
        return []
    whole, _, half = listing.read_text(encoding="utf-8").rpartition("\n")
    if half:
        atomic_files.write(listing, f"{whole}\n".encode() if whole else b"")
    return whole.split("\n") if whole else []


def _order(samples: Sequence[Sample], how: Preprocessing) -> Sequence[int]:
    """As they come, or mixed for good: readers of records take them as they stand."""
    if how.shuffle is None:
        return range(len(samples))
    found: list[int] = np.random.RandomState(how.shuffle).permutation(len(samples)).tolist()
    return found


def _check(sample: Sample, source: Source, split: str, keys: set[str]) -> None:
    if sample.key in keys:
        raise Damaged(f"{source.name}: two {split} images are called {sample.key}")
    if set(sample.key) & set("\t\n\r"):
        raise Damaged(f"{source.name}: there is a tab or a line end in the name {sample.key!r}")
    count = len(source.classes) if source.classes else _MOST_CLASSES
    if not 0 <= sample.label < count:
        classes = f"there are {count} classes" if source.classes else f"{count} are the most"
        raise Damaged(f"{source.name}: label {sample.label} of {sample.key}: {classes}")


def _writer(
    form: str, partial: Path, split: str, count: int, source: Source, how: Preprocessing
) -> Writer:
    known: dict[str, dict[str, Any]] = {
        "raw": {"channels": how.channels},
        "folder": {"classes": source.classes},
    }
    module = importlib.import_module(f"xfbench.data.{form}")
    made: Writer = module.Writer(partial, split, count, **known.get(form, {}))
    return made
