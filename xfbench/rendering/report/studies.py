"""The page of a study as texts and figures, for the report and for a file of its own."""

from __future__ import annotations

from dataclasses import dataclass

from xfbench.rendering.report.figures import Figure

MAX_ROWS = 20  # table rows and points of a line in the report; a study's own page shows all


@dataclass(frozen=True)
class Table:
    """Texts in columns, and the number of omitted rows."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    omitted_rows: int = 0


@dataclass(frozen=True)
class Claim:
    """A source's claim, and whether it holds here.

    `verdict` is the answer, or None if the records cannot tell. `why` is the reason for the answer.
    """

    source: str
    text: str
    verdict: str | None
    why: str


@dataclass(frozen=True)
class Part:
    """One finding: the answer in a sentence, claims with verdicts, figures, and a table."""

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
    - `sentences`: what publications say, each with the key of its source.
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
    sentences: tuple[tuple[str, str], ...]
    published: Table | None
    missing: Table | None
    limits: tuple[str, ...]
    command: str
