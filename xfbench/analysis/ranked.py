"""Leaderboards of a results folder, computed from one part of its records at a time.

The index keeps the rows of large folders. A row is computed again only if its records, the
certificates or xfbench itself have changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, partial

import numpy as np

from xfbench.analysis import grouping, kept_rows, leaderboard
from xfbench.analysis.leaderboard import Certificates, Heading, Row, Table
from xfbench.base import digests, parallel, paths
from xfbench.model.certificate import Certificate
from xfbench.store import index
from xfbench.store.index import Copies, Index
from xfbench.store.selection import Condition

MIN_KEPT_RECORDS = 2000  # rows of fewer records are computed quickly
_MIN_PARALLEL_RECORDS = 10_000  # for fewer records, starting processes takes longer than it saves
_PART_RECORDS = 1000
_Part = list[tuple[int, list[Copies]]]  # (number of the group, copies of each of its records)


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
    return leaderboard.build_tables_from_rows(
        row
        for conditions in condition_sets
        for row in _rows(record_index, conditions, certificates, target_accuracy)
    )


def _rows(
    record_index: Index,
    conditions: Sequence[Condition],
    certificates: Certificates,
    target_accuracy: float,
) -> Iterator[tuple[Heading, Row]]:
    """Yield the rows of the records that meet all conditions, with their headings."""
    groups = record_index.group(grouping.ROW_FIELDS, conditions)
    are_kept = sum(group.records for group in groups) >= MIN_KEPT_RECORDS
    # What the rows depend on apart from their records, and what selects the records.
    basis = _digest_basis(certificates, target_accuracy)
    selection = digests.of_json([vars(condition) | {"kind": None} for condition in conditions])
    versions = {
        group.number: (f"rows {selection} {group.number}", f"{basis} {group.digest}")
        for group in groups
    }
    kept = record_index.find_kept(dict(versions.values())) if are_kept else {}
    unread = set()
    for number, (name, _) in versions.items():
        try:
            yield from kept_rows.decode(kept[name])
        except (KeyError, ValueError):
            unread.add(number)
    new_texts = {}
    parts = _read_parts(record_index, unread, conditions)
    build = partial(
        _build_rows,
        conditions=conditions,
        certificates=certificates,
        target_accuracy=target_accuracy,
    )
    unread_records = sum(group.records for group in groups if group.number in unread)
    for built in parallel.map_in_order(
        build, parts, in_processes=unread_records >= _MIN_PARALLEL_RECORDS
    ):
        for number, rows, defects in built:
            yield from rows
            record_index.damaged += defects
            # A record with a defect is read, and reported, each time.
            if are_kept and not defects and (text := kept_rows.encode(rows)):
                name, version = versions[number]
                new_texts[name] = version, text
    record_index.keep(new_texts)


def _read_parts(
    record_index: Index, numbers: Collection[int], conditions: Sequence[Condition]
) -> Iterator[_Part]:
    """Yield the copies of the records in these groups. A part has whole groups."""
    found = record_index.find_in_groups(grouping.ROW_FIELDS, numbers, conditions)
    part: _Part = []
    for number, group in itertools.groupby(found, key=lambda pair: pair[0]):
        part.append((number, [copies for _, copies in group]))
        if sum(len(copies) for _, copies in part) >= _PART_RECORDS:
            yield part
            part = []
    yield part


def _build_rows(
    part: _Part,
    conditions: Sequence[Condition],
    certificates: Certificates,
    target_accuracy: float,
) -> list[tuple[int, list[tuple[Heading, Row]], list[str]]]:
    """Return (number, rows, defects) for each group of a part."""
    built = []
    for number, copies_of_records in part:
        records, defects = [], []
        for copies in copies_of_records:
            stored, defects_of_copies = index.read_if_matching(copies, conditions)
            defects += defects_of_copies
            if stored:
                records.append(stored[1])
        rows = leaderboard.build_rows(records, certificates, target_accuracy)
        built.append((number, rows, defects))
    return built


def _digest_basis(certificates: Certificates, target_accuracy: float) -> str:
    """Return a digest of what rows depend on apart from their records."""
    proofs = {
        key: proof.id if isinstance(proof, Certificate) else proof
        for key, proof in certificates.items()
    }
    return digests.of_json([_digest_code(), np.__version__, target_accuracy, proofs])


@cache
def _digest_code() -> str:
    return digests.of_files(digests.read_files_below(paths.package_folder("xfbench")))
