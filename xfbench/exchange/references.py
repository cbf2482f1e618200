"""References for ReFrame: the throughput of each ranked cell, by the cell's key."""

from __future__ import annotations

from collections.abc import Iterable

from xfbench.analysis.leaderboard import Table


def build_references(tables: Iterable[Table], system: str) -> dict[str, dict[str, float]]:
    """Return the content of a references file: images per second by key, for one system.

    `system` is "system:partition" of ReFrame. The keys are those of `Cell.key`, which the rows of
    `xfbench leaderboard --json` have too. Of several rows with the same key, such as of different
    versions, the fastest is used. Rows that are not ranked are left out.
    """
    return {
        system: {
            row.request.key: round(row.images_per_second.value, 3)
            for table in tables
            for row in reversed(table.rows)  # the fastest of rows with the same key
            if row.images_per_second
        }
    }
