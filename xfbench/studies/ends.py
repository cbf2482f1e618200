"""Analyses of batches that rise: where memory ends, what an image takes, what more gives nothing.

Peak memory over the batch is a straight line, by least squares over the cells: its slope is what
an image takes, its start what is there whatever the batch. Throughput stops growing at the
smallest batch of which no larger one is better by more than these launches would have shown; its
interval ends at the first from which on they rule out a gain that matters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from xfbench.analysis import statistics
from xfbench.analysis.leaderboard import Certificates
from xfbench.analysis.statistics import CONFIDENCE, Interval
from xfbench.host import memory
from xfbench.studies import analyses
from xfbench.studies import cells as of_cells
from xfbench.studies.cells import Measured
from xfbench.studies.finding import Finding, Judged, Told, Value, tally, verdict
from xfbench.studies.form import Analysis, Claim
from xfbench.studies.quantities import QUANTITIES, launches
from xfbench.studies.wording import figure, joined, number

# They are of every batch that was tried; others only of those that double.
OF_TRIALS = ("out_of_memory", "memory_per_image", "values")
MATTERS = 0.02  # of throughput: a batch that may give so much more is not ruled out
EACH, WHATEVER = "each image", "whatever the batch"


def is_out(one: Measured) -> bool:
    """Whether memory was out in every launch of it."""
    return all(map(memory.is_out_of_memory, one.records))


@dataclass(frozen=True)
class _End:
    """Of one line: the largest batch that ran, the smallest that did not, and how that died."""

    line: Sequence[Measured]
    ran: Measured | None
    out: Measured | None
    reason: str


def out_of_memory(of: Analysis, cells: Sequence[Measured], _: Certificates) -> Finding:
    """The largest batch that runs, and how the next one that was tried dies."""
    found: list[Value] = []
    told: list[str] = []
    ends = [_end(group) for group in of_cells.alike(cells, "batch_size")]
    for end in ends:
        name = of_cells.name(end.line[0], cells, ("batch_size",))
        limit = end.line[0].request.memory_limit
        under = f"; at most {_bytes(limit)} a rank" if limit else ""
        interval, reason, note = None, None, ""
        if end.out is None:
            reason = _not_out(end)
        elif end.ran is None:
            reason = f"the smallest, {_size(end.out)}, was {end.reason}{under}"
        else:
            interval = Interval(float(_size(end.ran)), None, None, _count(end))
            note = f"at {_size(end.out)}: {end.reason}{under}"
            told.append(f"{name}: {_size(end.ran)} images run, {_size(end.out)} do not{under}")
        fields = analyses.fields(end.ran or end.line[0])
        found.append(Value(name, "", None, interval, fields, reason, note))
    return Finding(
        title=of.title or "The end of memory",
        sentence=f"{'. '.join(told)}." if told else "Nothing was out of memory here.",
        over="",
        unit="images",
        values=tuple(found),
        judged=tuple(_judged(claim, ends) for claim in of.claim),
        plot=of.plot,
        beside=of.beside,
    )


def _end(line: Sequence[Measured]) -> _End:
    out = next((one for one in line if any(map(memory.is_out_of_memory, one.records))), None)
    ran = [one for one in line if one.steady() and (out is None or _size(one) < _size(out))]
    reason = ""
    if out is not None:
        reason = next(r.reason or "" for r in out.records if memory.is_out_of_memory(r))
    return _End(line, ran[-1] if ran else None, out, reason)


def _not_out(end: _End) -> str:
    last = end.line[-1]
    if not last.steady():
        return analyses.lacking(last)
    return f"not out of memory up to {_size(last)}, the largest that was tried"


def _size(one: Measured) -> int:
    return one.request.fixed_batch_size


def _count(end: _End) -> int:
    """Launches of the one batch and of the other, the fewer."""
    assert end.ran and end.out
    return min(len(end.ran.steady()), sum(map(memory.is_out_of_memory, end.out.records)))


def _bytes(count: float) -> str:
    return f"{number(count / 1e6, 'MB')} MB"


def _judged(claim: Claim, ends: Sequence[_End]) -> Judged:
    """Whether the largest batch that runs is sure to lie between the claim's bounds.

    It lies between what ran and what did not; that a launch dies or not is no matter of chance.
    """
    told: list[Told] = []
    why = []
    low, high = claim.bounds
    for end in ends:
        if not end.line[0].matches(claim.where):
            continue
        least = _size(end.ran) if end.ran else 0
        most = _size(end.out) - 1 if end.out else math.inf
        inside = low <= least and most <= high
        told.append("yes" if inside else "no" if most < low or least > high else "unknown")
        upto = f"{_size(end.out)} do not" if end.out else "no end was found"
        why.append(f"{least} images run, {upto}")
    reason = f"{tally(told)} ({'; '.join(why[:3])})" if told else "nothing of it was measured here"
    return Judged(claim.source, claim.text, verdict(told), reason)


@dataclass(frozen=True)
class Growth:
    """A straight line of bytes over images, and how far the farthest point is off it, relative."""

    slope: Interval
    start: Interval
    off: float


def growth(sizes: Sequence[int], peaks: Sequence[float]) -> Growth | None:
    """The line by least squares, with t-intervals on n − 2; None of fewer than three batches."""
    if len(set(sizes)) < 3:
        return None
    x, y = np.asarray(sizes, dtype=float), np.asarray(peaks, dtype=float)
    centre, freedom = x.mean(), len(x) - 2
    squares = ((x - centre) ** 2).sum()
    slope = ((x - centre) * y).sum() / squares
    start = y.mean() - slope * centre
    left = y - start - slope * x
    variance = (left**2).sum() / freedom
    certain = float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2))
    half = certain * math.sqrt(variance / squares)
    half_start = certain * math.sqrt(variance * (1 / len(x) + centre**2 / squares))
    return Growth(
        Interval(float(slope), float(slope - half), float(slope + half), len(x)),
        Interval(float(start), float(start - half_start), float(start + half_start), len(x)),
        float(np.abs(left / y).max()),
    )


def memory_per_image(of: Analysis, cells: Sequence[Measured], _: Certificates) -> Finding:
    """The bytes that peak memory grows by with each image, and those it has whatever the batch."""
    found: list[Value] = []
    told: list[str] = []
    notes: list[str] = []
    for group in of_cells.alike(cells, "batch_size"):
        name = of_cells.name(group[0], cells, ("batch_size",))
        peaks = [(one, launches(QUANTITIES["peak_memory"], one.records)) for one in group]
        points = [
            (_size(one), 1e6 * statistics.geometric_interval([*known.values()]).value)
            for one, known in peaks
            if known
        ]
        line = growth(*zip(*points, strict=True)) if points else None
        fields = analyses.fields(group[0])
        if line is None:
            lacks = "three batches are needed"
            found.append(Value(name, EACH, None, None, {**fields, "part": EACH}, lacks))
            continue
        for part, interval in ((EACH, line.slope), (WHATEVER, line.start)):
            found.append(Value(name, part, None, interval, {**fields, "part": part}))
        told.append(
            f"{name}: {figure(line.slope, 'bytes')} an image, beside {_bytes(line.start.value)}"
        )
        notes.append(
            f"{name}: {len(points)} batches, of which the farthest is {line.off:.1%} off the line"
        )
    return Finding(
        title=of.title or "Memory per image",
        sentence=f"{'. '.join(told)}." if told else "There are no three batches to tell it from.",
        over="part",
        unit="bytes",
        values=tuple(found),
        judged=(),
        plot="none",
        notes=tuple(notes),
    )


def stops_growing(of: Analysis, cells: Sequence[Measured], certificates: Certificates) -> Finding:
    """The smallest batch of which no larger one is better by more than could have been seen."""
    found: list[Value] = []
    told: list[str] = []
    for group in of_cells.alike(cells, "batch_size"):
        name = of_cells.name(group[0], cells, ("batch_size",))
        what = QUANTITIES["images_per_second"]
        known = [one for one in group if len(launches(what, one.records)) > 1]
        fields = analyses.fields(group[0])
        reason = None if len(known) > 1 else "two batches with two launches that count are needed"
        for one in known[1:]:
            reason = reason or of_cells.comparable(one, known[0], certificates)
        if reason:
            found.append(Value(name, "", None, None, fields, reason))
            continue
        counts = [len(launches(what, one.records)) for one in known]
        first, sure = (
            next(known[n:] for n in range(len(known)) if not better(known[n:]))
            for better in (_better, _maybe_better)
        )
        least, most = float(_size(first[0])), float(_size(sure[0]))
        why = "the largest that was measured is better than every smaller one"
        if first[1:]:
            best = max(first[1:], key=lambda each: _against(each, first[0]).ratio.value)
            against = _against(best, first[0])
            why = (
                f"the best of the larger ones, {_size(best)}, gives "
                f"{figure(against.ratio, 'times')}, of which no more than "
                f"{against.smallest_visible_difference:.1%} would have gone unseen"
            )
            upto = f" to {figure(Interval(most, None, None, 0), 'images')}" if most > least else ""
            told.append(f"{name} at {number(least, 'images')}{upto or ' images'}")
        found.append(
            Value(name, "", None, Interval(least, least, most, min(counts)), fields, note=why)
        )
    return Finding(
        title=of.title or "Where throughput stops growing",
        sentence=f"Throughput stops growing: {joined(told)}."
        if told
        else "It is not seen to stop growing in these batches.",
        over="",
        unit="images",
        values=tuple(found),
        judged=(),
        plot=of.plot,
        beside=of.beside,
    )


def _against(one: Measured, other: Measured) -> statistics.Comparison:
    what = QUANTITIES["images_per_second"]
    return statistics.compare(launches(what, one.records), launches(what, other.records))


def _better(rising: Sequence[Measured]) -> bool:
    """Whether any of the others is better than the first by more than could have been seen."""
    for larger in rising[1:]:
        found = _against(larger, rising[0])
        seen = found.smallest_visible_difference
        if seen is not None and found.ratio.value - 1 > seen:
            return True
    return False


def _maybe_better(rising: Sequence[Measured]) -> bool:
    """Whether any of the others may be better than the first by more than matters."""
    for larger in rising[1:]:
        high = _against(larger, rising[0]).ratio.high
        if high is None or high > 1 + MATTERS:
            return True
    return False
