"""Figures from elsewhere, shown beside measured ones: published, or imported from a file.

A list of their own below the tables, and at its end where they are from. They have no rank, and
nothing is computed with them: each stands as its source has it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from xfbench.analysis.leaderboard import Table
from xfbench.layout import formats, tables
from xfbench.records.elsewhere import About, Figure
from xfbench.records.provenance import unmeasured_source
from xfbench.records.record import Record
from xfbench.results import selection
from xfbench.results.index import Index

HEADERS = ("source", "study", "quantity", "figure", "relative to", "of")


@dataclass(frozen=True)
class Beside:
    """A record's figure in words. `workload` is the network that it is about, "" for none."""

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
    def fields(self) -> tuple[str, ...]:
        """What stands under HEADERS."""
        named = f"{self.key} ({self.source})" if self.source != "published" else self.key
        return named, self.study, self.quantity, self.figure, self.relative_to, self.about


def figures(records: Iterable[Record]) -> list[Record]:
    """Those that hold a figure from elsewhere, in their order; what is there twice once."""
    found: dict[Any, Record] = {}
    for record in records:
        if record.source != "measured" and record.figure:
            found.setdefault((record.source, record.citation, record.figure), record)
    return list(found.values())


def of_network(records: Iterable[Record], name: str | None) -> list[Record]:
    """The figures about one network, or, for None, about no one network in particular."""
    return [record for record in figures(records) if workload(record) == name]


def stored(found: Index) -> list[Record]:
    """The figures from elsewhere that a results folder holds."""
    kinds = [selection.equal_condition("source", one) for one in ("published", "imported")]
    return figures(record for kind in kinds for _, record in found.select([kind]))


def workload(record: Record) -> str | None:
    """The network that a figure is about, by its name in a request; None where none is named."""
    about = record.figure.about if record.figure else None
    if about and about.workload:
        return about.workload
    return record.request.workload if record.request else None


def described(record: Record) -> Beside:
    """The record's figure in words. Raises ValueError where it has none."""
    figure, cited = record.figure, record.citation
    if figure is None:
        raise ValueError(f"record {record.id} has no figure")
    about = figure.about or About()
    # Of a file's figures the place in it is often all that tells one from another.
    place = cited.where if cited and record.source == "imported" else ""
    return Beside(
        record=record.id,
        source=record.source,
        key=cited.key if cited else "not cited",
        workload=workload(record) or "",
        study=about.study or "–",
        quantity=figure.quantity,
        figure=value(figure),
        relative_to=figure.relative_to or "–",
        about=" · ".join(filter(None, (words(about), place))) or "–",
    )


def value(figure: Figure) -> str:
    """What was printed, with its unit: "2.7 (1.0–3.7) %", "5.0–22.3 times", "1 %".

    All numbers have as many decimals as the one with the most.
    """
    low, high = figure.low, figure.high
    told = [one for one in (figure.value, low, high) if one is not None]
    if all(one == 0 or 1e-4 <= abs(one) < 1e9 for one in told):
        decimals = max((len(f"{one:.10g}".partition(".")[2]) for one in told), default=0)
        shown = iter([_number(one, decimals) for one in told])
    else:
        shown = iter([f"{one:.6g}" for one in told])
    parts = [next(shown)] if figure.value is not None else []
    if low is not None and high is not None:
        both = f"{next(shown)}–{next(shown)}"
        parts.append(f"({both})" if parts else both)
    elif low is not None:
        parts.append(f"from {next(shown)}")
    elif high is not None:
        parts.append(f"to {next(shown)}" if parts else next(shown))
    return " ".join([*parts, figure.unit]).strip()


def _number(number: float, decimals: int = 0) -> str:
    return f"{number:,.{decimals}f}".replace(",", " ")


def words(about: About) -> str:
    """What a figure is of, but for its network and study: "tensorflow 1.8 · 4 ranks · 4 P100"."""
    framework = " ".join(filter(None, (about.framework, about.framework_version)))
    numbers = {
        "threads": about.threads,
        "ranks": about.ranks,
        "nodes": about.nodes,
        "images an update": about.global_batch_size,
        "images a rank": about.batch_size_per_rank,
    }
    counts = [
        f"{_number(count)} {name if count > 1 else name.replace('s', '', 1)}"
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


def bibliography(records: Iterable[Record]) -> list[tuple[str, str]]:
    """Each source that these figures cite, and what it is; of publications where in it they are."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in figures(records):
        if cited := record.citation:
            places = found.setdefault((cited.key, cited.title), [])
            told = record.source == "published" and cited.where not in places
            places += [cited.where] if told else []
    return [
        (key, f"{title} ({'; '.join(at)})" if at else title) for (key, title), at in found.items()
    ]


def shown(
    form: str,
    made: Sequence[Table],
    columns: str,
    records: Iterable[Record],
    networks: Iterable[str] = (),
) -> str:
    """The tables in one of `tables.FORMATS`, and below those of each network its figures.

    `networks` are shown too where they have figures and no table.
    """
    found = figures(records)
    names = sorted({table.workload for table in made} | set(networks))
    chosen = [record for name in names for record in of_network(found, name)]
    if form == "json":
        return _json(made, chosen)
    if form == "csv":
        return _csv(made, chosen)
    form_of = formats.FORMATS[form]
    parts = []
    for name in names:
        own = [table for table in made if table.workload == name]
        parts.append(tables.FORMATS[form](own, columns))
        lines = [described(record).fields for record in of_network(found, name)]
        if lines:
            parts.append(form_of.above(f"{name} elsewhere: not measured here, not ranked"))
            parts += [form_of.table(HEADERS, lines), ""]
    parts += [form_of.below(f"{key}: {title}") for key, title in bibliography(chosen)]
    return "\n".join(parts)


def listed(records: Iterable[Record]) -> str:
    """All figures among the records in a table for a terminal, with their networks and sources."""
    form = formats.FORMATS["text"]
    found = [described(record) for record in figures(records)]
    lines = [
        (one.record[7:19], *one.fields[:2], one.workload or "–", *one.fields[2:]) for one in found
    ]
    table = form.table(("record", *HEADERS[:2], "network", *HEADERS[2:]), lines)
    sources = [form.below(f"{key}: {title}") for key, title in bibliography(records)]
    return "\n".join([table, "", *sources])


def _json(made: Sequence[Table], chosen: Sequence[Record]) -> str:
    document = json.loads(tables.as_json(made))
    document["elsewhere"] = [
        {
            "record": record.id,
            "source": record.source,
            "workload": workload(record),
            "citation": record.citation and record.citation.model_dump(mode="json"),
            "figure": record.figure and record.figure.model_dump(mode="json"),
        }
        for record in chosen
    ]
    return json.dumps(document, indent=1)


def _csv(made: Sequence[Table], chosen: Sequence[Record]) -> str:
    """The tables' lines, and one for each figure, with columns of its own after theirs."""
    before = list(csv.DictReader(io.StringIO(tables.as_csv(made))))
    lines = before + [_flat(record) for record in chosen]
    if not lines:
        return ""
    out = io.StringIO()
    names = list(dict.fromkeys(name for line in lines for name in line))
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def _flat(record: Record) -> dict[str, Any]:
    figure, cited = record.figure, record.citation
    assert figure is not None
    about = (figure.about or About()).model_dump(exclude={"study", "workload"})
    told = figure.model_dump(exclude={"about", "values"})
    line = {
        "workload": workload(record),
        **about,
        "records": record.id,
        "source": record.source,
        "ranked": False,
        "reason": unmeasured_source(record),
        "study": figure.about.study if figure.about else None,
        **{f"figure_{name}": one for name, one in told.items()},
        **{f"citation_{name}": one for name, one in (cited.model_dump() if cited else {}).items()},
    }
    return {name: formats.disarmed(one) for name, one in line.items()}
