"""Fills the index of a results folder, and keeps it up to date with the files (see `index.py`).

What changed is seen by packs' sizes and times and by the times of the folders of single files.
A record is verified before it is taken in; what is none is noted with what is wrong.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import duckdb

from xfbench.base import digests
from xfbench.records import sealed
from xfbench.results import pack
from xfbench.results.selection import fields
from xfbench.results.store import Store, content_of, told

_SETTLED = 2.0  # seconds after which a folder's time says that nothing was added since
_BATCH = 8192
_BATCH_BYTES = 2**26
_TYPES = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}
# The fields that have one value, by path.
COLUMNS = {
    path: _TYPES[one.kind]
    for path, one in fields().items()
    if one.kind is not None and path != "id"
}
# Single files are in `copies` under the name of their folder, and have no `start`.
_TABLES = (
    "CREATE TABLE meta (version VARCHAR, copies BIGINT, records BIGINT)",
    "CREATE TABLE sources (name VARCHAR, state VARCHAR)",
    "CREATE TABLE copies (id VARCHAR, source VARCHAR, start BIGINT, length BIGINT)",
    "CREATE TABLE damaged (source VARCHAR, file VARCHAR, state VARCHAR, defect VARCHAR)",
    "CREATE TABLE records (id VARCHAR, readable BOOLEAN, "
    + ", ".join(f'"{path}" {kind}' for path, kind in COLUMNS.items())
    + ")",
)
_EXTRACT = (
    "INSERT INTO records SELECT id, found IS NOT NULL, "
    + ", ".join(f"TRY_CAST(found[{n}] AS {kind})" for n, kind in enumerate(COLUMNS.values(), 1))
    + " FROM (SELECT id, TRY(json_extract_string(content, ["
    + ", ".join(f"'$.{path}'" for path in COLUMNS)
    + "])) AS found FROM (SELECT unnest($1::VARCHAR[]) AS id, unnest($2::VARCHAR[]) AS content))"
)
_KNOWN = "SELECT id FROM records WHERE id IN (SELECT unnest($1::VARCHAR[]))"
_COPY = (
    "INSERT INTO copies SELECT unnest($1::VARCHAR[]), unnest($2::VARCHAR[]), "
    "unnest($3::BIGINT[]), unnest($4::BIGINT[])"
)
_NAMED = "(SELECT unnest($1::VARCHAR[]))"
_OF_COPIES, _OF_RECORDS = "(SELECT count(*) FROM copies)", "(SELECT count(*) FROM records)"
_VERSION = digests.of_json([1, *_TABLES, _EXTRACT])


_Copy = tuple[str, str, int | None, int | None]


class OldError(Exception):
    """The index is of another version, or not as it was left."""


class _Intake:
    """Takes records in, many at a time, while the next ones are read and verified.

    The connection is its own until `finish`. `anew` says that nothing can be known already.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, *, anew: bool) -> None:
        self.anew = anew
        self._connection = connection
        self._worker = ThreadPoolExecutor(1)
        self._taken: Future[None] | None = None
        self._notes: list[tuple[str, str, str | None, str]] = []
        self._clear()

    def add(
        self, source: str, identity: str, content: bytes, start: int | None, length: int | None
    ) -> None:
        self._contents[identity] = content.decode()
        self._copies.append((identity, source, start, length))
        self._size += len(content)
        if len(self._copies) >= _BATCH or self._size >= _BATCH_BYTES:
            self._flush()

    def note(self, source: str, file: str, state: str | None, defect: str) -> None:
        """Of a file that is no record, or a part of one."""
        self._notes.append((source, file, state, defect))

    def finish(self) -> None:
        """Until all of it is there."""
        try:
            self._flush()
            self._wait()
        finally:
            self._worker.shutdown()
        for values in self._notes:
            self._connection.execute("INSERT INTO damaged VALUES ($1, $2, $3, $4)", list(values))

    def _flush(self) -> None:
        self._wait()
        if self._copies:
            batch = self._contents, self._copies
            self._taken = self._worker.submit(self._take, *batch, anew=self.anew)
        self._clear()

    def _wait(self) -> None:
        if self._taken:
            self._taken.result()

    def _take(self, contents: dict[str, str], copies: list[_Copy], *, anew: bool) -> None:
        if not anew:
            for (known,) in self._connection.execute(_KNOWN, [list(contents)]).fetchall():
                del contents[known]
        extract(self._connection, contents)
        self._connection.execute(_COPY, [list(one) for one in zip(*copies, strict=True)])

    def _clear(self) -> None:
        self._contents: dict[str, str] = {}
        self._copies: list[_Copy] = []
        self._size = 0


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the tables, with nothing in them."""
    for sql in _TABLES:
        connection.execute(sql)


def extract(connection: duckdb.DuckDBPyConnection, contents: Mapping[str, str]) -> None:
    """Put into `records` what the JSON of some, by their hexadecimal ids, has in COLUMNS."""
    connection.execute(_EXTRACT, [list(contents), list(contents.values())])


def update(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Take in what is new in the folder, and forget what is gone.

    Raises OldError, or duckdb's Error, where the index has to be made anew.
    """
    tables = {name for (name,) in connection.execute("SHOW TABLES").fetchall()}
    if not tables:
        create(connection)
        connection.execute("INSERT INTO meta VALUES ($1, 0, 0)", [_VERSION])
    elif "meta" not in tables:
        raise OldError
    known = connection.execute(
        f"SELECT version, copies, records, {_OF_COPIES}, {_OF_RECORDS} FROM meta"
    ).fetchall()
    if len(known) != 1 or known[0][0] != _VERSION or known[0][1:3] != known[0][3:]:
        raise OldError
    connection.execute("BEGIN")
    if _update(connection, store):
        connection.execute(f"UPDATE meta SET copies = {_OF_COPIES}, records = {_OF_RECORDS}")
    connection.execute("COMMIT")


def _update(connection: duckdb.DuckDBPyConnection, store: Store) -> bool:
    """Whether anything was otherwise than the index had it."""
    before = dict(connection.execute("SELECT name, state FROM sources").fetchall())
    known = bool(before)
    now = _sources(store)
    for source, file, state in connection.execute(
        "SELECT source, file, state FROM damaged WHERE state IS NOT NULL"
    ).fetchall():
        if _state(store.folder / "records" / source / file) != state:
            before.pop(source, None)  # what was damaged there may be mended
    changed = [name for name, state in now.items() if not state or before.get(name) != state]
    singles = [name for name in changed if not name.endswith(pack.SUFFIX)]
    packs = [name for name in changed if name.endswith(pack.SUFFIX)]
    lost = [*(before.keys() - now.keys()), *packs]
    for table, column in (("copies", "source"), ("damaged", "source"), ("sources", "name")):
        every = lost if table == "copies" else [*lost, *singles]
        if every and known:
            connection.execute(f"DELETE FROM {table} WHERE {column} IN {_NAMED}", [every])
    found = connection.execute(
        f"SELECT source, list(id) FROM copies WHERE source IN {_NAMED} GROUP BY source",
        [singles if known else []],
    ).fetchall()
    have = {source: set(ids) for source, ids in found}
    there = {name: _names(store.folder / "records" / name) for name in singles}
    if gone := [one for name, ids in have.items() for one in ids - there[name]]:
        connection.execute(f"DELETE FROM copies WHERE start IS NULL AND id IN {_NAMED}", [gone])
    if known and (gone or lost):
        connection.execute("DELETE FROM records WHERE id NOT IN (SELECT id FROM copies)")
    intake = _Intake(connection, anew=not known)
    try:
        for name in packs:
            _take_pack(intake, store.folder / "packs" / name)
            intake.anew = False
        for name, names in there.items():
            _take_files(intake, store.folder / "records" / name, names - have.get(name, set()))
    finally:
        intake.finish()
    for name in changed:
        connection.execute("INSERT INTO sources VALUES ($1, $2)", [name, now[name]])
    return bool(changed or lost)


def _sources(store: Store) -> dict[str, str]:
    """Packs and folders of single files, each with what changes when it does.

    "" where that is not known yet: a file may be added at the same time as the last one.
    """
    found = {path.name: _state(path) for path in store.packs()}
    for path in (store.folder / "records").glob("??"):
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            continue
        settled = abs(time.time() - changed / 1e9) > _SETTLED
        found[path.name] = str(changed) if settled else ""
    return found


def _state(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ino}"


def _names(folder: Path) -> set[str]:
    """The ids, hexadecimal, that files in the folder are named by."""
    try:
        with os.scandir(folder) as entries:
            names = [one.name for one in entries]
    except OSError:
        return set()
    return {name.removesuffix(".json") for name in names if name.endswith(".json")}


def _take_files(intake: _Intake, folder: Path, identities: Iterable[str]) -> None:
    for identity in sorted(identities):
        path = folder / f"{identity}.json"
        try:
            content = content_of(path)
            if sealed.verify_id(content) != f"sha256:{identity}":
                raise sealed.EditedError("its name is not its id")
            intake.add(folder.name, identity, content, None, None)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            intake.note(folder.name, path.name, _state(path), told(path.name, error))


def _take_pack(intake: _Intake, path: Path) -> None:
    try:
        for line in pack.lines(path):
            where = f"{path.name} line {line.number}" if line.number else path.name
            if line.identity is None:
                intake.note(path.name, path.name, None, f"{where}: {line.defect}; left out")
                continue
            try:
                intake.add(path.name, line.identity, line.content, line.offset, len(line.content))
            except UnicodeDecodeError as error:
                intake.note(path.name, path.name, None, told(where, error))
    except OSError as error:
        intake.note(path.name, path.name, None, f"{path.name}: {error.strerror}")
