"""Private names in text for other people: names of hosts and users, and paths of their folders.

- `known_names` collects the names of this user, of this host and of this process's folders.
- `mask_known_names` removes them from a text, with all paths outside of the system's folders.
- `collect_private_names` finds the names that a document of another tool states, and
  `make_private_text_redactor` removes them.
- `describe_private_name` finds names in text of other people. Of their hosts, only hashes are
  known: records contain them. A word is a host name if a record contains the hash of the word.

`xfbench/model/privacy.py` decides which fields of a record are masked.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import platform
import pwd
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs

from xfbench.base import safe_read
from xfbench.base.errors import UsageError
from xfbench.base.shared_files import PRIVATE, UnsafeFileError, open_file
from xfbench.base.terminal_text import say

_REPLACEMENT = "…"
_NAME = r"[^\s/\"'<>|:;,)\]}]+"
# Folders that contain a folder for each user, on the file systems of usual clusters.
_HOME_PARENTS = (
    r"(?:home|work|scratch|corral-repl|stockyard)\d*/+\d{3,}",  # /work2/05311
    r"(?:[\w.-]+/+)*(?:home|homes|Users|users|jusers)\d*(?:/+\w)?",  # /global/homes/n
    r"(?:lustre|gpfs|beegfs|nfs|mnt|p|pscratch|global|cluster|net|network|vast|ceph|ptmp|export)"
    r"/+(?:[\w.-]+/+){0,2}?(?:scratch|work|projects?|sd|u\d*|user|data)\d*(?:/+\w)?",
    r"(?:scratch|work|workspace|ptmp|pscratch)(?:[\d_-]\w*)?(?:/+(?:users?|\w))?",
)
_PATH_START = r"(?<![\w.…/~-])(?:file://)?(?!(?<=:)//)"  # not the "//" of another URL
_HOME_USER = re.compile(rf"{_PATH_START}/+(?:{'|'.join(_HOME_PARENTS)})/+({_NAME})")
# Only these folders are surely named after a user: /workspace/train.py is of no user "train.py".
_OWNED_HOME = re.compile(
    rf"{_PATH_START}(?:/+[\w.-]+)*?/+(?:home|homes|Users|users)/+(?:[A-Za-z]/+)?({_NAME})"
)
_PATH = re.compile(rf"{_PATH_START}(?:/+{_NAME}){{2,}}")
# Folders of the system, whose paths name no user: they say which library or device was used.
_SYSTEM_FOLDERS = {
    *("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "opt", "proc", "run", "sbin"),
    *("sys", "usr", "nix", "cvmfs"),
}
_PUBLIC_SUBFOLDERS = ("/dev/shm/", "/run/user/", "/opt/tmp/", "/usr/tmp/", "/usr/local/home/")
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}(?![\w-])")
_PASSWORD = re.compile(r"(?<=://)[^/\s@]+(?=@)")
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
_MAX_HOST_NAME = 253  # characters of a host name
_MAX_NODE_FILE = 2**24  # bytes
_MAX_SEARCHED = 2**16  # characters of a text
_MIN_LETTERS = 2  # of names whose digits may vary
# Also "000[12,13]", which is one number of each host.
_DIGITS = re.compile(r"(?:\d|\[[\d,\s-]*\])+")
_DIGITS_PATTERN = rf"(?<!\d){_DIGITS.pattern}"
_LETTER_OR_DIGIT = re.compile("[A-Za-z0-9]")
_LISTED_NAME = re.compile(r"[A-Za-z0-9_.-]+(?:\[[\d,\s-]*\][A-Za-z0-9_.-]*)*")
_PARAMETER = re.compile(r"(?<![\w.$-])([A-Za-z_$][\w.$-]*)=(\S+)")
_KEY_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_KEYS_OF_NAMES = {
    *("fqdn", "host", "hosts", "hostlist", "hostname", "hostnames"),
    *("nid", "nids", "node", "nodes", "nodelist", "nodename", "nodenames", "xname", "xnames"),
    *("login", "logname", "owner", "pocname", "user", "userid", "username", "usernames", "users"),
}
_HARMLESS_WORDS = {
    *("", "all", "any", "default", "false", "host", "localhost", "n/a", "node", "none", "null"),
    *("true", "undefined", "unknown", "user"),
}
_MIN_SALT_BYTES, _MAX_SALT_BYTES = 16, 1000
_SALT_WAIT_S = 1.0
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
    return 1 < len(name) <= _MAX_HOST_NAME and name.lower() not in _SHARED_NAMES


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
        text = _PASSWORD.sub(_REPLACEMENT, text)
        for folder in names.folders:
            text = re.sub(rf"(?<![\w.-]){re.escape(folder)}(?![\w.-])", _REPLACEMENT, text)
        text = _HOME_USER.sub(_REPLACEMENT, text)
        text = _PATH.sub(_mask_path, text)
    if "@" in text:
        text = _EMAIL.sub(_REPLACEMENT, text)
    text = _HOST_AND_PROCESS.sub(_REPLACEMENT, text)
    text = _NAMED_HOST.sub(rf"\g<1>{_REPLACEMENT}", text)
    for word in names.words:
        if word.lower() in text.lower():
            text = _word_pattern([word]).sub(_REPLACEMENT, text)
    return text


def _mask_path(match: re.Match[str]) -> str:
    path = match[0].removeprefix("file://")
    if _is_system_path(os.path.normpath("/" + path.lstrip("/")) + "/"):
        return match[0]
    parts = [part for part in path.split("/") if part]
    return f"{_REPLACEMENT}/{parts[-1]}" if len(parts) > 3 else _REPLACEMENT


def _word_pattern(words: Iterable[str]) -> re.Pattern[str]:
    alternatives = "|".join(map(re.escape, words))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])", re.IGNORECASE)


def collect_private_names(document: Any) -> set[str]:
    """Return the names of hosts and users in a JSON document.

    Such names are:

    - Text below a key such as `hostname`, `job_nodelist` or `user`, also in arrays.
    - Text after such a key in a string, as in `Test %nid=node7`.
    - Users of home folders.
    """
    names: set[str] = set()
    pending: list[tuple[bool, Any]] = [(False, document)]
    while pending:
        is_private, value = pending.pop()
        if isinstance(value, dict):
            if is_private:
                names.update(*map(_split_names, value))
            pending += [
                (is_private or _is_key_of_names(key), child) for key, child in value.items()
            ]
        elif isinstance(value, list):
            pending += [(is_private, child) for child in value]
        elif isinstance(value, str):
            text = value[:_MAX_SEARCHED]
            names.update(_OWNED_HOME.findall(text))
            for key, words in _PARAMETER.findall(text):
                if _is_key_of_names(key):
                    names |= _split_names(words)
            if is_private:
                names |= {text.strip()} | _split_names(text)
    return {name for name in names if name.lower() not in _HARMLESS_WORDS}


def _is_key_of_names(key: str) -> bool:
    words = [word.lower() for word in _KEY_WORD.findall(key)]
    return bool({*words[-1:], "".join(words[-2:])} & _KEYS_OF_NAMES)


def _split_names(text: str) -> set[str]:
    """Return the names in a list such as `node[1-3],login1`. Numbers are no names."""
    return {name for name in _LISTED_NAME.findall(text) if re.search("[A-Za-z]", name)}


def make_private_text_redactor(extra_names: Iterable[str]) -> Callable[[str], str]:
    """Return a function that replaces private text with an ellipsis ("…").

    The function replaces:

    - Each name in `extra_names`, and the part of the name before its first dot. Upper and lower
      case are not distinguished. Names and parts with 1 or more than 253 characters are kept.
    - Words that differ from such a name only in their digits, such as `node8` and `node[1-3]`, if
      the name has two letters.
    - Paths of home folders, such as `/home/USER` and `/gpfs/home/USER`.
    - Email addresses.
    - User names and passwords in URLs.

    A number after the ellipsis tells names apart: "…1" is the first name that was replaced.
    """
    variants = {
        variant.lower() for name in extra_names for variant in (name, name.partition(".")[0])
    }
    names = {variant for variant in variants if 1 < len(variant) <= _MAX_HOST_NAME}
    digits_vary = {name for name in names if len(re.findall("[a-z]", name)) >= _MIN_LETTERS}
    kinds = {_DIGITS.sub("0", name) for name in digits_vary}
    alternatives = "|".join(
        _DIGITS_PATTERN.join(map(re.escape, _DIGITS.split(name)))
        for name in sorted(kinds | (names - digits_vary), key=lambda name: (-len(name), name))
    )
    pattern = re.compile(rf"(?:{alternatives})(?!\d)", re.IGNORECASE)
    numbers: dict[str, int] = {}

    def number_name(match: re.Match[str]) -> str:
        name = match[0].lower()
        is_word = not _LETTER_OR_DIGIT.match(
            match.string[match.start() - 1 : match.start()]
        ) and not _LETTER_OR_DIGIT.match(match.string, match.end())
        is_known = name in names
        is_similar = is_word and _DIGITS.sub("0", name) in kinds
        if not is_similar and not (is_known and (is_word or _is_distinctive(name))):
            return match[0]
        return f"{_REPLACEMENT}{numbers.setdefault(name.partition('.')[0], len(numbers) + 1)}"

    def redact_private_text(text: str) -> str:
        redacted = _HOME_USER.sub(
            _REPLACEMENT, _EMAIL.sub(_REPLACEMENT, _PASSWORD.sub(_REPLACEMENT, text))
        )
        return pattern.sub(number_name, redacted) if alternatives else redacted

    return redact_private_text


def _is_distinctive(name: str) -> bool:
    """Return whether a name is also recognised inside a longer word, as in `test_onnode0007`."""
    return len(name) >= 5 and bool(re.search("[a-z]", name) and re.search("[0-9]", name))


def describe_private_name(text: str, host_hashes: Collection[str]) -> str | None:
    """Describe one private name in a text, or return None if the text has none.

    Home folders are searched first, then email addresses, then host names. A word is a host name
    if `host_hashes` contains the hash of the word or of a part of the word. So is a name in a list
    such as `node[1-3]`. Names that many machines share, such as `vm`, say nothing. Hashes of
    others, which have another salt, find no names.
    """
    if match := _HOME_USER.search(text):
        return f"the home folder of {match[1]}"
    if match := _EMAIL.search(text):
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


def host_hash(name: str) -> str:
    """Return the hash of a host name as a record's `machine.hostname_hash` has it.

    The hash has a salt that only this user knows. Without it, anyone could try usual names.
    """
    key = read_or_create_salt(salt_file())
    return hmac.new(key, name.encode(errors="surrogateescape"), "sha256").hexdigest()[:16]


def host_hash_of_earlier_versions(name: str) -> str:
    """Return the hash of a host name in records of earlier versions, which have no salt."""
    return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16]


def salt_file() -> Path:
    """Return the path of the file with the salt for host names."""
    return platformdirs.user_config_path("xfbench") / "host-salt"


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
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
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
