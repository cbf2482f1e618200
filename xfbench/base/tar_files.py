"""Read tar archives of strangers, also compressed with gzip, without believing their sizes.

A header of a few bytes may announce a member of gigabytes, and a few kilobytes may expand to them.
Only plain files are opened. Nothing is unpacked here.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from xfbench.base.shared_files import open_file

_MAX_HEADER_BYTES = 2**20  # of a member
_SMALL_BYTES = 2**26  # an archive may have so many however small it is compressed
_MAX_HEADER_FIELDS = 100  # of the whole archive
_GZIP_MAGIC = b"\x1f\x8b"
_BLOCK_BYTES, _MAGIC_PLACE, _MAGIC = 512, 257, b"ustar"


class LimitError(ValueError):
    """Error for an archive that is larger than it may be."""


class LimitedTar:
    """A tar archive whose members are read one after the other, with limits.

    - `max_bytes`: maximum size of the uncompressed archive, and of the contents together.
    - `max_members`: maximum number of members, of any kind and size.

    Raises tarfile.TarError or LimitError if the first header is invalid.
    """

    def __init__(self, file: IO[bytes], max_bytes: int, max_members: int) -> None:
        self._file = file
        self._remaining, self._remaining_members = max_bytes, max_members
        self._remaining_read = _MAX_HEADER_BYTES
        self.seek, self.tell, self.close = file.seek, file.tell, file.close
        with _translated_errors():
            self._tar = tarfile.open(fileobj=cast(IO[bytes], self), mode="r:")  # noqa: SIM115

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes of the archive: what `tarfile` reads headers and members with.

        All headers of one member together are limited, because `tarfile` collects them.
        """
        if not 0 <= size <= self._remaining_read:
            raise LimitError("the archive has a header of invalid size")
        self._remaining_read -= size
        return self._file.read(size)

    def members(self) -> Iterator[tarfile.TarInfo]:
        """Yield the members in order.

        Raises LimitError if they are too many or too large, and tarfile.TarError if a header is
        invalid.
        """
        end = 0
        while member := self._read_headers():
            length, end = self._tar.offset - end, self._tar.offset
            self._remaining -= max(member.size, length)
            self._remaining_members -= 1
            if member.size < 0 or length <= 0:
                raise LimitError("the archive has a member of invalid size")
            if (
                min(self._remaining, self._remaining_members) < 0
                or len(self._tar.pax_headers) > _MAX_HEADER_FIELDS
            ):
                raise LimitError("it exceeds the limits of such an archive")
            yield member

    def _read_headers(self) -> tarfile.TarInfo | None:
        """Return the next member; None after the last one."""
        self._remaining_read = _MAX_HEADER_BYTES
        setattr(self._tar, "members", [])  # noqa: B010  tarfile keeps them all
        with _translated_errors():
            return self._tar.next()

    def read_member(self, member: tarfile.TarInfo, max_bytes: int) -> bytes:
        """Return the content of a regular member; less than its size if the archive is cut off.

        Raises LimitError if the member is larger than `max_bytes`.
        """
        if member.size > max_bytes:
            raise LimitError(f"{member.name!r} exceeds the limits of such an archive")
        self._remaining_read = member.size
        return cast(IO[bytes], self._tar.extractfile(member)).read(member.size)


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise LimitError or tarfile.TarError instead of what `tarfile` raises at hostile headers."""
    try:
        yield
    except LimitError:
        raise
    except RecursionError as error:  # each header of a member is read by the one before
        raise LimitError("a member of the archive has too many headers") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise tarfile.ReadError(f"the archive has an invalid header: {error}") from error


@contextmanager
def open_tar(
    path: Path, max_bytes: int, max_expansion: int, max_members: int
) -> Iterator[LimitedTar]:
    """Open an archive. Raises tarfile.TarError or OSError if the file is none.

    - `max_bytes`: maximum size of the uncompressed archive.
    - `max_expansion`: how many times its own size a compressed archive may have, beyond 64 MiB.
    - `max_members`: maximum number of members.
    """
    with open_file(path, "rb", follow_link=True) as raw_file:
        is_gzip = raw_file.read(2) == _GZIP_MAGIC
        raw_file.seek(0)
        if is_gzip:
            size = os.fstat(raw_file.fileno()).st_size
            max_bytes = min(max_bytes, max_expansion * size + _SMALL_BYTES)
        file = gzip.GzipFile(fileobj=raw_file) if is_gzip else raw_file
        yield LimitedTar(cast(IO[bytes], file), max_bytes, max_members)


def is_tar(path: Path) -> bool:
    """Return whether a file begins like a tar archive, which may be compressed with gzip."""
    try:
        with open_file(path, "rb", follow_link=True) as raw_file:
            is_gzip = raw_file.read(2) == _GZIP_MAGIC
            raw_file.seek(0)
            file = gzip.GzipFile(fileobj=raw_file) if is_gzip else raw_file
            block = cast(IO[bytes], file).read(_BLOCK_BYTES)
    except (OSError, EOFError, ValueError, zlib.error):
        return False
    return block[_MAGIC_PLACE:].startswith(_MAGIC)
