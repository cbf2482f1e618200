"""The page docs/published.md: the studies, their published figures, and the sources.

To update the page, run `python -m xfbench.rendering.published_page > docs/published.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xfbench.host import roofline
from xfbench.model.record import Record
from xfbench.rendering import external_figures, formats
from xfbench.store import published

_INTRODUCTION = """# Published figures

xfbench repeats published studies on your machine. It includes their figures as records (`source` is
`published`), one for each number. You can show them next to measured ones:

    xfbench leaderboard --published
    xfbench results list --published
    xfbench results list --published --where figure.about.study=storage
    xfbench report

Published figures are not ranked, and nothing is computed from them. A number is stored as its
source states it, with its place and the description that the source gives. Bars of a chart
without a number are omitted. Devices and workers that share an update's images count as ranks.
Figures imported from another tool's file are shown in the same way.

The numbers are in `xfbench/store/published/`, one file per source. This page is generated from
them by
`python -m xfbench.rendering.published_page`."""
_PEAKS = """## Peaks of machines

xfbench compares results with the peak performance of these machines in single precision
(`xfbench/host/peaks.toml`):"""


def _published_page_parts() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## Sources"
    for source in published.sources():
        yield f"- **{source.key}** {source.reference}."
    studies = dict.fromkeys(finding.study for finding in published.findings())
    for study in sorted(studies, key=lambda name: not published.records_of_study(name)):
        yield f"## {study}"
        for finding in published.findings(study):
            yield f"- {finding.citation.key}, {finding.citation.where}: {finding.sentence}"
        records = published.records_of_study(study)
        if records:
            yield _render_figures(records)
    yield _PEAKS
    peaks = roofline.load_published_peaks()
    rows = [
        (
            name,
            f"{peak['matrix_product']['float32'] / 1e12:g} TFLOP/s",
            f"{peak['memory_bandwidth'] / 1e9:g} GB/s",
        )
        for name, peak in peaks.items()
    ]
    yield formats.markdown_table(("machine", "matrix product", "memory"), rows)
    yield "Their sources:"
    yield formats.join_markdown_blocks(
        f"- {name}: {peak['source']}" for name, peak in peaks.items()
    )


def _render_figures(records: Sequence[Record]) -> str:
    """Return a table of the figures, or a list if the lines of a table would be too long."""
    rows = []
    for record in records:
        text = external_figures.describe_figure(record)
        place = record.citation.where if record.citation else "–"
        rows.append((text.key, place, text.workload or "–", *text.table_cells[2:]))
    headers = ("source", "place", "network", *external_figures.HEADERS[2:])
    table = formats.markdown_table(headers, rows)
    if formats.fits_markdown(table):
        return table
    items = []
    for key, place, network, quantity, figure, relative_to, about in rows:
        subjects = [text for text in (network, about) if text != "–"]
        relative = "" if relative_to == "–" else f", relative to {relative_to}"
        subject = f" ({' · '.join(subjects)})" if subjects else ""
        items.append(f"- {key}, {place}: {quantity}{relative}{subject}: {figure}")
    return formats.join_markdown_blocks(items)


if __name__ == "__main__":
    print(formats.join_markdown_blocks(_published_page_parts()))
