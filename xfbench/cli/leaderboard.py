"""`xfbench leaderboard`: the ranked tables of a results folder."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from xfbench.cli.options import Json, Results, words


def leaderboard(
    workload: Annotated[str | None, typer.Option(help="Only these networks.")] = None,
    format: Annotated[str, typer.Option(help="text, markdown, latex, csv, json, html.")] = "text",
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Tables of all records: images per second with a 95 % interval over launches.

    \b
    xfbench leaderboard
    xfbench leaderboard --workload alexnet --format markdown
    """
    from xfbench import errors, paths, tables
    from xfbench import leaderboard as boards
    from xfbench.equality import certificate
    from xfbench.store import Store
    from xfbench.workloads import workloads

    if format not in tables.FORMATS:
        raise errors.unknown("format", format, tables.FORMATS)
    wanted = words(workload, str, "--workload")
    for name in wanted or ():
        if name not in workloads():
            raise errors.unknown("workload", name, workloads())
    folder = paths.results(results)
    if not (folder / "records").is_dir():
        raise errors.UsageError(f"{folder} holds no results: make some with `xfbench run`")
    records = [
        record
        for record in Store(folder).records(lambda line: print(line, file=sys.stderr))
        if wanted is None or (record.request and record.request.workload in wanted)
    ]
    print(
        tables.FORMATS["json" if as_json else format](
            boards.tables(records, certificate.of_folder(folder))
        )
    )
