"""The results folder: immutable records, and the folders of their runs.

A record is a JSON file of its own, or a line of a pack (see `pack.py`). A record that has several
copies counts once. A record is written atomically: temporary file, fsync, rename. Two processes may
write to the same folder. A file that is not a record is reported, never repaired.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from xfbench.base import atomic_files, locks, paths, safe_read, strict_json
from xfbench.base.errors import UsageError
from xfbench.base.shared_files import UnsafeFileError, open_file
from xfbench.model import origins
from xfbench.model.record import Record
from xfbench.model.sealed import MAX_DOCUMENT_BYTES, EditedError, age_key
from xfbench.store import pack

_README = """Results of xfbench.

records/       one JSON file per launch, schema xfbench.record/1; never changed
packs/         many records in one file, one per line (`xfbench results pack`); never changed
certificates/  verdicts of verifications: equal or different networks; never changed
runs/          input and output of each launch; command.sh runs it again
origins/       where imported records and certificates came from; never changed
tuned/         results of `xfbench tune`, one file per search; never changed
jobs/          scripts of submitted jobs, and their output
index.duckdb   search index of records/ and packs/; may be deleted at any time
You may copy files under records/, and delete runs/.
"""
_FOLDERS = ("records", "packs", "certificates", "runs", origins.FOLDER, "tuned", "jobs")
_OTHER_FOLDER = (
    "choose a folder of your own with --results, and copy records with `xfbench results import` "
    "(docs/results.md#a-folder-for-several-users)"
)
WarningHandler = Callable[[str], None]


def ignore_warning(_: str) -> None:
    """Ignore a warning: the WarningHandler that does nothing."""


@dataclass(frozen=True)
class Place:
    """The location of a record's bytes: a single file, or a line of a pack.

    For a line of a pack, `offset` and `length` are its position in bytes. For a single file,
    `length` is None.
    """

    path: Path
    offset: int = 0
    length: int | None = None

    def content(self) -> bytes:
        """Return the record's bytes.

        Raises OSError if the file cannot be read, and ValueError if a single file is too large.
        """
        if self.length is None:
            return read_record_file(self.path)
        with open_file(self.path, "rb", follow_link=True) as file:
            return os.pread(file.fileno(), self.length, self.offset)

    def record(self, identity: str) -> Record:
        """Read and verify the record, and return it.

        Raises OSError if the file cannot be read. Raises ValueError if the bytes are not the record
        with the hexadecimal id `identity`.
        """
        return parse_record(self.content(), identity, packed=self.length is not None)


def read_record_file(path: Path) -> bytes:
    """Return the content of a record's own file.

    Raises OSError if the file cannot be read, and ValueError if it is too large.
    """
    return safe_read.read_bytes(path, MAX_DOCUMENT_BYTES, follow_link=True)


def parse_record(content: bytes, identity: str, *, packed: bool = False) -> Record:
    """Verify the record in `content` and return it.

    If `packed` is true, `content` is a line of a pack. Raises ValueError (or its subclass
    EditedError or ValidationError) if `content` is not the record with the hexadecimal id
    `identity`.
    """
    if packed:
        return parse_pack_line(content, identity)
    record = Record.read(content)
    if record.id[7:] != identity:
        raise EditedError("the file name does not match the id")
    return record


def parse_pack_line(line: bytes, identity: str) -> Record:
    """Return the record in a line of a pack, whose hexadecimal id must be `identity`.

    Raises ValueError if the line is not this record, or has a key twice.
    """
    if pack.verify_line(line) != identity:
        raise EditedError("the line does not match the id")
    pack.check_keys(line)
    record = Record.model_validate_json(line, extra="ignore")
    if record.id[7:] != identity:
        raise EditedError("the line has another id")
    return record


def defect_message(name: str, error: Exception) -> str:
    """Return a one-line message that says what is wrong with the file or line `name`."""
    if isinstance(error, EditedError):
        return f"{name}: {error}; left out"
    if isinstance(error, UnsafeFileError):  # its message has the whole path
        return f"{name}: not a record: it {error.reason}"
    return f"{name}: not a record: {str(error).splitlines()[0]}"


class Store:
    """A results folder, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create_and_check_folders(self) -> None:
        """Create the results folder with `records`, `runs` and a README, where they are missing.

        Raises UsageError if these cannot be created, or if another user could replace their files.
        """
        try:
            paths.make_folder(self.folder)
            self.require_private()
            for name in ("records", "runs"):
                paths.make_folder(self.folder / name)
            self.require_private()  # another user may have been faster
            with suppress(FileExistsError), open_file(self.folder / "README", "xb") as readme:
                readme.write(_README.encode())
        except UsageError:
            raise
        except OSError as error:
            raise UsageError(
                f"{self.folder}: {error.strerror}: choose another folder with --results"
            ) from error

    def require_private(self, *more_names: str) -> None:
        """Raise UsageError if another user could replace files that this user writes or runs.

        `more_names`: further folders to check, relative to the results folder.
        """
        for name in ("", *_FOLDERS, *more_names):
            paths.require_private(self.folder / name, _OTHER_FOLDER, sticky=True)

    def create_run_folder(self) -> Path:
        """Create a run folder for a launch that has no record yet, and return its path."""
        return Path(tempfile.mkdtemp(prefix="running-", dir=self.folder / "runs"))

    def run_folder(self, record: Record) -> Path:
        """Return the path of the record's run folder."""
        return self.folder / "runs" / record.id[7:23]

    def certificate_path(self, certificate_id: str) -> Path:
        """Return the path of the certificate with this id, which starts with "sha256:"."""
        return self.folder / "certificates" / f"{certificate_id[7:]}.json"

    def record_path(self, hex_id: str) -> Path:
        """Return the path of the single file for the record with this hexadecimal id."""
        return self.folder / "records" / hex_id[:2] / f"{hex_id}.json"

    def add(self, record: Record, unnamed_run_folder: Path | None = None) -> None:
        """Write a record to its own file.

        `unnamed_run_folder` is the folder that `create_run_folder` returned for the launch. It is
        renamed to the record's run folder. Raises OSError if the record cannot be written.
        """
        text = json.dumps(record.document(), indent=1, ensure_ascii=False) + "\n"
        atomic_files.write(self.record_path(record.id[7:]), text.encode())
        if unnamed_run_folder is not None:
            with suppress(FileNotFoundError):  # the worker may have deleted the folder
                unnamed_run_folder.replace(self.run_folder(record))

    @property
    def lock_path(self) -> Path:
        """The path of the lock file. The lock is held while packing and while using the index."""
        return self.folder / "lock"

    def find_missing(self, record_ids: Iterable[str]) -> set[str]:
        """Return the ids whose records are neither files of their own nor lines of a pack.

        Records are found by the ids that they state. Raises OSError if a pack cannot be read.
        """
        missing = {each for each in record_ids if not self.record_path(each[7:]).is_file()}
        for path in self.packs() if missing else ():
            missing -= {f"sha256:{each}" for each in pack.read_stated_ids(path)}
        return missing

    def record_files(self) -> Iterator[Path]:
        """Return the paths of the files that should each contain one record.

        Hidden files are left out: other tools leave them, such as the `._` files of macOS.
        """
        return (self.folder / "records").glob("??/[!.]*.json")

    def packs(self) -> list[Path]:
        """Return the paths of all packs, sorted by name."""
        return sorted((self.folder / "packs").glob(f"*{pack.SUFFIX}"))

    def contents(
        self, warn: WarningHandler = ignore_warning, skip: Container[str] = ()
    ) -> Iterator[tuple[Record, Place, bytes]]:
        """Yield every record once, with its place and its bytes, in no particular order.

        `warn` gets a message for each file or line that is not a record. Records whose ids are in
        `skip` are left out.
        """
        seen_ids: set[str] = set()
        for path in self.record_files():
            if f"sha256:{path.stem}" in skip:
                continue
            try:
                content = read_record_file(path)
                record = parse_record(content, path.stem)
            except FileNotFoundError:
                continue  # another process packed this record: the loop below reads that pack
            except (ValidationError, OSError, ValueError) as error:
                warn(defect_message(path.name, error))
            else:
                seen_ids.add(record.id)
                yield record, Place(path), content
        read_packs: set[Path] = set()
        while new_packs := [path for path in self.packs() if path not in read_packs]:
            for path in new_packs:
                read_packs.add(path)
                for line, record in read_records_of_pack(path, warn, skip, seen_ids):
                    seen_ids.add(record.id)
                    yield record, Place(path, line.offset, len(line.content)), line.content

    def records(
        self, warn: WarningHandler = ignore_warning, skip: Container[str] = ()
    ) -> Iterator[Record]:
        """Yield every record once, oldest first.

        `warn` gets a message for each file or line that is not a record. Records whose ids are in
        `skip` are left out.
        """
        records = [record for record, _, _ in self.contents(warn, skip)]
        yield from sorted(records, key=age_key)

    def pack(self, warn: WarningHandler = ignore_warning, *, repack: bool = False) -> int:
        """Move all records that are single files into one new pack.

        Return the number of records in the new pack, or 0 if no pack was needed. If `repack` is
        true, the records of earlier packs also move. Files that are not records stay, and `warn`
        gets a message for each of them.

        Files are deleted only after the new pack was written to disk and read back. So nothing is
        lost if the process is killed. Raises UsageError if the folder cannot be written.
        """
        folder = self.folder / "packs"
        self.require_private()
        try:
            paths.make_folder(folder)
            with locks.exclusive(self.lock_path, f"is using {self.folder}"):
                for partial in folder.glob("*.partial"):
                    partial.unlink(missing_ok=True)
                return self._pack(folder, warn, repack)
        except OSError as error:
            raise UsageError(f"{self.folder}: cannot pack: {error.strerror}") from error

    def _pack(self, folder: Path, warn: WarningHandler, repack: bool) -> int:
        old_packs = self.packs()
        packed_ids = {
            line.identity for path in old_packs for line in _valid_lines(path, ignore_warning)
        }
        singles: list[Path] = []
        already_packed: list[Path] = []
        for path in sorted(self.record_files()):
            try:
                parse_record(read_record_file(path), path.stem)
            except (ValidationError, OSError, ValueError) as error:
                warn(defect_message(path.name, error))
            else:
                (already_packed if path.stem in packed_ids else singles).append(path)

        def lines_of_files_and_old_packs() -> Iterator[bytes]:
            for path in singles:
                try:
                    line = pack.format_line(strict_json.parse(read_record_file(path)))
                except (OSError, ValueError) as error:  # the file was edited while packing
                    warn(defect_message(path.name, error))
                else:
                    yield line
            written_ids: set[str | None] = set()
            for path in old_packs if repack else ():
                for pack_line in _valid_lines(path, warn):
                    if pack_line.identity not in written_ids:
                        yield pack_line.content + b"\n"
                    written_ids.add(pack_line.identity)

        needs_pack = bool(singles) or (repack and len(old_packs) > 1)
        target = pack.write_pack(folder, lines_of_files_and_old_packs()) if needs_pack else None
        kept_ids = (
            {line.identity for line in _valid_lines(target, ignore_warning)} if target else set()
        )
        for path in (*singles, *already_packed):
            if path.stem in kept_ids or path.stem in packed_ids:
                path.unlink(missing_ok=True)
        for path in old_packs if target and repack else ():
            is_contained = all(
                line.identity in kept_ids for line in pack.read_lines_and_defects(path)
            )
            if path != target and is_contained:
                path.unlink(missing_ok=True)
        return len(kept_ids)


def open_existing_store(folder: Path) -> Store:
    """Return an existing results folder. Raises UsageError if `folder` is not one."""
    if folder.is_file():
        raise UsageError(
            f"{folder} is a file, not a results folder: import it first: "
            f"xfbench results import {shlex.quote(str(folder))} --results DIR"
        )
    if not is_results_folder(folder):
        raise UsageError(f"{folder} has no results: create some with `xfbench run`")
    return Store(folder)


def is_results_folder(folder: Path) -> bool:
    """Return whether the folder has records."""
    return any((folder / name).is_dir() for name in ("records", "packs"))


def _valid_lines(path: Path, warn: WarningHandler) -> Iterator[pack.PackLine]:
    """Yield the lines of a pack that match their ids.

    `warn` gets a message for every other line and for a defect of the whole pack.
    """
    for line in pack.read_lines_and_defects(path):
        if line.identity is None:
            warn(f"{path.name}{f' line {line.number}' if line.number else ''}: {line.defect}")
        else:
            yield line


def read_records_of_pack(
    path: Path, warn: WarningHandler, skip: Container[str], seen_ids: Container[str]
) -> Iterator[tuple[pack.PackLine, Record]]:
    """Yield (line, record) for each record of the pack `path`.

    Records whose ids are in `skip` or `seen_ids` are left out. `warn` gets a message for each
    invalid line.
    """
    try:
        for line in _valid_lines(path, warn):
            identity = f"sha256:{line.identity}"
            if identity in skip or identity in seen_ids:
                continue
            try:
                yield line, parse_pack_line(line.content, str(line.identity))
            except ValueError as error:
                warn(defect_message(f"{path.name} line {line.number}", error))
    except FileNotFoundError:
        return  # another process moved the records to another pack, which is read next
    except OSError as error:
        warn(f"{path.name}: {error.strerror or error}")
