"""The page of a study as texts and figures, for the report and for a file of its own."""

from __future__ import annotations

from dataclasses import dataclass

from xfbench.rendering.report.figures import Figure

MAX_ROWS = 20  # limit in the report for table rows and line points; a study's own page has all


@dataclass(frozen=True)
class Table:
    """Texts in columns, and the number of omitted rows."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    omitted_rows: int = 0


@dataclass(frozen=True)
class Claim:
    """A source's claim. `verdict` says whether it holds here and `why`; None if it is undecided."""

    source: str
    text: str
    verdict: str | None
    why: str


@dataclass(frozen=True)
class Part:
    """One finding: the answer in a sentence, verdicts, figures, and the table behind them."""

    title: str
    sentence: str
    claims: tuple[Claim, ...]
    figures: tuple[Figure, ...]
    table: Table | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """All texts of a study's page. `anchor` is the prefix of its ids.

    `facts` say where, how much and when was measured.
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
