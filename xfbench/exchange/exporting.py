"""Exports records to a file: an archive, or a table with a row per record.

A table has a column for every field with a single value, and one for the throughput in images/s. No
text in a CSV file can be executed by a spreadsheet or a terminal.
"""

from __future__ import annotations

import csv
import io
import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import duckdb

from xfbench.base import atomic_files
from xfbench.base.errors import UsageError
from xfbench.exchange import archive
from xfbench.exchange.private_copies import PrivateCopies
from xfbench.model.record import Record
from xfbench.rendering.formats import escape_csv_formula
from xfbench.rendering.record_listing import valid_images_per_second
from xfbench.store import indexing
from xfbench.store.results_folder import Place, Store, WarningHandler

StoredRecords = Iterable[tuple[Place, Record]]
_BATCH_RECORDS = 4096
_DERIVED_COLUMN = "images_per_second"
HEADER = ("id", *indexing.COLUMN_TYPES, _DERIVED_COLUMN)


def choose_file_writer(target: Path) -> Callable[[Path, StoredRecords, Store, WarningHandler], int]:
    """Choose a file format by the ending of `target`. Return the function that writes this format.

    Call the function with the path of the file, the records, their results folder, and a function
    that gets a message for each private name in the settings. The function returns the number of
    written records. It raises UsageError if the file cannot be written.

    Raises UsageError if the ending of `target` is unknown.
    """
    for ending, write in _WRITERS.items():
        if target.name.endswith(ending):
            return _with_usage_errors(write)
    raise UsageError(f"{target}: the name must end in {', '.join(_WRITERS)}")


def _with_usage_errors(
    write: Callable[[Path, StoredRecords, Store, WarningHandler], int],
) -> Callable[[Path, StoredRecords, Store, WarningHandler], int]:
    def write_or_explain(
        target: Path, records: StoredRecords, source: Store, warn: WarningHandler
    ) -> int:
        try:
            return write(target.absolute(), records, source, warn)
        except OSError as error:
            raise UsageError(f"{target}: {error.strerror}") from error

    return write_or_explain


def write_csv(target: Path, records: StoredRecords, source: Store, warn: WarningHandler) -> int:
    """Write a CSV file with a row per record, and return the number of records.

    Numbers are not rounded.
    """
    count = 0

    def write_lines(file: IO[bytes]) -> None:
        nonlocal count
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(HEADER)
        for record in _copy_records(records, source, warn):
            rows.writerow(map(escape_csv_formula, record_values(record)))
            count += 1
        text.flush()
        text.detach()

    atomic_files.write(target, write_lines)
    return count


def _copy_records(records: StoredRecords, source: Store, warn: WarningHandler) -> Iterator[Record]:
    """Yield each record without private names."""
    copies = PrivateCopies(source, warn)
    return (copies.copy_record(place, record)[0] for place, record in records)


def record_values(record: Record) -> list[Any]:
    """Return the values of a record in the order of `HEADER`. A missing value is None."""
    document = record.document()
    values = [_value_at(document, path.split(".")) for path in indexing.COLUMN_TYPES]
    return [record.id, *values, valid_images_per_second(record)]


def _value_at(value: Any, path: list[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def write_parquet(target: Path, records: StoredRecords, source: Store, warn: WarningHandler) -> int:
    """Write a Parquet file with a row per record, and return the number of records.

    The columns are those of `write_csv`, with types. The oldest record is first.
    """
    with tempfile.TemporaryDirectory(prefix="xfbench-", dir=target.parent) as folder:
        parquet_path = Path(folder) / "made.parquet"
        config: dict[str, Any] = {
            "memory_limit": "1GB",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        with duckdb.connect(str(Path(folder) / "made.duckdb"), config=config) as connection:
            indexing.create_tables(connection)
            connection.execute("CREATE TABLE speeds (id VARCHAR, speed DOUBLE)")
            remaining = _copy_records(records, source, warn)
            while batch := [*itertools.islice(remaining, _BATCH_RECORDS)]:
                ids = [record.id[7:] for record in batch]
                texts = [record.model_dump_json(by_alias=True) for record in batch]
                indexing.insert_records(connection, dict(zip(ids, texts, strict=True)))
                connection.execute(
                    "INSERT INTO speeds SELECT unnest($1::VARCHAR[]), unnest($2::DOUBLE[])",
                    [ids, [valid_images_per_second(record) for record in batch]],
                )
            columns = ", ".join(f'r."{path}"' for path in indexing.COLUMN_TYPES)
            connection.execute(
                f"COPY (SELECT 'sha256:' || r.id AS id, {columns}, speed AS {_DERIVED_COLUMN} "
                "FROM records r JOIN speeds USING (id) ORDER BY created, id) "
                f"TO '{str(parquet_path).replace(chr(39), chr(39) * 2)}' (FORMAT parquet)"
            )
            [(count,)] = connection.execute("SELECT count(*) FROM speeds").fetchall()
        parquet_path.replace(target)
    return int(count)


_WRITERS: dict[str, Callable[[Path, StoredRecords, Store, WarningHandler], int]] = {
    **dict.fromkeys(archive.SUFFIXES, archive.write_archive),
    ".csv": write_csv,
    ".parquet": write_parquet,
}
