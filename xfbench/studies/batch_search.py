"""Batches up to the end of memory: which to try next, and the launches that find it out.

A trial is a launch like any other, with few steps, whose death is expected: its record says that
memory was out, and how. What is known of records is not tried again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from xfbench import statistics
from xfbench.host import memory
from xfbench.model.plan import Plan
from xfbench.model.record import Record
from xfbench.model.request import Cell, Protocol
from xfbench.planning.scheduling import launch_order
from xfbench.planning.study_form import BatchSearch

RunPlan = Callable[[Plan, Sequence[Record]], list[Record]]
_FAR_FROM_LIMIT = 0.25  # of the limit: below, the end of memory is two doublings away at the least
_MAX_ROUNDS = 100  # far beyond what memory has room for


@dataclass(frozen=True)
class CellSearch:
    """A cell whose batch rises, at its first batch, and the launches that batches in turn get."""

    cell: Cell
    rules: BatchSearch
    protocol: Protocol

    @property
    def batch_multiple(self) -> int:
        """What every batch is a multiple of: ranks share it evenly."""
        return self.cell.ranks if self.cell.scaling == "strong" else 1

    def cell_with_batch(self, batch: int) -> Cell:
        """The same cell with another batch."""
        per_rank = batch // self.batch_multiple
        sizes = {"batch_size_per_rank": per_rank, "global_batch_size": per_rank * self.cell.ranks}
        return self.cell.model_copy(update=sizes)

    def with_memory_limit(self, limit: int | None) -> CellSearch:
        """The same with each rank's memory limited, unless its file says to what."""
        if self.cell.memory_limit or limit is None:
            return self
        cell = self.cell.model_copy(update={"memory_limit": limit})
        return CellSearch(cell, self.rules, self.protocol)

    def max_launches(self) -> int | None:
        """How many there may be; None where no batch is the last."""
        if self.rules.most is None:
            return None
        doublings = (self.rules.most // self.rules.start).bit_length()
        return doublings * self.protocol.most + math.ceil(math.log2(1 / self.rules.within)) + 1


@dataclass(frozen=True)
class Trial:
    """How a batch's first launch went; seconds of all of it, images per second, bytes."""

    outcome: Literal["ran", "out", "otherwise"]
    seconds: float = 0.0
    images_per_second: float = 0.0
    peak_bytes: int = 0


def read_trial(record: Record) -> Trial:
    """What a launch's record says."""
    seconds = (record.conditions and record.conditions.seconds) or 0.0
    if memory.is_out_of_memory(record):
        return Trial("out", seconds)
    if record.measurement is None:
        return Trial("otherwise", seconds)
    speed = statistics.launch_throughput(record)
    return Trial("ran", seconds, speed, record.measurement.peak_rss_bytes)


def next_batch(search: CellSearch, trials: Mapping[int, Trial]) -> int | None:
    """The batch to be tried next; None where the end is found, or it ends for another reason."""
    if not trials:
        return search.rules.start
    if any(trial.outcome == "otherwise" for trial in trials.values()):
        return None
    smallest_failed = min(
        (batch for batch, trial in trials.items() if trial.outcome == "out"), default=None
    )
    largest_ok = max(
        (batch for batch in trials if smallest_failed is None or batch < smallest_failed),
        default=None,
    )
    if largest_ok is None:  # the first was out of memory already
        return None
    if smallest_failed is None:
        return None if _ends_early(search, largest_ok, trials) else 2 * largest_ok
    middle = (largest_ok + smallest_failed) // 2 // search.batch_multiple * search.batch_multiple
    return (
        None
        if smallest_failed - largest_ok <= search.rules.within * largest_ok or middle <= largest_ok
        else middle
    )


def _ends_early(search: CellSearch, last_batch: int, trials: Mapping[int, Trial]) -> bool:
    """Whether it goes no further although memory is not out."""
    rules, limit = search.rules, search.cell.memory_limit
    if rules.most is not None and 2 * last_batch > rules.most:
        return True
    if rules.seconds is not None and trials[last_batch].seconds > rules.seconds:
        return True
    speeds = [trials[batch].images_per_second for batch in sorted(trials)]
    if rules.flat is None or len(speeds) <= rules.flat:
        return False
    if limit is not None and trials[last_batch].peak_bytes > _FAR_FROM_LIMIT * limit:
        return False
    best_before = max(speeds[: -rules.flat])
    return all(speed <= best_before * (1 + rules.grows) for speed in speeds[-rules.flat :])


def select_trial_records(searches: Sequence[CellSearch], records: Sequence[Record]) -> list[Record]:
    """The records with an outcome that are of these lines, whatever their limit if one has none."""
    keys = [(_search_key(search.cell), search) for search in searches]
    trial_records = []
    for record in records:
        request = record.request
        settled = record.status in ("ok", "invalid") or memory.is_out_of_memory(record)
        if record.source != "measured" or request is None or not settled:
            continue
        key, limit = _search_key(request.cell()), request.memory_limit
        if any(
            search_key == key
            and request.fixed_batch_size >= search.rules.start
            and search.cell.memory_limit in (None, limit)
            for search_key, search in keys
        ):
            trial_records.append(record)
    return sorted(trial_records, key=lambda record: (record.created, record.id))


def _search_key(cell: Cell) -> Cell:
    """What is the same in all trials of a line."""
    varying = {"batch_size_per_rank": 0, "global_batch_size": 0, "memory_limit": None}
    return cell.model_copy(update=varying)


def add_memory_limits(
    searches: Sequence[CellSearch], records: Sequence[Record]
) -> list[CellSearch]:
    """The lines, each with a limit where training is in this node's memory.

    Where the file names none it is that of launches that are known, so that they count, if so
    much is available still; else what is available. A device's memory has an end of its own.
    """
    available_bytes = memory.available_bytes()
    limited_searches = []
    for search in searches:
        per_rank_bytes = available_bytes // (search.cell.ranks // search.cell.nodes)
        earlier_limits = [
            limit
            for record in select_trial_records([search], records)
            if record.request and (limit := record.request.memory_limit) and limit <= per_rank_bytes
        ]
        limit = (
            None
            if search.cell.device != "cpu"
            else earlier_limits[-1]
            if earlier_limits
            else per_rank_bytes
        )
        limited_searches.append(search.with_memory_limit(limit))
    return limited_searches


def run_searches(
    searches: Sequence[CellSearch],
    template: Plan,
    run_plan: RunPlan,
    earlier_records: Sequence[Record] = (),
    report: Callable[[str], None] = print,
) -> list[Record]:
    """Find the end of each line, then do the launches of batches that double; the new records.

    `do` carries out a plan, `say` tells what is tried. Lines take turns: each round has the next
    trial of every one.
    """
    records = select_trial_records(searches, earlier_records)
    earlier_count = len(records)
    for _ in range(_MAX_ROUNDS):
        trials_by_search = [collect_trials(search, records) for search in searches]
        pairs = [
            (search.cell_with_batch(batch), search.protocol)
            for search, search_trials in zip(searches, trials_by_search, strict=True)
            if (batch := next_batch(search, search_trials)) is not None
        ]
        requests = tuple(cell.request(1) for cell, _ in pairs)
        if not requests:
            break
        for cell, _ in pairs:
            report(f"trying {cell.label()} · batch {cell.global_batch_size}")
        part = {"requests": requests, "protocols": tuple(pairs)}
        new = run_plan(template.model_copy(update=part), ())
        if not {record.request for record in new} >= set(requests):  # nobody says what came of it
            return [*records[earlier_count:], *new]
        records += new
    measured = [
        (search.cell_with_batch(batch), search.protocol)
        for search, search_trials in zip(searches, trials_by_search, strict=True)
        for batch, trial in search_trials.items()
        if trial.outcome == "ran" and search.rules.is_doubling(batch)
    ]
    part = {"requests": tuple(launch_order(measured)), "protocols": tuple(measured)}
    settled = [record for record in records if record.status in ("ok", "invalid")]
    remaining = template.model_copy(update=part)
    if remaining.without_recorded(settled).requests:
        records += run_plan(remaining, settled)
    return records[earlier_count:]


def collect_trials(search: CellSearch, records: Collection[Record]) -> dict[int, Trial]:
    """What is known of each of a line's batches, by the last of its first launches."""
    trials = {}
    for record in records:
        request = record.request
        if (
            request
            and request.launch == 1
            and request.cell() == search.cell_with_batch(request.fixed_batch_size)
        ):
            trials[request.fixed_batch_size] = read_trial(record)
    return trials
