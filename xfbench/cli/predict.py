"""`xfbench predict`: what more ranks than there are would give."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from xfbench.base.terminal_text import say
from xfbench.cli.options import Json, positive, words


def predict(
    results: Annotated[
        Path | None, typer.Option("--from", help="The results folder that holds the small runs.")
    ] = None,
    to_ranks: Annotated[
        str | None,
        typer.Option(help="How many ranks, e.g. 64,1024; else 2 to 16 times the most measured."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Which of several series: framework=torch,workload=lenet.")
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(help="The link between nodes, e.g. 100Gbit,1us; else as it was measured."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Images per second on more ranks than were measured, with a 95 % interval.

    A model of computing, exchange and stragglers is fitted to runs on a few numbers of ranks
    under one scaling law, one rank among them. Without --link it needs runs on two numbers of
    ranks, each on several nodes; with it one rank is enough. The last column says how far from
    its data each figure is.

    \b
    xfbench run --framework torch --workload lenet --ranks 1,2,4 --nodes 1,2,4 --scaling weak \\
        --launcher slurm
    xfbench predict --where affinity=none --to-ranks 64,1024
    xfbench predict --where affinity=none --to-ranks 64,1024 --link 100Gbit,1us
    xfbench predict --from ./results --where framework=torch,strategy=ddp --json
    """
    from xfbench.analysis import comparison, prediction, series
    from xfbench.base import errors, paths
    from xfbench.exchange import Link
    from xfbench.layout import tables

    side = comparison.Side.parse(where, paths.results(results))
    described = Link.parse(link) if link else None
    asked = words(to_ranks, positive, "--to-ranks")
    found = series.build_series(side.records(say))
    if not found:
        raise errors.UsageError(
            f"{side.folder} has no steady launches under a scaling law that match: make some "
            "with `xfbench run --ranks 1,2,4 --scaling weak` (or strong)"
        )
    if len(found) > 1:
        titles = "".join(f"\n  {one.title}" for one in found)
        raise errors.UsageError(f"choose one of these with --where:{titles}")
    [chosen] = found
    fitted = prediction.fit(chosen, described)
    asked = asked or [chosen.max_ranks * times for times in (2, 4, 8, 16)]
    known = {ranks for ranks, _ in chosen.groups}
    points = [fitted.predict(ranks) for ranks in sorted({*asked, *known})]
    fit = fitted.document()
    if as_json:
        print(json.dumps({"points": [asdict(point) for point in points], "fit": fit}))
    else:
        print(tables.prediction_table(points, fit))
