"""The figure that compares two speed-ups: of learning, and of throughput in images/s."""

from __future__ import annotations

from collections.abc import Mapping

from xfbench import pairwise
from xfbench.analysis.leaderboard import Row, Table
from xfbench.analysis.learning import (
    RunsToTarget,
    default_target_loss,
    learning_speedup,
    runs_to_test_loss,
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
from xfbench.statistics import Interval


def build_learning_speed_up_figures(
    table: Table, records_by_id: Mapping[str, Record]
) -> list[Figure]:
    """Return a list with one figure of two speed-ups by number of ranks, or an empty list.

    - The speed-up of learning compares the times to the workload's target loss
      (`Workload.target_loss`). Without a target there is no figure.
    - The other speed-up compares the throughputs in images/s.

    The figure has the ranked configurations that were measured both on one rank and on several.
    Unranked rows are left out, because they may train a different network.
    """
    target_loss = default_target_loss(table.workload)
    if target_loss is None:
        return []
    lines: list[Line] = []
    data: list[tuple[str, ...]] = []
    for group in group_rows_into_scaling_curves(table.rows):
        if group[0].ranks != 1:
            continue
        label = row_name(group[-1], omitted_parts=("ranks",))
        runs = [_runs_of_row(row, records_by_id, target_loss) for row in group]
        points_by_kind: dict[str, list[Point]] = {
            "learning": [Point(1, 1)],
            "images": [Point(1, 1)],
        }
        for row, runs_of_row in zip(group[1:], runs[1:], strict=True):
            learning = learning_speedup(runs[0], runs_of_row)
            if not runs[0].times or not runs_of_row.times:
                continue
            images = pairwise.compare(row.speeds, group[0].speeds).ratio
            for kind, ratio in (("learning", learning), ("images", images)):
                if ratio and learning:
                    points_by_kind[kind].append(
                        Point(row.ranks, ratio.value, ratio.low, ratio.high)
                    )
            data.append(
                (
                    label,
                    str(row.ranks),
                    *_value_and_interval_texts(learning),
                    *_value_and_interval_texts(images),
                    f"{runs[0].share}, {runs_of_row.share}",
                )
            )
        lines += [
            Line(f"{label} · {kind}", tuple(points))
            for kind, points in points_by_kind.items()
            if len(points) > 1
        ]
    if not lines:
        return []
    sentences = [
        f"{line.name}: " + ", ".join(f"{p.y:.3g} at {p.x:g}" for p in line.points[1:])
        for line in lines[:MOST_NAMED]
    ]
    rank_counts = [point.x for line in lines for point in line.points]
    ideal = Line("ideal", (Point(1, 1), Point(max(rank_counts), max(rank_counts))), ideal=True)
    headers = (
        *("learning speed-up", "95 % interval", "of images/s", "95 % interval"),
        "reached the target: one rank, several",
    )
    is_truncated = len(lines) > MOST_LINES
    figure = Figure(
        title="Learning speed-up",
        description=(
            f"Speed-up over one rank: of the time to a test loss of {target_loss:.3g}, "
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


def _runs_of_row(row: Row, records_by_id: Mapping[str, Record], target_loss: float) -> RunsToTarget:
    return runs_to_test_loss((records_by_id[name] for name in row.records), target_loss)


def _value_and_interval_texts(interval: Interval | None) -> tuple[str, str]:
    if interval is None:
        return "–", "–"
    if interval.low is None or interval.high is None:
        return f"{interval.value:.3g}", "–"
    return f"{interval.value:.3g}", f"{interval.low:.3g} – {interval.high:.3g}"
