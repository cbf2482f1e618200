"""Records in one file for somebody else, with what goes with them: a tar, `xfbench.archive/1`.

It holds `records/<id>.json`, `certificates/<id>.json` and `tuned/<id>.json`, the searches whose
launches are all among the records, byte for byte, and at its end `manifest.json` with the size and
the digest of each. Equal contents make equal archives. Who reads
one trusts nothing in it: only files with these names, of a bounded size and number, and nothing
is ever unpacked to a path that the archive names.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from xfbench.base import atomic_files, digests
from xfbench.base.errors import UsageError
from xfbench.equality import certificate
from xfbench.equality.certificate import Certificate
from xfbench.records.record import Record
from xfbench.records.sealed import LONGEST, EditedError, Sealed
from xfbench.results import merging, pack, store
from xfbench.results.store import Complain, Place, Store
from xfbench.tuning import saved
from xfbench.tuning.saved import Tuning

SCHEMA = "xfbench.archive/1"
SUFFIXES = (".tar", ".tar.gz", ".tgz")
_MANIFEST = "manifest.json"
_NAME = re.compile(r"(records|certificates|tuned)/[0-9a-f]{64}\.json|manifest\.json")
_BESIDE: dict[str, type[Sealed]] = {"certificates": Certificate, saved.FOLDER: Tuning}
_MOST_FILES = 5_000_000
_MOST_BYTES = 2**38
_LONGEST_MANIFEST = 2**30
_WRONG = (
    *(tarfile.TarError, EOFError, OSError, ValueError, TypeError, KeyError, AttributeError),
    *(RecursionError, zlib.error),
)


class ArchiveError(UsageError):
    """A file is no archive of ours, is cut off, or has something in it that has no place there."""


def write(target: Path, found: Iterable[tuple[Place, Record]], source: Store) -> int:
    """Write these records, certificates and searches; how many records. Raises OSError."""
    certificates = certificate.read_folder(source.folder)
    searches = list(saved.contents(source.folder, store.silent))
    count = 0

    def into(file: IO[bytes]) -> None:
        nonlocal count
        packed = None if target.suffix == ".tar" else gzip.GzipFile("", "wb", 6, file, mtime=0)
        files: dict[str, dict[str, Any]] = {}
        named: set[str] = set()
        written: set[str] = set()
        with tarfile.open(
            fileobj=cast(IO[bytes], packed or file), mode="w", format=tarfile.USTAR_FORMAT
        ) as tar:
            for place, record in found:
                content = place.content()
                if place.length is not None:
                    content = pack.as_file(content)
                _add(tar, f"records/{record.id[7:]}.json", content, files)
                count += 1
                if searches:
                    written.add(record.id)
                if record.certificate:
                    named.add(record.certificate)
            for one in sorted(named):
                if isinstance(certificates.get(one), Certificate):
                    content = source.certificate_path(one).read_bytes()
                    _add(tar, f"certificates/{one[7:]}.json", content, files)
            for search, content in sorted(searches, key=lambda one: one[0].id):
                if search.records and written.issuperset(search.records):
                    _add(tar, f"{saved.FOLDER}/{search.id[7:]}.json", content, files)
            manifest = {"schema": SCHEMA, "files": files}
            _add(tar, _MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode(), {})
        if packed:
            packed.close()

    atomic_files.write(target, into)
    return count


def _add(tar: tarfile.TarFile, name: str, content: bytes, files: dict[str, dict[str, Any]]) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
    files[name] = {"bytes": len(content), "digest": digests.of_bytes(content)}


def take(source: Path, target: Store, complain: Complain) -> tuple[int, int]:
    """Take in what an archive holds: how many of its records are new, and how many were there.

    Nothing of an archive that is not whole is taken; of a whole one what is no record, certificate
    or search is told of and left. Raises ArchiveError, and UsageError where the folder cannot be
    written.
    """
    for _ in members(source):
        pass
    target.prepare()
    have = {record.id for record, _, _ in target.contents()}
    new = known = 0
    for name, content in members(source):
        kind, identity = name.removesuffix(".json").split("/")
        try:
            if kind == "records":
                record = store.read(content, identity)
                if record.id in have:
                    known += 1
                else:
                    merging.keep(record, None, content, target)
                    have.add(record.id)
                    new += 1
            elif _BESIDE[kind].read(content).id != f"sha256:{identity}":
                raise EditedError("its name is not its id")
            elif not (path := target.folder / name).exists():
                atomic_files.write(path, content)
        except ValueError as error:
            complain(store.told(name, error))
        except OSError as error:
            raise UsageError(f"{target.folder}: {error.strerror}") from error
    return new, known


class _Bounded:
    """A file of which nobody can ask for more at once than there should be."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.close = file.seek, file.tell, file.close

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _LONGEST_MANIFEST:
            raise ArchiveError("it has a header of an impossible size")
        return self._file.read(size)


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Every file in the archive but the manifest: name and content.

    Raises ArchiveError, in the end at the latest, for what is no whole archive of ours, or has
    other contents than its manifest says.
    """
    seen: dict[str, str] = {}
    manifest: Any = None
    total = 0
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            file: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            with tarfile.open(fileobj=cast(IO[bytes], _Bounded(file)), mode="r:") as tar:
                for member in tar:
                    setattr(tar, "members", [])  # noqa: B010  which tarfile would keep
                    total += member.size
                    _allow(member, seen, total)
                    content = cast(IO[bytes], tar.extractfile(member)).read(member.size)
                    if len(content) != member.size:
                        raise ArchiveError(f"{path.name} is cut off")
                    seen[member.name] = digests.of_bytes(content)
                    if member.name == _MANIFEST:
                        manifest = json.loads(content)
                    else:
                        yield member.name, content
        listed = {name: one["digest"] for name, one in manifest["files"].items()}
        if manifest["schema"] != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
    except _WRONG as error:
        raise ArchiveError(f"{path.name} is no whole archive of records: {error}") from error
    del seen[_MANIFEST]
    wrong = sorted(name for name in {*listed, *seen} if listed.get(name) != seen.get(name))
    if wrong:
        raise ArchiveError(f"{path.name} is not as its manifest says: {', '.join(wrong[:3])}")


def _allow(member: tarfile.TarInfo, seen: dict[str, str], total: int) -> None:
    longest = _LONGEST_MANIFEST if member.name == _MANIFEST else LONGEST
    reason = None
    if not member.isreg() or member.issparse():
        reason = "is no plain file"
    elif not _NAME.fullmatch(member.name):
        reason = "has no place in an archive of records"
    elif member.name in seen:
        reason = "is there twice"
    elif member.size > longest or total > _MOST_BYTES or len(seen) > _MOST_FILES:
        reason = "is more than an archive of records may hold"
    if reason:
        raise ArchiveError(f"{member.name!r} {reason}: nothing of it is taken")
