"""Writes records to a file for others: an archive, or a table with a line per record.

A table has every field that holds one value, and the throughput. In CSV nothing that a record says
can run, whether in a spreadsheet or on a terminal.
"""

from __future__ import annotations

import csv
import io
import itertools
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import duckdb

from xfbench.base import atomic_files
from xfbench.base.errors import UsageError
from xfbench.layout.formats import escape_csv_formula
from xfbench.records.record import Record
from xfbench.results import archive, indexing
from xfbench.results.listing import images_per_second
from xfbench.results.store import Place, Store

Found = Iterable[tuple[Place, Record]]
_BATCH = 4096
_DERIVED = "images_per_second"
HEADER = ("id", *indexing.COLUMNS, _DERIVED)


def writer(target: Path) -> Callable[[Path, Found, Store], int]:
    """The function that writes such a file and says how many records it wrote, by its name.

    Raises UsageError for another ending; the function, where the file cannot be written.
    """
    for ending, write in _WRITERS.items():
        if target.name.endswith(ending):
            return _told(write)
    raise UsageError(f"{target}: a name ending in {', '.join(_WRITERS)} is needed")


def _told(
    write: Callable[[Path, Found, Store], int],
) -> Callable[[Path, Found, Store], int]:
    def careful(target: Path, found: Found, source: Store) -> int:
        try:
            return write(target.absolute(), found, source)
        except OSError as error:
            raise UsageError(f"{target}: {error.strerror}") from error

    return careful


def as_csv(target: Path, found: Found, _: Store) -> int:
    """A line per record, numbers in full."""
    count = 0

    def into(file: IO[bytes]) -> None:
        nonlocal count
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(HEADER)
        for _, record in found:
            lines.writerow(map(escape_csv_formula, line(record)))
            count += 1
        text.flush()
        text.detach()

    atomic_files.write(target, into)
    return count


def line(record: Record) -> list[Any]:
    """A record's values, in the order of `HEADER`; None where it has none."""
    document = record.document()
    values = [_at(document, path.split(".")) for path in indexing.COLUMNS]
    return [record.id, *values, images_per_second(record)]


def _at(value: Any, path: list[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def parquet(target: Path, found: Found, _: Store) -> int:
    """The same columns with their types."""
    with tempfile.TemporaryDirectory(prefix="xfbench-", dir=target.parent) as folder:
        made = Path(folder) / "made.parquet"
        config: dict[str, Any] = {
            "memory_limit": "1GB",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        with duckdb.connect(str(Path(folder) / "made.duckdb"), config=config) as connection:
            indexing.create(connection)
            connection.execute("CREATE TABLE speeds (id VARCHAR, speed DOUBLE)")
            rest = iter(found)
            while part := [record for _, record in itertools.islice(rest, _BATCH)]:
                ids = [record.id[7:] for record in part]
                texts = [record.model_dump_json(by_alias=True) for record in part]
                indexing.extract(connection, dict(zip(ids, texts, strict=True)))
                connection.execute(
                    "INSERT INTO speeds SELECT unnest($1::VARCHAR[]), unnest($2::DOUBLE[])",
                    [ids, [images_per_second(record) for record in part]],
                )
            columns = ", ".join(f'r."{path}"' for path in indexing.COLUMNS)
            connection.execute(
                f"COPY (SELECT 'sha256:' || r.id AS id, {columns}, speed AS {_DERIVED} "
                "FROM records r JOIN speeds USING (id) ORDER BY created, id) "
                f"TO '{str(made).replace(chr(39), chr(39) * 2)}' (FORMAT parquet)"
            )
            [(count,)] = connection.execute("SELECT count(*) FROM speeds").fetchall()
        made.replace(target)
    return int(count)


_WRITERS: dict[str, Callable[[Path, Found, Store], int]] = {
    **dict.fromkeys(archive.SUFFIXES, archive.write),
    ".csv": as_csv,
    ".parquet": parquet,
}
