"""Hashes of names of hosts and file systems. Their salt is known to this user only.

Records contain the hash in place of the name. Without the salt, nobody can find a name by trying
`node0001`, `node0002` and so on.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from xfbench.base import paths
from xfbench.base.errors import UsageError
from xfbench.base.shared_files import PRIVATE, UnsafeFileError, open_file
from xfbench.base.terminal_text import say

_MIN_SALT_BYTES, _MAX_SALT_BYTES = 16, 1000
_SALT_WAIT_S = 1.0


def host_hash(name: str) -> str:
    """Return the hash of a host name as a record's `machine.hostname_hash` has it.

    The hash has a salt that only this user knows. Without it, anyone could try usual names.
    """
    return _salted_hash(name)[:16]


def file_system_hash(source: str) -> str:
    """Return the hash of a network file system as a record's `storage.medium.source_hash` has it.

    - `source`: what the system calls it, such as `server:/scratch`.

    It has 20 digits. Hashes of earlier versions have 16 digits and no salt.
    """
    return _salted_hash(f"file system {source}")[:20]


def _salted_hash(name: str) -> str:
    key = read_or_create_salt(salt_file())
    return hmac.new(key, name.encode(errors="surrogateescape"), "sha256").hexdigest()


def host_hash_of_earlier_versions(name: str) -> str:
    """Return the hash of a host name in records of earlier versions, which have no salt."""
    return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16]


def salt_file() -> Path:
    """Return the path of the file with the salt for host names."""
    return paths.user_config() / "host-salt"


@cache
def read_or_create_salt(file: Path) -> bytes:
    """Return the salt in `file`. If the file does not exist, write it with a random salt.

    If the file can be neither read nor written, the salt is for this process only, and a message
    says so. Raises UsageError if the file does not contain a salt, or if others may write to it.
    """
    salt = secrets.token_hex(32).encode() + b"\n"
    with suppress(OSError):
        if not os.path.lexists(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            _create_salt(file, salt)
    try:
        with open_file(file, "rb", follow_link=True) as stored_file:
            is_open = _is_open_to_others(stored_file.fileno())
            stored = stored_file.read(_MAX_SALT_BYTES)
            if not stored:  # another process may have created it, and is about to write it
                time.sleep(_SALT_WAIT_S)
                stored = stored_file.read(_MAX_SALT_BYTES)
    except UnsafeFileError:  # no plain file
        is_open, stored = True, b""
    except OSError as error:
        say(
            f"{file} cannot be used ({error.strerror}): the hash of this host in records will "
            "differ from that of other commands"
        )
        return salt
    if len(stored) < _MIN_SALT_BYTES or is_open:
        raise UsageError(f"{file} is not a salt for host names of yours: delete it")
    return stored


def _create_salt(file: Path, salt: bytes) -> None:
    """Write the salt to the new file. Another process may do the same at the same time."""
    descriptor, draft = tempfile.mkstemp(prefix=".salt-", dir=file.parent)  # mode 0600
    with os.fdopen(descriptor, "wb") as draft_file:
        draft_file.write(salt)
    try:
        os.link(draft, file, follow_symlinks=False)
    except OSError:  # a file system without hard links, or another process was faster
        with open_file(file, "xb", permissions=PRIVATE) as new_file:
            new_file.write(salt)
    finally:
        Path(draft).unlink()


def _is_open_to_others(descriptor: int) -> bool:
    """Return whether other users may write to the file.

    Some file systems give every file the mode 0777, which does not change. There, a file of this
    user counts as closed.
    """
    status = os.fstat(descriptor)
    if not status.st_mode & stat.S_IWOTH or status.st_uid != os.geteuid():
        return bool(status.st_mode & stat.S_IWOTH)
    with suppress(OSError):
        os.fchmod(descriptor, PRIVATE)
    can_change = os.fstat(descriptor).st_mode != status.st_mode
    if can_change:  # others could write to it until now: the next command must refuse it too
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    return can_change
