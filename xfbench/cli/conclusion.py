"""What a command that measured prints in the end."""

from __future__ import annotations

from collections.abc import Sequence

from xfbench.analysis import leaderboard
from xfbench.equality import certificate
from xfbench.layout import profile_tables, tables
from xfbench.records.record import Record
from xfbench.results.store import Store


def print_conclusion(records: Sequence[Record], store: Store) -> None:
    """The tables of these records, and where everything lies."""
    folder = store.folder
    board_tables = leaderboard.tables(records, certificate.of_folder(folder))
    print(tables.text(board_tables))
    if any(record.request and record.request.profile for record in records):
        print(profile_tables.FORMATS["text"](board_tables))
    print(
        f"Records: {folder} ({len(records)} new) · tables: xfbench leaderboard --results {folder}"
    )
