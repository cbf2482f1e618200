"""The figure that compares two speed-ups: of learning, and of throughput in images/s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xfbench import pairwise
from xfbench.analysis.leaderboard import Row, Table
from xfbench.analysis.learning import (
    best_common_test_loss,
    best_test_loss,
    seconds_to_test_loss_by_block,
)
from xfbench.model.record import Record
from xfbench.rendering.report.figures import (
    MOST_LINES,
    MOST_NAMED,
    Figure,
    Line,
    Point,
    group_rows_into_scaling_curves,
    row_name,
)
from xfbench.statistics import Interval, has_valid_steps


def build_learning_speed_up_figures(
    table: Table, records_by_id: Mapping[str, Record]
) -> list[Figure]:
    """Return a list with one figure of two speed-ups by number of ranks, or an empty list.

    - The speed-up of learning compares the times to one test loss: the best that every run reached.
    - The other speed-up compares the throughputs in images/s.

    The figure has the ranked configurations that were measured both on one rank and on several.
    Unranked rows are left out, because they may train a different network.
    """
    lines: list[Line] = []
    data: list[tuple[str, ...]] = []
    for group in group_rows_into_scaling_curves(table.rows):
        runs_by_ranks = {
            row.ranks: _select_records_with_test_loss(row, records_by_id) for row in group
        }
        target_loss = best_common_test_loss(
            [record for runs in runs_by_ranks.values() for record in runs]
        )
        if group[0].ranks != 1 or target_loss is None or not all(runs_by_ranks.values()):
            continue
        label = row_name(group[-1], omitted_parts=("ranks",))
        points_by_kind: dict[str, list[Point]] = {
            "learning": [Point(1, 1)],
            "images": [Point(1, 1)],
        }
        for row in group[1:]:
            times = [
                seconds_to_test_loss_by_block(runs_by_ranks[ranks], target_loss)
                for ranks in (1, row.ranks)
            ]
            learning = pairwise.compare(*times).ratio
            images = pairwise.compare(row.speeds, group[0].speeds).ratio
            for kind, ratio in (("learning", learning), ("images", images)):
                points_by_kind[kind].append(Point(row.ranks, ratio.value, ratio.low, ratio.high))
            ratio_texts = (
                *_value_and_interval_texts(learning),
                *_value_and_interval_texts(images),
                f"{target_loss:.3g}",
            )
            data.append((label, str(row.ranks), *ratio_texts))
        lines += [
            Line(f"{label} · {kind}", tuple(points)) for kind, points in points_by_kind.items()
        ]
    if not lines:
        return []
    sentences = [
        f"{line.name}: " + ", ".join(f"{p.y:.3g} at {p.x:g}" for p in line.points[1:])
        for line in lines[:MOST_NAMED]
    ]
    rank_counts = [point.x for line in lines for point in line.points]
    ideal = Line("ideal", (Point(1, 1), Point(max(rank_counts), max(rank_counts))), ideal=True)
    headers = ("learning speed-up", "95 % interval", "of images/s", "95 % interval", "test loss")
    is_truncated = len(lines) > MOST_LINES
    figure = Figure(
        title="Learning speed-up",
        description=(
            "Speed-up over one rank: of the time to the best test loss that every run reached, "
            f"and of images per second. {'; '.join(sentences)}."
        ),
        x="ranks",
        y="times",
        headers=("configuration", "ranks", *headers),
        data=tuple(data),
        lines=(*lines[:MOST_LINES], ideal),
        at=tuple(sorted(set(rank_counts))),
        note=f"Shows {MOST_LINES} of {len(lines)}; the data table has all." if is_truncated else "",
    )
    return [figure]


def _select_records_with_test_loss(
    row: Row, records_by_id: Mapping[str, Record]
) -> Sequence[Record]:
    """Return the row's ok records with valid step times and a finite test loss."""
    row_records = [records_by_id[record_id] for record_id in row.records]
    return [
        r
        for r in row_records
        if r.status == "ok" and has_valid_steps(r) and best_test_loss(r) is not None
    ]


def _value_and_interval_texts(interval: Interval) -> tuple[str, str]:
    if interval.low is None or interval.high is None:
        return f"{interval.value:.3g}", "–"
    return f"{interval.value:.3g}", f"{interval.low:.3g} – {interval.high:.3g}"
