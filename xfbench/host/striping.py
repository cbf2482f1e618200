"""The striping of files on Lustre: over how many storage targets, in parts of how many bytes.

`lfs getstripe FILE` prints the layout of a file. A plain layout is one pair of lines:

    lmm_stripe_count:  4
    lmm_stripe_size:   1048576

A composite layout (progressive, mirrored, or with data on the metadata server) has several
components. `lcme_flags` before each says whether the file has data there: "init". Documented in
lfs-getstripe(1); the forms of other versions differ in white space only.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from xfbench.base import processes
from xfbench.model.record import Striping
from xfbench.worker import mounts
from xfbench.worker.formats.folder import is_left_behind

_SAMPLED_FILES = 32
_TIMEOUT_S = 20
_LINE = re.compile(r"\s*(lcme_flags|lmm_stripe_count|lmm_stripe_size): *(-?\w[\w,^-]*)\s*")
_DESCRIBING = (".json", ".samples")  # suffixes of files that describe a data set


def read_striping(folder: Path) -> tuple[Striping, ...]:
    """Return the different stripings of the files in `folder`, the smallest count first.

    Up to 32 files are looked at, of a data set those with images. The result is empty if the file
    system is not Lustre, or if `lfs` does not answer. It is kept, because a data set's cell and its
    folder are looked up by it.
    """
    return _read_striping(folder.resolve())


@functools.cache
def _read_striping(folder: Path) -> tuple[Striping, ...]:
    mount = mounts.mount_of(folder)
    if mount is None or mount.file_system != "lustre":
        return ()
    files = [
        str(path.resolve()) for path in itertools.islice(_iterate_files(folder), _SAMPLED_FILES)
    ]
    try:
        text = processes.output(["lfs", "getstripe", *files], timeout=_TIMEOUT_S) if files else ""
    except processes.CommandError:
        return ()
    return parse_layouts(text)


def parse_layouts(text: str) -> tuple[Striping, ...]:
    """Return the different stripings in the output of `lfs getstripe`, without unused components.

    Lines of other forms are ignored.
    """
    layouts: set[tuple[int, int]] = set()
    count, has_data = None, True
    for match in map(_LINE.fullmatch, text.split("\n")):
        name, value = match.groups() if match else ("", "")
        if name == "lcme_flags":
            flags = value.split(",")
            has_data = "init" in flags and "stale" not in flags
        elif name == "lmm_stripe_count":
            count = int(value) if re.fullmatch("[0-9]{1,9}", value) else None
        elif name == "lmm_stripe_size":
            if has_data and count is not None and re.fullmatch("[0-9]{1,18}", value):
                layouts.add((count, int(value)))
            count, has_data = None, True
    return tuple(Striping(count=count, bytes=size) for count, size in sorted(layouts))


def _iterate_files(folder: Path) -> Iterator[Path]:
    """Yield files of a folder in a fixed order, without those that only describe a data set."""
    if folder.is_file():
        yield folder
    train = folder / "train"
    for above, folders, names in os.walk(train if train.is_dir() else folder):
        folders[:] = sorted(name for name in folders if not is_left_behind(name))
        for name in sorted(names):
            path = Path(above, name)
            if not is_left_behind(name) and path.suffix not in _DESCRIBING and path.is_file():
                yield path
