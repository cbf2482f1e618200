"""Merges results folders. Records with the same id count as the same record.

Merging the same folders again changes nothing. A record is copied with its certificate and its run
folder. The searches of `xfbench tune` are also copied. Invalid records, certificates and searches
are skipped with a warning.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from xfbench.base import atomic_files
from xfbench.base.errors import UsageError
from xfbench.model import certificate
from xfbench.model.certificate import Certificate
from xfbench.model.record import Record
from xfbench.store import copies, pack, results_folder, tuning_results
from xfbench.store.results_folder import Place, Store, WarningHandler


def merge_stores(sources: Sequence[Store], target: Store, warn: WarningHandler) -> tuple[int, int]:
    """Merge the results folders `sources` into `target`.

    Return the number of new records, and the number of records that `target` already had. Raises
    UsageError if `target` cannot be written.
    """
    target.create_and_check_folders()
    existing_ids = {record.id for record, _, _ in target.contents()}
    existing_ids = copies.ids_with_copies(target, existing_ids)
    new_count = known_count = 0
    for source in sources:
        if source.folder.resolve() == target.folder.resolve():
            continue
        copy_searches(source.folder, target, _prefix_warnings(source.folder, warn))
        certificates = certificate.read_certificates(source.folder)
        for record, place, content in source.contents(_prefix_warnings(source.folder, warn)):
            try:
                for certificate_id in certificate.find_certificate_ids(record, certificates):
                    if certificate_id in certificates:
                        _copy_certificate(source, certificates.pop(certificate_id), target, warn)
                if record.id in existing_ids:
                    known_count += 1
                    continue
                copy_run_folder(source.run_folder(record), target.run_folder(record), target)
                write_record_file(record, place, content, target)
            except ValueError as error:
                warn(f"{source.folder}: {results_folder.defect_message(record.id, error)}")
                continue
            except OSError as error:
                raise UsageError(f"{target.folder}: {error.strerror}") from error
            existing_ids.add(record.id)
            new_count += 1
    return new_count, known_count


def import_pack(source: Path, target: Store, warn: WarningHandler) -> tuple[int, int]:
    """Import the records of the pack `source` into `target`. A pack has no certificates.

    Return the number of new records, and the number of records that `target` already had. Raises
    UsageError if `target` cannot be written.
    """
    target.create_and_check_folders()
    existing_ids = {record.id for record, _, _ in target.contents()}
    existing_ids = copies.ids_with_copies(target, existing_ids)
    new_count = known_count = 0
    for line, record in results_folder.read_records_of_pack(source, warn, (), ()):
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
    the reformatted content is no valid record.
    """
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
    if not path.exists():
        atomic_files.write(path, source.certificate_path(certificate_or_error.id).read_bytes())


def copy_searches(source: Path, target: Store, warn: WarningHandler) -> None:
    """Copy the searches of `xfbench tune` from the results folder `source` to `target`.

    `warn` gets a message for each invalid search. Raises UsageError if `target` cannot be written.
    """
    for search, content in tuning_results.read_searches_with_content(source, warn):
        try:
            atomic_files.write(search.file_path(target.folder), content)
        except OSError as error:
            raise UsageError(f"{target.folder}: {error.strerror}") from error


def copy_run_folder(source_folder: Path, target_folder: Path, target_store: Store) -> None:
    """Copy the regular files of a run folder to `target_folder`, unless that folder exists.

    Symbolic links and subfolders are skipped. Files ending in .pyz are hard-linked if possible.
    """
    if target_folder.exists() or source_folder.is_symlink() or not source_folder.is_dir():
        return
    new_folder = target_store.create_run_folder()
    for path in source_folder.iterdir():
        if path.is_symlink() or not path.is_file():
            continue
        try:
            if path.suffix != ".pyz":  # only .pyz files are linked, because many runs share them
                raise OSError
            os.link(path, new_folder / path.name)
        except OSError:
            shutil.copy2(path, new_folder / path.name)
    new_folder.replace(target_folder)
