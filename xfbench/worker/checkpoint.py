"""Checkpoint folders: free space, flushing, size and comparison. `loop.py` does the timing.

A trainer writes and reads checkpoints in its framework's own format and flushes nothing. At most
one checkpoint is on disk at a time, and none after the launch.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from pathlib import Path
from typing import Dict, Iterator

import numpy as np

from xfbench.worker import mounts, pages
from xfbench.worker.protocol import Trainer
from xfbench.workloads import Workload

Digests = Dict[str, str]

_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
_MEGABYTE = 10**6
_MARGIN = 2**20  # bytes in addition to the numbers: names, headers, partly filled blocks


class DiskFull(Exception):
    """Too little disk space for a checkpoint. The message names the folder and the bytes needed."""


@contextlib.contextmanager
def temporary_checkpoint_folder(new_folder: Path, needed_bytes: int) -> Iterator[Path]:
    """Create the empty folder `new_folder`, yield it, and remove it afterwards.

    Raises DiskFull in two cases:

    - Less than `needed_bytes` and 1 MiB are free. This is checked before anything is written,
      because Caffe ends the process when a write fails.
    - The work in the folder raises an exception while the disk is full. The disk is full if the
      exception says so, or if too little space remains for the rest of `needed_bytes`.
    """
    shutil.rmtree(str(new_folder), ignore_errors=True)  # left by a launch that was killed
    room = shutil.disk_usage(str(new_folder.parent)).free
    if room < needed_bytes + _MARGIN:
        raise DiskFull(_disk_full_message(new_folder, needed_bytes, room))
    new_folder.mkdir(mode=0o700)
    try:
        yield new_folder
    except Exception as error:
        written_bytes, free_bytes = (
            folder_bytes(new_folder),
            shutil.disk_usage(str(new_folder)).free,
        )
        short = free_bytes < max(needed_bytes - written_bytes, _MARGIN)
        says_disk_full = getattr(
            error, "errno", None
        ) in _DISK_FULL_ERRORS or "No space left" in str(error)
        if short or says_disk_full:
            raise DiskFull(
                _disk_full_message(new_folder, max(needed_bytes, written_bytes + 1), room)
            ) from error
        raise
    finally:
        shutil.rmtree(str(new_folder), ignore_errors=True)


def _disk_full_message(folder: Path, needed_bytes: int, free_bytes: int) -> str:
    location = folder.parent if folder.is_absolute() else "the run's folder"
    return (
        f"a checkpoint takes at least {needed_bytes / _MEGABYTE:.1f} MB, and {location} has room "
        f"for {free_bytes / _MEGABYTE:.1f} MB: name another folder with --checkpoint-dir"
    )


def min_checkpoint_bytes(workload: Workload, parameters: dict[str, np.ndarray]) -> int:
    """Return a lower bound of a checkpoint's size in bytes.

    A checkpoint contains all parameters. If the solver has momentum, it also contains a velocity
    for each learned parameter.
    """
    of = workload.network.parameters
    arrays_per_weight = 2 if workload.solver.momentum else 1
    return sum(
        array.nbytes * (arrays_per_weight if of[name].learned else 1)
        for name, array in parameters.items()
    )


def fsync_files_in_folder(folder: Path) -> None:
    """Flush all files in `folder`, and their directory entries, to the storage device."""
    for path in [
        *_list_files(folder),
        *(path for path in folder.rglob("*") if path.is_dir()),
        folder,
    ]:
        with _open_descriptor(path) as number:
            os.fsync(number)


def evict_files_from_page_cache(folder: Path) -> None:
    """Drop the files in `folder` from the page cache, so that the next read is from the device.

    A file system in memory keeps the files in memory. The host of a virtual disk may keep them too.
    """
    pages.evict(_list_files(folder))


def folder_bytes(folder: Path) -> int:
    """Return the total size in bytes of all files in `folder`."""
    return sum(path.stat().st_size for path in _list_files(folder))


def file_system_type(folder: Path) -> str:
    """Return the type of the file system that holds `folder`; "unknown" if it is not reported."""
    mount = mounts.mount_of(folder)
    return mount.file_system if mount else "unknown"


def parameter_digests(parameters: dict[str, np.ndarray]) -> Digests:
    """Return a digest of each parameter's bits, by name.

    Digests are compared instead of copies, because copies would raise the peak memory.
    """
    digests = {}
    for name, array in parameters.items():
        bits = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
        bits.update(np.ascontiguousarray(array).data)
        digests[name] = bits.hexdigest()
    return digests


def zeros_like_parameters(parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return an array of zeros for each parameter, by name.

    A large array of zeros takes no memory until something is written to it.
    """
    return {name: np.zeros(array.shape, array.dtype) for name, array in parameters.items()}


def wait_for_all_ranks(trainer: Trainer, batch_for_gradients: object) -> None:
    """Wait until all ranks have called this function.

    The function computes gradients of `batch_for_gradients`, because ranks wait for each other when
    they average gradients. It leaves all parameters unchanged.
    """
    parameters = trainer.parameters()
    trainer.gradients(batch_for_gradients)
    trainer.assign(parameters)


def _list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextlib.contextmanager
def _open_descriptor(path: Path) -> Iterator[int]:
    number = os.open(str(path), os.O_RDONLY)
    try:
        yield number
    finally:
        os.close(number)
