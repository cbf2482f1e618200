"""Checks results for defects (`xfbench results validate`).

Defects are invalid schemas and digests, impossible figures, duplicate launches, missing or
mismatched certificates, and searches without their launches. Packs and archives are also checked
for completeness. `Defect` lists all kinds of defects.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from xfbench.analysis.leaderboard import Certificates
from xfbench.base import digests, paths
from xfbench.base.errors import UsageError
from xfbench.exchange import archive, submission, submission_audit
from xfbench.execution.validity import peak_defect, steps_longer_than_wall_time_defect
from xfbench.host.roofline import compute_record_min_peak_share
from xfbench.model import certificate, provenance
from xfbench.model.certificate import Certificate
from xfbench.model.external_record import figure_error
from xfbench.model.record import Record
from xfbench.model.sealed import EditedError, future_error
from xfbench.store import pack, results_folder, tuning_results
from xfbench.store.tuning_results import Tuning

_ID_PATTERN = re.compile("[0-9a-f]{64}")
Kind = Literal[
    "schema",
    "digest",
    "name",
    "certificate",
    "number",
    "peak",
    "time",
    "figure",
    "duplicate",
    "whole",
    "machine",
    "repeat",
    "private",
]


@dataclass(frozen=True)
class Defect:
    """A defect of a file, of a line of a pack, or of a member of an archive.

    `file` is PATH:NUMBER for a line of a pack, PATH:NAME for a member of an archive, and otherwise
    the path of the file. `detail` is a message. `defect` is the kind of defect:

    - "schema": the file is not a valid record or search, or cannot be read.
    - "digest": the content does not match the id, because the content was edited.
    - "name": the name or the folder of the file does not match the id.
    - "certificate": the record's certificate is missing, edited, or for other records.
    - "number": the record has a number that no launch can have, such as a negative duration.
    - "peak": the launch is faster than the peak of its cores.
    - "time": the steps take longer than the launch, or the record is of the future.
    - "figure": the external figure is impossible or has no citation. Also: a measured record has an
      external figure, or the record of an external figure names a certificate.
    - "duplicate": another file has a record of the same launch.
    - "whole": a pack, archive, search or submission lacks a part, or has a part that does not
      belong to it.

    These kinds occur only in submissions:

    - "machine": the machines in `machine.json` are not those of the records.
    - "repeat": a cell in `repeat.json` or its command is invalid, or does not match the records.
    - "private": a file names a host or a user.
    """

    file: str
    defect: Kind
    detail: str

    def document(self) -> dict[str, str]:
        """Return the defect as `xfbench results validate --json` prints it."""
        return asdict(self)


@dataclass(frozen=True)
class _AuditedFile:
    """A document to check.

    - `file`: the file as a `Defect` names it.
    - `content`: bytes of the document.
    - `named`: hexadecimal id that the file name or the line of a pack states, or None.
    - `packed`: whether the document is a verified line of a pack.
    """

    file: str
    content: bytes
    named: str | None
    packed: bool = False

    @property
    def is_certificate(self) -> bool:
        return any(map(self._states_schema, (certificate.SCHEMA, certificate.BATCH_SCHEMA)))

    @property
    def is_search(self) -> bool:
        return self._states_schema(tuning_results.SCHEMA)

    def _states_schema(self, schema: str) -> bool:
        return f'"{schema}"'.encode() in self.content[:4096] and not self.packed


def validate_results(path: Path) -> tuple[int, list[Defect]]:
    """Return the number of checked documents, and their defects.

    `path` is a results folder, a submission, a record, a certificate, a search, a pack or an
    archive. Raises UsageError if `path` is none of these.
    """
    defects: list[Defect] = []
    certificates: Certificates | None = None
    if path.is_dir():
        if submission.is_submission(path):
            defects += [Defect(*finding) for finding in submission_audit.audit_submission(path)]
        certificates = certificate.read_certificates(
            results_folder.open_existing_store(path).folder
        )
        parts = _files_of_folder(path, defects)
    elif not path.is_file():
        raise UsageError(f"{path}: no such file or folder")
    elif archive.is_archive(path):
        certificates, parts = {}, _members_of_archive(path, defects)
        for part in _members_of_archive(path, []):
            if part.is_certificate:
                certificates[f"sha256:{part.named}"] = _parse_certificate(part)
    elif path.suffix in (".json", pack.SUFFIX):
        folder = path.parent.parent if path.suffix == pack.SUFFIX else path.parent.parent.parent
        if (folder / "certificates").is_dir():
            certificates = certificate.read_certificates(folder)
        parts = (_lines_of_pack if path.suffix == pack.SUFFIX else _single_file)(path, defects)
    else:
        raise UsageError(f"{path}: not a folder, .json, {pack.SUFFIX} or .tar file")
    return _audit_files(parts, certificates, defects), defects


def _files_of_folder(folder: Path, defects: list[Defect]) -> Iterator[_AuditedFile]:
    folder_store = results_folder.Store(folder)
    for path in sorted(paths.iterate_below(folder / "records")):
        if path.suffix != ".json" or path.name.startswith("."):
            continue
        yield from _single_file(path, defects)
        if (
            not _ID_PATTERN.fullmatch(path.stem)
            or path.parent != folder / "records" / path.stem[:2]
        ):
            detail = "a record with this name belongs in another folder"
            defects.append(Defect(str(path), "name", detail))
    for path in folder_store.packs():
        yield from _lines_of_pack(path, defects)
    for name in ("certificates", tuning_results.FOLDER):
        for path in sorted((folder / name).glob("[!.]*.json")):
            yield from _single_file(path, defects)


def _single_file(path: Path, defects: list[Defect]) -> Iterator[_AuditedFile]:
    try:
        named = path.stem if _ID_PATTERN.fullmatch(path.stem) else None
        yield _AuditedFile(str(path), results_folder.read_record_file(path), named)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        defects.append(Defect(str(path), "schema", f"cannot be read: {why}"))


def _lines_of_pack(path: Path, defects: list[Defect]) -> Iterator[_AuditedFile]:
    try:
        for line in pack.read_lines_and_defects(path):
            location = f"{path}:{line.number}" if line.number else str(path)
            if line.identity is None:
                kind: Kind = "digest" if line.number else "whole"
                defects.append(Defect(location, kind, str(line.defect)))
            else:
                yield _AuditedFile(location, line.content, line.identity, packed=True)
    except OSError as error:
        defects.append(Defect(str(path), "whole", f"cannot be read: {error.strerror or error}"))


def _members_of_archive(path: Path, defects: list[Defect]) -> Iterator[_AuditedFile]:
    try:
        for name, content in archive.read_members_then_check_manifest(path):
            yield _AuditedFile(f"{path}:{name}", content, Path(name).stem)
    except archive.ArchiveError as error:
        defects.append(Defect(str(path), "whole", str(error)))


def _audit_files(
    files: Iterable[_AuditedFile], certificates: Certificates | None, defects: list[Defect]
) -> int:
    """Check each file, add the defects to `defects`, and return the number of files.

    If `certificates` is None, the certificates of the records are not checked.
    """
    count = 0
    places: dict[str, tuple[str, bool]] = {}  # `file` and `packed` of each launch, by its keys
    searches: list[_AuditedFile] = []
    for count, file in enumerate(files, 1):  # noqa: B007
        if file.is_certificate:
            certificate_or_error = _parse_certificate(file)
            if isinstance(certificate_or_error, str):
                defects.append(Defect(file.file, "certificate", certificate_or_error))
            continue
        if file.is_search:
            searches.append(file)
            continue
        try:
            record = _parse_record(file)
        except EditedError as error:
            defects.append(Defect(file.file, "digest", str(error)))
            continue
        except ValueError as error:
            defects.append(Defect(file.file, "schema", _first_error(error)))
            continue
        if file.named not in (None, record.id[7:]):
            defects.append(Defect(file.file, "name", f"its id is {record.id}"))
        defects += _find_impossible_figures(file.file, record)
        if error_text := _duplicate_record_or_launch_error(file, record, places):
            defects.append(Defect(file.file, "duplicate", error_text))
        if certificates is not None and (error_text := _certificate_error(record, certificates)):
            defects.append(Defect(file.file, "certificate", error_text))
    for file in searches:
        defects += _audit_search(file, places)
    return count


def _audit_search(file: _AuditedFile, record_ids: Collection[str]) -> Iterator[Defect]:
    """Yield the defects of a search.

    A launch of the search is missing if `record_ids` does not contain its record. If `record_ids`
    is empty, no records were given, and missing launches are not a defect.
    """
    try:
        search = Tuning.read(file.content)
    except ValueError as error:
        kind: Kind = "digest" if isinstance(error, EditedError) else "schema"
        yield Defect(file.file, kind, _first_error(error))
        return
    if file.named not in (None, search.id[7:]):
        yield Defect(file.file, "name", f"its id is {search.id}")
    missing = sum(record_id not in record_ids for record_id in search.records)
    if record_ids and missing:
        detail = f"{missing} of its {len(search.records)} launches are missing"
        yield Defect(file.file, "whole", detail)


def _parse_record(file: _AuditedFile) -> Record:
    """Return the record in `file`.

    Raises EditedError if the record was edited, and ValueError if it is invalid.
    """
    if file.packed:
        return results_folder.parse_pack_line(file.content, str(file.named))
    return Record.read(file.content)


def _parse_certificate(file: _AuditedFile) -> Certificate | str:
    """Return the certificate in `file`, or a text that says what is wrong with it."""
    try:
        parsed = Certificate.read(file.content)
    except EditedError as error:
        return f"it was edited: {error}"
    except ValueError as error:
        return f"it is not a certificate: {_first_error(error)}"
    if file.named not in (None, parsed.id[7:]):
        return f"the file name does not match the id, {parsed.id}"
    return parsed


def _find_impossible_figures(file_name: str, record: Record) -> Iterator[Defect]:
    """Yield the defects of a record's external figure and of the record's measurement.

    The measurement is checked only if the status of the record is "ok".
    """
    if problem := future_error(record.created):
        yield Defect(file_name, "time", problem)
    if problem := _figure_source_mismatch(record):
        yield Defect(file_name, "figure", problem)
    measurement, request = record.measurement, record.request
    if record.status != "ok" or measurement is None or request is None:
        return
    if problem := provenance.impossible_number(record):
        yield Defect(file_name, "number", problem)
        return
    if problem := steps_longer_than_wall_time_defect(request, measurement):
        yield Defect(file_name, "time", problem)
    if problem := peak_defect(compute_record_min_peak_share(record)):
        yield Defect(file_name, "peak", problem)


def _figure_source_mismatch(record: Record) -> str | None:
    """Return why a record's external figure or citation does not fit its source, or None.

    The source of a launch is "measured", whoever launched it with xfbench. Such a record must not
    have an external figure. A record with another source must have an external figure and a
    citation, and must not name a certificate.
    """
    if record.source == "measured":
        return "a measured record has an external figure" if record.figure else None
    if record.figure is None or record.citation is None:
        return f"the {record.source} record has no figure or no citation"
    if record.certificate or record.batch_certificate:
        return f"the {record.source} record names a certificate"
    return figure_error(record.figure)


def _duplicate_record_or_launch_error(
    audited: _AuditedFile, record: Record, earlier_launches: dict[str, tuple[str, bool]]
) -> str | None:
    """Return a message that names an earlier file with the same launch, or None.

    `earlier_launches` maps keys of each earlier launch to (file, whether the file is a pack). The
    keys are the record's id and digests of values that identify the launch. The launch of `record`
    is added.

    The result is None if the same record is in a pack and in a single file, because that happens
    when packing is interrupted.
    """
    place = audited.file, audited.packed
    file, packed = earlier_launches.setdefault(record.id, place)
    if file != audited.file:
        return None if packed != audited.packed else f"the same record as {file}"
    measurement, request = record.measurement, record.request
    if record.source == "published" or measurement is None or request is None:
        return None
    times_s = [
        measurement.first_step_seconds,
        measurement.step_seconds,
        measurement.rank_step_seconds,
    ]
    identifying_values = {"measurement": [*times_s, measurement.wall_seconds]}
    if record.cell:
        identifying_values["cell, launch number and time"] = [
            record.cell,
            request.launch,
            record.created,
        ]
    for description, identifying_value in identifying_values.items():
        file, _ = earlier_launches.setdefault(
            digests.of_bytes(repr(identifying_value).encode())[7:39], place
        )
        if file != audited.file:
            return f"another record of the launch in {file}: it has the same {description}"
    return None


def _certificate_error(record: Record, certificates: Certificates) -> str | None:
    """Return what is wrong with a certificate that the record names, or None."""
    if record.status != "ok":
        return None
    for certificate_id in filter(None, (record.certificate, record.batch_certificate)):
        named = certificates.get(certificate_id)
        if named is None:
            return f"{certificate_id} is missing"
        # A launch of a batch that is known to be different is no defect. It is not ranked.
        is_batch = certificate_id == record.batch_certificate
        check = certificate.mismatch_error if is_batch else certificate.coverage_error
        error = named if isinstance(named, str) else check(named, record)
        if error:
            return error
    return None


def _first_error(error: ValueError) -> str:
    """Return the first problem that `error` states, in one line."""
    if isinstance(error, ValidationError):
        first_error = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first_error["loc"]))
        return f"{field}: {first_error['msg']}" if field else first_error["msg"]
    return str(error).splitlines()[0]
