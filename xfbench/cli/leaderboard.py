"""`xfbench leaderboard`: the ranked tables of a results folder."""

from __future__ import annotations

from typing import Annotated

import typer

from xfbench.cli.options import Json, Results, say, share, words


def leaderboard(
    workload: Annotated[str | None, typer.Option(help="Only these networks.")] = None,
    format: Annotated[str, typer.Option(help="text, markdown, latex, csv, json, html.")] = "text",
    columns: Annotated[
        str,
        typer.Option(
            help="throughput; accuracy: over seeds; costs: start-up, time to an outcome, memory, "
            "energy; communication: what of a step of several ranks is not computing; "
            "storage: how far launches lie apart, waiting for input, checkpoints."
        ),
    ] = "throughput",
    accuracy: Annotated[
        str, typer.Option(help="The test accuracy that the time to accuracy is to.")
    ] = "95%",
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Tables of all records: images per second with a 95 % interval over launches.

    \b
    xfbench leaderboard
    xfbench leaderboard --workload alexnet --format markdown
    xfbench leaderboard --columns accuracy
    xfbench leaderboard --columns costs --accuracy 97%
    xfbench leaderboard --columns communication
    xfbench leaderboard --columns storage
    """
    from xfbench import errors, paths, tables
    from xfbench import leaderboard as boards
    from xfbench.equality import certificate
    from xfbench.store import Store
    from xfbench.workloads import workloads

    if format not in tables.FORMATS:
        raise errors.unknown("format", format, tables.FORMATS)
    if columns not in tables.COLUMNS:
        raise errors.unknown("columns", columns, tables.COLUMNS)
    [target] = words(accuracy, share, "--accuracy") or [boards.TARGET_ACCURACY]
    wanted = words(workload, str, "--workload")
    for name in wanted or ():
        if name not in workloads():
            raise errors.unknown("workload", name, workloads())
    folder = paths.results(results)
    if not (folder / "records").is_dir():
        raise errors.UsageError(f"{folder} holds no results: make some with `xfbench run`")
    records = [
        record
        for record in Store(folder).records(say)
        if wanted is None or (record.request and record.request.workload in wanted)
    ]
    print(
        tables.FORMATS["json" if as_json else format](
            boards.tables(records, certificate.of_folder(folder), target), columns
        )
    )
