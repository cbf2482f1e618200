"""`xfbench leaderboard`: the ranked tables of a results folder."""

from __future__ import annotations

from typing import Annotated

import typer

from xfbench.base.terminal_text import say
from xfbench.cli.options import Json, Results, Where, share, words

_SLOWDOWN, _LAYERS = "slowdown", "layers"


def leaderboard(
    workload: Annotated[str | None, typer.Option(help="Only these networks.")] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="FIELD[,FIELD]",
            help="row: every configuration; else the best of each framework, kernel, threads, "
            "machine, or any field of the request.",
        ),
    ] = "row",
    format: Annotated[str, typer.Option(help="text, markdown, latex, csv, json, html.")] = "text",
    columns: Annotated[
        str,
        typer.Option(
            help="throughput; accuracy: over seeds; costs: start-up, time to an outcome, memory, "
            "energy; communication: what of a step of several ranks is not computing; "
            "storage: how far launches lie apart, waiting for input, checkpoints; "
            "slowdown: each framework (or --by) against the best one, over all networks; "
            "layers: where the time of a step goes, of what was run with --profile."
        ),
    ] = "throughput",
    accuracy: Annotated[
        str, typer.Option(help="The test accuracy that the time to accuracy is to.")
    ] = "95%",
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="Below the tables what others published or measured with other tools, unranked.",
        ),
    ] = False,
    where: Where = None,
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Tables of all records: images per second with a 95 % interval over launches.

    \b
    xfbench leaderboard
    xfbench leaderboard --workload alexnet --format markdown
    xfbench leaderboard --where 'threads>=2' --where machine.cpu_model~epyc
    xfbench leaderboard --by framework
    xfbench leaderboard --by machine,framework --workload lenet
    xfbench leaderboard --columns slowdown
    xfbench leaderboard --published
    xfbench leaderboard --columns accuracy
    xfbench leaderboard --columns costs --accuracy 97%
    xfbench leaderboard --columns communication
    xfbench leaderboard --columns storage
    xfbench leaderboard --columns layers --workload alexnet
    """
    from xfbench import published as literature
    from xfbench.analysis import best, slowdown
    from xfbench.analysis import leaderboard as boards
    from xfbench.base import errors, paths
    from xfbench.equality import certificate
    from xfbench.layout import beside, profile_tables, slowdown_tables, tables
    from xfbench.results import index, ranked, selection
    from xfbench.results.store import open_store
    from xfbench.workloads import workloads

    if format not in tables.FORMATS:
        raise errors.unknown_name_error("format", format, tables.FORMATS)
    if columns not in (*tables.COLUMNS, _SLOWDOWN, _LAYERS):
        raise errors.unknown_name_error("columns", columns, (*tables.COLUMNS, _SLOWDOWN, _LAYERS))
    if published and columns in (_SLOWDOWN, _LAYERS):
        raise errors.UsageError(
            "--published goes with the tables of networks: see `xfbench results list --published "
            "--where figure.about.study=slowdown`"
        )
    fields = best.parse_fields(by)
    [target] = words(accuracy, share, "--accuracy") or [boards.TARGET_ACCURACY]
    wanted = words(workload, str, "--workload")
    for name in wanted or ():
        if name not in workloads():
            raise errors.unknown_name_error("workload", name, workloads())
    folder = paths.results(results)
    store = open_store(folder)
    certificates = certificate.read_folder(folder)
    conditions = selection.parse_conditions(where or ())
    sets = [conditions]
    if wanted is not None:
        sets = [
            [*conditions, selection.equal_condition("request.workload", one)] for one in set(wanted)
        ]
    with index.open_index(store, say) as found:
        made = ranked.leaderboard_tables(found, sets, certificates, target)
        elsewhere = beside.figures_in_index(found) if published else []
    for line in found.damaged:
        say(line)
    chosen = "json" if as_json else format
    if columns == _SLOWDOWN:
        print(slowdown_tables.FORMATS[chosen](slowdown.slowdowns(made, fields)))
        return
    made = best.reduce_to_best(made, fields)
    if columns == _LAYERS:
        print(profile_tables.FORMATS[chosen](made))
        return
    if not published:
        print(tables.FORMATS[chosen](made, columns))
        return
    networks = wanted or {of for one in elsewhere if (of := beside.figure_workload(one))}
    if wanted:
        elsewhere = [one for one in elsewhere if beside.figure_workload(one) in wanted]
    print(beside.render(chosen, made, columns, [*literature.records(), *elsewhere], networks))
