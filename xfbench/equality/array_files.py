"""Files of named arrays, which `np.savez` writes. A worker of a stranger may have written one."""

from __future__ import annotations

import itertools
import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from xfbench.base.shared_files import open_file

MAX_ARRAY_FILE_BYTES = 2**33
_NUMBERS = "biuf"  # kinds of dtype
# What `load_arrays` may raise.
ERRORS = (OSError, EOFError, MemoryError, ValueError, zipfile.BadZipFile, zlib.error)


def load_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of the plain file `path` by name.

    All sizes are checked before an array is read. So the memory that is needed never exceeds the
    size of the file. Raises ValueError in these cases, and the other `ERRORS` for damaged files:

    - The file is larger than MAX_ARRAY_FILE_BYTES.
    - The file is compressed, which `np.savez` never does.
    - A name occurs twice, an array has another size than its header says, or has no numbers.
    """
    with open_file(path, "rb") as file:
        if os.fstat(file.fileno()).st_size > MAX_ARRAY_FILE_BYTES:
            raise ValueError(f"{path.name} is longer than {MAX_ARRAY_FILE_BYTES >> 30} GiB")
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len({member.filename for member in members}) < len(members):
                raise ValueError(f"{path.name} has two arrays of the same name")
            spans = sorted((member.header_offset, member.file_size) for member in members)
            for (start, size), (following, _) in itertools.pairwise(spans):
                if start + size > following:
                    raise ValueError(f"{path.name} has arrays that overlap")
            for member in members:
                if member.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(f"{path.name} is compressed")
                _check_array_size(archive, member)
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)


def _check_array_size(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raise ValueError unless the member has exactly the array that its header describes."""
    with archive.open(member) as file:
        if np.lib.format.read_magic(file) == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, _, dtype = np.lib.format.read_array_header_2_0(file)
        size = math.prod(shape) * dtype.itemsize
        if dtype.kind not in _NUMBERS or member.file_size - file.tell() != size:
            raise ValueError(
                f"{member.filename} is not an array of numbers of the size in its header"
            )
