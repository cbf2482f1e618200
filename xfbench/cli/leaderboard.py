"""`xfbench leaderboard`: print the leaderboards of a results folder."""

from __future__ import annotations

from typing import Annotated

import typer

from xfbench.base.terminal_text import say
from xfbench.cli.options import (
    JsonOption,
    RecordFilterOption,
    ResultsOption,
    parse_list,
)

_SLOWDOWN, _LAYERS = "slowdown", "layers"


def leaderboard(
    workload: Annotated[str | None, typer.Option(help="Workloads to show (default: all).")] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="FIELD[,FIELD]",
            help="Fields, such as framework, kernel, threads or machine. For each value, only the "
            "best configuration is shown. With `row`, all configurations are shown.",
        ),
    ] = "row",
    format: Annotated[
        str, typer.Option(help="Output format: text, markdown, latex, csv, json or html.")
    ] = "text",
    view: Annotated[
        str,
        typer.Option(
            help="Topic of the columns. throughput: images per second; accuracy: mean test "
            "accuracy of all seeds; costs: start-up time, training time, memory and energy; "
            "communication: share of a step for computing, waiting and exchange; storage: "
            "variation of launches, time for input and checkpoints; slowdown: how much slower "
            "each framework (or value of --by) is than the fastest; layers: time of each layer, "
            "for launches with --profile."
        ),
    ] = "throughput",
    accuracy: Annotated[
        str, typer.Option(help="Test accuracy to reach, for the column `to accuracy`.")
    ] = "95%",
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="Also show values from papers and from other tools. They are not ranked.",
        ),
    ] = False,
    where: RecordFilterOption = None,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the leaderboards. Images per second have a 95 % interval, from repeated launches.

    \b
    xfbench leaderboard
    xfbench leaderboard --workload alexnet --format markdown
    xfbench leaderboard --where 'threads>=2' --where machine.cpu_model~epyc
    xfbench leaderboard --by framework
    xfbench leaderboard --by machine,framework --workload lenet
    xfbench leaderboard --view slowdown
    xfbench leaderboard --published
    xfbench leaderboard --view accuracy
    xfbench leaderboard --view costs --accuracy 97%
    xfbench leaderboard --view communication
    xfbench leaderboard --view storage
    xfbench leaderboard --view layers --workload alexnet
    """
    from xfbench.analysis import best, ranked, slowdown
    from xfbench.analysis import leaderboard as boards
    from xfbench.base import errors, paths, quantities
    from xfbench.model import certificate
    from xfbench.rendering import external_figures, profile_tables, slowdown_tables, tables
    from xfbench.store import index, selection
    from xfbench.store import published as literature
    from xfbench.store.results_folder import open_existing_store
    from xfbench.workloads import workloads

    if format not in tables.FORMATS:
        raise errors.unknown_name_error("format", format, tables.FORMATS)
    if view not in (*tables.COLUMNS, _SLOWDOWN, _LAYERS):
        raise errors.unknown_name_error("view", view, (*tables.COLUMNS, _SLOWDOWN, _LAYERS))
    if published and view in (_SLOWDOWN, _LAYERS):
        raise errors.UsageError(
            "--published cannot be combined with --view slowdown or layers: list published "
            "slowdowns with `xfbench results list --published --where "
            "figure.about.study=slowdown`"
        )
    fields = best.parse_group_fields(by)
    [target_accuracy] = parse_list(accuracy, quantities.parse_share, "--accuracy") or [
        boards.TARGET_ACCURACY
    ]
    workload_names = parse_list(workload, str, "--workload")
    for name in workload_names or ():
        if name not in workloads():
            raise errors.unknown_name_error("workload", name, workloads())
    folder = paths.results(results)
    store = open_existing_store(folder)
    certificates = certificate.read_certificates(folder)
    conditions = selection.parse_conditions(where or ())
    condition_sets = [conditions]
    if workload_names is not None:
        condition_sets = [
            [*conditions, selection.equal_condition("request.workload", workload_name)]
            for workload_name in set(workload_names)
        ]
    with index.open_index(store, say) as record_index:
        ranked_tables = ranked.leaderboard_tables(
            record_index, condition_sets, certificates, target_accuracy
        )
        stored_figures = external_figures.figures_in_index(record_index) if published else []
    for line in record_index.damaged:
        say(line)
    output_format = "json" if as_json else format
    if view == _SLOWDOWN:
        print(
            slowdown_tables.FORMATS[output_format](
                slowdown.build_slowdown_tables(ranked_tables, fields)
            )
        )
        return
    ranked_tables = best.keep_best_row_per_group(ranked_tables, fields)
    if view == _LAYERS:
        print(profile_tables.FORMATS[output_format](ranked_tables))
        return
    if not published:
        print(tables.FORMATS[output_format](ranked_tables, view))
        return
    networks = workload_names or {
        network
        for figure in stored_figures
        if (network := external_figures.single_network_of_figure(figure))
    }
    if workload_names:
        stored_figures = [
            figure
            for figure in stored_figures
            if external_figures.single_network_of_figure(figure) in workload_names
        ]
    print(
        external_figures.render_leaderboards_with_figures(
            output_format,
            ranked_tables,
            view,
            [*literature.records(), *stored_figures],
            networks,
        )
    )
