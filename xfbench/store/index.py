"""A DuckDB cache of a results folder, to find a few of a million records quickly.

The index stores the place of each record and the fields that have a single value. It only
preselects records. Each preselected record is read from its file, verified, and checked against the
conditions again. The index also keeps texts that were made from records, such as tables, with a
digest of the records.

Opening the index brings it up to date. An index that is missing, damaged or of another version is
rebuilt. A temporary copy of the index is used if the results folder is read-only, or if another
process holds the lock for more than a minute.
"""

from __future__ import annotations

import itertools
import os
import stat
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from xfbench.base import locks, paths, shared_files
from xfbench.base.errors import UnavailableError, UsageError, XfbenchError
from xfbench.model.record import Record
from xfbench.model.sealed import latest_credible_time
from xfbench.store import indexing, selection
from xfbench.store.results_folder import Place, Store, WarningHandler, defect_message
from xfbench.store.selection import Condition, record_fields

FILE_NAME = "index.duckdb"
_LOCK_TIMEOUT_S = 60.0  # after waiting this long for an index in use, a copy is used
_MAX_READ_RECORDS = 20_000  # to name values of a field: their documents are in memory together
_FETCH_ROWS = 8192
_MAX_KEPT_TEXTS = 50_000
_MAX_COMPARED_VALUES = 1000  # of a field, to find those that are near to a mistyped one
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "512MB",
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
StoredRecord = tuple[Place, Record]


class Copies(NamedTuple):
    """The copies of a record. `id` is hexadecimal."""

    id: str
    places: tuple[Place, ...]


class Defect(NamedTuple):
    """Why a copy of a record could not be read. `record_id` is the hexadecimal id."""

    record_id: str
    message: str


class Group(NamedTuple):
    """Records with equal values in some fields.

    - `number`: a number that depends on these values only.
    - `records`: number of records that the index preselects.
    - `digest`: a text that depends on the ids of these records only.
    """

    number: int
    records: int
    digest: str


class Index:
    """An up-to-date index of the records in `store`, in the file `path`.

    `damaged` has a message for each file or pack line that is not a record. Raises duckdb.Error or
    OSError if the index cannot be created.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self._path = path
        self._store = store
        self._unreadable_ids: set[str] = set()
        self._open_and_update_or_rebuild()
        self.damaged = self._read_defects()

    @property
    def folder(self) -> Path:
        """The results folder."""
        return self._store.folder

    def close(self) -> None:
        """Close the connection to the database."""
        self._connection.close()

    def select(
        self,
        conditions: Sequence[Condition] = (),
        *,
        id_prefix: str = "",
        newest_first: bool = False,
        max_total_places: int | None = None,
    ) -> Iterator[StoredRecord]:
        """Yield (place, record) for each record that meets all conditions.

        - `id_prefix`: start of the hexadecimal ids of the records.
        - `newest_first`: yield the newest record first. By default, the oldest is first.
        - `max_total_places`: maximum number of copies of records to read, or None for no limit. A
          copy is a single file or a line of a pack.

        A record without a valid copy is skipped, and `damaged` gets a message.
        """
        condition_sql, values = _preselection_sql(conditions, id_prefix)
        order = "DESC" if newest_first else "ASC"
        age_sql = f"{_credible_sql()} {order}, created {order}, id {order}"
        limit_sql = f"LIMIT {max_total_places}" if max_total_places else ""
        for _, copies in self._find(
            "0",
            f"{condition_sql} ORDER BY {age_sql}, start NULLS FIRST {limit_sql}",
            values,
        ):
            stored, defects = read_if_matching(copies, conditions)
            self.add_defects(defects)
            if stored:
                yield stored

    def newest(self, conditions: Sequence[Condition], limit: int) -> list[StoredRecord]:
        """Return the newest `limit` records that meet all conditions, newest first.

        If `limit` is 0, return all records that meet all conditions.
        """
        rows = 2 * limit + 100  # a record may be in two places, and some places may be damaged
        while limit and rows < self._fetch_all_or_rebuild("SELECT copies FROM meta")[0][0]:
            matches = self.select(conditions, newest_first=True, max_total_places=rows)
            if len(newest_records := list(itertools.islice(matches, limit))) == limit:
                return newest_records
            rows *= 30
        return list(itertools.islice(self.select(conditions, newest_first=True), limit or None))

    def count_preselected(self, conditions: Sequence[Condition] = ()) -> int:
        """Return how many records the index preselects for these conditions.

        A few of the preselected records may not meet the conditions.
        """
        condition_sql, values = _preselection_sql(conditions, "")
        [(count,)] = self._fetch_all_or_rebuild(
            f"SELECT count(*) FROM records r WHERE {condition_sql}", values
        )
        return int(count)

    def describe_mismatch(self, conditions: Sequence[Condition]) -> str:
        """Return a line that says why no record meets all conditions, with values that exist.

        See `selection.describe_mismatch`. Fields that the index lacks are read from the records,
        unless these are too many.
        """
        is_small = self.count_preselected() <= _MAX_READ_RECORDS
        if conditions and is_small and self.count_preselected(conditions):
            documents = [record.document() for _, record in self.select()]
            return selection.describe_mismatch_of_documents(conditions, documents)
        return selection.describe_mismatch(
            conditions, self.count_preselected(), self.count_preselected, self._list_values
        )

    def _list_values(self, field: str, conditions: Sequence[Condition]) -> list[object]:
        """Return the values of a field in the preselected records, the most frequent first."""
        condition_sql, values = _preselection_sql(conditions, "")
        rows = self._fetch_all_or_rebuild(
            f"SELECT {_column_sql(field)} AS value, count(*) FROM records r "
            f"WHERE {condition_sql} "
            f"GROUP BY value ORDER BY 2 DESC, 1 LIMIT {_MAX_COMPARED_VALUES}",
            values,
        )
        return [value for value, _ in rows]

    def group(self, fields: Sequence[str], conditions: Sequence[Condition] = ()) -> list[Group]:
        """Return the groups by `fields` of the records that the index preselects.

        Equal digests mean equal records after `reread_changed_files`.
        """
        condition_sql, values = _preselection_sql(conditions, "")
        rows = self._fetch_all_or_rebuild(
            f"SELECT {_hash_sql(fields)} AS number, "
            "count(*), bit_xor(hash(r.id)), sum(hash(r.id)::HUGEINT) "
            f"FROM records r WHERE {condition_sql} GROUP BY number",
            values,
        )
        return [
            Group(number, count, f"{count} {one_hash} {other_hash}")
            for number, count, one_hash, other_hash in rows
        ]

    def find_in_groups(
        self,
        fields: Sequence[str],
        numbers: Collection[int],
        conditions: Sequence[Condition] = (),
    ) -> Iterator[tuple[int, Copies]]:
        """Yield (group number, copies) for each preselected record of these groups.

        - `fields`, `conditions`: those with which `group` returned the groups.
        - `numbers`: the numbers of the groups.

        The records of a group come in a row, the oldest first.
        """
        condition_sql, values = _preselection_sql(conditions, "")
        number_sql = _hash_sql(fields)
        return self._find(
            number_sql,
            f"{condition_sql} AND {number_sql} IN (SELECT unnest(?::UBIGINT[])) "
            f"ORDER BY number, {_credible_sql()}, created, id, start NULLS FIRST",
            [*values, [*numbers]],
        )

    def find_kept(self, versions: Mapping[str, str]) -> dict[str, str]:
        """Return the texts that are kept under these names with these versions, by name."""
        if not versions:
            return {}
        rows = self._fetch_all_or_rebuild(
            "SELECT name, version, text FROM kept WHERE name IN (SELECT unnest(?::VARCHAR[]))",
            [[*versions]],
        )
        return {name: text for name, version, text in rows if versions[name] == version}

    def keep(self, entries: Mapping[str, tuple[str, str]]) -> None:
        """Keep (version, text) under each name, and drop what was kept under these names.

        If there are too many texts, the oldest are dropped. If the index cannot be written, nothing
        is kept. A selection that is being read goes on.
        """
        if not entries:
            return
        names = [*entries]
        versions, texts = map(list, zip(*entries.values(), strict=True))
        connection = self._connection.cursor()
        with suppress(duckdb.Error), closing(connection):
            connection.execute("BEGIN")
            connection.execute(
                "DELETE FROM kept WHERE name IN (SELECT unnest(?::VARCHAR[]))", [names]
            )
            connection.execute(
                "INSERT INTO kept SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), "
                "unnest(?::VARCHAR[])",
                [names, versions, texts],
            )
            connection.execute(
                "DELETE FROM kept WHERE rowid IN (SELECT rowid FROM kept ORDER BY rowid DESC "
                f"OFFSET {_MAX_KEPT_TEXTS})"
            )
            connection.execute("COMMIT")

    def reread_changed_files(self, conditions: Sequence[Condition] = ()) -> None:
        """Read the preselected single files again that changed since they were indexed."""
        condition_sql, values = _preselection_sql(conditions, "")
        rows = self._fetch_all_or_rebuild(
            "SELECT id, source, state FROM copies WHERE start IS NULL "
            f"AND id IN (SELECT r.id FROM records r WHERE {condition_sql})",
            values,
        )
        folder = self._store.folder / "records"
        changed_ids = [
            identity
            for identity, source, state in rows
            if not state or indexing.file_state(f"{folder}/{source}/{identity}.json") != state
        ]
        if not changed_ids:
            return
        old_defects = {*self._read_defects()}
        try:
            indexing.forget_files(self._connection, changed_ids)
            indexing.update_index_in_one_pass(self._connection, self._store)
        except (duckdb.Error, indexing.StaleIndexError):
            self.close()
            self._delete_files_of_closed_index()
            self._open_and_update_or_rebuild()
        found_by_reading = [defect for defect in self.damaged if defect not in old_defects]
        self.damaged = [*self._read_defects(), *found_by_reading]

    def add_defects(self, defects: Iterable[Defect]) -> None:
        """Add what `read_if_matching` found to `damaged`."""
        for defect in defects:
            self.damaged.append(defect.message)
            self._unreadable_ids.add(defect.record_id)

    def remember_damaged_files(self) -> None:
        """Note the single files that could not be read, so that later commands skip them."""
        with suppress(duckdb.Error):
            indexing.note_damaged_files(self._connection, self._store, self._unreadable_ids)

    def _read_defects(self) -> list[str]:
        return [
            line for (line,) in self._fetch_all_or_rebuild("SELECT defect FROM damaged ORDER BY 1")
        ]

    def _find(
        self, number_sql: str, selection_sql: str, values: Sequence[Any]
    ) -> Iterator[tuple[int, Copies]]:
        """Yield (number, copies) for each selected record.

        - `number_sql`: an SQL expression of the number.
        - `selection_sql`: the rest of the SQL query, after WHERE. Copies of a record must come in a
          row. `values` has the values of its placeholders.
        """
        # Select everything first, so that a damaged index fails before any record is yielded.
        self._fetch_all_or_rebuild(
            "CREATE OR REPLACE TEMP TABLE chosen AS "
            f"SELECT r.id, {number_sql} AS number, c.source, c.start, c.length "
            f"FROM records r JOIN copies c USING (id) WHERE {selection_sql}",
            values,
        )
        cursor = self._connection.execute("SELECT * FROM chosen")
        chosen = itertools.chain.from_iterable(iter(lambda: cursor.fetchmany(_FETCH_ROWS), []))
        for (identity, number), rows in itertools.groupby(chosen, key=lambda row: row[:2]):
            places = (self._place(identity, *row[2:]) for row in rows)
            yield number, Copies(identity, tuple(places))

    def _place(self, identity: str, source: str, start: int | None, length: int | None) -> Place:
        if start is None:
            return Place(self._store.record_path(identity))
        return Place(self._store.folder / "packs" / source, start, length)

    def _open_and_update_or_rebuild(self) -> None:
        """Open and update the index, or rebuild it if it is damaged or of another version."""
        for may_rebuild in (True, False):
            connection = None
            try:
                connection = duckdb.connect(str(self._path), config=_CONFIG)
                indexing.update_index_in_one_pass(connection, self._store)
            except (duckdb.Error, indexing.StaleIndexError) as error:
                if connection is not None:
                    connection.close()
                if not may_rebuild or "lock on file" in str(error):
                    raise
                self._delete_files_of_closed_index()
            else:
                self._connection = connection
                return

    def _fetch_all_or_rebuild(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except duckdb.Error:
            self.close()
            self._delete_files_of_closed_index()
            self._open_and_update_or_rebuild()
            return self._connection.execute(sql, values).fetchall()

    def _delete_files_of_closed_index(self) -> None:
        for path in (self._path, self._path.with_name(f"{self._path.name}.wal")):
            path.unlink(missing_ok=True)


def _credible_sql() -> str:
    """Return the SQL that is true unless a record was created in the future (see `age_key`)."""
    return f"(created <= '{latest_credible_time()}')"


@contextmanager
def open_index(store: Store, warn_of_wait: WarningHandler) -> Iterator[Index]:
    """Provide the up-to-date index of `store` as a context.

    If another process is using the index, `warn_of_wait` gets a message and the call waits. Raises
    XfbenchError if no index can be created.
    """
    with ExitStack() as stack:
        index = _open_shared(store, stack, warn_of_wait) or _open_temporary_copy(store, stack)
        stack.callback(index.close)
        stack.callback(index.remember_damaged_files)
        yield index


def _open_shared(store: Store, stack: ExitStack, warn_of_wait: WarningHandler) -> Index | None:
    """Return the index in the results folder, or None if that index cannot be used.

    The index cannot be used in these cases:

    - The folder is read-only, or another user could replace files in it.
    - Another process holds the lock for more than a minute.
    - The file is not safe to open.
    - The index cannot be created.
    - The path is not UTF-8 for DuckDB, which reads no other paths.
    """
    if os.fsencode(store.folder) != str(store.folder).encode(errors="replace"):
        return None
    try:
        paths.require_private(store.folder, "")
    except UsageError:
        return None
    if _lock_if_writable(store, stack, warn_of_wait) and _is_safe_to_open(store.folder / FILE_NAME):
        with suppress(duckdb.Error, OSError):
            return Index(store.folder / FILE_NAME, store)
    return None


def _open_temporary_copy(store: Store, stack: ExitStack) -> Index:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="xfbench-"))
    path = Path(folder) / FILE_NAME
    if _is_safe_to_open(store.folder / FILE_NAME):
        with suppress(OSError):
            shared_files.copy_content(store.folder / FILE_NAME, path, only_own=True)
    try:
        return Index(path, store)
    except (duckdb.Error, OSError) as error:
        raise XfbenchError(f"{store.folder}: cannot create an index: {error}") from error


def _is_safe_to_open(path: Path) -> bool:
    """Return whether `path` is missing, or is a regular file that this user owns."""
    try:
        file_status = path.lstat()
    except OSError:
        return True
    return stat.S_ISREG(file_status.st_mode) and file_status.st_uid == os.geteuid()


def _lock_if_writable(store: Store, stack: ExitStack, warn_of_wait: WarningHandler) -> bool:
    """Lock the index in the results folder until `stack` closes.

    Return whether the lock is held and the folder is writable.
    """
    message = f"{store.folder}: waiting for another xfbench that is using this folder"
    try:
        stack.enter_context(
            locks.exclusive(
                store.lock_path,
                f"is using {store.folder}",
                lambda _: warn_of_wait(message),
                timeout_s=_LOCK_TIMEOUT_S,
                silent_s=1.0,
            )
        )
    except (OSError, UnavailableError):  # also if the file system provides no locks
        return False
    return os.access(store.folder, os.W_OK)


def read_if_matching(
    copies: Copies, conditions: Sequence[Condition]
) -> tuple[StoredRecord | None, list[Defect]]:
    """Return the first valid copy of a record if it meets all conditions, and defects.

    If no copy is valid, there is a defect for each copy. Otherwise there are none.
    """
    defects = []
    for place in copies.places:
        try:
            record = place.record(copies.id)
        except (OSError, ValueError) as error:
            defects.append(Defect(copies.id, defect_message(place.path.name, error)))
        else:
            is_matching = not conditions or _meets_conditions(record, conditions)
            return ((place, record) if is_matching else None), []
    return None, defects


def _meets_conditions(record: Record, conditions: Sequence[Condition]) -> bool:
    # Only the parts that the conditions name, because a whole record takes long to convert.
    names = {condition.field.partition(".")[0] for condition in conditions}
    is_named_by_alias = not names <= Record.model_fields.keys()
    document = record.model_dump(
        mode="json", by_alias=True, include=None if is_named_by_alias else names
    )
    return all(condition.holds(document) for condition in conditions)


def _hash_sql(fields: Sequence[str]) -> str:
    return f"hash({', '.join(map(_column_sql, fields))})"


def _column_sql(path: str) -> str:
    """Return SQL for the value of a field. A missing value is the field's default."""
    default = record_fields()[path].default
    column = f'r."{path}"'
    if default is None:
        return column
    return f"coalesce({column}, {_sql_literal_without_escaping(default)})"


def _preselection_sql(conditions: Sequence[Condition], id_prefix: str) -> tuple[str, list[Any]]:
    """Return an SQL condition and the values of its placeholders.

    The SQL condition holds for every record that meets `conditions` and whose id starts with
    `id_prefix`. It may also hold for a few other records.
    """
    parts, values = ["true"], []
    if id_prefix:
        parts.append("starts_with(r.id, ?)")
        values.append(id_prefix)
    for condition in conditions:
        if condition.field not in indexing.COLUMN_TYPES:
            continue
        has_default = record_fields()[condition.field].default is not None
        if has_default and (condition.comparison == "!=" or condition.value == "null"):
            continue  # a field with a default is null only if its parent is null
        sql, values_of_comparison = _comparison_sql(_column_sql(condition.field), condition)
        parts.append(f"(NOT r.readable OR {sql})")
        values += values_of_comparison
    return " AND ".join(parts), values


def _sql_literal_without_escaping(value: str | int | float | bool) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value).lower()


def _comparison_sql(column: str, condition: Condition) -> tuple[str, list[Any]]:
    if condition.value == "null" and condition.comparison in ("=", "!="):
        return f"{column} IS {'NOT ' if condition.comparison == '!=' else ''}NULL", []
    if condition.comparison == "~":
        # SQL cannot ignore case beyond ASCII as Python's casefold does, so select more records.
        searched = condition.value.lower() if condition.value.isascii() else ""
        has_non_ascii = f"strlen({column}) > length({column})"
        return f"contains(lower({column}), ?) OR {has_non_ascii}", [searched]
    if condition.comparison == "in":
        values = condition.value.split(",")
        return f"{column} IN ({', '.join('?' * len(values))})", [*values]
    value: Any = condition.value
    if condition.kind in (int, float):
        value = float(value)
    elif condition.kind is bool:
        value = value == "true"
    return (
        f"{column} "
        f"{'IS DISTINCT FROM' if condition.comparison == '!=' else condition.comparison} ?",
        [value],
    )
