"""The search for the largest batch that fits in memory: the next batch to try, and its launches.

A trial is the first launch with a batch. Trials are ordinary launches with ordinary records. If a
trial runs out of memory, its record says so. A trial that already has a record is not repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from xfbench import statistics
from xfbench.base.terminal_text import print_legibly
from xfbench.host import memory
from xfbench.model.plan import Plan
from xfbench.model.record import Record
from xfbench.model.request import Cell, Protocol, count_ranks_sharing_a_batch
from xfbench.model.sealed import age_key
from xfbench.planning.scheduling import launch_order
from xfbench.planning.study_form import BatchSearch

RunPlan = Callable[[Plan, Sequence[Record]], list[Record]]
_FAR_FROM_LIMIT = 0.25  # fraction of the memory limit below which two doublings still fit
_MAX_ROUNDS = 100  # far more than any memory allows


@dataclass(frozen=True)
class CellSearch:
    """A search for the largest batch of one cell.

    - `cell`: the cell with the first batch.
    - `rules`: the first batch, and when the search ends.
    - `protocol`: number of launches of each batch that the search reaches by doubling.
    """

    cell: Cell
    rules: BatchSearch
    protocol: Protocol

    @property
    def batch_multiple(self) -> int:
        """The number of which every batch must be a multiple.

        This is the number of ranks that share the batch.
        """
        return count_ranks_sharing_a_batch(self.cell.scaling, self.cell.ranks, self.cell.nodes)

    def cell_with_batch(self, batch: int) -> Cell:
        """Return the cell with another batch size.

        `batch` is the number of images per update, per rank or per node, by the cell's scaling.
        """
        per_rank = batch // self.batch_multiple
        sizes = {"batch_size_per_rank": per_rank, "global_batch_size": per_rank * self.cell.ranks}
        return self.cell.model_copy(update=sizes)

    def with_default_memory_limit(self, default_limit: int | None) -> CellSearch:
        """Return the search with a memory limit of `default_limit` bytes per rank.

        If the cell already has a memory limit, or if `default_limit` is None, return the unchanged
        search.
        """
        if self.cell.memory_limit or default_limit is None:
            return self
        cell = self.cell.model_copy(update={"memory_limit": default_limit})
        return CellSearch(cell, self.rules, self.protocol)

    def max_launches(self) -> int | None:
        """Return the maximum number of launches of the search.

        Return None if the rules set no largest batch, because the number is then unlimited.
        """
        if self.rules.most is None:
            return None
        doublings = (self.rules.most // self.rules.start).bit_length()
        return doublings * self.protocol.most + math.ceil(math.log2(1 / self.rules.within)) + 1


@dataclass(frozen=True)
class Trial:
    """The outcome of the first launch with a batch.

    - `outcome`: "ran", "out" (out of memory), or "otherwise" (failed for another reason).
    - `seconds`: duration of the whole launch; 0 if unknown.
    - `images_per_second`, `peak_bytes`: throughput and peak memory; 0 unless the outcome is "ran".
    """

    outcome: Literal["ran", "out", "otherwise"]
    seconds: float = 0.0
    images_per_second: float = 0.0
    peak_bytes: int = 0


def read_trial(record: Record) -> Trial:
    """Return the outcome of a trial from the record of its launch."""
    seconds = (record.conditions and record.conditions.seconds) or 0.0
    if memory.is_out_of_memory(record):
        return Trial("out", seconds)
    if record.measurement is None:
        return Trial("otherwise", seconds)
    speed = statistics.launch_throughput(record)
    return Trial("ran", seconds, speed, record.measurement.peak_rss_bytes)


def next_batch(search: CellSearch, trials: Mapping[int, Trial]) -> int | None:
    """Return the next batch to try; None if the search has ended.

    `trials` maps each batch that was tried to the outcome of its trial.
    """
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
    if largest_ok is None:  # the first batch was out of memory
        return None
    if smallest_failed is None:
        return None if _is_ended_by_rules(search, largest_ok, trials) else 2 * largest_ok
    middle = (largest_ok + smallest_failed) // 2 // search.batch_multiple * search.batch_multiple
    return (
        None
        if smallest_failed - largest_ok <= search.rules.within * largest_ok or middle <= largest_ok
        else middle
    )


def _is_ended_by_rules(
    search: CellSearch, largest_ok_batch: int, trials: Mapping[int, Trial]
) -> bool:
    """Return whether one of the search's rules ends the search although all tried batches ran.

    These rules are the fields `most`, `seconds` and `flat` of `BatchSearch`.
    """
    rules, limit = search.rules, search.cell.memory_limit
    if rules.most is not None and 2 * largest_ok_batch > rules.most:
        return True
    if rules.seconds is not None and trials[largest_ok_batch].seconds > rules.seconds:
        return True
    speeds = [trials[batch].images_per_second for batch in sorted(trials)]
    if rules.flat is None or len(speeds) <= rules.flat:
        return False
    if limit is not None and trials[largest_ok_batch].peak_bytes > _FAR_FROM_LIMIT * limit:
        return False
    best_before = max(speeds[: -rules.flat])
    return all(speed <= best_before * (1 + rules.grows) for speed in speeds[-rules.flat :])


def select_trial_records(searches: Sequence[CellSearch], records: Sequence[Record]) -> list[Record]:
    """Return the records that need not be repeated by one of these searches, oldest first.

    A returned record was measured and is ok, invalid or out of memory. For at least one search, all
    of these conditions hold:

    - The cell of the record is the cell of the search, except for the batch and the memory limit.
    - The batch is not smaller than the first batch of the search.
    - If the search has a memory limit, the record has the same limit.
    """
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
    return sorted(trial_records, key=age_key)


def _search_key(cell: Cell) -> Cell:
    """Return the cell without the fields that differ between the trials of a search."""
    varying = {"batch_size_per_rank": 0, "global_batch_size": 0, "memory_limit": None}
    return cell.model_copy(update=varying)


def add_earlier_or_available_memory_limit(
    searches: Sequence[CellSearch], earlier_records: Sequence[Record]
) -> list[CellSearch]:
    """Return the searches. Each search that trains on CPUs gets a memory limit per rank.

    The limit is the first of these that exists:

    1. The limit in the study's file.
    2. The limit of the latest trial in `earlier_records`. Trials whose limit is above the available
       memory per rank are ignored. With an earlier limit, earlier trials need not be repeated.
    3. The available memory per rank.

    Searches on other devices are returned unchanged, because the memory of the device limits them.
    """
    available_bytes = memory.available_launch_bytes()
    limited_searches = []
    for search in searches:
        per_rank_bytes = available_bytes // (search.cell.ranks // search.cell.nodes)
        earlier_limits = [
            limit
            for record in select_trial_records([search], earlier_records)
            if record.request and (limit := record.request.memory_limit) and limit <= per_rank_bytes
        ]
        limit = (
            None
            if search.cell.device != "cpu"
            else earlier_limits[-1]
            if earlier_limits
            else per_rank_bytes
        )
        limited_searches.append(search.with_default_memory_limit(limit))
    return limited_searches


def run_batch_searches_and_measure(
    searches: Sequence[CellSearch],
    template: Plan,
    run_plan: RunPlan,
    earlier_records: Sequence[Record] = (),
    report_progress: Callable[[str], None] = print_legibly,
) -> list[Record]:
    """Run the searches and return the new records.

    1. The searches run in rounds. Each round runs the next trial of every search. If a trial gets
       no record, all searches stop, and the second step is omitted.
    2. Each batch that ran and was reached by doubling gets its remaining launches. The protocol
       says how many launches a batch gets.

    - `template`: a plan whose requests and protocols are replaced in each round.
    - `run_plan`: takes a plan and the records that the plan already has. Runs the plan and returns
      the new records.
    - `earlier_records`: records of earlier launches, which are not repeated.
    - `report_progress`: prints one progress line.
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
            report_progress(f"trying {cell.label()} · batch {cell.global_batch_size}")
        part = {"requests": requests, "protocols": tuple(pairs)}
        new = run_plan(template.model_copy(update=part), ())
        if not {record.request for record in new} >= set(requests):  # a trial has no record
            return [*records[earlier_count:], *new]
        records += new
    measured = [
        (search.cell_with_batch(batch), search.protocol)
        for search, search_trials in zip(searches, trials_by_search, strict=True)
        for batch, trial in search_trials.items()
        if trial.outcome == "ran" and search.rules.is_start_times_power_of_two(batch)
    ]
    part = {"requests": tuple(launch_order(measured)), "protocols": tuple(measured)}
    settled = [record for record in records if record.status in ("ok", "invalid")]
    remaining = template.model_copy(update=part)
    if remaining.without_recorded(settled).requests:
        records += run_plan(remaining, settled)
    return records[earlier_count:]


def collect_trials(search: CellSearch, records: Collection[Record]) -> dict[int, Trial]:
    """Return the outcome of each batch that the search has tried, by batch.

    Only records with launch number 1 are trials. If a batch has several such records, the last of
    them in `records` counts.
    """
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
