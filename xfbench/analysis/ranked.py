"""Leaderboards of a results folder, computed from one part of its records at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xfbench.analysis import grouping, leaderboard
from xfbench.analysis.leaderboard import Certificates, Table
from xfbench.store.index import Index
from xfbench.store.selection import Condition


def leaderboard_tables(
    record_index: Index,
    condition_sets: Iterable[Sequence[Condition]],
    certificates: Certificates,
    target_accuracy: float = leaderboard.TARGET_ACCURACY,
) -> list[Table]:
    """Return the leaderboards of the records that one of `condition_sets` selects.

    - A condition set selects the records that meet all its conditions.
    - No record may be selected by two sets.
    - `certificates` and `target_accuracy` are those of `leaderboard.build_tables`.
    """
    parts = (
        part
        for conditions in condition_sets
        for part in record_index.select_grouped(grouping.PARTITION_FIELDS, conditions)
    )
    return leaderboard.build_tables_from_partitions(
        ((record for _, record in part) for part in parts), certificates, target_accuracy
    )
