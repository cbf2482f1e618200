"""Tables of external figures: numbers that a publication states or that were imported.

External figures are listed below the leaderboards of their network. Their sources are listed at the
end. External figures are not ranked, and nothing is computed from them.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xfbench.analysis.leaderboard import Table
from xfbench.model.external_record import About, Figure
from xfbench.model.provenance import unmeasured_source
from xfbench.model.record import Record
from xfbench.rendering import formats, tables
from xfbench.store import selection
from xfbench.store.index import Index
from xfbench.store.selection import Condition

HEADERS = ("source", "study", "quantity", "figure", "relative to", "of")

_LESS_IMPORTANT = ("study", "network")  # columns that a narrow terminal leaves out
_OTHER = "other workloads"  # those that xfbench does not know, or that are no network


@dataclass(frozen=True)
class FigureText:
    """A record's figure as texts.

    - `record`: the id of the record.
    - `source`: "published" or "imported".
    - `key`: the key of the cited publication or tool.
    - `workload`: the network that the figure is about, or "" if it is about no single network.
    - `about`: the setup that the figure describes.
    """

    record: str
    source: str
    key: str
    workload: str
    study: str
    quantity: str
    figure: str
    relative_to: str
    about: str

    @property
    def table_cells(self) -> tuple[str, ...]:
        """The texts of a table row, in the order of `HEADERS`."""
        named = f"{self.key} ({self.source})" if self.source != "published" else self.key
        return named, self.study, self.quantity, self.figure, self.relative_to, self.about


def distinct_external_figures(records: Iterable[Record]) -> list[Record]:
    """Return the records that have an external figure, in their order and without duplicates.

    Records are duplicates if they have the same source, citation and figure.
    """
    unique: dict[Any, Record] = {}
    for record in records:
        if record.source != "measured" and record.figure:
            unique.setdefault((record.source, record.citation, record.figure), record)
    return list(unique.values())


def figures_whose_single_network_equals(
    records: Iterable[Record], single_network: str | None
) -> list[Record]:
    """Return the records whose external figure is about `single_network`, without duplicates.

    If `single_network` is None, return the records whose figure is about no single network.
    """
    return [
        record
        for record in distinct_external_figures(records)
        if single_network_of_figure(record) == single_network
    ]


def figures_in_index(index: Index, conditions: Sequence[Condition] = ()) -> list[Record]:
    """Return the records of external figures in a results folder, without duplicates.

    Conditions on a setting of a request are conditions on what a figure describes.
    """
    kinds = [selection.equal_condition("source", source) for source in ("published", "imported")]
    about = [as_condition_on_figure(condition) for condition in conditions]
    return distinct_external_figures(
        record for kind in kinds for _, record in index.select([kind, *about])
    )


def as_condition_on_figure(condition: Condition) -> Condition:
    """Return the condition on what a figure describes, for one on a request's setting."""
    prefix, _, name = condition.field.partition(".")
    if prefix != "request" or name not in About.model_fields:
        return condition
    return replace(condition, field=f"figure.about.{name}")


def single_network_of_figure(record: Record) -> str | None:
    """Return the name of the network that the record's figure is about.

    Return None if the figure is about no single network.
    """
    about = record.figure.about if record.figure else None
    if about and about.workload:
        return about.workload
    return record.request.workload if record.request else None


def describe_figure(record: Record) -> FigureText:
    """Return the record's published or imported figure as texts.

    Raises ValueError if the record has no such figure.
    """
    figure, citation = record.figure, record.citation
    if figure is None:
        raise ValueError(f"record {record.id} has no published or imported figure")
    about = figure.about or About()
    # Figures of an imported file often differ only in their place in the file.
    place = citation.where if citation and record.source == "imported" else ""
    return FigureText(
        record=record.id,
        source=record.source,
        key=citation.key if citation else "not cited",
        workload=single_network_of_figure(record) or "",
        study=about.study or "–",
        quantity=figure.quantity,
        figure=format_figure(figure),
        relative_to=figure.relative_to or "–",
        about=" · ".join(filter(None, (describe_setup_without_network(about), place))) or "–",
    )


def format_figure(figure: Figure) -> str:
    """Return the figure with its unit, such as "2.7 (1.0–3.7) %", "5.0–22.3 times" or "1 %".

    All numbers have as many decimals as the number with the most decimals.
    """
    low, high = figure.low, figure.high
    numbers = [number for number in (figure.value, low, high) if number is not None]
    if all(number == 0 or 1e-4 <= abs(number) < 1e9 for number in numbers):
        decimals = max((len(f"{number:.10g}".partition(".")[2]) for number in numbers), default=0)
        texts = iter([_format_decimals(number, decimals) for number in numbers])
    else:
        texts = iter([f"{number:.6g}" for number in numbers])
    parts = [next(texts)] if figure.value is not None else []
    if low is not None and high is not None:
        bounds = f"{next(texts)}–{next(texts)}"
        parts.append(f"({bounds})" if parts else bounds)
    elif low is not None:
        parts.append(f"from {next(texts)}")
    elif high is not None:
        parts.append(f"to {next(texts)}" if parts else next(texts))
    return " ".join([*parts, figure.unit]).strip()


def _format_decimals(number: float, decimals: int = 0) -> str:
    return f"{number:,.{decimals}f}".replace(",", " ")


def describe_setup_without_network(about: About) -> str:
    """Return the setup that a figure describes, such as "tensorflow 1.8 · 4 ranks · 4 P100".

    The text leaves out the network and the study.
    """
    framework = " ".join(filter(None, (about.framework, about.framework_version)))
    numbers = {
        "threads": about.threads,
        "ranks": about.ranks,
        "nodes": about.nodes,
        "images an update": about.global_batch_size,
        "images a rank": about.batch_size_per_rank,
        "images a node": about.batch_size_per_node,
    }
    counts = [
        f"{_format_decimals(count)} {name if count > 1 else name.replace('s', '', 1)}"
        for name, count in numbers.items()
        if count is not None
    ]
    return " · ".join(
        [
            *filter(None, (framework, about.kernel, about.device, about.precision)),
            *counts,
            *filter(None, (about.strategy, about.scaling and f"{about.scaling} scaling")),
            *filter(None, (about.data, about.data_format, about.medium, about.machine)),
        ]
    )


def cited_keys_and_titles(records: Iterable[Record]) -> list[tuple[str, str]]:
    """Return the pairs (key, title) of the sources that the records cite.

    The title of a publication is followed by the cited places in it.
    """
    places_by_source: dict[tuple[str, str], list[str]] = {}
    for record in distinct_external_figures(records):
        if citation := record.citation:
            places = places_by_source.setdefault((citation.key, citation.title), [])
            is_new_place = record.source == "published" and citation.where not in places
            places += [citation.where] if is_new_place else []
    return [
        (key, f"{title} ({'; '.join(places)})" if places else title)
        for (key, title), places in places_by_source.items()
    ]


def render_leaderboards_with_figures(
    format_name: str,
    leaderboards: Sequence[Table],
    view: str,
    records: Sequence[Record],
    extra_networks: Iterable[str] = (),
    other_records: Iterable[Record] = (),
    *,
    layout: tables.Layout = tables.ALL_COLUMNS,
) -> str:
    """Return the tables, with the external figures of each network below its tables.

    - `format_name`: a key of `tables.FORMATS`.
    - `view`: a key of `tables.COLUMNS`.
    - `records`: the records of the external figures.
    - `extra_networks`: networks whose figures are shown even if they have no table.
    - `other_records`: records of figures that are about no single network. They come last.
    - `layout`: the columns of the leaderboards.
    """
    names = sorted({table.workload for table in leaderboards} | set(extra_networks))
    figures_by_name = {
        name: figures_whose_single_network_equals(records, name) for name in names
    } | {_OTHER: figures_whose_single_network_equals(other_records, None)}
    network_figures = [record for group in figures_by_name.values() for record in group]
    if format_name == "json":
        return _to_json(leaderboards, network_figures)
    if format_name == "csv":
        return _to_csv(leaderboards, network_figures)
    table_format = formats.FORMATS[format_name]
    parts: list[str] = []
    for name, records_of_network in figures_by_name.items():
        network_tables = [table for table in leaderboards if table.workload == name]
        parts += tables.render_parts(network_tables, view, layout, table_format)
        lines = [describe_figure(record).table_cells for record in records_of_network]
        if lines:
            parts.append(
                table_format.render_heading(
                    f"{name}, external figures: not measured here, not ranked", layout.max_width
                )
            )
            caption = formats.make_latex_caption(
                f"Values of {name} from publications and other tools, not measured here."
            )
            parts.append(
                formats.render_listing(HEADERS, lines, layout.max_width, _LESS_IMPORTANT)
                if table_format.has_lines
                else table_format.render_table(
                    HEADERS,
                    lines,
                    f"External: {name}",
                    caption,
                    layout.max_width,
                    formats.make_latex_label("tab", f"{name} published"),
                )
            )
            # A table that stands alone has its own sources below it.
            if table_format.stands_alone:
                parts += _render_sources(records_of_network, layout.max_width, table_format)
            parts.append("")
    if not table_format.stands_alone:
        parts += _render_sources(network_figures, layout.max_width, table_format)
    return table_format.join(parts)


def _render_sources(
    records: Iterable[Record], max_width: int | None, table_format: formats.Format
) -> list[str]:
    return [
        table_format.render_note(f"{key}: {title}", max_width)
        for key, title in cited_keys_and_titles(records)
    ]


def render_figures_and_sources(records: Iterable[Record], max_width: int | None = None) -> str:
    """Return a terminal table of the records' external figures, followed by their sources.

    Lines have at most `max_width` characters (None: any number).
    """
    table_format = formats.FORMATS["text"]
    figure_texts = [describe_figure(record) for record in distinct_external_figures(records)]
    lines = [
        (text.record[7:19], *text.table_cells[:2], text.workload or "–", *text.table_cells[2:])
        for text in figure_texts
    ]
    headers = ("record", *HEADERS[:2], "network", *HEADERS[2:])
    table = formats.render_listing(headers, lines, max_width, _LESS_IMPORTANT)
    return "\n".join([table, "", *_render_sources(records, max_width, table_format)])


def _to_json(leaderboards: Sequence[Table], figure_records: Sequence[Record]) -> str:
    document = json.loads(tables.to_json(leaderboards))
    document["elsewhere"] = [
        {
            "record": record.id,
            "source": record.source,
            "workload": single_network_of_figure(record),
            "citation": record.citation and record.citation.model_dump(mode="json"),
            "figure": record.figure and record.figure.model_dump(mode="json"),
        }
        for record in figure_records
    ]
    return json.dumps(document, indent=1)


def _to_csv(leaderboards: Sequence[Table], figure_records: Sequence[Record]) -> str:
    """Return one CSV line per row of the tables, then one line per external figure.

    Rows and figures share some columns. A field that does not apply is empty.
    """
    table_lines = list(csv.DictReader(io.StringIO(tables.to_csv(leaderboards))))
    lines = table_lines + [_figure_columns(record) for record in figure_records]
    if not lines:
        return ""
    buffer = io.StringIO()
    names = list(dict.fromkeys(name for line in lines for name in line))
    writer = csv.DictWriter(buffer, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return buffer.getvalue()


def _figure_columns(record: Record) -> dict[str, Any]:
    figure, citation = record.figure, record.citation
    assert figure is not None
    about = (figure.about or About()).model_dump(exclude={"study", "workload"})
    figure_fields = figure.model_dump(exclude={"about", "values"})
    line = {
        "workload": single_network_of_figure(record),
        **about,
        "records": record.id,
        "source": record.source,
        "ranked": False,
        "reason": unmeasured_source(record),
        "study": figure.about.study if figure.about else None,
        **{f"figure_{name}": value for name, value in figure_fields.items()},
        **{
            f"citation_{name}": value
            for name, value in (citation.model_dump() if citation else {}).items()
        },
    }
    return {name: formats.escape_csv_formula(value) for name, value in line.items()}
