"""The results folder: immutable records, and the folders of their runs.

A record is a JSON file of its own, or a line of a pack (see `pack.py`): both are read side by
side, and one that is in several places is one. It appears whole or not at all: temporary file,
fsync, rename. Two drivers may write into one folder; what is no record is told about, never
repaired.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from xfbench.base import atomic_files, locks, safe_read
from xfbench.base.errors import UsageError
from xfbench.records.record import Record
from xfbench.records.sealed import LONGEST, EditedError
from xfbench.results import pack

_README = """Results of xfbench.

records/       one JSON file per launch, schema xfbench.record/1; never changed
packs/         many records in one file, a line each (`xfbench results pack`); never changed
certificates/  what was proven equal, named by the records it covers; never changed
runs/          what each launch was given and what it said; command.sh runs it again
tuned/         what `xfbench tune` found, a file per search; never changed
jobs/          scripts of submitted jobs, and what they wrote
index.duckdb   made from records/ and packs/ to find things sooner; may be deleted at any time
A file under records/ may be copied elsewhere; runs/ may be deleted.
"""
Complain = Callable[[str], None]


def silent(_: str) -> None:
    """For whoever does not want to hear of what is no record."""


@dataclass(frozen=True)
class Place:
    """Where a record's bytes are: a file, or a part of one."""

    path: Path
    offset: int = 0
    length: int | None = None

    def content(self) -> bytes:
        """The bytes. Raises OSError."""
        if self.length is None:
            return content_of(self.path)
        with self.path.open("rb") as file:
            return os.pread(file.fileno(), self.length, self.offset)

    def record(self, identity: str) -> Record:
        """The record, verified. Raises OSError, and ValueError where it is not that record."""
        return read(self.content(), identity, packed=self.length is not None)


def content_of(path: Path) -> bytes:
    """What a record's own file holds. Raises OSError, and ValueError where it is endless."""
    return safe_read.read_bytes(path, LONGEST, follow_link=True)


def read(content: bytes, identity: str, *, packed: bool = False) -> Record:
    """The record that `content` is, verified; `packed`: as a line of a pack.

    Raises ValueError, among them EditedError and ValidationError, where it is not that of the
    hexadecimal id.
    """
    if packed:
        found = Record.model_validate_json(content, extra="ignore")
        named = pack.identity(content)
    else:
        found = Record.read(content)
        named = found.id[7:]
    if named != identity:
        raise EditedError("its name is not its id")
    return found


def told(name: str, error: Exception) -> str:
    """What is wrong with a file, in a line."""
    if isinstance(error, EditedError):
        return f"{name}: {error}; left out"
    return f"{name}: not a record: {str(error).splitlines()[0]}"


class Store:
    """One results folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folder. Raises UsageError if it cannot be written, or anybody may write it."""
        try:
            (self.folder / "records").mkdir(parents=True, exist_ok=True)
            (self.folder / "runs").mkdir(exist_ok=True)
            for folder in (self.folder, self.folder / "runs"):
                mode = folder.stat().st_mode
                if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:  # what is run could be replaced
                    raise UsageError(
                        f"{folder} can be written by anybody, and launches run what is in it: "
                        "chmod o-w it, or name another folder with --results"
                    )
            readme = self.folder / "README"
            if not readme.exists():
                readme.write_text(_README, encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"{self.folder}: {error.strerror}: name another folder with --results"
            ) from error

    def new_run(self) -> Path:
        """A fresh folder for a launch that has no record yet."""
        return Path(tempfile.mkdtemp(prefix="running-", dir=self.folder / "runs"))

    def run_folder(self, record: Record) -> Path:
        return self.folder / "runs" / record.id[7:23]

    def certificate_path(self, identity: str) -> Path:
        return self.folder / "certificates" / f"{identity[7:]}.json"

    def single_path(self, identity: str) -> Path:
        """Where the record with this hexadecimal id is as a file of its own."""
        return self.folder / "records" / identity[:2] / f"{identity}.json"

    def add(self, record: Record, run: Path | None = None) -> None:
        """Keep a record, and let its run's folder carry its name from now on. Raises OSError."""
        text = json.dumps(record.document(), indent=1, ensure_ascii=False) + "\n"
        atomic_files.write(self.single_path(record.id[7:]), text.encode())
        if run is not None:
            with suppress(FileNotFoundError):  # its worker took the folder away
                run.replace(self.run_folder(record))

    @property
    def lock_path(self) -> Path:
        """Held by whoever packs, or has the index."""
        return self.folder / "lock"

    def singles(self) -> Iterator[Path]:
        """The files that are to be a record each."""
        return (self.folder / "records").glob("??/*.json")

    def packs(self) -> list[Path]:
        return sorted((self.folder / "packs").glob(f"*{pack.SUFFIX}"))

    def contents(
        self, complain: Complain = silent, skip: Container[str] = ()
    ) -> Iterator[tuple[Record, Place, bytes]]:
        """Every record but those with an id in `skip`, in no order, with its place and bytes.

        `complain` hears of each file or line that is none.
        """
        seen: set[str] = set()
        for path in self.singles():
            if f"sha256:{path.stem}" in skip:
                continue
            try:
                found = content_of(path)
                record = read(found, path.stem)
            except FileNotFoundError:
                continue  # packed meanwhile, and found there
            except (ValidationError, OSError, ValueError) as error:
                complain(told(path.name, error))
            else:
                seen.add(record.id)
                yield record, Place(path), found
        done: set[Path] = set()
        while fresh := [path for path in self.packs() if path not in done]:
            for path in fresh:
                done.add(path)
                for line, record in _packed(path, complain, skip, seen):
                    seen.add(record.id)
                    yield record, Place(path, line.offset, len(line.content)), line.content

    def records(self, complain: Complain = silent, skip: Container[str] = ()) -> Iterator[Record]:
        """Every record but those with an id in `skip`, oldest first.

        `complain` hears of each file or line that is none.
        """
        found = [record for record, _, _ in self.contents(complain, skip)]
        yield from sorted(found, key=lambda record: (record.created, record.id))

    def pack(self, complain: Complain = silent, *, everything: bool = False) -> int:
        """Put the records that are single files into one pack; how many there were.

        With `everything` those of other packs too. What is no record stays where it is. Files
        go when the pack is on the disk and was read again: a kill loses nothing. Raises
        UsageError where the folder cannot be written.
        """
        folder = self.folder / "packs"
        try:
            folder.mkdir(exist_ok=True)
            with locks.exclusive(self.lock_path, f"is at work in {self.folder}"):
                for left in folder.glob("*.partial"):
                    left.unlink(missing_ok=True)
                return self._pack(folder, complain, everything)
        except OSError as error:
            raise UsageError(f"{self.folder}: cannot be packed: {error.strerror}") from error

    def _pack(self, folder: Path, complain: Complain, everything: bool) -> int:
        old = self.packs()
        have = {line.identity for path in old for line in _intact(path, silent)}
        singles: list[Path] = []
        packed: list[Path] = []
        for path in sorted(self.singles()):
            try:
                read(content_of(path), path.stem)
            except (ValidationError, OSError, ValueError) as error:
                complain(told(path.name, error))
            else:
                (packed if path.stem in have else singles).append(path)

        def chosen() -> Iterator[bytes]:
            for path in singles:
                try:
                    line = pack.line(json.loads(content_of(path)))
                except (OSError, ValueError) as error:  # edited since
                    complain(told(path.name, error))
                else:
                    yield line
            written: set[str | None] = set()
            for path in old if everything else ():
                for one in _intact(path, complain):
                    if one.identity not in written:
                        yield one.content + b"\n"
                    written.add(one.identity)

        needed = bool(singles) or (everything and len(old) > 1)
        target = pack.write(folder, chosen()) if needed else None
        kept = {line.identity for line in _intact(target, silent)} if target else set()
        for path in (*singles, *packed):
            if path.stem in kept or path.stem in have:
                path.unlink(missing_ok=True)
        for path in old if target and everything else ():
            whole = all(line.identity in kept for line in pack.lines(path))
            if path != target and whole:
                path.unlink(missing_ok=True)
        return len(kept)


def existing(folder: Path) -> Store:
    """The results folder that is there. Raises UsageError where there is none."""
    if not any((folder / name).is_dir() for name in ("records", "packs")):
        raise UsageError(f"{folder} holds no results: make some with `xfbench run`")
    return Store(folder)


def _intact(path: Path, complain: Complain) -> Iterator[pack.Line]:
    """The lines of a pack that are what their ids say."""
    for line in pack.lines(path):
        if line.identity is None:
            complain(f"{path.name}{f' line {line.number}' if line.number else ''}: {line.defect}")
        else:
            yield line


def _packed(
    path: Path, complain: Complain, skip: Container[str], seen: Container[str]
) -> Iterator[tuple[pack.Line, Record]]:
    """The records of a pack but those known already."""
    try:
        for line in _intact(path, complain):
            identity = f"sha256:{line.identity}"
            if identity in skip or identity in seen:
                continue
            try:
                yield line, Record.model_validate_json(line.content, extra="ignore")
            except ValidationError as error:
                complain(told(f"{path.name} line {line.number}", error))
    except FileNotFoundError:
        return  # packed into another meanwhile, which is found next
    except OSError as error:
        complain(f"{path.name}: {error.strerror}")
