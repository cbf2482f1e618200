"""The cache of compiled programs, from which later processes load what earlier ones compiled.

Each process works on a private copy of the cache. When it ends, it adds its new files one by one,
each in a single operation. So no process reads a file that another one is writing.

Whoever can write to the cache can run code as its user. Therefore only the user may write to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Iterator, List

from xfbench.worker import observe
from xfbench.worker.protocol import Unavailable

MAX_BYTES = 2 * 2**30  # of all programs together
_PRIVATE_PREFIX = "private-"
_STALE_SECONDS = 24 * 3600.0  # a private copy of this age belongs to a process that crashed


@contextlib.contextmanager
def private_copy(
    root: Path, framework: str, link: Path, max_bytes: int = MAX_BYTES
) -> Iterator[Path | None]:
    """Yield a folder with the programs of this interpreter. Keep its new files at the end.

    - `root`: the cache of all frameworks. If the files below it are larger than `max_bytes`
      afterwards, the oldest are deleted.
    - `link`: the relative path under which the folder is yielded. It must be the same in all
      processes, because JAX's key of a program contains it.

    If files cannot be written to `root`, or it belongs to another user, yield None. Raises
    Unavailable if others may write to `root`.
    """
    stored = root / f"{framework}-{_interpreter_digest()}"
    private = None
    with contextlib.suppress(OSError):
        for folder in (root, stored):
            _create_folder_of_user(folder)
        private = Path(tempfile.mkdtemp(prefix=_PRIVATE_PREFIX, dir=root.absolute()))
        link.unlink(missing_ok=True)
        link.symlink_to(private)
    if private is None or not link.is_dir():
        yield None
        return
    try:
        _delete_stale_copies(root, private.stat().st_mtime)
        for file in _list_files(stored):
            with contextlib.suppress(FileNotFoundError):  # another process deleted it
                _link_or_copy(file, private / file.relative_to(stored))
        yield link
        with contextlib.suppress(OSError):  # a full disk must not end the launch
            _move_new_files(private, stored)
            _delete_oldest(root, max_bytes)
    finally:
        link.unlink(missing_ok=True)
        shutil.rmtree(private, ignore_errors=True)


def _move_new_files(source: Path, target: Path) -> None:
    for file in _list_files(source):
        place = target / file.relative_to(source)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            file.replace(place)


def _interpreter_digest() -> str:
    """Return a digest of what the programs depend on and the framework's own key may lack.

    This is the interpreter, its packages (cuDNN is one of them), and the libraries' search path.
    """
    content = [
        sys.executable,
        sys.version,
        platform.machine(),
        observe.installed_packages(),
        os.environ.get("LD_LIBRARY_PATH", ""),
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def _create_folder_of_user(folder: Path) -> None:
    """Create the folder.

    Raises PermissionError if it belongs to another user, and Unavailable if others may write to it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid():  # for example, a file system that maps root to nobody
        raise PermissionError(f"{folder} belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Unavailable(
            f"other users may write to the compiled programs in {folder}: delete this folder"
        )


def _list_files(folder: Path) -> List[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def _link_or_copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # the file system has no hard links
        shutil.copyfile(source, target)


def _delete_stale_copies(root: Path, now: float) -> None:
    """Delete private copies that are stale at `now`, a time of the file system."""
    for folder in root.glob(f"{_PRIVATE_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):  # another process deleted it
            if now - folder.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _delete_oldest(root: Path, max_bytes: int) -> None:
    """Delete the oldest kept files until the rest has at most `max_bytes`."""
    entries = []
    for folder in root.iterdir():
        if not folder.name.startswith(_PRIVATE_PREFIX):
            for file in _list_files(folder):
                with contextlib.suppress(FileNotFoundError):  # another process deleted it
                    status = file.stat()
                    entries.append((status.st_mtime, status.st_size, file))
    total = sum(size for _, size, _ in entries)
    for _, size, file in sorted(entries):
        if total <= max_bytes:
            break
        with contextlib.suppress(FileNotFoundError):
            file.unlink()
        total -= size
