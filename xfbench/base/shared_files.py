"""The one place that opens files in folders to which other users may write.

Results, runs, jobs, the cache and data sets may lie in such folders. Another user may have put a
symbolic link, a hard link, a pipe or a file of their own where xfbench expects its file.

- No symbolic link is followed, unless the caller allows it for reading.
- A new file is created exclusively.
- An existing file is changed only if it is this user's plain file with a single name. In a folder
  of `XFBENCH_TRUSTED_FOLDERS`, any plain file may be changed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Literal

from xfbench.base import paths
from xfbench.base.errors import UsageError

Mode = Literal["rb", "xb", "wb", "ab", "r+b"]
_FLAGS: Mapping[Mode, int] = {
    "rb": os.O_RDONLY,
    "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "wb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,  # after what had the name was removed
    "ab": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "r+b": os.O_RDWR,
}
_CHUNK_BYTES = 2**20
PRIVATE = 0o600
_OTHER_OWNER = "belongs to another user"


class UnsafeFileError(UsageError, OSError):
    """The error that a file or folder may be a trap of another user.

    It is also an OSError, so that code which expects files that cannot be opened needs no change.
    """

    def __init__(self, path: Path, reason: str) -> None:
        sentence = f"{path} {reason}: remove it, or choose another folder"
        super().__init__(errno.EPERM, sentence, str(path))
        self.reason = reason

    def __str__(self) -> str:
        return str(self.strerror)


def open_file(
    path: Path,
    mode: Mode,
    *,
    follow_link: bool = False,
    permissions: int = 0o666,
    any_owner: bool = False,
) -> IO[bytes]:
    """Open a plain file.

    - `mode`: "rb" reads, "xb" creates, "wb" removes what has the name and creates, "ab" appends to
      this user's file or creates it, "r+b" changes this user's file.
    - `follow_link`: whether `path` may be a symbolic link to a plain file. Only for "rb".
    - `permissions`: mode of a new file, before the umask.
    - `any_owner`: whether another user's file may be appended to, such as a shared lock.

    Raises UnsafeFileError if the file may be a trap, and other OSErrors as `open` does.
    """
    if mode == "wb":
        _remove(path)
    flags = _FLAGS[mode] | os.O_CLOEXEC | os.O_NONBLOCK
    if mode != "rb" or not follow_link:
        flags |= os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, permissions)
    except OSError as error:
        if error.errno != errno.EEXIST and flags & os.O_NOFOLLOW and path.is_symlink():
            raise UnsafeFileError(path, "is a symbolic link") from error
        if error.errno in (errno.ENXIO, errno.EISDIR):
            raise UnsafeFileError(path, "is not a plain file") from error
        if error.errno == errno.EACCES and mode != "rb" and _belongs_to_another(path):
            raise UnsafeFileError(path, _OTHER_OWNER) from error
        raise
    try:
        is_changed = mode in ("ab", "r+b") and not any_owner
        if reason := _find_danger(path, os.fstat(descriptor), is_changed=is_changed):
            raise UnsafeFileError(path, reason)
        return os.fdopen(descriptor, mode.replace("x", "w"))
    except BaseException:
        os.close(descriptor)
        raise


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except PermissionError as error:
        if _belongs_to_another(path):
            raise UnsafeFileError(path, _OTHER_OWNER) from error
        raise


def _belongs_to_another(path: Path) -> bool:
    try:
        return path.lstat().st_uid != os.geteuid()
    except OSError:
        return False


def _find_danger(path: Path, status: os.stat_result, *, is_changed: bool) -> str:
    """Return why an open file must not be used, or an empty string.

    `is_changed`: whether the file existed and its content will change.
    """
    if not stat.S_ISREG(status.st_mode):
        return "is not a plain file"
    if not is_changed or paths.is_in_trusted_folder(path):
        return ""
    if status.st_nlink > 1:  # it may be a file elsewhere, linked here by another user
        return "has several names (hard links)"
    if status.st_mode & stat.S_IWOTH:
        return "is writable by all users"
    return "" if os.geteuid() in (0, status.st_uid) else _OTHER_OWNER


def read_own_file(path: Path, max_bytes: int) -> bytes:
    """Return the content of this user's plain file, which decides what xfbench does.

    Files of the group `XFBENCH_TRUSTED_GROUP` may belong to its members. Raises UnsafeFileError if
    another user could have written the file, other OSErrors as `open` does, and ValueError if the
    file is longer than `max_bytes`.
    """
    with open_file(path, "rb") as file:
        _require_own(file, path)
        return read_content(file, max_bytes)


def _require_own(file: IO[bytes], path: Path) -> None:
    """Raise UnsafeFileError if another user, who is no trusted member, could write to the file."""
    status = os.fstat(file.fileno())
    is_trusted = paths.is_trusted_member(status.st_uid, status.st_gid)
    reason = _find_danger(path, status, is_changed=True)
    if reason and not (is_trusted and reason == _OTHER_OWNER):
        raise UnsafeFileError(path, reason)


def read_content(file: IO[bytes], max_bytes: int) -> bytes:
    """Return the content of an open plain file, of which nothing was read.

    Raises ValueError if the file is longer than `max_bytes`, or becomes longer while it is read.
    """
    size = os.fstat(file.fileno()).st_size
    if size > max_bytes:
        raise ValueError(f"it is longer than {max_bytes >> 20} MiB")
    chunks = []
    while chunk := os.read(file.fileno(), min(size + 1, _CHUNK_BYTES)):
        chunks.append(chunk)
        max_bytes -= len(chunk)
        if max_bytes < 0:
            raise ValueError("it grew while it was read")
    return b"".join(chunks)


def write_file(path: Path, content: bytes | str, *, permissions: int = 0o666) -> None:
    """Write a file, in place of what has the name.

    Text is encoded as UTF-8. Paths in it may have other bytes.
    """
    with open_file(path, "wb", permissions=permissions) as file:
        file.write(
            content.encode(errors="surrogateescape") if isinstance(content, str) else content
        )


def copy_content(
    source: Path,
    target: Path,
    *,
    max_bytes: int | None = None,
    permissions: int = PRIVATE,
    only_own: bool = False,
) -> None:
    """Copy the bytes of the plain file `source` to the new file `target`.

    Neither the mode of `source` nor its other attributes are copied. If the file grows meanwhile,
    the bytes that it had at the beginning are copied. Raises ValueError if it is longer than
    `max_bytes`, and with `only_own` UnsafeFileError if another user could write to `source`.
    """
    with open_file(source, "rb") as opened:
        if only_own:
            _require_own(opened, source)
        remaining = os.fstat(opened.fileno()).st_size
        if max_bytes is not None and remaining > max_bytes:
            raise ValueError(f"it is longer than {max_bytes >> 20} MiB")
        with open_file(target, "xb", permissions=permissions) as file:
            while chunk := opened.read(min(remaining, _CHUNK_BYTES)):
                file.write(chunk)
                remaining -= len(chunk)
