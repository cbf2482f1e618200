"""Leaderboards of a results folder, computed from one part of its records at a time.

The index keeps the rows of large folders. A row is computed again only if its records, the
certificates or xfbench itself have changed.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import scipy

from xfbench.analysis import grouping, kept_rows, leaderboard
from xfbench.analysis.leaderboard import Certificates, Heading, Row, Table
from xfbench.base import digests, parallel, paths
from xfbench.model import origins
from xfbench.model.certificate import Certificate
from xfbench.store import index
from xfbench.store.index import Copies, Index
from xfbench.store.selection import Condition

MIN_KEPT_RECORDS = 2000  # rows of fewer records are computed quickly
_MIN_PARALLEL_RECORDS = 10_000  # for fewer records, starting processes takes longer than it saves
_PART_RECORDS = 1000
_Part = list[tuple[int, list[Copies]]]  # (number of the group, copies of each of its records)


@dataclass(frozen=True)
class _BuiltGroup:
    """The rows of a group of records, with their headings.

    - `can_be_kept`: a record with a defect must be read, and reported, each time. So must one that
      depends on the networks that are installed.
    """

    number: int
    rows: list[tuple[Heading, Row]]
    defects: list[index.Defect]
    can_be_kept: bool


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
    tables = leaderboard.build_tables_from_rows(
        row
        for conditions in condition_sets
        for row in _rows(record_index, conditions, certificates, target_accuracy)
    )
    return leaderboard.add_origins(tables, origins.read(record_index.folder))


def _rows(
    record_index: Index,
    conditions: Sequence[Condition],
    certificates: Certificates,
    target_accuracy: float,
) -> Iterator[tuple[Heading, Row]]:
    """Yield the rows of the records that meet all conditions, with their headings."""
    are_kept = record_index.count_preselected(conditions) >= MIN_KEPT_RECORDS
    if are_kept:
        record_index.reread_changed_files(conditions)
    groups = record_index.group(grouping.ROW_FIELDS, conditions)
    names_and_versions = {}
    if are_kept:
        # What selects the records, and what rows depend on apart from their records.
        selection = digests.of_json([vars(condition) | {"kind": None} for condition in conditions])
        basis = _digest_basis(certificates, target_accuracy)
        names_and_versions = {
            group.number: (f"rows {selection} {group.number}", f"{basis} {group.digest}")
            for group in groups
        }
    kept_texts = record_index.find_kept(dict(names_and_versions.values()))
    unread = {group.number: group.records for group in groups}
    for number, (name, _) in names_and_versions.items():
        rows = kept_rows.decode(kept_texts[name]) if name in kept_texts else None
        if rows is not None:
            yield from rows
            del unread[number]
    parts = _read_parts(record_index, unread, conditions)
    build = partial(
        _build_rows,
        conditions=conditions,
        certificates=certificates,
        target_accuracy=target_accuracy,
    )
    are_many = sum(unread.values()) >= _MIN_PARALLEL_RECORDS
    for built_groups in parallel.map_in_order(build, parts, in_processes=are_many):
        new_texts = {}
        for built in built_groups:
            yield from built.rows
            record_index.add_defects(built.defects)
            if built.can_be_kept and built.number in names_and_versions:
                name, version = names_and_versions[built.number]
                new_texts[name] = version, kept_rows.encode(built.rows)
        record_index.keep(new_texts)


def _read_parts(
    record_index: Index, numbers: Collection[int], conditions: Sequence[Condition]
) -> Iterator[_Part]:
    """Yield the copies of the records in these groups. A part has whole groups."""
    numbered_copies = record_index.find_in_groups(grouping.ROW_FIELDS, numbers, conditions)
    part: _Part = []
    for number, group in itertools.groupby(numbered_copies, key=lambda pair: pair[0]):
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
) -> list[_BuiltGroup]:
    """Return the rows of each group of a part."""
    built_groups = []
    for number, copies_of_records in part:
        records, defects = [], []
        for copies in copies_of_records:
            stored, defects_of_copies = index.read_if_matching(copies, conditions)
            defects += defects_of_copies
            if stored:
                records.append(stored[1])
        rows = leaderboard.build_rows(records, certificates, target_accuracy)
        can_be_kept = not defects and not any(map(kept_rows.depends_on_networks, records))
        built_groups.append(_BuiltGroup(number, rows, defects, can_be_kept))
    return built_groups


def _digest_basis(certificates: Certificates, target_accuracy: float) -> str:
    """Return a digest of what rows depend on apart from their records."""
    proofs = {
        key: f"{proof.id}{proof.is_foreign}" if isinstance(proof, Certificate) else proof
        for key, proof in certificates.items()
    }
    libraries = [sys.version, np.__version__, scipy.__version__]
    return digests.of_json([_digest_code(), libraries, target_accuracy, proofs])


@cache
def _digest_code() -> str:
    return digests.of_files(digests.read_files_below(paths.package_folder("xfbench")))
