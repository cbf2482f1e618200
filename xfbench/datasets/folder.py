"""Writer of the folder format, which `xfbench.worker.formats.folder` describes and reads."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from xfbench.base import atomic_files
from xfbench.base.errors import UsageError
from xfbench.datasets.encoding import encode_png
from xfbench.datasets.resumed import sync_folder
from xfbench.worker.formats import folder as reader
from xfbench.worker.samples import Sample

_PNG = b"\x89PNG"
_MAX_NAME_BYTES = 255


class Writer:
    """A writer of image files, with the interface `xfbench.datasets.writing.Writer`.

    If an interrupted run left image files that `SPLIT.samples` does not list, the writer overwrites
    these files.
    """

    def __init__(self, folder: Path, split: str, count: int, classes: Sequence[str] | None) -> None:
        """Raise UsageError if the name of a class cannot be the name of a folder."""
        for name in classes or ():
            if reason := find_name_defect(name):
                raise UsageError(
                    f"the class {name[:80]!r} {reason}: rename it, or choose another --format"
                )
        if repeated := [name for name, count in Counter(classes or ()).items() if count > 1]:
            raise UsageError(
                f"two classes are called {repeated[0][:80]!r}: choose another --format, because "
                "--format folder has a folder for each"
            )
        self.root, self.classes = folder / split, classes

    def key(self, sample: Sample) -> str:
        """Return the path of the sample's file below the folder of the split.

        The path is CLASS/NAME. If the suffix of the name does not fit the image, a suffix that fits
        is appended.
        """
        is_png = not isinstance(sample.image, bytes) or sample.image.startswith(_PNG)
        name = PurePosixPath(sample.key)
        endings = (
            (".png",) if is_png else tuple(suffix for suffix in reader.SUFFIXES if suffix != ".png")
        )
        stem = name.name if name.suffix.lower() in endings else f"{name.name}{endings[0]}"
        class_name = self.classes[sample.label] if self.classes else str(sample.label)
        return f"{class_name}/{stem}"

    def add(self, sample: Sample) -> None:
        """Write the image file of a sample, and sync this file to the disk."""
        image = sample.image
        content = image if isinstance(image, bytes) else encode_png(image)
        path = self.root / self.key(sample)
        atomic_files.write(path, content)

    def sync(self) -> None:
        """Sync the folder of the split to the disk."""
        sync_folder(self.root)

    def close(self) -> None:
        """Sync the folder of the split to the disk."""
        self.sync()


def find_name_defect(name: str) -> str:
    """Return why `name` cannot be the name of one folder, or an empty string."""
    if name in ("", ".", "..") or set(name) & set("/\0\t\n\r"):
        return "cannot be the name of a folder"
    try:
        is_too_long = len(os.fsencode(name)) > _MAX_NAME_BYTES
    except UnicodeEncodeError:
        return "cannot be the name of a folder"
    return f"is longer than {_MAX_NAME_BYTES} bytes" if is_too_long else ""
