"""Batches up to the end of memory: which to try next, and the launches that find it out.

A trial is a launch like any other, with few steps, whose death is expected: its record says that
memory was out, and how. What is known of records is not tried again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from xfbench.analysis import statistics
from xfbench.host import memory
from xfbench.plan import Plan
from xfbench.records.record import Record
from xfbench.request import Cell, Protocol
from xfbench.scheduling import launch_order
from xfbench.studies.form import Rising

Measure = Callable[[Plan, Sequence[Record]], list[Record]]
_FAR = 0.25  # of the limit: below, the end of memory is two doublings away at the least
_MOST_ROUNDS = 100  # far beyond what memory has room for


@dataclass(frozen=True)
class Line:
    """A cell whose batch rises, at its first batch, and the launches that batches in turn get."""

    cell: Cell
    rising: Rising
    protocol: Protocol

    @property
    def unit(self) -> int:
        """What every batch is a multiple of: ranks share it evenly."""
        return self.cell.ranks if self.cell.scaling == "strong" else 1

    def at(self, batch: int) -> Cell:
        """The same cell with another batch."""
        each = batch // self.unit
        sizes = {"batch_size_per_rank": each, "global_batch_size": each * self.cell.ranks}
        return self.cell.model_copy(update=sizes)

    def limited(self, limit: int | None) -> Line:
        """The same with each rank's memory limited, unless its file says to what."""
        if self.cell.memory_limit or limit is None:
            return self
        cell = self.cell.model_copy(update={"memory_limit": limit})
        return Line(cell, self.rising, self.protocol)

    def most_launches(self) -> int | None:
        """How many there may be; None where no batch is the last."""
        if self.rising.most is None:
            return None
        doubled = (self.rising.most // self.rising.start).bit_length()
        return doubled * self.protocol.most + math.ceil(math.log2(1 / self.rising.within)) + 1


@dataclass(frozen=True)
class Trial:
    """How a batch's first launch went; seconds of all of it, images per second, bytes."""

    outcome: Literal["ran", "out", "otherwise"]
    seconds: float = 0.0
    speed: float = 0.0
    peak: int = 0


def trial(record: Record) -> Trial:
    """What a launch's record says."""
    seconds = (record.conditions and record.conditions.seconds) or 0.0
    if memory.is_out_of_memory(record):
        return Trial("out", seconds)
    if record.measurement is None:
        return Trial("otherwise", seconds)
    speed = statistics.launch_throughput(record)
    return Trial("ran", seconds, speed, record.measurement.peak_rss_bytes)


def following(line: Line, known: Mapping[int, Trial]) -> int | None:
    """The batch to be tried next; None where the end is found, or it ends for another reason."""
    if not known:
        return line.rising.start
    if any(one.outcome == "otherwise" for one in known.values()):
        return None
    out = min((batch for batch, one in known.items() if one.outcome == "out"), default=None)
    ran = max((batch for batch in known if out is None or batch < out), default=None)
    if ran is None:  # the first was out of memory already
        return None
    if out is None:
        return None if _enough(line, ran, known) else 2 * ran
    middle = (ran + out) // 2 // line.unit * line.unit
    return None if out - ran <= line.rising.within * ran or middle <= ran else middle


def _enough(line: Line, last: int, known: Mapping[int, Trial]) -> bool:
    """Whether it goes no further although memory is not out."""
    rising, limit = line.rising, line.cell.memory_limit
    if rising.most is not None and 2 * last > rising.most:
        return True
    if rising.seconds is not None and known[last].seconds > rising.seconds:
        return True
    speeds = [known[batch].speed for batch in sorted(known)]
    if rising.flat is None or len(speeds) <= rising.flat:
        return False
    if limit is not None and known[last].peak > _FAR * limit:
        return False
    before = max(speeds[: -rising.flat])
    return all(speed <= before * (1 + rising.grows) for speed in speeds[-rising.flat :])


def earlier(lines: Sequence[Line], records: Sequence[Record]) -> list[Record]:
    """The records with an outcome that are of these lines, whatever their limit if one has none."""
    kinds = [(_kind(line.cell), line) for line in lines]
    found = []
    for record in records:
        asked = record.request
        settled = record.status in ("ok", "invalid") or memory.is_out_of_memory(record)
        if record.source != "measured" or asked is None or not settled:
            continue
        kind, limit = _kind(asked.cell()), asked.memory_limit
        if any(
            own == kind
            and asked.fixed_batch_size >= line.rising.start
            and line.cell.memory_limit in (None, limit)
            for own, line in kinds
        ):
            found.append(record)
    return sorted(found, key=lambda record: (record.created, record.id))


def _kind(cell: Cell) -> Cell:
    """What is the same in all trials of a line."""
    whatever = {"batch_size_per_rank": 0, "global_batch_size": 0, "memory_limit": None}
    return cell.model_copy(update=whatever)


def limited(lines: Sequence[Line], known: Sequence[Record]) -> list[Line]:
    """The lines, each with a limit where training is in this node's memory.

    Where the file names none it is that of launches that are known, so that they count, if so
    much is available still; else what is available. A device's memory has an end of its own.
    """
    there = memory.available_bytes()
    found = []
    for line in lines:
        each = there // (line.cell.ranks // line.cell.nodes)
        before = [
            limit
            for record in earlier([line], known)
            if record.request and (limit := record.request.memory_limit) and limit <= each
        ]
        limit = None if line.cell.device != "cpu" else before[-1] if before else each
        found.append(line.limited(limit))
    return found


def measure(
    lines: Sequence[Line],
    template: Plan,
    do: Measure,
    known: Sequence[Record] = (),
    say: Callable[[str], None] = print,
) -> list[Record]:
    """Find the end of each line, then do the launches of batches that double; the new records.

    `do` carries out a plan, `say` tells what is tried. Lines take turns: each round has the next
    trial of every one.
    """
    records = earlier(lines, known)
    count = len(records)
    for _ in range(_MOST_ROUNDS):
        tried = [trials(line, records) for line in lines]
        pairs = [
            (line.at(batch), line.protocol)
            for line, own in zip(lines, tried, strict=True)
            if (batch := following(line, own)) is not None
        ]
        requests = tuple(cell.request(1) for cell, _ in pairs)
        if not requests:
            break
        for cell, _ in pairs:
            say(f"trying {cell.label()} · batch {cell.global_batch_size}")
        part = {"requests": requests, "protocols": tuple(pairs)}
        new = do(template.model_copy(update=part), ())
        if not {record.request for record in new} >= set(requests):  # nobody says what came of it
            return [*records[count:], *new]
        records += new
    again = [
        (line.at(batch), line.protocol)
        for line, own in zip(lines, tried, strict=True)
        for batch, one in own.items()
        if one.outcome == "ran" and line.rising.doubled(batch)
    ]
    part = {"requests": tuple(launch_order(again)), "protocols": tuple(again)}
    good = [record for record in records if record.status in ("ok", "invalid")]
    left = template.model_copy(update=part)
    if left.without_recorded(good).requests:
        records += do(left, good)
    return records[count:]


def trials(line: Line, records: Collection[Record]) -> dict[int, Trial]:
    """What is known of each of a line's batches, by the last of its first launches."""
    found = {}
    for record in records:
        asked = record.request
        if asked and asked.launch == 1 and asked.cell() == line.at(asked.fixed_batch_size):
            found[asked.fixed_batch_size] = trial(record)
    return found
