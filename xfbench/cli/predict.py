"""`xfbench predict`: predict the throughput on more ranks than were measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from xfbench.base.terminal_text import print_legibly as print
from xfbench.base.terminal_text import say, terminal_width
from xfbench.cli.options import (
    FrameworkFilterOption,
    JsonOption,
    RecordFilterOption,
    ResultsOption,
    WorkloadFilterOption,
    check_listed_names_in_folder,
    parse_list,
    parse_positive_int,
    parse_record_filters,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xfbench.analysis.series import Series
    from xfbench.model.record import Record

_ToRanksOption = Annotated[
    str | None,
    typer.Option(
        help="Numbers of ranks, such as 64,1024 (default: 2, 4, 8 and 16 times the largest "
        "measured number of ranks)."
    ),
]
_LinkOption = Annotated[
    str | None,
    typer.Option(
        help="Bandwidth and latency of the link between nodes, such as 100Gbit,1us (default: "
        "estimated from the launches)."
    ),
]


def predict(
    results: ResultsOption = None,
    to_ranks: _ToRanksOption = None,
    where: RecordFilterOption = None,
    framework: FrameworkFilterOption = None,
    workload: WorkloadFilterOption = None,
    link: _LinkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict images per second on more ranks than were measured, with an interval.

    xfbench fits a model of a training step to launches on a few numbers of ranks. The model has the
    time for computing, the time for exchanging gradients, and the delay by the slowest rank. All
    launches must have the same scaling. Some must have one rank. In tests, 24 of 30 intervals
    contained what was measured later.

    Without --link, the model also needs launches on several nodes, with two different numbers of
    ranks. With --link, launches with one rank are enough. The last column divides the predicted
    number of ranks by the largest measured number of ranks. A second table shows how much of each
    predicted step is computing, exposed exchange, and waiting for the slowest rank.

    \b
        xfbench run --framework torch --workload lenet --ranks 1,2,4 --nodes 1,2,4 --scaling weak \\
            --launcher slurm
        xfbench predict --where affinity=none --to-ranks 64,1024
        xfbench predict --where affinity=none --to-ranks 64,1024 --link 100Gbit,1us
        xfbench predict --results ./results --where framework=torch,strategy=ddp --json
    """
    from xfbench.analysis import comparison, prediction
    from xfbench.base import errors, paths
    from xfbench.model.communication_cost import Link
    from xfbench.rendering import tables

    conditions = parse_record_filters(where, framework, workload)
    selection = comparison.Side.parse(None, paths.results(results), tuple(conditions))
    check_listed_names_in_folder(selection.folder, conditions)
    node_link = Link.parse(link) if link else None
    rank_counts = parse_list(to_ranks, parse_positive_int, "--to-ranks")
    records = list(selection.records(say))
    if conditions and not records:
        raise errors.NoMatchError(
            f"{selection.folder}: {selection.describe_mismatch(lambda _: None)}"
        )
    chosen_series = _choose_series(records, selection.folder)
    model = prediction.fit_scaling_model(chosen_series, node_link)
    rank_counts = rank_counts or [chosen_series.max_ranks * factor for factor in (2, 4, 8, 16)]
    measured_ranks = {ranks for ranks, _ in chosen_series.groups}
    points = [model.predict(ranks) for ranks in sorted({*rank_counts, *measured_ranks})]
    fit_document = model.document()
    if as_json:
        print(json.dumps({"points": [asdict(point) for point in points], "fit": fit_document}))
    else:
        print(tables.prediction_table(points, fit_document, terminal_width()))


def _choose_series(records: Sequence[Record], folder: Path) -> Series:
    """Return the only scaling series of the records of `folder`.

    Raises UsageError if there is none, or more than one.
    """
    from xfbench.analysis import series
    from xfbench.base import errors

    matching_series = series.build_scaling_series(records)
    if not matching_series:
        raise errors.UsageError(
            f"{folder} has no matching launches that used --scaling: "
            "measure some with `xfbench run --ranks 1,2,4 --scaling weak` (or strong)"
        )
    if len(matching_series) > 1:
        titles = "".join(f"\n  {title}" for title in series.list_distinct_titles(matching_series))
        raise errors.UsageError(
            f"several series of launches match: use --where to select one:{titles}"
        )
    return matching_series[0]
