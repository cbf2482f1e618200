"""What the report shows from elsewhere: published and imported figures, by network, and sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xfbench.base import terminal_text
from xfbench.layout import external_figures
from xfbench.layout.external_figures import FigureText
from xfbench.records.record import Record

MOST_ROWS = 200  # of a group
_LONGEST = 600  # characters of a reference


@dataclass(frozen=True)
class Group:
    """The figures about one network, and how many more there are than are shown.

    `name` is "" for those about no network in particular.
    """

    name: str
    rows: tuple[FigureText, ...]
    left: int


@dataclass(frozen=True)
class ExternalFigures:
    """All of it: the figures in groups, and each source with what it is, in pieces."""

    groups: tuple[Group, ...] = ()
    sources: tuple[tuple[str, tuple[str, ...]], ...] = ()


def build_external(records: Iterable[Record], networks: Iterable[str]) -> ExternalFigures:
    """The figures about these networks, then those about no network in particular."""
    found = external_figures.external_figures(records)
    chosen = {
        name: external_figures.figures_of_network(found, name or None)
        for name in (*dict.fromkeys(networks), "")
    }
    groups = [
        Group(
            name,
            tuple(external_figures.describe_figure(record) for record in own[:MOST_ROWS]),
            max(0, len(own) - MOST_ROWS),
        )
        for name, own in chosen.items()
        if own
    ]
    cited = [record for own in chosen.values() for record in own[:MOST_ROWS]]
    sources = [
        (key, terminal_text.wrap_field(title, _LONGEST))
        for key, title in external_figures.bibliography(cited)
    ]
    return ExternalFigures(tuple(groups), tuple(sources))


def named(records: Sequence[Record]) -> list[str]:
    """The networks that figures from elsewhere are about, by name."""
    return sorted(
        {
            name
            for one in external_figures.external_figures(records)
            if (name := external_figures.figure_workload(one))
        }
    )
