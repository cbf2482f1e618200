"""What a plan launches, in short: for people who decide whether to start it."""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from xfbench.base.wording import pluralize
from xfbench.datasets.manifest import ORDERED_MESSAGE, Manifest
from xfbench.host import machine, sites
from xfbench.model.plan import Plan
from xfbench.model.record import Record, Status
from xfbench.model.request import Cell, Request
from xfbench.planning import pinning
from xfbench.planning.durations import START_SECONDS, Estimate, estimate_duration


@dataclass(frozen=True)
class CellOutline:
    """The launches of a cell.

    - `least`, `most`: number of launches; both are 0 if the cell cannot be launched.
    - `obstacle`: status and reason of a cell that cannot be launched; else None.
    """

    cell: Cell
    least: int
    most: int
    obstacle: tuple[Status, str] | None

    def describe(self) -> str:
        """Return the cell, its pinning, data, batch and number of launches as one line."""
        label = self.cell.long_label()
        if self.obstacle:
            return f"{label} · {': '.join(self.obstacle)}"
        return f"{label} · {_count_text(self.least, self.most, 'launch', 'launches')}"


@dataclass(frozen=True)
class Outline:
    """The launches of a plan.

    - `cells`: those that cannot be launched come first.
    - `least`, `most`: expected duration of the smallest and the largest number of launches.
    - `warnings`: what the user may not have meant.
    """

    cells: tuple[CellOutline, ...]
    least: Estimate
    most: Estimate
    warnings: tuple[str, ...]

    @property
    def most_seconds(self) -> float:
        """The longest duration in seconds. Launches without an estimate count as their least."""
        return self.most.seconds + self.most.unknown_seconds

    def describe(self) -> str:
        """Return the number of cells and launches and the expected time as one line."""
        if not any(each.most for each in self.cells):
            return "nothing to launch"
        possible = [each for each in self.cells if not each.obstacle]
        launches = _count_text(
            sum(each.least for each in possible),
            sum(each.most for each in possible),
            "launch",
            "launches",
        )
        cells = _count_text(len(possible), len(possible), "cell", "cells")
        return f"{cells}, {launches}, {self._describe_duration()}"

    def _describe_duration(self) -> str:
        if not self.most.known:
            minutes = round(self.least.unknown_seconds / 60)
            if minutes:
                starts = f"with about {START_SECONDS:g} s for each start"
                return f"at least {minutes} min {starts}, plus verification"
            return "time unknown, because no earlier launches are like these"
        least, most = (max(1, round(each.seconds / 60)) for each in (self.least, self.most))
        text = f"about {least} min" if least == most else f"about {least} to {most} min"
        unknown = f" and {self.most.unknown} launches of unknown duration"
        return text + (unknown if self.most.unknown else "")


def build_outline(
    plan: Plan,
    find_obstacle: Callable[[Request], tuple[Status, str] | None],
    earlier_records: Iterable[Record],
    done: Sequence[Record] = (),
) -> Outline:
    """Return the outline of what remains of a plan.

    - `done`: the records of launches that are left out.
    - `find_obstacle`: returns status and reason of a launch that is impossible; else None.
    - `earlier_records`: launches from which durations are estimated.
    """
    earlier = list(earlier_records)
    protocols = dict(plan.protocols)
    counts = Counter(request.cell() for request in plan.without_recorded(done).requests)
    done_counts = Counter(record.request.cell() for record in done if record.request)
    cells: list[CellOutline] = []
    least_requests: list[Request] = []
    most_requests: list[Request] = []
    for cell, count in counts.items():
        obstacle = find_obstacle(cell.request(1))
        least = count
        if cell in protocols:
            least = min(count, max(0, protocols[cell].least - done_counts[cell]))
        if not obstacle:
            least_requests += [cell.request(1)] * least
            most_requests += [cell.request(1)] * count
        cells.append(CellOutline(cell, *((0, 0) if obstacle else (least, count)), obstacle))
    possible = [each.cell for each in cells if not each.obstacle]
    warnings = [
        *_list_warnings(possible, plan),
        *_warn_of_sessions(done, possible),
        *_warn_of_short_jobs(least_requests, plan, earlier),
    ]
    return Outline(
        tuple(sorted(cells, key=lambda each: each.obstacle is None)),
        estimate_duration(least_requests, earlier),
        estimate_duration(most_requests, earlier),
        tuple(dict.fromkeys(warnings)),
    )


def _warn_of_sessions(done: Sequence[Record], cells: Collection[Cell]) -> Iterator[str]:
    """Yield a warning if launches are added to ok ones of the same cells, as their 2nd session."""
    sessions: dict[Cell, set[str | None]] = defaultdict(set)
    for record in done:
        if record.request and record.status == "ok":
            sessions[record.request.cell()].add(record.request.session)
    # A job that is in the queue already belongs to the session of its earlier launches.
    launched_here = {cell for cell in cells if not _is_submitted(cell)}
    if any(len(sessions[cell]) == 1 for cell in launched_here & sessions.keys()):
        yield (
            "the new launches are a second session of the same cells: with two sessions, tables "
            "say indicative at best (docs/method.md, Several sessions)"
        )


def _warn_of_short_jobs(
    requests: Iterable[Request], plan: Plan, earlier: Sequence[Record]
) -> Iterator[str]:
    """Yield a warning if the launches of a submitted job take longer than the job may.

    There is one job for each number of nodes. The warning is about the longest of them.
    """
    requests_by_nodes: dict[int, list[Request]] = defaultdict(list)
    for request in requests:
        if _is_submitted(request):
            requests_by_nodes[request.nodes].append(request)
    if not requests_by_nodes:
        return
    estimates = [estimate_duration(each, earlier) for each in requests_by_nodes.values()]
    needed_s = max(each.seconds + each.unknown_seconds for each in estimates)
    site = sites.load_site(next(iter(requests_by_nodes.values()))[0].site)  # a plan has one site
    queue = site.queues.get(plan.submission.partition or site.queue, sites.Queue())
    minutes, partition_minutes = plan.submission.minutes, queue.max_minutes or math.inf
    if needed_s > 60 * min(minutes, partition_minutes):
        limit = f"but --job-time is {minutes} min: raise --job-time, or"
        if partition_minutes < minutes:
            limit = f"but the partition allows {partition_minutes} min:"
        job = "a job" if len(estimates) > 1 else "the job"
        yield (
            f"the launches of {job} take at least {math.ceil(needed_s / 60)} min, {limit} continue "
            "with --resume"
        )


def _is_submitted(cell: Cell) -> bool:
    return cell.launcher == "slurm" and not os.environ.get("SLURM_JOB_ID")


def _list_warnings(cells: Iterable[Cell], plan: Plan) -> Iterator[str]:
    """Yield what looks like a mistake in these cells of a plan."""
    cells = list(cells)
    if plan.has_guessed_threads and _lacks_baselines(cells):
        yield (
            "each number of ranks has another number of threads, so there is no efficiency: set "
            "--threads to compare numbers of ranks"
        )
    queue = plan.submission.partition or None
    if any(_reads_ordered_records(cell, plan) for cell in cells):
        yield f"--loader native: {ORDERED_MESSAGE}"
    for cell in cells:
        site, ranks_per_node = sites.load_site(cell.site), math.ceil(cell.ranks / cell.nodes)
        if cell.device != "cpu":
            options = (*site.script_options, *site.gpu_options_for(cell.device))
            if _is_submitted(cell) and not any("gpu" in text for text in options):
                yield (
                    "the jobs ask for no GPU: unless the nodes of the partition have GPUs, set "
                    "gpu_options in the site configuration"
                )
            continue
        cores = site.cores_for_ranks(queue, machine.usable_cores())
        needed = cell.threads * ranks_per_node
        has_cores = site.cores or any(queue.cores for queue in site.queues.values())
        if needed > cores and (cell.launcher == "local" or has_cores):
            yield f"{needed} threads on {cores} cores: oversubscribed"
        elif warning := pinning.crowding_warning(cell):
            yield warning
        if _is_submitted(cell) and not has_cores and plan.has_guessed_threads:
            yield (
                f"{pluralize(cell.threads, 'thread')} may be wrong: they follow from the {cores} "
                "cores of this login node. Set `cores` in the site configuration to those of a "
                "compute node"
            )


def _reads_ordered_records(cell: Cell, plan: Plan) -> bool:
    """Return whether a framework's own reader takes images in an order by class."""
    if cell.input != "native" or cell.data_set is None or cell.data_set.format == "folder":
        return False
    folder = plan.data_folders.get(cell.data_set.folder_lookup_key)
    return folder is not None and Manifest.read(Path(folder)).splits["train"].ordered


def _lacks_baselines(cells: Iterable[Cell]) -> bool:
    """Return whether there are several numbers of ranks, and no two have the same threads."""
    ranks_by_threads: dict[int, set[int]] = {}
    for cell in cells:
        if cell.scaling:
            ranks_by_threads.setdefault(cell.threads, set()).add(cell.ranks)
    return len(ranks_by_threads) > 1 and all(len(of) == 1 for of in ranks_by_threads.values())


def _count_text(least: int, most: int, singular: str, plural: str) -> str:
    """Return for example "1 launch", "3 launches" or "5 to 20 launches"."""
    number = f"{least}" if least == most else f"{least} to {most}"
    return f"{number} {singular if most == 1 else plural}"
