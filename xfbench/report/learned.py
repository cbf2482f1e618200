"""The figure of learning speed-up: what more ranks give in learning, beside what in images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xfbench.analysis import statistics
from xfbench.analysis.leaderboard import Row, Table
from xfbench.analysis.learning import best_loss, common_loss, times_to_loss
from xfbench.analysis.statistics import Interval, is_steady
from xfbench.records.record import Record
from xfbench.report.figures import MOST_LINES, MOST_NAMED, Figure, Line, Point, name, over_ranks


def figures(table: Table, records: Mapping[str, Record]) -> list[Figure]:
    """Both speed-ups over ranks, of ranked rows that learned on one rank and on more, if any.

    What is not ranked may be another network, and is left out.
    """
    lines: list[Line] = []
    data: list[tuple[str, ...]] = []
    for group in over_ranks(table.rows):
        trained = {row.ranks: _trained(row, records) for row in group}
        level = common_loss([one for runs in trained.values() for one in runs])
        if group[0].ranks != 1 or level is None or not all(trained.values()):
            continue
        label = name(group[-1], without=("ranks",))
        drawn: dict[str, list[Point]] = {"learning": [Point(1, 1)], "images": [Point(1, 1)]}
        for row in group[1:]:
            times = [times_to_loss(trained[ranks], level) for ranks in (1, row.ranks)]
            learned = statistics.compare(*times).ratio
            images = statistics.compare(row.speeds, group[0].speeds).ratio
            for kind, found in (("learning", learned), ("images", images)):
                drawn[kind].append(Point(row.ranks, found.value, found.low, found.high))
            both = (*_words(learned), *_words(images), f"{level:.3g}")
            data.append((label, str(row.ranks), *both))
        lines += [Line(f"{label} · {kind}", tuple(points)) for kind, points in drawn.items()]
    if not lines:
        return []
    sentences = [
        f"{line.name}: " + ", ".join(f"{p.y:.3g} at {p.x:g}" for p in line.points[1:])
        for line in lines[:MOST_NAMED]
    ]
    ends = [point.x for line in lines for point in line.points]
    perfect = Line("ideal", (Point(1, 1), Point(max(ends), max(ends))), ideal=True)
    headers = ("learning speed-up", "95 % interval", "of images/s", "95 % interval", "test loss")
    more = len(lines) > MOST_LINES
    shown = Figure(
        title="Learning speed-up",
        description=(
            "How many times sooner than one rank the best test loss that every run reached is "
            f"there, and how many times as many images a second. {'; '.join(sentences)}."
        ),
        x="ranks",
        y="times",
        headers=("configuration", "ranks", *headers),
        data=tuple(data),
        lines=(*lines[:MOST_LINES], perfect),
        at=tuple(sorted(set(ends))),
        note=f"Drawn are {MOST_LINES} of {len(lines)}; all are in the data." if more else "",
    )
    return [shown]


def _trained(row: Row, records: Mapping[str, Record]) -> Sequence[Record]:
    """The row's launches that count, with a test loss that is a number."""
    own = [records[one] for one in row.records]
    return [r for r in own if r.status == "ok" and is_steady(r) and best_loss(r) is not None]


def _words(found: Interval) -> tuple[str, str]:
    if found.low is None or found.high is None:
        return f"{found.value:.3g}", "–"
    return f"{found.value:.3g}", f"{found.low:.3g} – {found.high:.3g}"
