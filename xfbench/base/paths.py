"""Paths of the cache, of results, of prepared data sets and of packages."""

from __future__ import annotations

import grp
import importlib
import itertools
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs

from xfbench.base.errors import UsageError

MAX_DEPTH = 100  # of folders inside each other


def expand_user(path: str | Path) -> Path:
    """Return the path with the home folder in place of "~" or "~USER" at its beginning.

    Raises UsageError if there is no such user, or if the user has no home folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{path}: no such user, or a user without a home folder") from error


def user_config() -> Path:
    """Return the folder of the user's own settings. Raises UsageError if it is unknown."""
    return _user_folder(platformdirs.user_config_path)


def _user_folder(find: Callable[[str], Path]) -> Path:
    try:
        return find("xfbench")
    except RuntimeError as error:  # a user that the system does not know, as in containers
        raise UsageError("this user has no home folder: set HOME to a folder of yours") from error


def cache() -> Path:
    """Return the cache folder: `XFBENCH_HOME`, else `xfbench` in the user's cache folder.

    Raises UsageError if another user could replace files in it, because xfbench runs programs from
    the cache.
    """
    override = os.environ.get("XFBENCH_HOME")
    folder = (
        expand_user(override).absolute() if override else _user_folder(platformdirs.user_cache_path)
    )
    require_private(folder, "set XFBENCH_HOME to a folder of your own")
    return folder


def cache_folder(*names: str) -> Path:
    """Return the folder of the cache with these names, one below the other.

    Raises UsageError if another user could replace files in one of them. That may be if the cache
    was open to others earlier.
    """
    folder = cache()
    for name in names:
        folder /= name
        require_private(folder, "remove it, because others may have changed its files")
    return folder


def require_private(folder: Path, advice: str, *, sticky: bool = False) -> None:
    """Raise UsageError if another user could replace files in `folder`.

    - `advice` ends the error's message.
    - `sticky`: whether others may write to the folder if its sticky bit protects the files of each
      user, as in `/tmp`. Not for folders whose files have predictable names and are run.
    - A folder that does not exist is accepted.
    - The owner must be this user or root. If root runs xfbench, the owner does not matter.
    - The group may write if it is this user's private group, which has no other member.
    - Folders of the group `XFBENCH_TRUSTED_GROUP` may belong to its members and be writable by it.
    - Folders above may not be writable by all users without a sticky bit, nor may those that have
      a symbolic link on the way. Their owners and groups are trusted.
    - A folder in `XFBENCH_TRUSTED_FOLDERS` is accepted, and so are those above it.
    """
    try:
        status, link_status = folder.stat(), folder.lstat()
    except OSError:
        return
    is_exempt = is_in_trusted_folder(folder.resolve())
    owners = {status.st_uid} if not is_exempt else set()
    if not is_in_trusted_folder(folder):  # its name, which may be that of a link
        owners.add(link_status.st_uid)
    is_trusted = status.st_gid == trusted_group()
    strangers = owners - {0, os.geteuid()} if os.geteuid() else set()
    if not all(is_trusted_member(owner, status.st_gid) for owner in strangers):
        raise UsageError(f"{folder} belongs to another user: {advice}{_describe_exemption(folder)}")
    if is_exempt:
        return
    mode = status.st_mode if not (sticky and status.st_mode & stat.S_ISVTX) else 0
    advice += _describe_exemption(folder)
    if mode & stat.S_IWOTH:
        raise UsageError(f"{folder} is writable by all users: chmod o-w it, or {advice}")
    if mode & stat.S_IWGRP and not is_trusted and not _is_private_group(folder, status.st_gid):
        raise UsageError(f"{folder} is writable by its group: chmod -R g-w it, or {advice}")
    for parent in _list_folders_above(folder.absolute()) if os.geteuid() else ():
        if parent.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            raise UsageError(f"{parent} is writable by all users: chmod +t it, or {advice}")


def _list_folders_above(path: Path) -> list[Path]:
    """Return all folders that have a part of the path, or of a symbolic link on the way to it.

    The path must be absolute.
    """
    folders: list[Path] = []
    place = Path(path.anchor)
    for part in path.parts[1:]:
        folders += [place, *place.parents]
        place /= part
        if place.is_symlink():
            folders += _list_folders_above(place.parent / place.readlink())
        place = place.resolve()
    return list(dict.fromkeys(folders))


def _describe_exemption(folder: Path) -> str:
    return f" (if you trust all who can write to it, set XFBENCH_TRUSTED_FOLDERS={folder})"


def is_in_trusted_folder(path: Path) -> bool:
    """Return whether `path` is in a folder of `XFBENCH_TRUSTED_FOLDERS`, or is one of them.

    Links above `path` are followed, but not `path` itself. Raises UsageError if an entry of the
    variable is not an absolute path.
    """
    names = [name for name in os.environ.get("XFBENCH_TRUSTED_FOLDERS", "").split(":") if name]
    folders = [expand_user(name) for name in names]
    for folder in folders:
        if not folder.is_absolute():
            raise UsageError(f"XFBENCH_TRUSTED_FOLDERS: {folder} is not an absolute path")
    if not folders:
        return False
    place = path.absolute()
    place = place.parent.resolve() / place.name
    return any(place.is_relative_to(folder.resolve()) for folder in folders)


def trusted_group() -> int | None:
    """Return the id of the group `XFBENCH_TRUSTED_GROUP`, or None if it is not set.

    Raises UsageError if there is no such group. A number needs no group of that name.
    """
    name = os.environ.get("XFBENCH_TRUSTED_GROUP")
    if not name:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        if name.isascii() and name.isdecimal():  # a group without a name, as of a Kubernetes volume
            return int(name)
        raise UsageError(f"XFBENCH_TRUSTED_GROUP: there is no group {name!r}") from None


def is_trusted_member(user_id: int, group_id: int) -> bool:
    """Return whether the group is `XFBENCH_TRUSTED_GROUP`, and the user belongs to it.

    The group of a folder does not show that: below a set-group-id bit, new folders have its group.
    """
    if group_id != trusted_group():
        return False
    try:
        user = pwd.getpwuid(user_id)
        return user.pw_gid == group_id or user.pw_name in grp.getgrgid(group_id).gr_mem
    except KeyError:
        return False


def _is_private_group(folder: Path, group_id: int) -> bool:
    """Return whether the group that may write to `folder` consists of this user.

    Many systems give each user a group of the same name. If the folder has an access list, the
    group's bits in its mode may stand for other users.
    """
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    is_of_user = user.pw_gid == group_id and group.gr_name == user.pw_name
    return is_of_user and set(group.gr_mem) <= {user.pw_name} and not _has_access_list(folder)


def _has_access_list(folder: Path) -> bool:
    try:
        return "system.posix_acl_access" in os.listxattr(folder)
    except OSError:  # the file system has none
        return False


def make_folder(folder: Path) -> None:
    """Create a folder, and those above it, unless it exists. Others must not write to new folders.

    With `XFBENCH_TRUSTED_GROUP`, the umask alone decides what others may do.
    """
    mode = 0o777 if os.environ.get("XFBENCH_TRUSTED_GROUP") else 0o755
    missing = itertools.takewhile(lambda each: not each.exists(), (folder, *folder.parents))
    for each in reversed([*missing]):
        each.mkdir(mode=mode, exist_ok=True)
    folder.mkdir(exist_ok=True)  # raises FileExistsError for a file


def restrict_umask() -> None:
    """Make new files writable by this user only, also those of the programs that xfbench starts.

    Many sites set the umask 002, and one group for all users. With `XFBENCH_TRUSTED_GROUP`, the
    umask stays.
    """
    if not os.environ.get("XFBENCH_TRUSTED_GROUP"):
        os.umask(os.umask(0o077) | 0o022)


def results(folder: Path | None = None) -> Path:
    """Return the results folder: `folder`, else `XFBENCH_RESULTS`, else `./results`."""
    return (folder or Path(os.environ.get("XFBENCH_RESULTS") or "results")).absolute()


def data() -> Path:
    """Return the folder of prepared data sets: `XFBENCH_DATA`, else `data` in the cache."""
    override = os.environ.get("XFBENCH_DATA")
    return expand_user(override).absolute() if override else cache() / "data"


def iterate_below(folder: Path) -> Iterator[Path]:
    """Yield all files and folders below `folder`, in no order, but a folder before its content.

    Symbolic links are yielded, but not followed. A folder that cannot be listed counts as empty.
    Raises UsageError if folders are nested more deeply than any results, because many functions
    that walk through folders call themselves for each of them.
    """
    pending = [(folder, 0)]
    while pending:
        place, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise UsageError(f"{folder} has more than {MAX_DEPTH} folders inside each other")
        try:
            entries = [*os.scandir(place)]
        except OSError:
            continue
        for entry in entries:
            yield place / entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append((place / entry.name, depth + 1))


def package_folder(name: str) -> Path:
    """Return the folder of an importable package. Raises FileNotFoundError if it has no file."""
    file = importlib.import_module(name).__file__
    if file is None:
        raise FileNotFoundError(f"the package {name} has no folder")
    return Path(file).parent
