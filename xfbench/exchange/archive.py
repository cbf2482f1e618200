"""Archives: records, their certificates and tuning searches in one file (`xfbench.archive/1`).

An archive is a tar file with the members `records/<id>.json`, `certificates/<id>.json` and
`tuned/<id>.json`. Each member has the same bytes as the file in the results folder, unless that
file has private names (`private_copies.py`). A record from a pack is written as a single record
file. A tuning search is included if all its launches are among
the records. The last member is `manifest.json`, with the size and digest of each other member. The
same contents always give the same archive.

Archives are not trusted. Only members with these names are read, and their size and number are
limited. Nothing is unpacked to a path that the archive names.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from xfbench.base import atomic_files, digests, strict_json, tar_files
from xfbench.base.errors import UsageError
from xfbench.exchange.private_copies import PrivateCopies
from xfbench.model import certificate
from xfbench.model.certificate import Certificate
from xfbench.model.record import Record
from xfbench.model.sealed import MAX_DOCUMENT_BYTES, EditedError, SealedDocument
from xfbench.store import copies, merging, results_folder, tuning_results
from xfbench.store.results_folder import Place, Store, WarningHandler
from xfbench.store.tuning_results import Tuning

SCHEMA = "xfbench.archive/1"
SUFFIXES = (".tar", ".tar.gz", ".tgz")
_MANIFEST = "manifest.json"
_MEMBER_NAME = re.compile(r"(records|certificates|tuned)/[0-9a-f]{64}\.json|manifest\.json")
_DOCUMENT_TYPES: dict[str, type[SealedDocument]] = {
    "certificates": Certificate,
    tuning_results.FOLDER: Tuning,
}
_MAX_FILES = 1_000_000
_MAX_BYTES = 2**38
_MAX_EXPANSION = 100  # of a compressed archive; those of records expand 5 to 20 times
# Most bytes of the manifest: some, and more for each member. An entry has about 200.
_MANIFEST_BYTES = 2**20
_MANIFEST_BYTES_PER_FILE = 512
_MAX_MANIFEST_BYTES = 2**28
_MANIFEST_VALUES_PER_FILE = 8  # an entry has three marks that `strict_json` counts
_READ_ERRORS = (
    *(tarfile.TarError, EOFError, OSError, ValueError, TypeError, KeyError, AttributeError),
    *(RecursionError, zlib.error),
)


class ArchiveError(UsageError):
    """The file is not an archive of records, is truncated, or has an unexpected member."""


def is_archive(file: Path) -> bool:
    """Return whether a file is an archive, by its name or by its first bytes."""
    return file.name.endswith(SUFFIXES) or tar_files.is_tar(file)


def write_archive(
    target: Path,
    records: Iterable[tuple[Place, Record]],
    source_store: Store,
    warn: WarningHandler = results_folder.ignore_warning,
) -> int:
    """Write an archive to the file `target`, and return its number of records.

    The records, their certificates and the searches come from `source_store`. The archive is
    compressed with gzip unless the suffix of `target` is ".tar". `warn` gets a message for each
    private name in the settings of records. Raises OSError if a file cannot be read or written,
    and UsageError if there are too many files.
    """
    certificates = certificate.read_certificates(source_store.folder)
    searches = list(
        tuning_results.read_searches_with_content(
            source_store.folder, results_folder.ignore_warning
        )
    )
    count = 0
    private_copies = PrivateCopies(source_store, warn)

    def write_tar(file: IO[bytes]) -> None:
        nonlocal count
        gzip_file = None if target.suffix == ".tar" else gzip.GzipFile("", "wb", 6, file, mtime=0)
        files: dict[str, dict[str, Any]] = {}
        certificate_ids: set[str] = set()
        record_ids: set[str] = set()
        with tarfile.open(
            fileobj=cast(IO[bytes], gzip_file or file), mode="w", format=tarfile.USTAR_FORMAT
        ) as tar:
            for place, record in records:
                copy, content = private_copies.copy_record(place, record)
                _add_member(tar, f"records/{copy.id[7:]}.json", content, files)
                count += 1
                if searches:
                    record_ids.add(record.id)
                certificate_ids.update(certificate.find_certificate_ids(record, certificates))
            for certificate_id in sorted(certificate_ids):
                if isinstance(certificates.get(certificate_id), Certificate):
                    copy_id, content = private_copies.copy_certificate(certificate_id)
                    _add_member(tar, f"certificates/{copy_id[7:]}.json", content, files)
            for search, stored in sorted(searches, key=lambda search: search[0].id):
                if search.records and record_ids.issuperset(search.records):
                    copy_id, content = private_copies.copy_search(stored)
                    _add_member(tar, f"{tuning_results.FOLDER}/{copy_id[7:]}.json", content, files)
            manifest = {"schema": SCHEMA, "files": files}
            _add_member(tar, _MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode(), {})
        if gzip_file:
            gzip_file.close()

    atomic_files.write(target, write_tar)
    private_copies.remember()
    return count


def _add_member(
    tar: tarfile.TarFile, name: str, content: bytes, files: dict[str, dict[str, Any]]
) -> None:
    if len(files) >= _MAX_FILES - 1:  # without the manifest
        raise UsageError(
            f"an archive can have at most {_MAX_FILES:,} files: export fewer records with --where"
        )
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
    files[name] = {"bytes": len(content), "digest": digests.of_bytes(content)}


def import_archive(source: Path, target: Store, warn: WarningHandler) -> tuple[int, int]:
    """Import the archive `source` into the results folder `target`.

    Return the number of new records, and the number of records that `target` already had. An
    incomplete archive is not imported at all. In a complete archive, a member that is not a valid
    record, certificate or search is skipped with a warning.

    Raises ArchiveError if the archive is incomplete or has an unexpected member. Raises UsageError
    if `target` cannot be written.
    """
    valid_digests = {
        name: digests.of_bytes(content)
        for name, content in read_members_then_check_manifest(source)
    }
    target.create_and_check_folders()
    existing_ids = {record.id for record, _, _ in target.contents()}
    existing_ids = copies.ids_with_copies(target, existing_ids)
    counts: Counter[str] = Counter()
    members = read_members_then_check_manifest(source)
    for batch in merging.in_batches(members, lambda member: len(member[1])):
        ids: dict[str, list[str]] = defaultdict(list)
        for name, content in batch:
            if valid_digests.get(name) != digests.of_bytes(content):
                raise ArchiveError(f"{source.name} changed while it was read: import it again")
            kind, identity = _kind_and_id(name)
            ids[kind].append(identity)
        new_ids = [each for each in ids["records"] if each not in existing_ids]
        merging.note_origin(
            target,
            "imported",
            source,
            new_ids,
            ids["certificates"],
            ids[tuning_results.FOLDER],
        )
        for name, content in batch:
            try:
                counts[_import_member(name, content, target, existing_ids)] += 1
            except ValueError as error:
                warn(results_folder.defect_message(name, error))
            except OSError as error:
                raise UsageError(f"{target.folder}: {error.strerror}") from error
    return counts["new"], counts["known"]


def _kind_and_id(member_name: str) -> tuple[str, str]:
    """Return the folder of a member of an archive, and the id that its name states."""
    kind, identity = member_name.removesuffix(".json").split("/")
    return kind, f"sha256:{identity}"


def _import_member(name: str, content: bytes, target: Store, existing_ids: set[str]) -> str:
    """Write a member to `target` unless it is there. Return "new", "known", or "" if no record.

    The id of a new record is added to `existing_ids`. Raises ValueError if the member is invalid,
    and OSError if it cannot be written.
    """
    kind, identity = _kind_and_id(name)
    if kind == "records":
        record = results_folder.parse_record(content, identity[7:])
        if record.id in existing_ids:
            return "known"
        merging.write_record_file(record, None, content, target)
        existing_ids.add(record.id)
        return "new"
    if _DOCUMENT_TYPES[kind].read(content).id != identity:
        raise EditedError("the file name does not match the id")
    if not (path := target.folder / name).exists():
        atomic_files.write(path, content)
    return ""


def read_members_then_check_manifest(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of every file in the archive except the manifest.

    Raises ArchiveError if the archive is incomplete or does not match its manifest. The error may
    be raised only after the last member was yielded.
    """
    digests_by_name: dict[str, str] = {}
    manifest: Any = None
    try:
        with tar_files.open_tar(path, _MAX_BYTES, _MAX_EXPANSION, _MAX_FILES) as tar:
            for member in tar.members():
                max_bytes = _check_member(member, digests_by_name)
                content = tar.read_member(member, max_bytes)
                if len(content) != member.size:
                    raise ArchiveError(f"{path.name} is truncated")
                digests_by_name[member.name] = digests.of_bytes(content)
                if member.name == _MANIFEST:
                    max_values = _MANIFEST_VALUES_PER_FILE * len(digests_by_name)
                    manifest = strict_json.parse(content, max_values=max_values)
                else:
                    yield member.name, content
        listed_digests = {name: entry["digest"] for name, entry in manifest["files"].items()}
        if manifest["schema"] != SCHEMA:
            raise ValueError(f"the schema of the manifest is not {SCHEMA}")
    except _READ_ERRORS as error:
        raise ArchiveError(f"{path.name} is not a complete archive of records: {error}") from error
    del digests_by_name[_MANIFEST]
    mismatches = sorted(
        name
        for name in {*listed_digests, *digests_by_name}
        if listed_digests.get(name) != digests_by_name.get(name)
    )
    if mismatches:
        raise ArchiveError(f"{path.name} does not match its manifest: {', '.join(mismatches[:3])}")


def _check_member(member: tarfile.TarInfo, earlier_names: Collection[str]) -> int:
    """Return how many bytes the archive `member` may have.

    Raises ArchiveError if the member is not allowed. `earlier_names` has the names of the earlier
    members. The manifest is the last member, so they limit its size.
    """
    max_bytes = MAX_DOCUMENT_BYTES
    if member.name == _MANIFEST:
        max_bytes = _MANIFEST_BYTES + _MANIFEST_BYTES_PER_FILE * len(earlier_names)
        max_bytes = min(max_bytes, _MAX_MANIFEST_BYTES)
    reason = None
    if not member.isreg() or member.issparse():
        reason = "is not a regular file"
    elif not _MEMBER_NAME.fullmatch(member.name):
        reason = "does not belong in an archive of records"
    elif member.name in earlier_names:
        reason = "occurs twice"
    elif not member.size:
        reason = "is empty"
    elif not 0 <= member.size <= max_bytes:
        reason = "exceeds the limits of an archive of records"
    if reason:
        raise ArchiveError(
            f"{member.name!r} {reason}: the archive is refused; import the file that `xfbench "
            "results export` wrote, or unpack this one and import its folder"
        )
    return max_bytes
