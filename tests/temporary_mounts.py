"""Temporary file systems for tests; mounting needs root."""

import contextlib
import os
import shutil
import subprocess

import pytest


def require_mounting(*programs):
    """Skip the test if it cannot mount or a program is missing."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    for program in ("mount", "umount", *programs):
        if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
            pytest.skip(f"there is no {program}")


@contextlib.contextmanager
def mount(point, *arguments):
    """Mount with `mount ARGUMENTS POINT`, yield `point`, and unmount at the end."""
    point.mkdir(parents=True, exist_ok=True)
    process = subprocess.run(
        ["mount", *map(str, arguments), str(point)], capture_output=True, text=True, check=False
    )
    if process.returncode:
        pytest.skip(f"mount failed: {process.stderr.strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=True)


def make_read_only(point):
    """Remount the file system read-only."""
    remount(point, "ro")


def remount(point, option):
    subprocess.run(["mount", "-o", f"remount,{option}", str(point)], check=True)


def ext4(folder, mebibytes=64, block_bytes=4096, name="ext4"):
    """Mount an ext4 file system in a file of `folder`; its loop device ends with the mount."""
    initialize_now = "lazy_itable_init=0,lazy_journal_init=0"
    make_command = ["mkfs.ext4", "-q", "-F", "-b", str(block_bytes), "-E", initialize_now]
    return _mount_image(folder, name, mebibytes, make_command, "loop")


def btrfs(folder, options, name="btrfs"):
    """Mount a btrfs file system in a file of `folder` with these options."""
    return _mount_image(folder, name, 128, ["mkfs.btrfs", "-q"], f"loop,{options}")


@contextlib.contextmanager
def _mount_image(folder, name, mebibytes, make_command, options):
    require_mounting("losetup", make_command[0])
    image = folder / f"{name}.image"
    with image.open("wb") as file:
        file.truncate(mebibytes * 2**20)
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    subprocess.run(
        [shutil.which(make_command[0], path=path), *make_command[1:], str(image)],
        check=True,
        timeout=60,
        stderr=subprocess.DEVNULL,
    )
    try:
        with mount(folder / name, "-o", options, image) as point:
            yield point
    finally:
        image.unlink()


@contextlib.contextmanager
def tmpfs(folder, name="tmpfs", options="size=64m"):
    """Mount a file system in memory."""
    require_mounting()
    with mount(folder / name, "-t", "tmpfs", "-o", options, "tmpfs") as point:
        yield point


@contextlib.contextmanager
def fuse_overlay(folder, name="fuse"):
    """Mount an overlay over an empty folder with fuse-overlayfs, a separate process."""
    require_mounting("fuse-overlayfs")
    for part in ("lower", "upper", "work", name):
        (folder / part).mkdir()
    layers = "lowerdir=lower,upperdir=upper,workdir=work"
    process = subprocess.run(
        ["fuse-overlayfs", "-o", layers, name],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        pytest.skip(f"fuse-overlayfs failed: {process.stderr.strip()}")
    try:
        yield folder / name
    finally:
        subprocess.run(["umount", "--lazy", str(folder / name)], check=True)


@contextlib.contextmanager
def overlay(folder, lower, upper, work, name="overlay"):
    """Mount `upper` over `lower`; their names can contain spaces."""
    require_mounting()
    layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
    for directory in (lower, upper, work):
        directory.mkdir(parents=True, exist_ok=True)
    with mount(folder / name, "-t", "overlay", "-o", layers, "overlay") as point:
        yield point
