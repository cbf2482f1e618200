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
_CHUNK_BYTES = 2**20
_NUMBERS = "biuf"  # kinds of dtype
# What `load_arrays` may raise.
ERRORS = (OSError, EOFError, MemoryError, ValueError, zipfile.BadZipFile, zlib.error)


def load_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of the plain file `path` by name.

    All sizes are checked before an array is read. So the arrays need no more memory than the file
    has bytes, even if it changes meanwhile. Raises ValueError in these cases, and the other
    `ERRORS` for damaged files:

    - The file is larger than MAX_ARRAY_FILE_BYTES.
    - The file is compressed, which `np.savez` never does.
    - A name occurs twice, an array has another size than its header says, or has no numbers.
    """
    with open_file(path, "rb") as file:
        file_bytes = os.fstat(file.fileno()).st_size
        if file_bytes > MAX_ARRAY_FILE_BYTES:
            raise ValueError(f"{path.name} is longer than {MAX_ARRAY_FILE_BYTES >> 30} GiB")
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len({member.filename for member in members}) < len(members):
                raise ValueError(f"{path.name} has two arrays of the same name")
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ValueError(f"{path.name} is compressed")
            spans = sorted((member.header_offset, member.file_size) for member in members)
            spans.append((file_bytes, 0))
            for (start, size), (following, _) in itertools.pairwise(spans):
                if start + size > following:
                    raise ValueError(f"{path.name} has arrays that overlap")
            return {
                member.filename.removesuffix(".npy"): _read_array(archive, member)
                for member in members
            }


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray[Any, Any]:
    """Return the array of a member.

    Raises ValueError unless the member has exactly the array that its header describes.
    """
    with archive.open(member) as file:
        if np.lib.format.read_magic(file) == (1, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(file)
        size = math.prod(shape) * dtype.itemsize
        if dtype.kind not in _NUMBERS or member.file_size - file.tell() != size:
            raise ValueError(
                f"{member.filename} is not an array of numbers of the size in its header"
            )
        content = bytearray()
        while chunk := file.read(min(size - len(content), _CHUNK_BYTES)):
            content += chunk
        values = np.frombuffer(content, dtype)
        return values.reshape(shape, order="F" if is_fortran else "C")
