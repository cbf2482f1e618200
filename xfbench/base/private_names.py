"""Private names in text for other people: names of hosts and users, and paths of their folders.

- `known_names` collects the names of this user, of this host and of this process's folders.
- `mask_known_names` removes them from a text, with all paths outside of the system's folders.
- `describe_private_name` finds names in text of other people. Of their hosts, only hashes are
  known: records contain them. A word is a host name if a record contains the hash of the word.

`xfbench/model/privacy.py` decides which fields of a record are masked. `foreign_names.py` removes
names from documents of other tools.
"""

from __future__ import annotations

import os
import platform
import pwd
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from xfbench.base import safe_read
from xfbench.base.name_hashes import host_hash, host_hash_of_earlier_versions

REPLACEMENT = "…"
NAME_IN_PATH = r"[^\s/\"'<>|:;,)\]}]+"
# Folders that contain a folder for each user, on the file systems of usual clusters.
_HOME_PARENTS = (
    r"(?:home|work|scratch|corral-repl|stockyard)\d*/+\d{3,}",  # /work2/05311
    r"(?:[\w.-]+/+)*(?:home|homes|Users|users|jusers)\d*(?:/+\w)?",  # /global/homes/n
    r"(?:lustre|gpfs|beegfs|nfs|mnt|p|pscratch|global|cluster|net|network|vast|ceph|ptmp|export)"
    r"/+(?:[\w.-]+/+){0,2}?(?:scratch|work|projects?|sd|u\d*|user|data)\d*(?:/+\w)?",
    r"(?:scratch|work|workspace|ptmp|pscratch)(?:[\d_-]\w*)?(?:/+(?:users?|\w))?",
)
PATH_START = r"(?<![\w.…/~-])(?:file://)?(?!(?<=:)//)"  # not the "//" of another URL
HOME_USER = re.compile(rf"{PATH_START}/+(?:{'|'.join(_HOME_PARENTS)})/+({NAME_IN_PATH})")
_PATH = re.compile(rf"{PATH_START}(?:/+{NAME_IN_PATH}){{2,}}")
# Folders of the system, whose paths name no user: they say which library or device was used.
_SYSTEM_FOLDERS = {
    *("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "opt", "proc", "run", "sbin"),
    *("sys", "usr", "nix", "cvmfs"),
}
_PUBLIC_SUBFOLDERS = ("/dev/shm/", "/run/user/", "/opt/tmp/", "/usr/tmp/", "/usr/local/home/")
EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}(?![\w-])")
PASSWORD = re.compile(r"(?<=://)[^/\s@]+(?=@)")
# A name with a letter first, and with a digit or a dot, or an address.
_HOST = (
    r"(?:(?!e\.g|i\.e|x86_64|(?:float|u?int|bf|fp)\d+\b)(?=[\w-]*\d|[\w-]*\.\w)"
    r"[A-Za-z][\w.-]{0,252}(?<=\w)"
    r"|(?!127\.|0\.0\.)\d{1,3}(?:\.\d{1,3}){3}(?![\w.]))"
)
_HOST_AND_PROCESS = re.compile(rf"(?<=\[){_HOST}(?=:\d{{2,}}[\]:])")  # [cn17:12345]
_NAMED_HOST = re.compile(
    rf"((?<![A-Za-z0-9])(?:node|host)s?(?:name)?(?:\s?[:=]\s{{0,8}}|\s{{1,8}})[\"'‘“<(]?){_HOST}",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
_WORD_SEPARATOR = re.compile(r"([._-]+)")
_HOST_RANGE = re.compile(r"(?<![A-Za-z0-9_.-])([A-Za-z0-9_.-]+)\[([\d,\s-]+)\]([A-Za-z0-9_.-]*)")
_MAX_WORD_PARTS = 11  # of words and separators: six words
MAX_HOST_NAME = 253  # characters of a host name
_MAX_NODE_FILE = 2**24  # bytes
# Names of users and hosts that many machines share. They say nothing about a person.
_SHARED_NAMES = {
    *("root", "nobody", "user", "users", "admin", "guest", "test", "runner", "ubuntu", "debian"),
    *("centos", "rocky", "ec2-user", "jovyan", "vagrant", "docker", "build"),
    *("localhost", "node", "host", "login", "server", "cpu", "gpu", "vm"),
}
_FOLDER_VARIABLE = re.compile(
    r"HOME|PWD|TMPDIR|SCRATCH|WORK|PROJECT|STORE|DATA|(?:\w+_)?(?:SCRATCH|WORK|PROJECT|STORE)\w*"
    r"|XFBENCH_(?:HOME|RESULTS|DATA)|XDG_\w+_HOME"
)


@dataclass(frozen=True)
class KnownNames:
    """Private names that are known here.

    - `words`: names of users and hosts.
    - `folders`: absolute paths of folders, the longest first.
    """

    words: tuple[str, ...]
    folders: tuple[str, ...]


def known_names(folders: Iterable[Path] = ()) -> KnownNames:
    """Return the names of this user and this job's hosts, and the folders of user and process.

    The folders are `folders`, the working folder, and those that variables such as HOME and SCRATCH
    name. System folders are left out.
    """
    try:
        account = pwd.getpwuid(os.getuid())
        users, homes = [account.pw_name], [account.pw_dir]
    except KeyError:  # a user without an account, as in some containers
        users, homes = [], []
    users += [os.environ.get(name, "") for name in ("USER", "LOGNAME", "SLURM_JOB_USER")]
    homes += [text for name, text in os.environ.items() if _FOLDER_VARIABLE.fullmatch(name)]
    homes += [str(Path.cwd()) if _has_working_folder() else "", *map(str, folders)]
    node = platform.node()
    hosts = {node, *list_allocated_hosts()}
    names = {*users, *hosts, *map(_remove_domain, hosts)}
    words = {name for name in names if _is_personal(name)}
    paths = {
        path
        for folder in homes
        if (path := os.path.normpath(folder)).count("/") > 1 and not _is_system_path(path + "/")
    }
    return KnownNames(
        tuple(sorted(words, key=lambda word: (-len(word), word))),
        tuple(sorted(paths, key=lambda path: (-len(path), path))),
    )


def _has_working_folder() -> bool:
    try:
        Path.cwd()
    except OSError:  # it was deleted
        return False
    return True


def list_allocated_hosts() -> set[str]:
    """Return the names of the hosts that PBS or LSF gives to this job, if this is such a job."""
    words = [*os.environ.get("LSB_HOSTS", "").split()]
    words += os.environ.get("LSB_MCPU_HOSTS", "").split()  # pairs of a host and a number
    for variable in ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE"):
        if name := os.environ.get(variable):
            with suppress(OSError, ValueError):
                content = safe_read.read_bytes(Path(name), _MAX_NODE_FILE, follow_link=True)
                words += content.decode(errors="replace").split()
    return {word for word in words if _is_personal(word) and not word.isdecimal()}


def _remove_domain(host: str) -> str:
    short = host.partition(".")[0]
    return host if short.isdecimal() else short  # an address has no domain


def replace_hosts(text: str, hosts: Iterable[str], replacement: str) -> str:
    """Return the text with `replacement` for each of `hosts`, with or without their domains."""
    names = {short for host in hosts if _is_personal(short := _remove_domain(host))}
    if not names:
        return text
    alternatives = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    pattern = rf"(?<!\w)(?:{alternatives})(?:\.[A-Za-z][\w-]*)*(?!\w)"
    return re.sub(pattern, replacement, text, flags=re.IGNORECASE)


def _is_personal(name: str) -> bool:
    return 1 < len(name) <= MAX_HOST_NAME and name.lower() not in _SHARED_NAMES


def _is_system_path(path: str) -> bool:
    return path.split("/")[1] in _SYSTEM_FOLDERS and not path.startswith(_PUBLIC_SUBFOLDERS)


def mask_known_names(text: str, names: KnownNames) -> str:
    """Return the text without private names. An ellipsis ("…") replaces each of them.

    Besides `names`, these are private:

    - Email addresses, and user names and passwords in URLs.
    - Hosts, also of other machines, in forms such as `[cn17:12345]` and `node cn17.example.org`. A
      name without a digit or a dot is not taken for a host.
    - The folders of all absolute paths, except those of the system. The last part of a path stays
      if it does not name a user: "/scratch/NAME/run/x.json" becomes "…/x.json".
    """
    if "/" in text:
        text = PASSWORD.sub(REPLACEMENT, text)
        for folder in names.folders:
            text = re.sub(rf"(?<![\w.-]){re.escape(folder)}(?![\w.-])", REPLACEMENT, text)
        text = HOME_USER.sub(REPLACEMENT, text)
        text = _PATH.sub(_mask_path, text)
    if "@" in text:
        text = EMAIL.sub(REPLACEMENT, text)
    text = _HOST_AND_PROCESS.sub(REPLACEMENT, text)
    text = _NAMED_HOST.sub(rf"\g<1>{REPLACEMENT}", text)
    for word in names.words:
        if word.lower() in text.lower():
            text = _word_pattern([word]).sub(REPLACEMENT, text)
    return text


def _mask_path(match: re.Match[str]) -> str:
    path = match[0].removeprefix("file://")
    if _is_system_path(os.path.normpath("/" + path.lstrip("/")) + "/"):
        return match[0]
    parts = [part for part in path.split("/") if part]
    return f"{REPLACEMENT}/{parts[-1]}" if len(parts) > 3 else REPLACEMENT


def _word_pattern(words: Iterable[str]) -> re.Pattern[str]:
    alternatives = "|".join(map(re.escape, words))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])", re.IGNORECASE)


def describe_private_name(text: str, host_hashes: Collection[str]) -> str | None:
    """Describe one private name in a text, or return None if the text has none.

    Home folders are searched first, then email addresses, then host names. A word is a host name
    if `host_hashes` contains the hash of the word or of a part of the word. So is a name in a list
    such as `node[1-3]`. Names that many machines share, such as `vm`, say nothing. Hashes of
    others, which have another salt, find no names.
    """
    if match := HOME_USER.search(text):
        return f"the home folder of {match[1]}"
    if match := EMAIL.search(text):
        return f"the address {match[0]}"
    for word in dict.fromkeys(_WORD.findall(text)):
        for candidate in _list_possible_hosts(word):
            if _is_personal(candidate) and _has_hash(candidate, host_hashes):
                return f"the host {candidate}"
    for prefix, numbers, suffix in _HOST_RANGE.findall(text):
        for number in _expand_ranges(numbers):
            if _has_hash(f"{prefix}{number}{suffix}", host_hashes):
                return f"the host {prefix}{number}{suffix}"
    return None


def _has_hash(name: str, host_hashes: Collection[str]) -> bool:
    return bool({host_hash(name), host_hash_of_earlier_versions(name)} & {*host_hashes})


def _list_possible_hosts(word: str) -> Iterable[str]:
    """Return the word and its parts, such as "node7" in "rank_on_node7-ib0.example.org"."""
    parts = _WORD_SEPARATOR.split(word)[:_MAX_WORD_PARTS]  # words and separators in turn
    runs = (
        "".join(parts[start:end])
        for start in range(0, len(parts), 2)
        for end in range(start + 1, len(parts) + 1, 2)
    )
    return dict.fromkeys(
        variant for text in (word, *runs) for variant in dict.fromkeys((text, text.lower()))
    )


def _expand_ranges(text: str) -> Iterator[str]:
    """Yield the numbers in a list such as `0001-0003,0007`, 10,000 at most."""
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (last or first).isdecimal() and len(part) < 40:
            end = min(int(last or first), int(first) + 10_000)
            yield from (str(number).zfill(len(first)) for number in range(int(first), end + 1))
