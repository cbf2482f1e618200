"""What is wrong with results: every defect that the files themselves show, by its file.

A record's schema and digest, figures that cannot be, a launch that is there twice, a certificate
that is missing or says something else, a search without its launches; of packs and archives also
whether they are whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from xfbench.analysis.leaderboard import Certificates
from xfbench.base import digests
from xfbench.base.errors import UsageError
from xfbench.exchange import archive, submission, submission_audit
from xfbench.exchange.submission_audit import CommandParser
from xfbench.execution.validity import peak_defect, step_time_defect
from xfbench.host.roofline import record_peak_share
from xfbench.model import certificate, provenance
from xfbench.model.certificate import Certificate
from xfbench.model.external_record import figure_error
from xfbench.model.record import Record
from xfbench.model.sealed import EditedError
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
    """What is wrong with a file, or with the part of it that is named after a colon.

    "schema": no record, or none that can be read; "digest": edited, its content is not what its
    id says; "name": it is called otherwise than its id; "certificate": missing, edited, or not for
    this record; "number": one that no launch has; "peak": faster than the machine can be; "time":
    its steps take longer than the time that passed; "figure": from elsewhere, and it cannot be, or
    does not say from where;
    "duplicate": one launch twice; "whole": a pack, an archive, a search or a submission lacks
    something, or has something that does not belong. Of a submission also "machine": it describes
    others than its records; "repeat": no command for a cell, or another; "private": a host or a
    user is named.
    """

    file: str
    defect: Kind
    detail: str

    def document(self) -> dict[str, str]:
        """As `results validate --json` prints it."""
        return asdict(self)


@dataclass(frozen=True)
class _AuditedFile:
    """A document to look at: what to call it, its bytes, the id that its name says, if any."""

    file: str
    content: bytes
    named: str | None
    packed: bool = False

    @property
    def is_certificate(self) -> bool:
        return self._says(certificate.SCHEMA)

    @property
    def is_search(self) -> bool:
        return self._says(tuning_results.SCHEMA)

    def _says(self, schema: str) -> bool:
        return f'"{schema}"'.encode() in self.content[:4096] and not self.packed


def validate(path: Path, parse: CommandParser | None = None) -> tuple[int, list[Defect]]:
    """How many records, certificates and searches there were, and what is wrong with them.

    `path` is a results folder, a submission, a record, a certificate, a pack or an archive; `parse`
    tries a submission's commands. Raises UsageError for what is none of these.
    """
    defects: list[Defect] = []
    certificates: Certificates | None = None
    if path.is_dir():
        if submission.is_submission(path):
            defects += [
                Defect(*finding) for finding in submission_audit.audit_submission(path, parse)
            ]
        certificates = certificate.read_folder(results_folder.open_store(path).folder)
        parts = _files_of_folder(path, defects)
    elif not path.is_file():
        raise UsageError(f"{path}: there is no such file or folder")
    elif path.name.endswith(archive.SUFFIXES):
        certificates, parts = {}, _members_of_archive(path, defects)
        for part in _members_of_archive(path, []):
            if part.is_certificate:
                certificates[f"sha256:{part.named}"] = _parse_certificate(part)
    elif path.suffix in (".json", pack.SUFFIX):
        folder = path.parent.parent if path.suffix == pack.SUFFIX else path.parent.parent.parent
        if (folder / "certificates").is_dir():
            certificates = certificate.read_folder(folder)
        parts = (_lines_of_pack if path.suffix == pack.SUFFIX else _single_file)(path, defects)
    else:
        raise UsageError(f"{path}: a folder, .json, {pack.SUFFIX} or .tar is needed")
    return _audit_files(parts, certificates, defects), defects


def _files_of_folder(folder: Path, defects: list[Defect]) -> Iterator[_AuditedFile]:
    folder_store = results_folder.Store(folder)
    for path in sorted((folder / "records").rglob("*.json")):
        yield from _single_file(path, defects)
        if (
            not _ID_PATTERN.fullmatch(path.stem)
            or path.parent != folder / "records" / path.stem[:2]
        ):
            detail = "it is not where a record of its name is looked for"
            defects.append(Defect(str(path), "name", detail))
    for path in folder_store.packs():
        yield from _lines_of_pack(path, defects)
    for name in ("certificates", tuning_results.FOLDER):
        for path in sorted((folder / name).glob("*.json")):
            yield from _single_file(path, defects)


def _single_file(path: Path, defects: list[Defect]) -> Iterator[_AuditedFile]:
    try:
        named = path.stem if _ID_PATTERN.fullmatch(path.stem) else None
        yield _AuditedFile(str(path), results_folder.read_record_file(path), named)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        defects.append(Defect(str(path), "schema", f"it cannot be read: {why}"))


def _lines_of_pack(path: Path, defects: list[Defect]) -> Iterator[_AuditedFile]:
    try:
        for line in pack.read_lines(path):
            location = f"{path}:{line.number}" if line.number else str(path)
            if line.identity is None:
                kind: Kind = "digest" if line.number else "whole"
                defects.append(Defect(location, kind, str(line.defect)))
            else:
                yield _AuditedFile(location, line.content, line.identity, packed=True)
    except OSError as error:
        defects.append(Defect(str(path), "whole", f"it cannot be read: {error.strerror}"))


def _members_of_archive(path: Path, defects: list[Defect]) -> Iterator[_AuditedFile]:
    try:
        for name, content in archive.read_members(path):
            yield _AuditedFile(f"{path}:{name}", content, Path(name).stem)
    except archive.ArchiveError as error:
        defects.append(Defect(str(path), "whole", str(error)))


def _audit_files(
    files: Iterable[_AuditedFile], certificates: Certificates | None, defects: list[Defect]
) -> int:
    """Look at one after another; how many they were."""
    count = 0
    places: dict[str, tuple[str, bool]] = {}  # what tells a launch, and where it was
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
        defects += _audit_figures(file.file, record)
        if error_text := _duplicate_of(file, record, places):
            defects.append(Defect(file.file, "duplicate", error_text))
        if certificates is not None and (error_text := _certificate_error(record, certificates)):
            defects.append(Defect(file.file, "certificate", error_text))
    for file in searches:
        defects += _audit_search(file, places)
    return count


def _audit_search(file: _AuditedFile, record_ids: Collection[str]) -> Iterator[Defect]:
    """Yield the defects of a search, whose launches must be among `record_ids` if there are any."""
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
        detail = f"{missing} of its {len(search.records)} launches are not there"
        yield Defect(file.file, "whole", detail)


def _parse_record(file: _AuditedFile) -> Record:
    """Raises ValueError, among them EditedError, where it is none."""
    if file.packed:  # its line has been verified
        return Record.model_validate_json(file.content, extra="ignore")
    return Record.read(file.content)


def _parse_certificate(file: _AuditedFile) -> Certificate | str:
    """The certificate, or what is wrong with it."""
    try:
        parsed = Certificate.read(file.content)
    except EditedError as error:
        return f"it was edited: {error}"
    except ValueError as error:
        return f"it is no certificate: {_first_error(error)}"
    if file.named not in (None, parsed.id[7:]):
        return f"its name is not its id, {parsed.id}"
    return parsed


def _audit_figures(file: str, record: Record) -> Iterator[Defect]:
    """Figures that cannot be, of a launch that passes for a good one."""
    if problem := _source_error(record):
        yield Defect(file, "figure", problem)
    measurement, request = record.measurement, record.request
    if record.status != "ok" or measurement is None or request is None:
        return
    if problem := provenance.impossible_number(record):
        yield Defect(file, "number", problem)
        return
    if problem := step_time_defect(request, measurement):
        yield Defect(file, "time", problem)
    if problem := peak_defect(record_peak_share(record)):
        yield Defect(file, "peak", problem)


def _source_error(record: Record) -> str | None:
    """What is wrong with a figure that was not measured here, or with a record that is to have one.

    A launch that somebody else measured with xfbench is a measured one.
    """
    if record.source == "measured":
        return "it was measured, and has a figure from elsewhere" if record.figure else None
    if record.figure is None or record.citation is None:
        return f"it is {record.source}, and has no figure, or does not say from where"
    if record.certificate:
        return f"it is {record.source}, and says that it was proven equal here"
    return figure_error(record.figure)


def _duplicate_of(
    audited: _AuditedFile, record: Record, places: dict[str, tuple[str, bool]]
) -> str | None:
    """Where the same launch was before, in words.

    A record that is packed and a file still is one record: packing was cut short.
    """
    place = audited.file, audited.packed
    file, packed = places.setdefault(record.id, place)
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
        file, _ = places.setdefault(digests.of_bytes(repr(identifying_value).encode())[7:39], place)
        if file != audited.file:
            return f"another record of the launch in {file}: the same {description}"
    return None


def _certificate_error(record: Record, certificates: Certificates) -> str | None:
    """What is wrong with the certificate that the record names."""
    if record.certificate is None or record.status != "ok":
        return None
    certificate_or_error = certificates.get(record.certificate)
    if certificate_or_error is None:
        return f"{record.certificate}, which it names, is not there"
    return (
        certificate_or_error
        if isinstance(certificate_or_error, str)
        else certificate.coverage_error(certificate_or_error, record)
    )


def _first_error(error: ValueError) -> str:
    """The first thing that is wrong, in a line."""
    if isinstance(error, ValidationError):
        first_error = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first_error["loc"]))
        return f"{field}: {first_error['msg']}" if field else first_error["msg"]
    return str(error).splitlines()[0]
