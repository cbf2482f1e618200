"""`xfbench leaderboard`: print the leaderboards of a results folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from xfbench.base.errors import UsageError
from xfbench.base.terminal_text import print_legibly as print
from xfbench.base.terminal_text import say, terminal_width
from xfbench.cli.options import (
    FrameworkFilterOption,
    JsonOption,
    RecordFilterOption,
    ResultsOption,
    check_listed_names,
    choose_output_format,
    fail_without_match,
    parse_list,
    parse_record_filters,
    workload_option,
)

if TYPE_CHECKING:
    from pathlib import Path

    from xfbench.analysis.leaderboard import Table
    from xfbench.model.record import Record
    from xfbench.rendering.tables import Layout
    from xfbench.store.index import Index
    from xfbench.store.selection import Condition

_SLOWDOWN, _LAYERS = "slowdown", "layers"


_WorkloadOption = Annotated[
    str | None,
    workload_option("Workloads to show (default: all).", show_default=True),
]
_ByOption = Annotated[
    str,
    typer.Option(
        metavar="FIELD[,FIELD]",
        help="Fields, such as framework, kernel, threads or machine. For each value, only the "
        "best configuration is shown. With `row`, all configurations are shown.",
    ),
]
_FormatOption = Annotated[
    str, typer.Option(help="Output format: text, markdown, latex, csv, json or html.")
]
_ViewOption = Annotated[
    str,
    typer.Option(
        help="Topic of the columns: throughput, steps, accuracy, costs, communication, storage, "
        "slowdown or layers. The view steps has percentiles and the sustained rate. The view "
        "costs has start-up time, training time, memory and energy. The view storage has the time "
        "for input and checkpoints. The view slowdown compares each framework (or value of --by) "
        "with a reference. The view layers needs launches with --profile."
    ),
]
_ReferenceOption = Annotated[
    str | None,
    typer.Option(
        metavar="VALUE[,VALUE]",
        help="Framework (or values of --by) with which --view slowdown compares (default: the one "
        "with figures of most networks, torch if it is one of several). With `best`, each network "
        "has its own: the fastest.",
    ),
]
_AccuracyOption = Annotated[
    str, typer.Option(help="Test accuracy to reach, for the column `to accuracy`.")
]
_FieldsOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN[,COLUMN]",
        help="Columns of the view to show, in this order (default: those that fit the terminal, or "
        "with --format latex the lines of an article).",
    ),
]
_WideOption = Annotated[
    bool, typer.Option("--wide", help="Show all columns, however wide the table becomes.")
]
_CaptionOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Caption of the table with --format latex, in LaTeX (default: sentences that say what "
        "was measured, on what, and what the brackets are). The records must give one table.",
    ),
]
_LabelOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Label of the table with --format latex, such as tab:lenet (default: "
        "tab:xfbench-WORKLOAD-DEVICE, with the view). The records must give one table.",
    ),
]
_PublishedOption = Annotated[
    bool,
    typer.Option(
        "--published",
        help="Also show values from papers and from other tools. They are not ranked.",
    ),
]


def leaderboard(
    workload: _WorkloadOption = None,
    by: _ByOption = "row",
    format: _FormatOption = "text",
    view: _ViewOption = "throughput",
    reference: _ReferenceOption = None,
    accuracy: _AccuracyOption = "95%",
    published: _PublishedOption = False,
    fields: _FieldsOption = None,
    wide: _WideOption = False,
    caption: _CaptionOption = None,
    label: _LabelOption = None,
    framework: FrameworkFilterOption = None,
    where: RecordFilterOption = None,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the leaderboards. From five launches on, images per second have a 95 % interval.

    \b
        xfbench leaderboard
        xfbench leaderboard --where 'threads>=2' --where machine.cpu_model~epyc
        xfbench leaderboard --by framework
        xfbench leaderboard --view slowdown --reference torch
        xfbench leaderboard --fields framework,threads,images/s --format latex
        xfbench leaderboard --view costs --accuracy 97%
        xfbench leaderboard --view communication
        xfbench leaderboard --view layers --workload alexnet
    """
    from xfbench.analysis import best
    from xfbench.analysis import leaderboard as boards
    from xfbench.base import quantities

    workload_names = parse_list(workload, str, "--workload")
    field_names = parse_list(fields, str, "--fields") or ()
    _check_choices(format, view, published, reference, workload_names or ())
    group_fields = best.parse_group_fields(by)
    output_format = choose_output_format(as_json, format)
    layout = _choose_layout(output_format, view, field_names, group_fields, wide, caption, label)
    [target_accuracy] = parse_list(accuracy, quantities.parse_share, "--accuracy") or [
        boards.TARGET_ACCURACY
    ]
    conditions = parse_record_filters(where, framework, None)
    ranked_tables, stored_figures = _read_tables(
        results, conditions, workload_names, target_accuracy, published
    )
    if view == _SLOWDOWN:
        _print_slowdowns(output_format, ranked_tables, group_fields, reference, layout)
        return
    ranked_tables = best.keep_best_row_per_group(ranked_tables, group_fields)
    _require_one_table(layout, len(ranked_tables))
    if published:
        _print_with_published(
            output_format, ranked_tables, view, layout, stored_figures, workload_names
        )
    else:
        _print_tables(output_format, ranked_tables, view, layout)


def _print_tables(
    output_format: str, ranked_tables: Sequence[Table], view: str, layout: Layout
) -> None:
    from xfbench.rendering import profile_tables, tables

    if view == _LAYERS:
        render = profile_tables.FORMATS[output_format]
        print(render(ranked_tables, layout.max_width, layout.caption, layout.label))
    else:
        print(tables.FORMATS[output_format](ranked_tables, view, layout))


def _require_one_table(layout: Layout, table_count: int) -> None:
    """Raise UsageError if there is a caption or a label, and not one table."""
    for option, text in (("--caption", layout.caption), ("--label", layout.label)):
        if text is not None and table_count != 1:
            raise UsageError(
                f"{option} needs one table (got {table_count}): choose it with --workload and "
                "--where"
            )


def _choose_layout(
    format: str,
    view: str,
    columns: Sequence[str],
    group_fields: Sequence[str],
    wide: bool,
    caption: str | None,
    label: str | None,
) -> Layout:
    """Return the layout of the tables. Raises UsageError if a column or the label is invalid.

    Tables in text fit the terminal, tables in Markdown 100 characters, and tables in LaTeX the
    lines of an article.
    """
    from xfbench.base import errors
    from xfbench.rendering import formats, tables

    for option, text in (("--caption", caption), ("--label", label)):
        if text is not None and format != "latex":
            raise UsageError(f"{option} needs --format latex")
    if label is not None:
        formats.check_latex_label(label)
    layout = tables.Layout(caption=caption, label=label)
    if not columns:
        widths = {
            "text": terminal_width(),
            "markdown": formats.MARKDOWN_WIDTH,
            "latex": formats.LATEX_WIDTH,
        }
        return replace(layout, max_width=None if wide else widths.get(format))
    if view in (_SLOWDOWN, _LAYERS) or format in ("csv", "json"):
        raise UsageError(
            "--fields chooses columns of text, markdown, latex and html, and of the views "
            f"{', '.join(tables.COLUMNS)}"
        )
    known_columns = [name for name, _ in tables.COLUMNS[view]] + [*group_fields]
    for name in columns:
        if name not in known_columns:
            raise errors.unknown_name_error("column", name, known_columns)
    return replace(layout, columns=tuple(columns))


def _read_tables(
    results: Path | None,
    conditions: Sequence[Condition],
    workload_names: Sequence[str] | None,
    target_accuracy: float,
    published: bool,
) -> tuple[list[Table], list[Record]]:
    """Return the ranked tables, and the records with values of other tools if `published`.

    - `results`: the results folder; None: the default.
    - `conditions`: conditions that records must meet.
    - `workload_names`: only these workloads; None: all.
    - `target_accuracy`: for the time to accuracy.

    Raises NoMatchError if no record meets the conditions.
    """
    from xfbench.analysis import ranked
    from xfbench.base import paths
    from xfbench.model import certificate
    from xfbench.store import index, selection
    from xfbench.store.results_folder import open_existing_store

    folder = paths.results(results)
    store = open_existing_store(folder)
    certificates = certificate.read_certificates(folder)
    condition_sets = [[*conditions]]
    if workload_names is not None:
        condition_sets = [
            [*conditions, selection.equal_condition("request.workload", workload_name)]
            for workload_name in dict.fromkeys(workload_names)
        ]
    with index.open_index(store, say) as record_index:
        if not published:
            listed_workloads = selection.one_of_condition("request.workload", workload_names or ())
            check_listed_names(record_index, [*conditions, listed_workloads])
        ranked_tables = ranked.leaderboard_tables(
            record_index, condition_sets, certificates, target_accuracy
        )
        stored_figures = []
        if published:
            from xfbench.rendering import external_figures

            stored_figures = external_figures.figures_in_index(record_index, conditions)
            single_network = external_figures.single_network_of_figure
            if workload_names is not None:
                stored_figures = [f for f in stored_figures if single_network(f) in workload_names]
        is_empty = not (ranked_tables or stored_figures or (published and workload_names))
        if (
            is_empty
            and condition_sets[0]
            and not any(record_index.newest(each, 1) for each in condition_sets)
        ):
            fail_without_match(record_index, condition_sets[0])
        notes = [_explain_empty_table(record_index, published)] if is_empty else []
    for line in [*record_index.damaged, *notes]:
        say(line)
    return ranked_tables, stored_figures


def _explain_empty_table(record_index: Index, published: bool) -> str:
    """Return a line that says why there is neither a table nor a figure."""
    from xfbench.store import selection

    imported = record_index.count_preselected([selection.equal_condition("source", "imported")])
    advice = "to show imported figures, add --published" if imported and not published else ""
    return f"no table: {record_index.folder} has no launch to rank" + f" ({advice})" * bool(advice)


def _print_slowdowns(
    output_format: str,
    ranked_tables: Sequence[Table],
    group_fields: Sequence[str],
    reference: str | None,
    layout: Layout,
) -> None:
    """Print how much slower each framework, or value of `group_fields`, is than the reference."""
    from xfbench.analysis import slowdown
    from xfbench.rendering import slowdown_tables

    slowdowns = slowdown.build_slowdown_tables(ranked_tables, group_fields, reference)
    _require_one_table(layout, len(slowdowns))
    render = slowdown_tables.FORMATS[output_format]
    print(render(slowdowns, layout.max_width, layout.caption, layout.label))


def _print_with_published(
    output_format: str,
    ranked_tables: Sequence[Table],
    view: str,
    layout: Layout,
    stored_figures: Sequence[Record],
    workload_names: Sequence[str] | None,
) -> None:
    """Print the tables with values from papers and from other tools.

    - `stored_figures`: records in the results folder that have values of other tools.
    - `workload_names`: only these networks; None: those of the stored values.
    """
    from xfbench.rendering import external_figures
    from xfbench.store import published

    single_network = external_figures.single_network_of_figure
    networks = workload_names or {name for f in stored_figures if (name := single_network(f))}
    print(
        external_figures.render_leaderboards_with_figures(
            output_format,
            ranked_tables,
            view,
            [*published.records(), *stored_figures],
            networks,
            stored_figures,
            layout=layout,
        )
    )


def _check_choices(
    format: str, view: str, published: bool, reference: str | None, workloads: Sequence[str]
) -> None:
    """Raise UsageError if a name is unknown, or if the options contradict each other."""
    from xfbench.base import errors
    from xfbench.rendering import tables
    from xfbench.workloads import workloads as known_workloads

    views = (*tables.COLUMNS, _SLOWDOWN, _LAYERS)
    if format not in tables.FORMATS:
        raise errors.unknown_name_error("format", format, tables.FORMATS)
    if view not in views:
        raise errors.unknown_name_error("view", view, views)
    if published and view in (_SLOWDOWN, _LAYERS):
        raise UsageError(
            "--published cannot be combined with --view slowdown or layers: list published "
            "slowdowns with `xfbench results list --published --where "
            "figure.about.study=slowdown`"
        )
    if reference is not None and view != _SLOWDOWN:
        raise UsageError("--reference needs --view slowdown")
    for name in workloads:
        if name not in known_workloads():
            raise errors.unknown_name_error("workload", name, known_workloads())
