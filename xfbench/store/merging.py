"""Merges results folders. Records with the same id count as the same record.

Merging the same folders again changes nothing. A record is copied with its certificate and its run
folder. The searches of `xfbench tune` are also copied. Invalid records, certificates and searches
are skipped with a warning.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from xfbench.base import atomic_files, digests, safe_read
from xfbench.base.errors import UsageError
from xfbench.base.shared_files import copy_content
from xfbench.base.wording import pluralize
from xfbench.model import certificate, origins
from xfbench.model.certificate import Certificate
from xfbench.model.origins import ForeignOrigin
from xfbench.model.record import Record
from xfbench.model.sealed import MAX_DOCUMENT_BYTES, EditedError, future_error
from xfbench.store import copies, pack, results_folder, tuning_results
from xfbench.store.results_folder import Place, Store, WarningHandler

T = TypeVar("T")
MAX_RUN_FILE_BYTES = 2**28
_BATCH_RECORDS = 1000  # records that share a note of their origin


def merge_stores(
    sources: Sequence[Store],
    target: Store,
    warn: WarningHandler,
    origin: ForeignOrigin = "imported",
    inform: WarningHandler = results_folder.ignore_warning,
) -> tuple[int, int]:
    """Merge the results folders `sources` into `target`, which notes the `origin` of what is new.

    `inform` gets a message if files of runs were left out, because they cannot be read: run folders
    are private. Return the number of new records, and the number of records that `target` already
    had. Raises UsageError if `target` cannot be written.
    """
    target.create_and_check_folders()
    existing_ids = {record.id for record, _, _ in target.contents()}
    existing_ids = copies.ids_with_copies(target, existing_ids)
    workers: dict[str, Path] = {}
    new_count = known_count = 0
    for source in sources:
        if source.folder.resolve() == target.folder.resolve():
            continue
        copy_searches(source.folder, target, origin, _prefix_warnings(source.folder, warn))
        certificates = certificate.read_certificates(source.folder)
        incomplete_runs = 0
        contents = source.contents(_prefix_warnings(source.folder, warn))
        for batch in in_batches(contents, lambda item: len(item[2])):
            new_ids = [record.id for record, _, _ in batch if record.id not in existing_ids]
            proofs = {
                certificate_id: certificates[certificate_id]
                for record, _, _ in batch
                for certificate_id in certificate.find_certificate_ids(record, certificates)
                if certificate_id in certificates
            }
            note_origin(target, origin, source.folder, new_ids, proofs)
            for certificate_id, proof in proofs.items():
                del certificates[certificate_id]
                _copy_certificate(source, proof, target, warn)
            for record, place, content in batch:
                if record.id in existing_ids:
                    known_count += 1
                    continue
                try:
                    incomplete_runs += not copy_run_folder(
                        source.run_folder(record), target.run_folder(record), target, workers
                    )
                    write_record_file(record, place, content, target)
                except ValueError as error:
                    warn(f"{source.folder}: {results_folder.defect_message(record.id, error)}")
                    continue
                except OSError as error:
                    raise UsageError(f"{target.folder}: {error.strerror}") from error
                existing_ids.add(record.id)
                new_count += 1
        if incomplete_runs:
            inform(
                f"{source.folder}: files of {pluralize(incomplete_runs, 'run')} were left out, "
                "because only their owner can read them; the records are complete"
            )
    return new_count, known_count


def write_carried(
    target: Store,
    bundle: Path,
    bundle_digest: str,
    certificates: Sequence[tuple[Certificate, bytes]],
    records: Sequence[tuple[Record, Path]],
) -> None:
    """Write what a bundle brought, after a note that it was measured elsewhere and carried.

    - `certificates`: each certificate and its bytes.
    - `records`: each new record and the folder of its launch.

    Raises UsageError if `target` cannot be written.
    """
    new = [item for item in certificates if not target.certificate_path(item[0].id).exists()]
    record_ids, certificate_ids = (
        [document.id for document, _ in items] for items in (records, new)
    )
    try:
        origins.write_notes(
            target.folder, "carried", bundle, record_ids, certificate_ids, bundle_digest
        )
        for certificate_file, content in new:
            atomic_files.write(target.certificate_path(certificate_file.id), content)
        workers: dict[str, Path] = {}
        for record, launch_folder in records:
            copy_run_folder(launch_folder, target.run_folder(record), target, workers)
            target.add(record)
    except OSError as error:
        raise UsageError(f"{target.folder}: {error.strerror}") from error


def in_batches(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the items in batches of limited size. `size_of` returns the bytes of an item."""
    batch: list[T] = []
    size = 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if len(batch) >= _BATCH_RECORDS or size >= MAX_DOCUMENT_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def note_origin(
    target: Store,
    origin: ForeignOrigin,
    source: Path,
    record_ids: Collection[str],
    certificate_ids: Iterable[str] = (),
    search_ids: Iterable[str] = (),
) -> None:
    """Note in `target` where these documents come from, before they are written.

    Certificates and searches that `target` has already are left out, because they are what they
    were. Raises UsageError if `target` cannot be written.
    """
    new_certificates = [
        each for each in certificate_ids if not target.certificate_path(each).exists()
    ]
    new_searches = [
        each for each in search_ids if not tuning_results.file_path(target.folder, each).exists()
    ]
    try:
        origins.write_notes(
            target.folder,
            origin,
            source,
            record_ids,
            new_certificates,
            searches=new_searches,
        )
    except OSError as error:
        raise UsageError(f"{target.folder}: {error.strerror}") from error


def import_pack(source: Path, target: Store, warn: WarningHandler) -> tuple[int, int]:
    """Import the records of the pack `source` into `target`. A pack has no certificates.

    Return the number of new records, and the number of records that `target` already had. Raises
    UsageError if `target` cannot be written.
    """
    target.create_and_check_folders()
    existing_ids = {record.id for record, _, _ in target.contents()}
    existing_ids = copies.ids_with_copies(target, existing_ids)
    new_count = known_count = 0
    lines = results_folder.read_records_of_pack(source, warn, (), ())
    for batch in in_batches(lines, lambda item: len(item[0].content)):
        new_ids = [record.id for _, record in batch if record.id not in existing_ids]
        note_origin(target, "imported", source, new_ids)
        for line, record in batch:
            if record.id in existing_ids:
                known_count += 1
                continue
            place = Place(source, 0, len(line.content))
            try:
                write_record_file(record, place, line.content, target)
            except ValueError as error:
                warn(results_folder.defect_message(f"{source.name} line {line.number}", error))
            except OSError as error:
                raise UsageError(f"{target.folder}: {error.strerror}") from error
            else:
                existing_ids.add(record.id)
                new_count += 1
    return new_count, known_count


def _prefix_warnings(folder: Path, warn: WarningHandler) -> WarningHandler:
    return lambda line: warn(f"{folder}: {line}")


def write_record_file(
    record: Record, content_place: Place | None, content: bytes, target_store: Store
) -> None:
    """Write a record to its own file in `target_store`.

    `content` is the record as stored at `content_place`. If `content_place` is a line of a pack,
    `content` is reformatted, and checked again, because its digest was that of the line. If
    `content_place` is a single file or None, `content` is written unchanged. Raises ValueError if
    the reformatted content is no valid record, or if the record was created in the future.
    """
    if error := future_error(record.created):
        raise ValueError(error)
    if content_place is not None and content_place.length is not None:
        content = pack.to_record_file_content(content)
        results_folder.parse_record(content, record.id[7:])
    atomic_files.write(target_store.record_path(record.id[7:]), content)


def _copy_certificate(
    source: Store, certificate_or_error: Certificate | str, target: Store, warn: WarningHandler
) -> None:
    if isinstance(certificate_or_error, str):
        warn(f"{source.folder}: {certificate_or_error}")
        return
    path = target.certificate_path(certificate_or_error.id)
    try:
        if not path.exists():
            content = safe_read.read_bytes(
                source.certificate_path(certificate_or_error.id),
                MAX_DOCUMENT_BYTES,
                follow_link=True,
            )
            if Certificate.read(content).id != certificate_or_error.id:
                raise EditedError("it changed meanwhile")
            atomic_files.write(path, content)
    except ValueError as error:  # another user replaced it after it was checked
        warn(f"{source.folder}: {path.name}: {str(error).splitlines()[0]}; left out")
    except OSError as error:
        raise UsageError(f"{target.folder}: {error.strerror}") from error


def copy_searches(source: Path, target: Store, origin: ForeignOrigin, warn: WarningHandler) -> None:
    """Copy the searches of `xfbench tune` from the results folder `source` to `target`.

    `target` notes the `origin` of those that it does not have. `warn` gets a message for each
    invalid search. Raises UsageError if `target` cannot be written.
    """
    searches = tuning_results.read_searches_with_content(source, warn)
    for batch in in_batches(searches, lambda item: len(item[1])):
        note_origin(target, origin, source, (), search_ids=[search.id for search, _ in batch])
        for search, content in batch:
            try:
                atomic_files.write(search.file_path(target.folder), content)
            except OSError as error:
                raise UsageError(f"{target.folder}: {error.strerror}") from error


def copy_run_folder(
    source_folder: Path, target_folder: Path, target_store: Store, workers: dict[str, Path]
) -> bool:
    """Copy the plain files of a run folder to `target_folder`, unless that folder exists.

    - Symbolic links, subfolders, and files of more than MAX_RUN_FILE_BYTES are skipped.
    - A folder or a file that this user cannot read is skipped. The result is then false.
    - Only contents are copied: neither modes nor owners, and no link to a file of another user.
    - `workers` has the copied workers by digest. Runs with the same worker share one copy, because
      many runs have the same. New copies are added.
    """
    try:
        if target_folder.exists() or source_folder.is_symlink() or not source_folder.is_dir():
            return True
        files = [path for path in source_folder.iterdir() if _is_copied(path)]
    except PermissionError as error:
        if error.filename == str(target_folder):
            raise
        return False
    new_folder = target_store.create_run_folder()
    try:
        is_complete, copies = _copy_run_files(files, new_folder, workers)
        new_folder.replace(target_folder)
    except BaseException:
        shutil.rmtree(new_folder, ignore_errors=True)
        raise
    workers.update({digest: target_folder / name for digest, name in copies.items()})
    return is_complete


def _is_copied(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISREG(status.st_mode)


def _copy_run_files(
    files: Iterable[Path], new_folder: Path, workers: Mapping[str, Path]
) -> tuple[bool, dict[str, str]]:
    """Copy files to `new_folder`.

    Return whether all could be read, and the name of each new worker by digest.
    """
    is_complete, copies = True, {}
    for path in files:
        copy = new_folder / path.name
        try:
            copy_content(path, copy, max_bytes=MAX_RUN_FILE_BYTES)
        except ValueError:  # it is too long
            continue
        except PermissionError as error:
            if error.filename != str(path):
                raise
            is_complete = False
            continue
        if path.suffix == ".pyz":
            digest = digests.of_bytes(copy.read_bytes())
            _replace_by_link(copy, workers.get(digest))
            copies[digest] = path.name
    return is_complete, copies


def _replace_by_link(copy: Path, earlier_copy: Path | None) -> None:
    """Replace a file by a link to an earlier copy, if there is one and links are possible."""
    if earlier_copy is None:
        return
    link = copy.with_name(f"{copy.name}.link")
    with suppress(OSError):
        os.link(earlier_copy, link)
        link.replace(copy)
