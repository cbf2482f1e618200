"""Fills the index of a results folder and keeps it up to date (see `index.py`).

A pack has changed if its size, modification time or inode differs. A record folder has changed if
its modification time differs. A record is verified before it is added. A file that is not a record
is noted with its defect, and is read again only when it changes.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import duckdb

from xfbench.base import digests
from xfbench.model import sealed
from xfbench.store import pack
from xfbench.store.results_folder import (
    Store,
    defect_message,
    parse_record,
    read_record_file,
)
from xfbench.store.selection import record_fields

_READ_AGAIN = "read again"  # in `damaged`, the state of a file that the next update reads again
_SETTLED_S = 2.0  # a modification time is reliable once it is older than this
_INTAKE_THREADS = 2
_BATCH_RECORDS = 8192
_BATCH_BYTES = 2**26
_TYPES = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}
# The SQL type of each field with a single value, by the field's path.
COLUMN_TYPES = {
    path: _TYPES[field.kind]
    for path, field in record_fields().items()
    if field.kind is not None and path != "id"
}
# In `copies`, `source` is the name of a pack, or of the folder of a single file. `start` is the
# offset in the pack in bytes, and null for a single file. `state` is what `_settled_state` returned
# for a single file, and null for a pack. `kept` has the texts of `Index.keep`.
_TABLES_SQL = (
    "CREATE TABLE meta (version VARCHAR, copies BIGINT, records BIGINT)",
    "CREATE TABLE sources (name VARCHAR, state VARCHAR)",
    "CREATE TABLE copies (id VARCHAR, source VARCHAR, start BIGINT, length BIGINT, state VARCHAR)",
    "CREATE TABLE kept (name VARCHAR, version VARCHAR, text VARCHAR)",
    "CREATE TABLE damaged (source VARCHAR, file VARCHAR, state VARCHAR, defect VARCHAR)",
    "CREATE TABLE records (id VARCHAR, readable BOOLEAN, "
    + ", ".join(f'"{path}" {kind}' for path, kind in COLUMN_TYPES.items())
    + ")",
)
_EXTRACT_SQL = (
    "INSERT INTO records SELECT id, found IS NOT NULL, "
    + ", ".join(
        f"TRY_CAST(found[{n}] AS {kind})" for n, kind in enumerate(COLUMN_TYPES.values(), 1)
    )
    + " FROM (SELECT id, TRY(json_extract_string(content, ["
    + ", ".join(f"'$.{path}'" for path in COLUMN_TYPES)
    + "])) AS found FROM (SELECT unnest($1::VARCHAR[]) AS id, unnest($2::VARCHAR[]) AS content))"
)
_KNOWN_IDS_SQL = "SELECT id FROM records WHERE id IN (SELECT unnest($1::VARCHAR[]))"
_INSERT_COPIES_SQL = (
    "INSERT INTO copies SELECT unnest($1::VARCHAR[]), unnest($2::VARCHAR[]), "
    "unnest($3::BIGINT[]), unnest($4::BIGINT[]), unnest($5::VARCHAR[])"
)
_NAMES_SQL = "(SELECT unnest($1::VARCHAR[]))"
_COPY_COUNT_SQL, _RECORD_COUNT_SQL = (
    "(SELECT count(*) FROM copies)",
    "(SELECT count(*) FROM records)",
)
_VERSION = digests.of_json([1, *_TABLES_SQL, _EXTRACT_SQL])


_CopyRow = tuple[str, str, int | None, int | None, str | None]


class StaleIndexError(Exception):
    """The index must be rebuilt: it has another version, or another program changed it."""


class _Intake:
    """An inserter of records: it inserts batches while the caller reads the next batch.

    Do not use the connection for anything else until `finish` returns. Set `is_new` to true only
    while every record to insert is new to the index. The inserter then does not look for records
    that the index already has.

    - `is_empty`: whether the index is empty. Its first batches are inserted at the same time, each
      in a transaction of its own. Otherwise they belong to the open transaction.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, *, is_empty: bool) -> None:
        self.is_new = is_empty
        self._is_empty = is_empty
        self._threads = _INTAKE_THREADS if is_empty else 1
        self._connection = connection
        self._workers = ThreadPoolExecutor(self._threads)
        self._pending_inserts: deque[Future[None]] = deque()
        self._notes: list[tuple[str, str, str | None, str]] = []
        self._clear_batch()

    def add_record_copy(
        self,
        source: str,
        identity: str,
        content: bytes,
        start: int | None = None,
        length: int | None = None,
        state: str | None = None,
    ) -> None:
        """Queue a copy of a record for insertion.

        - `source`: name of the pack. For a single file, the name of the folder that contains it.
        - `identity`: hexadecimal id of the record.
        - `content`: JSON text of the record in bytes. Raises UnicodeDecodeError if it is not UTF-8.
        - `start`, `length`: position of the record in the pack and its length, in bytes. They are
          None for a single file.
        - `state`: what `_settled_state` returns for a single file; None for a pack.
        """
        self._contents[identity] = content.decode()
        self._copies.append((identity, source, start, length, state))
        self._size += len(content)
        if len(self._copies) >= _BATCH_RECORDS or self._size >= _BATCH_BYTES:
            self._submit_batch()

    def note_defect(self, source: str, file: str, state: str | None, defect: str) -> None:
        """Note the defect of a single file or a pack line that is not a record.

        - `source`: name of the pack. For a single file, the name of the folder that contains it.
        - `file`: name of the file.
        - `state`: what `_damage_state` returns for a single file; None for a pack.
        - `defect`: message that says what is wrong.
        """
        self._notes.append((source, file, state, defect))

    def finish(self) -> None:
        """Insert the remaining records and the noted defects, and wait until this is done."""
        try:
            self._submit_batch()
            self._wait_for_inserts(0)
        finally:
            self._workers.shutdown()
        for values in self._notes:
            self._connection.execute("INSERT INTO damaged VALUES ($1, $2, $3, $4)", list(values))

    def _submit_batch(self) -> None:
        # If a record may be known, it may also be in the batch that is inserted now.
        self._wait_for_inserts(self._threads - 1 if self.is_new else 0)
        if self._copies:
            self._pending_inserts.append(
                self._workers.submit(
                    self._insert_batch, self._contents, self._copies, is_new=self.is_new
                )
            )
        self._clear_batch()

    def _wait_for_inserts(self, max_pending: int) -> None:
        while len(self._pending_inserts) > max_pending:
            self._pending_inserts.popleft().result()

    def _insert_batch(
        self, contents: dict[str, str], copies: list[_CopyRow], *, is_new: bool
    ) -> None:
        connection = self._connection.cursor() if self._is_empty else self._connection
        if not is_new:
            for (known_id,) in connection.execute(_KNOWN_IDS_SQL, [list(contents)]).fetchall():
                del contents[known_id]
        insert_records(connection, contents)
        connection.execute(
            _INSERT_COPIES_SQL, [list(column) for column in zip(*copies, strict=True)]
        )

    def _clear_batch(self) -> None:
        self._contents: dict[str, str] = {}
        self._copies: list[_CopyRow] = []
        self._size = 0


def create_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the empty tables of an index."""
    for sql in _TABLES_SQL:
        connection.execute(sql)


def insert_records(connection: duckdb.DuckDBPyConnection, texts_by_id: Mapping[str, str]) -> None:
    """Insert records into the table `records`: their ids and the fields in `COLUMN_TYPES`.

    `texts_by_id` maps the hexadecimal id of each record to the record's JSON text.
    """
    connection.execute(_EXTRACT_SQL, [list(texts_by_id), list(texts_by_id.values())])


def update_index_in_one_pass(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Add new records of the results folder to the index, and remove deleted records.

    Raises StaleIndexError or duckdb.Error if the index must be rebuilt.
    """
    tables = {name for (name,) in connection.execute("SHOW TABLES").fetchall()}
    if not tables:
        create_tables(connection)
        connection.execute("INSERT INTO meta VALUES ($1, 0, 0)", [_VERSION])
    elif "meta" not in tables:
        raise StaleIndexError
    meta_rows = connection.execute(
        f"SELECT version, copies, records, {_COPY_COUNT_SQL}, {_RECORD_COUNT_SQL} FROM meta"
    ).fetchall()
    if len(meta_rows) != 1 or meta_rows[0][0] != _VERSION or meta_rows[0][1:3] != meta_rows[0][3:]:
        raise StaleIndexError
    # If filling an empty index ends early, the counts do not match, and the index is rebuilt.
    is_empty = not meta_rows[0][1] and not _fetch_sources(connection)
    if not is_empty:
        connection.execute("BEGIN")
    if _apply_changes(connection, store, is_empty=is_empty):
        _note_counts(connection)
    if not is_empty:
        connection.execute("COMMIT")


def forget_files(connection: duckdb.DuckDBPyConnection, ids: Collection[str]) -> None:
    """Remove the single files of these records from the index. The next update reads them again.

    The ids are hexadecimal.
    """
    connection.execute("BEGIN")
    files_sql = f"start IS NULL AND id IN {_NAMES_SQL}"
    sources_sql = f"SELECT source FROM copies WHERE {files_sql}"
    connection.execute(f"UPDATE sources SET state = '' WHERE name IN ({sources_sql})", [[*ids]])
    connection.execute(f"DELETE FROM copies WHERE {files_sql}", [[*ids]])
    connection.execute("DELETE FROM records WHERE id NOT IN (SELECT id FROM copies)")
    _note_counts(connection)
    connection.execute("COMMIT")


def note_damaged_files(
    connection: duckdb.DuckDBPyConnection, store: Store, ids: Collection[str]
) -> None:
    """Note which single files of these records are not what was indexed.

    Later updates do not read such a file until it changes. The ids are hexadecimal.
    """
    files_sql = f"start IS NULL AND id IN {_NAMES_SQL}"
    rows = connection.execute(f"SELECT id, source FROM copies WHERE {files_sql}", [[*ids]])
    notes = []
    for identity, source in rows.fetchall():
        path = store.folder / "records" / source / f"{identity}.json"
        state = file_state(path)
        try:
            parse_record(read_record_file(path), identity)
        except (OSError, ValueError) as error:
            state = _damage_state(path, state, error)
            if state != _READ_AGAIN and (path.is_symlink() or path.exists()):
                message = defect_message(path.name, error)
                notes.append((identity, [source, path.name, state, message]))
    if not notes:
        return
    connection.execute("BEGIN")
    connection.execute(f"DELETE FROM copies WHERE {files_sql}", [[each for each, _ in notes]])
    connection.execute("DELETE FROM records WHERE id NOT IN (SELECT id FROM copies)")
    for _, values in notes:
        connection.execute("INSERT INTO damaged VALUES ($1, $2, $3, $4)", values)
    _note_counts(connection)
    connection.execute("COMMIT")


def _note_counts(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(f"UPDATE meta SET copies = {_COPY_COUNT_SQL}, records = {_RECORD_COUNT_SQL}")


def _fetch_sources(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return the states of the sources by name, as they were indexed."""
    return dict(connection.execute("SELECT name, state FROM sources").fetchall())


def _apply_changes(connection: duckdb.DuckDBPyConnection, store: Store, *, is_empty: bool) -> bool:
    """Update the tables to match the results folder.

    - `is_empty`: whether the index is empty.

    Return whether a pack or a record folder may have changed since the last update.
    """
    indexed_states = _fetch_sources(connection)
    had_sources = not is_empty
    current_states = _source_states(store)
    noted_files: dict[str, set[str]] = defaultdict(set)  # by folder: damaged, and unchanged since
    for source, file, state in connection.execute(
        "SELECT source, file, state FROM damaged WHERE state IS NOT NULL"
    ).fetchall():
        path = store.folder / "records" / source / file
        if file_state(path) == state and (state or path.is_symlink()):
            noted_files[source].add(file)
        else:
            indexed_states.pop(source, None)  # the damaged file may be repaired
    changed = [
        name
        for name, state in current_states.items()
        if not state or indexed_states.get(name) != state
    ]
    singles = [name for name in changed if not name.endswith(pack.SUFFIX)]
    packs = [name for name in changed if name.endswith(pack.SUFFIX)]
    removed = [*(indexed_states.keys() - current_states.keys()), *packs]
    for table, column in (("copies", "source"), ("damaged", "source"), ("sources", "name")):
        outdated = removed if table == "copies" else [*removed, *singles]
        if outdated and had_sources:
            kept_sql = " AND NOT contains($2, file)" if table == "damaged" else ""
            kept_names = [[*itertools.chain(*noted_files.values())]] if table == "damaged" else []
            connection.execute(
                f"DELETE FROM {table} WHERE {column} IN {_NAMES_SQL}{kept_sql}",
                [outdated, *kept_names],
            )
    copy_rows = connection.execute(
        f"SELECT source, list(id) FROM copies WHERE source IN {_NAMES_SQL} GROUP BY source",
        [singles if had_sources else []],
    ).fetchall()
    indexed_ids = {source: set(ids) for source, ids in copy_rows}
    file_ids = {name: _ids_in_folder(store.folder / "records" / name) for name in singles}
    if missing_ids := [
        record_id for name, ids in indexed_ids.items() for record_id in ids - file_ids[name]
    ]:
        connection.execute(
            f"DELETE FROM copies WHERE start IS NULL AND id IN {_NAMES_SQL}", [missing_ids]
        )
    if had_sources and (missing_ids or removed):
        connection.execute("DELETE FROM records WHERE id NOT IN (SELECT id FROM copies)")
    intake = _Intake(connection, is_empty=is_empty)
    try:
        for name in packs:
            _add_pack(intake, store.folder / "packs" / name)
            intake.is_new = False
        for name, names in file_ids.items():
            noted_ids = {file.removesuffix(".json") for file in noted_files[name]}
            new_ids = names - indexed_ids.get(name, set()) - noted_ids
            _add_files(intake, store.folder / "records" / name, new_ids)
    finally:
        intake.finish()
    if is_empty:  # a pack may have a record twice
        connection.execute(
            "DELETE FROM records WHERE rowid NOT IN (SELECT min(rowid) FROM records GROUP BY id)"
        )
    for name in changed:
        connection.execute("INSERT INTO sources VALUES ($1, $2)", [name, current_states[name]])
    return bool(changed or removed)


def _source_states(store: Store) -> dict[str, str]:
    """Return the state of each pack and of each record folder, by name.

    The state is a text that changes when the pack or the folder changes. A folder that changed less
    than `_SETTLED_S` seconds ago has the state "", and the next update reads the folder again. The
    reason is that two changes in the same clock tick give the same modification time.
    """
    states = {path.name: file_state(path) for path in store.packs()}
    for path in (store.folder / "records").glob("??"):
        try:
            modified_ns = path.stat().st_mtime_ns
        except OSError:
            continue
        states[path.name] = str(modified_ns) if _is_settled(modified_ns) else ""
    return states


def file_state(path: Path | str) -> str:
    """Return a text that changes when the file changes; "" if there is no file."""
    try:
        file_status = os.stat(path)  # noqa: PTH116  faster than a Path, for many files
    except OSError:
        return ""
    return f"{file_status.st_size} {file_status.st_mtime_ns} {file_status.st_ino}"


def _settled_state(state: str) -> str:
    """Return the state of a file, or "" if the file may change without a new state.

    Two changes in the same clock tick give the same modification time.
    """
    return state if state and _is_settled(int(state.split()[1])) else ""


def _is_settled(modified_ns: int) -> bool:
    return abs(time.time() - modified_ns / 1e9) > _SETTLED_S


def _ids_in_folder(folder: Path) -> set[str]:
    """Return the hexadecimal ids that name the JSON files in `folder`."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return set()
    return {
        name.removesuffix(".json")
        for name in names
        if name.endswith(".json") and not name.startswith(".")  # such as ._ files of macOS
    }


def _add_files(intake: _Intake, folder: Path, identities: Iterable[str]) -> None:
    for identity in sorted(identities):
        path = folder / f"{identity}.json"
        state = file_state(path)
        try:
            content = read_record_file(path)
            if sealed.verify_id(content) != f"sha256:{identity}":
                raise sealed.EditedError("the file name does not match the id")
            intake.add_record_copy(folder.name, identity, content, state=_settled_state(state))
        except (OSError, ValueError) as error:
            if path.is_symlink() or path.exists():
                message = defect_message(path.name, error)
                intake.note_defect(
                    folder.name, path.name, _damage_state(path, state, error), message
                )


def _damage_state(path: Path, state: str, error: Exception) -> str:
    """Return the state of a damaged file, with which it is skipped until it changes.

    - `state`: what `file_state` returned before the file was read.
    - `error`: why the file could not be read. A plain file may be readable later, unchanged.
    """
    if isinstance(error, OSError) and path.is_file():
        return _READ_AGAIN
    return _settled_state(state) or (_READ_AGAIN if state else "")


def _add_pack(intake: _Intake, path: Path) -> None:
    try:
        for line in pack.read_lines_and_defects(path):
            location = f"{path.name} line {line.number}" if line.number else path.name
            if line.identity is None:
                intake.note_defect(
                    path.name, path.name, None, f"{location}: {line.defect}; left out"
                )
                continue
            try:
                intake.add_record_copy(
                    path.name, line.identity, line.content, line.offset, len(line.content)
                )
            except UnicodeDecodeError as error:
                intake.note_defect(path.name, path.name, None, defect_message(location, error))
    except OSError as error:
        intake.note_defect(path.name, path.name, None, f"{path.name}: {error.strerror or error}")
