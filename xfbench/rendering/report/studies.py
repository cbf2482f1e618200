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
    """A source's claim.

    `verdict` says whether the claim holds here, or is None if that is undecided. `why` is the
    reason.
    """

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
    """All texts of a study's page.

    `anchor` is the prefix of the HTML ids on the page. `facts` say where and when the study was
    measured, and how much.
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
