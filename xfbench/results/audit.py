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
from xfbench.equality import certificate
from xfbench.equality.certificate import Certificate
from xfbench.host.roofline import record_peak_share
from xfbench.records import provenance
from xfbench.records.elsewhere import impossible
from xfbench.records.record import Record
from xfbench.records.sealed import EditedError
from xfbench.results import archive, pack, store, submission, submission_audit
from xfbench.results.submission_audit import Parse
from xfbench.running.validity import beyond_peak, overlong
from xfbench.tuning import saved
from xfbench.tuning.saved import Tuning

_ID = re.compile("[0-9a-f]{64}")
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
class _Part:
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
        return self._says(saved.SCHEMA)

    def _says(self, schema: str) -> bool:
        return f'"{schema}"'.encode() in self.content[:4096] and not self.packed


def validate(path: Path, parse: Parse | None = None) -> tuple[int, list[Defect]]:
    """How many records, certificates and searches there were, and what is wrong with them.

    `path` is a results folder, a submission, a record, a certificate, a pack or an archive; `parse`
    tries a submission's commands. Raises UsageError for what is none of these.
    """
    defects: list[Defect] = []
    certificates: Certificates | None = None
    if path.is_dir():
        if submission.is_one(path):
            defects += [Defect(*found) for found in submission_audit.defects(path, parse)]
        certificates = certificate.of_folder(store.existing(path).folder)
        parts = _of_folder(path, defects)
    elif not path.is_file():
        raise UsageError(f"{path}: there is no such file or folder")
    elif path.name.endswith(archive.SUFFIXES):
        certificates, parts = {}, _of_archive(path, defects)
        for part in _of_archive(path, []):
            if part.is_certificate:
                certificates[f"sha256:{part.named}"] = _certificate(part)
    elif path.suffix in (".json", pack.SUFFIX):
        above = path.parent.parent if path.suffix == pack.SUFFIX else path.parent.parent.parent
        if (above / "certificates").is_dir():
            certificates = certificate.of_folder(above)
        parts = (_of_pack if path.suffix == pack.SUFFIX else _of_file)(path, defects)
    else:
        raise UsageError(f"{path}: a folder, .json, {pack.SUFFIX} or .tar is needed")
    return _look(parts, certificates, defects), defects


def _of_folder(folder: Path, defects: list[Defect]) -> Iterator[_Part]:
    kept = store.Store(folder)
    for path in sorted((folder / "records").rglob("*.json")):
        yield from _of_file(path, defects)
        if not _ID.fullmatch(path.stem) or path.parent != folder / "records" / path.stem[:2]:
            detail = "it is not where a record of its name is looked for"
            defects.append(Defect(str(path), "name", detail))
    for path in kept.packs():
        yield from _of_pack(path, defects)
    for name in ("certificates", saved.FOLDER):
        for path in sorted((folder / name).glob("*.json")):
            yield from _of_file(path, defects)


def _of_file(path: Path, defects: list[Defect]) -> Iterator[_Part]:
    try:
        named = path.stem if _ID.fullmatch(path.stem) else None
        yield _Part(str(path), store.content_of(path), named)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        defects.append(Defect(str(path), "schema", f"it cannot be read: {why}"))


def _of_pack(path: Path, defects: list[Defect]) -> Iterator[_Part]:
    try:
        for line in pack.lines(path):
            where = f"{path}:{line.number}" if line.number else str(path)
            if line.identity is None:
                kind: Kind = "digest" if line.number else "whole"
                defects.append(Defect(where, kind, str(line.defect)))
            else:
                yield _Part(where, line.content, line.identity, packed=True)
    except OSError as error:
        defects.append(Defect(str(path), "whole", f"it cannot be read: {error.strerror}"))


def _of_archive(path: Path, defects: list[Defect]) -> Iterator[_Part]:
    try:
        for name, content in archive.members(path):
            yield _Part(f"{path}:{name}", content, Path(name).stem)
    except archive.ArchiveError as error:
        defects.append(Defect(str(path), "whole", str(error)))


def _look(parts: Iterable[_Part], certificates: Certificates | None, defects: list[Defect]) -> int:
    """Look at one after another; how many they were."""
    count = 0
    seen: dict[str, tuple[str, bool]] = {}  # what tells a launch, and where it was
    searches: list[_Part] = []
    for count, part in enumerate(parts, 1):  # noqa: B007
        if part.is_certificate:
            found = _certificate(part)
            if isinstance(found, str):
                defects.append(Defect(part.file, "certificate", found))
            continue
        if part.is_search:
            searches.append(part)
            continue
        try:
            record = _record(part)
        except EditedError as error:
            defects.append(Defect(part.file, "digest", str(error)))
            continue
        except ValueError as error:
            defects.append(Defect(part.file, "schema", _line(error)))
            continue
        if part.named not in (None, record.id[7:]):
            defects.append(Defect(part.file, "name", f"its id is {record.id}"))
        defects += _of_figures(part.file, record)
        if why := _again(part, record, seen):
            defects.append(Defect(part.file, "duplicate", why))
        if certificates is not None and (why := _uncertified(record, certificates)):
            defects.append(Defect(part.file, "certificate", why))
    for part in searches:
        defects += _of_search(part, seen)
    return count


def _of_search(part: _Part, seen: Collection[str]) -> Iterator[Defect]:
    """What is wrong with a search; its launches are `seen`, where any record was."""
    try:
        found = Tuning.read(part.content)
    except ValueError as error:
        kind: Kind = "digest" if isinstance(error, EditedError) else "schema"
        yield Defect(part.file, kind, _line(error))
        return
    if part.named not in (None, found.id[7:]):
        yield Defect(part.file, "name", f"its id is {found.id}")
    missing = sum(one not in seen for one in found.records)
    if seen and missing:
        told = f"{missing} of its {len(found.records)} launches are not there"
        yield Defect(part.file, "whole", told)


def _record(part: _Part) -> Record:
    """Raises ValueError, among them EditedError, where it is none."""
    if part.packed:  # its line has been verified
        return Record.model_validate_json(part.content, extra="ignore")
    return Record.read(part.content)


def _certificate(part: _Part) -> Certificate | str:
    """The certificate, or what is wrong with it."""
    try:
        found = Certificate.read(part.content)
    except EditedError as error:
        return f"it was edited: {error}"
    except ValueError as error:
        return f"it is no certificate: {_line(error)}"
    if part.named not in (None, found.id[7:]):
        return f"its name is not its id, {found.id}"
    return found


def _of_figures(file: str, record: Record) -> Iterator[Defect]:
    """Figures that cannot be, of a launch that passes for a good one."""
    if why := _elsewhere(record):
        yield Defect(file, "figure", why)
    measured, request = record.measurement, record.request
    if record.status != "ok" or measured is None or request is None:
        return
    if why := provenance.impossible(record):
        yield Defect(file, "number", why)
        return
    if why := overlong(request, measured):
        yield Defect(file, "time", why)
    if why := beyond_peak(record_peak_share(record)):
        yield Defect(file, "peak", why)


def _elsewhere(record: Record) -> str | None:
    """What is wrong with a figure that was not measured here, or with a record that is to have one.

    A launch that somebody else measured with xfbench is a measured one.
    """
    if record.source == "measured":
        return "it was measured, and has a figure from elsewhere" if record.figure else None
    if record.figure is None or record.citation is None:
        return f"it is {record.source}, and has no figure, or does not say from where"
    if record.certificate:
        return f"it is {record.source}, and says that it was proven equal here"
    return impossible(record.figure)


def _again(part: _Part, record: Record, seen: dict[str, tuple[str, bool]]) -> str | None:
    """Where the same launch was before, in words.

    A record that is packed and a file still is one record: packing was cut short.
    """
    place = part.file, part.packed
    file, packed = seen.setdefault(record.id, place)
    if file != part.file:
        return None if packed != part.packed else f"the same record as {file}"
    measured, request = record.measurement, record.request
    if record.source == "published" or measured is None or request is None:
        return None
    times = [measured.first_step_seconds, measured.step_seconds, measured.rank_step_seconds]
    keys = {"measurement": [*times, measured.wall_seconds]}
    if record.cell:
        keys["cell, launch number and time"] = [record.cell, request.launch, record.created]
    for what, key in keys.items():
        file, _ = seen.setdefault(digests.of_bytes(repr(key).encode())[7:39], place)
        if file != part.file:
            return f"another record of the launch in {file}: the same {what}"
    return None


def _uncertified(record: Record, certificates: Certificates) -> str | None:
    """What is wrong with the certificate that the record names."""
    if record.certificate is None or record.status != "ok":
        return None
    found = certificates.get(record.certificate)
    if found is None:
        return f"{record.certificate}, which it names, is not there"
    return found if isinstance(found, str) else certificate.refusal(found, record)


def _line(error: ValueError) -> str:
    """The first thing that is wrong, in a line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else first["msg"]
    return str(error).splitlines()[0]
