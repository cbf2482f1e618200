"""Where the records, certificates and tuning searches of a results folder came from.

A record cannot say this itself: whoever sends it writes it. So a note in the results folder says
it, in `origins/`. Each import writes a note (`xfbench.origin/1`) before it writes what it lists. A
record without a note was measured here, which means: a launch wrote it to this results folder.

Notes stay where they are. No import copies a note, and no archive or submission has one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from xfbench.base import atomic_files, safe_read
from xfbench.model.record import Record
from xfbench.model.sealed import MAX_DOCUMENT_BYTES, SealedDocument

FOLDER = "origins"
SCHEMA: Literal["xfbench.origin/1"] = "xfbench.origin/1"
ForeignOrigin = Literal["carried", "imported", "submitted"]
Origin = Literal["measured", "carried", "imported", "submitted", "published", "unknown"]
WORDS: dict[Origin, str] = {
    "measured": "measured here",
    "carried": "measured elsewhere and carried",
    "imported": "imported",
    "submitted": "submitted",
    "published": "published",
    "unknown": "unknown",
}
_MAX_IDS = 100_000  # of a note


class Note(SealedDocument):
    """What one import brought: the ids of the documents that the folder did not have.

    - `records`, `certificates`, `searches`: ids. Notes of earlier versions have no searches.
    - `source`: name of the imported file or folder, without its parent folders.
    - `bundle`: for a bundle, a digest of its plan and its results; else None.
    """

    schema_: Literal["xfbench.origin/1"] = Field(default=SCHEMA, alias="schema")
    origin: ForeignOrigin
    source: str
    bundle: str | None = None
    records: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Origins:
    """The origins of a results folder. Empty: everything was measured here.

    - `records`, `certificates`, `searches`: the note of each id that has one.
    - `problems`: a message for each note that cannot be read. If there is one, a record without a
      note has the origin "unknown".
    """

    records: Mapping[str, Note] = field(default_factory=dict)
    certificates: Mapping[str, Note] = field(default_factory=dict)
    searches: Mapping[str, Note] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def of_record(self, record: Record) -> Origin:
        """Return the origin of a record."""
        return self.of(record.id, record.source)

    def of(self, record_id: str, source: str = "measured") -> Origin:
        """Return the origin of the record with this id and `source`."""
        if source == "published":
            return "published"
        if note := self.records.get(record_id):
            return note.origin
        if source != "measured":  # a value of another tool
            return "imported"
        return "unknown" if self.problems else "measured"

    def describe(self, record: Record) -> str:
        """Return where the record came from, such as "imported (from theirs.tar.gz)"."""
        words = WORDS[self.of_record(record)]
        note = self.records.get(record.id)
        return f"{words} (from {note.source})" if note else words


@dataclass(frozen=True)
class ForeignRecords:
    """The ids of records in a results folder that were not measured here.

    Certificates refer to them in every process that builds rows. Only the folder is sent there.

    - `notes`: the names of the notes, so that a later import gives another value.
    """

    folder: Path
    notes: tuple[str, ...]

    def __contains__(self, record_id: object) -> bool:
        return record_id in _read_ids(self)


@lru_cache(maxsize=8)
def _read_ids(foreign_records: ForeignRecords) -> frozenset[str]:
    return frozenset(read(foreign_records.folder).records)


def foreign_records(results_folder: Path) -> ForeignRecords:
    """Return the ids of the records in a results folder that were not measured here."""
    names = sorted(path.name for path in (results_folder / FOLDER).glob("*.json"))
    return ForeignRecords(results_folder.absolute(), tuple(names))


NOTHING_IMPORTED = Origins()


def read(results_folder: Path) -> Origins:
    """Return the origins of the records, certificates and searches in a results folder."""
    records: dict[str, Note] = {}
    certificates: dict[str, Note] = {}
    searches: dict[str, Note] = {}
    problems = []
    for path in sorted((results_folder / FOLDER).glob("*.json")):
        try:
            note = Note.read(safe_read.read_bytes(path, MAX_DOCUMENT_BYTES))
            if note.id != f"sha256:{path.stem}":
                raise ValueError("the file name does not match the id")
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            problems.append(f"{path.name}: the origin of some records is unknown: {reason}")
            continue
        records |= dict.fromkeys(note.records, note)
        certificates |= dict.fromkeys(note.certificates, note)
        searches |= dict.fromkeys(note.searches, note)
    return Origins(records, certificates, searches, tuple(problems))


def write_notes(
    results_folder: Path,
    origin: ForeignOrigin,
    source: Path,
    records: Iterable[str],
    certificates: Collection[str] = (),
    bundle: str | None = None,
    searches: Collection[str] = (),
) -> None:
    """Write the origin of documents that are about to be added.

    - `source`: the imported file or folder.
    - `records`, `certificates`, `searches`: ids of those that the results folder does not have yet.

    Raises OSError if a note cannot be written.
    """
    ids = sorted(records)
    source_name = os.fsencode(source.absolute().name).decode(errors="backslashreplace")
    for start in range(0, len(ids) or bool(certificates or searches), _MAX_IDS):
        note = Note.make(
            origin=origin,
            source=source_name,
            bundle=bundle,
            records=tuple(ids[start : start + _MAX_IDS]),
            certificates=tuple(sorted(certificates)) if start == 0 else (),
            searches=tuple(sorted(searches)) if start == 0 else (),
        )
        target = results_folder / FOLDER / f"{note.id[7:]}.json"
        atomic_files.write(target, note.model_dump_json(by_alias=True).encode() + b"\n")
