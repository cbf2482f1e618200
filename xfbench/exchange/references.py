"""References for ReFrame: the throughput of each ranked cell, by a key that names the cell."""

from __future__ import annotations

from collections.abc import Iterable

from xfbench.analysis.leaderboard import Row, Table


def cell_key(table: Table, row: Row) -> str:
    """Return the key of a row, such as "torch lenet onednn cpu float32 digits threads=2 batch=64".

    It has all settings that change the throughput most. `docs/reframe/xfbench_test.py` builds the
    same key from the JSON document of a leaderboard.
    """
    parts = [row.framework, table.workload, row.kernel, table.device, table.precision]
    parts += [table.data, f"threads={row.threads}", f"batch={row.global_batch_size}"]
    parts += [f"ranks={row.ranks}", f"nodes={row.nodes}"] if row.ranks > 1 else []
    return " ".join(parts)


def build_references(tables: Iterable[Table], system: str) -> dict[str, dict[str, float]]:
    """Return the content of a references file: images per second by key, for one system.

    `system` is "system:partition" of ReFrame. Rows that are not ranked are left out.
    """
    return {
        system: {
            cell_key(table, row): round(row.images_per_second.value, 3)
            for table in tables
            for row in reversed(table.rows)  # the fastest of rows with the same key
            if row.images_per_second
        }
    }
