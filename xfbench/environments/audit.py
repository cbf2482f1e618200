"""Comparison of locks with published flaws (advisories), without a network.

Advisories are files in the format of OSV (https://ossf.github.io/osv-schema/): one advisory, a list
of them, an answer of OSV's interface, or a zip file of advisories, as OSV exports a database.

- PyPI's packages are compared by PEP 440, Debian's by Debian's rules.
- Debian's advisories name source packages. `debian_sources.toml` names the source of each package.
- A range that cannot be compared counts as a flaw, because nobody knows that it is none.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import BaseModel, ValidationError

from xfbench.base import paths, safe_read, strict_json, toml_files
from xfbench.base.errors import UsageError
from xfbench.environments import debian
from xfbench.model import adapter

PYPI = "PyPI"
_DEBIAN_RELEASES = {"buster": 10, "bullseye": 11, "bookworm": 12, "trixie": 13, "forky": 14}
_SOURCES = Path(__file__).with_name("debian_sources.toml")
_MAX_FILE_BYTES, _MAX_MEMBER_BYTES, _MAX_UNPACKED_BYTES = 2**30, 16 * 2**20, 2**33
_BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)

_PackageName: TypeAlias = tuple[str, str]  # ecosystem and name


@dataclass(frozen=True)
class LockedPackage:
    """One package of a lock.

    - `ecosystem`: "PyPI", or "Debian:" with the number of a release.
    - `names`: names that advisories use for it: normalised, and for Debian also of its source.
    - `compared_version`: its version as advisories write it, for Debian that of its source.
    """

    lock: Path
    ecosystem: str
    name: str
    version: str
    names: frozenset[str]
    compared_version: str


@dataclass(frozen=True)
class Flaw:
    """A flaw that an advisory reports of a locked package. `note` is empty if it is certain."""

    package: LockedPackage
    advisory: str
    note: str


@dataclass
class Audit:
    """The outcome of a comparison.

    - `advisories`: number of advisories about packages of the locks' ecosystems.
    - `uncompared`: locks of whose ecosystem the files have no advisory.
    """

    packages: list[LockedPackage]
    flaws: list[Flaw] = field(default_factory=list)
    advisories: int = 0
    uncompared: list[Path] = field(default_factory=list)


class _Event(BaseModel):
    introduced: str | None = None
    fixed: str | None = None
    last_affected: str | None = None


class _Range(BaseModel):
    type: str
    events: list[_Event]


class _Package(BaseModel):
    ecosystem: str
    name: str


class _Affected(BaseModel):
    package: _Package | None = None
    ranges: list[_Range] | None = None
    versions: list[str] | None = None


class _Advisory(BaseModel):
    id: str
    withdrawn: str | None = None
    affected: list[_Affected] | None = None


def list_locks() -> list[Path]:
    """Return all locks: of adapters, of xfbench itself, and of its checkout if there is one."""
    package = paths.package_folder("xfbench")
    folders = [*adapter.find_folders().values(), package / "environments"]
    if (package.parent / "pyproject.toml").is_file():
        folders.append(package.parent / "requirements")
    return [lock for folder in folders for lock in sorted(folder.glob("*.lock"))]


def compare(locks: Sequence[Path], advisory_files: Sequence[Path]) -> Audit:
    """Compare each package of `locks` with the advisories in the files.

    Raises UsageError if a lock or an advisory file is invalid, or if the files have no advisory
    about a package of the locks' ecosystems.
    """
    packages = [package for lock in locks for package in read_lock(lock)]
    by_name: dict[_PackageName, list[LockedPackage]] = {}
    for package in packages:
        for name in package.names:
            by_name.setdefault((package.ecosystem, name), []).append(package)
    ecosystems = {package.ecosystem for package in packages}
    audit, covered, flaws = Audit(packages), set[str](), dict[Flaw, None]()
    for advisory in _read_advisories(advisory_files):
        named = {each.package.ecosystem for each in advisory.affected or () if each.package}
        advised = {each for each in ecosystems if _is_about(each, named)}
        covered |= advised
        audit.advisories += bool(advised)
        if not advisory.withdrawn:
            flaws |= dict.fromkeys(_find_flaws(advisory, by_name, advised))
    if not audit.advisories:
        listing = ", ".join(sorted(ecosystems))
        raise UsageError(
            f"{', '.join(map(str, advisory_files))}: no advisory about a package of {listing}, so "
            "nothing was compared: download the advisories again"
        )
    of_lock = {package.lock: package.ecosystem for package in packages}
    audit.uncompared = [lock for lock, ecosystem in of_lock.items() if ecosystem not in covered]
    audit.flaws = sorted(flaws, key=lambda flaw: (str(flaw.package.lock), flaw.package.name))
    return audit


def read_lock(lock: Path) -> list[LockedPackage]:
    """Return the packages of a lock of wheels or of Debian packages.

    Raises UsageError if a line is not understood, so that no package is left out.
    """
    text = lock.read_text(encoding="utf-8")
    is_debian = re.search(r"^[a-z0-9][a-z0-9+.-]+=\S+ sha256:", text, re.M)
    packages = list(_parse_debian_lock(lock, text) if is_debian else _parse_wheels(lock, text))
    for package in packages:
        try:
            _find_key_builder(package.ecosystem)(package.compared_version)
        except ValueError as error:
            raise UsageError(f"{lock}: {package.name}: {error}") from error
    return packages


def _parse_wheels(lock: Path, text: str) -> Iterator[LockedPackage]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith(("#", "--hash=")):
            continue
        match = re.match(r"([A-Za-z0-9][\w.-]*)(?:\[[\w,.-]*\])?==([^\s;\\]+)\s*(?:[;\\]|$)", line)
        if match is None:
            raise UsageError(f"{lock}:{number}: not understood: write NAME==VERSION and hashes")
        names = frozenset({str(canonicalize_name(match[1]))})
        # An advisory about 2.13.0 is about its build 2.13.0+cpu too.
        public_version = match[2].partition("+")[0]
        yield LockedPackage(lock, PYPI, match[1], match[2], names, public_version)


def _parse_debian_lock(lock: Path, text: str) -> Iterator[LockedPackage]:
    made_by = re.match(r"# python -m xfbench\.environments\.debian (\w+) ", text)
    if made_by is None or made_by[1] not in _DEBIAN_RELEASES:
        raise UsageError(f"{lock}:1: the first line names no known release of Debian")
    ecosystem = f"Debian:{_DEBIAN_RELEASES[made_by[1]]}"
    sources = toml_files.read_text_and_content(_SOURCES)[1][made_by[1]]
    for package in debian.read_lock(lock):
        source, _, version = sources.get(package.name, package.name).partition(" ")
        names = frozenset({package.name, source})
        compared_version = version or package.version
        yield LockedPackage(lock, ecosystem, package.name, package.version, names, compared_version)


def _is_about(ecosystem: str, named: Collection[str]) -> bool:
    """Return whether one of the named ecosystems is this one, or all releases of it."""
    return ecosystem in named or ecosystem.partition(":")[0] in named


def _find_flaws(
    advisory: _Advisory, by_name: dict[_PackageName, list[LockedPackage]], ecosystems: set[str]
) -> Iterator[Flaw]:
    for affected in advisory.affected or ():
        if affected.package is None:
            continue
        name = affected.package.name
        for ecosystem in ecosystems:
            if not _is_about(ecosystem, [affected.package.ecosystem]):
                continue
            normalised = str(canonicalize_name(name)) if ecosystem == PYPI else name
            for package in by_name.get((ecosystem, normalised), ()):
                note = _find_match(package, affected)
                if note is not None:
                    yield Flaw(package, advisory.id, note)


def _find_match(package: LockedPackage, affected: _Affected) -> str | None:
    """Return None if the package is not affected, "" if it is, or why nobody can tell."""
    build_key = _find_key_builder(package.ecosystem)
    version = build_key(package.compared_version)
    for listed in affected.versions or ():
        try:
            if build_key(listed) == version:
                return ""
        except ValueError:  # from the time before PEP 440; it equals no version of a lock
            continue
    ranges = [each for each in affected.ranges or () if each.type != "GIT"]
    if not ranges and not affected.versions:
        return "no versions are named"
    try:
        return "" if any(_is_within(version, each, build_key) for each in ranges) else None
    except ValueError:
        return "a version of its range cannot be compared"


def _is_within(version: Any, affected_range: _Range, build_key: Callable[[str], Any]) -> bool:
    """Return whether the version is within the range, as OSV defines it.

    Raises ValueError if a version of the range cannot be compared.
    """
    is_affected, limits = False, []
    for event in affected_range.events:
        if event.introduced == "0":  # all versions from the first one
            is_affected = True
        elif event.introduced:
            limits.append((build_key(event.introduced), 2, True))
        if event.fixed:
            limits.append((build_key(event.fixed), 0, False))
        if event.last_affected:
            limits.append((build_key(event.last_affected), 1, False))
    for limit, kind, affects in sorted(limits):
        if version > limit or (version == limit and kind != 1):
            is_affected = affects
    return is_affected


def _find_key_builder(ecosystem: str) -> Callable[[str], Any]:
    return Version if ecosystem == PYPI else build_debian_key


def build_debian_key(version: str) -> tuple[Any, ...]:
    """Return a key that orders versions as Debian's policy (5.6.12) does.

    Raises ValueError if the version has no upstream part.
    """
    match = re.fullmatch(r"(?:(\d{1,9}):)?([^\s:]\S*?)(?:-([^-\s]*))?", version)
    if match is None:
        raise ValueError(f"no version of Debian: {version}")
    return (int(match[1] or 0), _build_part_key(match[2]), _build_part_key(match[3] or "0"))


def _build_part_key(part: str) -> list[tuple[tuple[int, ...], int]]:
    """Return the key of one part: "~" comes before its end, and letters before other signs."""
    ranks = {"~": -1}
    return [
        (
            (*(ranks.get(sign, ord(sign) + 256 * (not sign.isalpha())) for sign in signs), 0),
            int(digits or 0),
        )
        for signs, digits in re.findall(r"(\D*)(\d*)", part)
    ]


def _read_advisories(files: Sequence[Path]) -> Iterator[_Advisory]:
    for file in files:
        try:
            if file.is_file() and zipfile.is_zipfile(file):
                yield from _read_zip(file)
            else:
                content = safe_read.read_bytes(file, _MAX_FILE_BYTES, follow_link=True)
                yield from _parse_advisories(content)
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror or error}") from error
        except (ValueError, *_BROKEN_ZIP) as error:
            raise UsageError(f"{file}: no advisories in OSV's format: {error}") from error


def _read_zip(file: Path) -> Iterator[_Advisory]:
    unpacked_bytes = 0
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if not member.filename.endswith(".json"):
                continue
            # No more than this is read, even if there is more in the file.
            unpacked_bytes += member.file_size
            if member.file_size > _MAX_MEMBER_BYTES or unpacked_bytes > _MAX_UNPACKED_BYTES:
                raise ValueError(f"{member.filename} is too long")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{member.filename} is compressed in an unusual way")
            yield from _parse_advisories(archive.read(member))


def _parse_advisories(content: bytes) -> Iterator[_Advisory]:
    """Yield the advisories of a JSON document. Raises ValueError if it has another form."""
    for document in _unwrap(strict_json.parse(content)):
        try:
            yield _Advisory.model_validate(document)
        except ValidationError as error:
            [first, *_] = error.errors()
            place = ".".join(map(str, first["loc"])) or "an advisory"
            raise ValueError(f"{place}: {first['msg']}") from error


def _unwrap(document: Any) -> list[Any]:
    """Return the advisories of a list, or of an answer of OSV's interface."""
    if not isinstance(document, dict):
        return document if isinstance(document, list) else [document]
    if isinstance(results := document.get("results"), list):
        return [each for result in results for each in _unwrap(result)]
    if not document:  # an answer without flaws
        return []
    vulnerabilities = document.get("vulns")
    return vulnerabilities if isinstance(vulnerabilities, list) else [document]
