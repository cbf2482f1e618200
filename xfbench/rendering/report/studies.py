"""The content of a study's page, as texts and figures.

The report shows this content as a section. `xfbench study report` can also write a separate page.
"""

from __future__ import annotations

from dataclasses import dataclass

from xfbench.rendering.report.figures import Figure

MAX_ROWS = 20  # table rows and points of a line in the report; a study's own page shows all


@dataclass(frozen=True)
class Table:
    """A table of texts. `omitted_rows` is the number of rows that are left out."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    omitted_rows: int = 0


@dataclass(frozen=True)
class Claim:
    """A claim of a source, and whether the records agree with it.

    - `text`: the claim, without a final full stop.
    - `verdict`: "holds" or "does not hold", or None if the records cannot tell.
    - `why`: the figures behind the verdict, or why there are none.
    """

    source: str
    text: str
    verdict: str | None
    why: str


@dataclass(frozen=True)
class Part:
    """The result of one analysis: a sentence, claims with verdicts, figures and a table."""

    title: str
    sentence: str
    claims: tuple[Claim, ...]
    figures: tuple[Figure, ...]
    table: Table | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """All texts of a study's page.

    - `anchor`: the prefix of the HTML ids on the page.
    - `facts`: where, when and with how many launches the study was measured.
    - `parts`: the findings.
    - `sentences`: what publications say, each with its verdict.
    - `published`: the table of published figures.
    - `missing`: the table of cells without a result.
    - `limits`: what the study does not test.
    - `command`: the command that repeats the study.
    """

    name: str
    anchor: str
    title: str
    question: str
    method: str
    facts: tuple[str, ...]
    parts: tuple[Part, ...]
    sentences: tuple[Claim, ...]
    published: Table | None
    missing: Table | None
    limits: tuple[str, ...]
    command: str
