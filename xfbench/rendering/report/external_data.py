"""External figures in the report, grouped by network, and their sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xfbench.base import terminal_text
from xfbench.model.record import Record
from xfbench.rendering import external_figures
from xfbench.rendering.external_figures import FigureText

MAX_ROWS = 200  # shown figures per group
_MAX_REFERENCE_LENGTH = 600  # shown characters of a source's reference


@dataclass(frozen=True)
class Group:
    """External figures about one network.

    - `name`: the network, or "" for figures about no single network.
    - `rows`: the figures that the page shows.
    - `omitted_rows`: the number of figures that the page leaves out.
    """

    name: str
    rows: tuple[FigureText, ...]
    omitted_rows: int


@dataclass(frozen=True)
class ExternalFigures:
    """The external figures and their sources.

    - `groups`: the figures, one group per network.
    - `sources`: for each cited source, its key and the lines of its reference.
    """

    groups: tuple[Group, ...] = ()
    sources: tuple[tuple[str, tuple[str, ...]], ...] = ()


def group_external_figures(records: Iterable[Record], networks: Iterable[str]) -> ExternalFigures:
    """Return the figures about each of these networks, then those about no single network.

    Figures about other networks are left out.
    """
    figures = external_figures.distinct_external_figures(records)
    figures_by_network = {
        name: external_figures.figures_whose_single_network_equals(figures, name or None)
        for name in (*dict.fromkeys(networks), "")
    }
    groups = [
        Group(
            name,
            tuple(
                external_figures.describe_figure(record) for record in network_figures[:MAX_ROWS]
            ),
            max(0, len(network_figures) - MAX_ROWS),
        )
        for name, network_figures in figures_by_network.items()
        if network_figures
    ]
    cited = [
        record
        for network_figures in figures_by_network.values()
        for record in network_figures[:MAX_ROWS]
    ]
    sources = [
        (key, terminal_text.shorten_and_wrap_to_field_length(title, _MAX_REFERENCE_LENGTH))
        for key, title in external_figures.cited_keys_and_titles(cited)
    ]
    return ExternalFigures(tuple(groups), tuple(sources))


def networks_of_external_figures(records: Sequence[Record]) -> list[str]:
    """Return the sorted names of the networks that the records' external figures are about."""
    return sorted(
        {
            workload
            for record in external_figures.distinct_external_figures(records)
            if (workload := external_figures.single_network_of_figure(record))
        }
    )
