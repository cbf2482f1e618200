"""The page of a study as texts and figures, in the report and in a file of its own alike."""

from __future__ import annotations

from dataclasses import dataclass

from xfbench.rendering.report.figures import Figure

MAX_ROWS = 20  # of each table, and points of a line, among other studies; alone it has all


@dataclass(frozen=True)
class Table:
    """Texts in columns, and how many rows more there are than `rows`."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    omitted_rows: int = 0


@dataclass(frozen=True)
class Claim:
    """What a source says: `verdict` is what it does here, by `why`; None where nobody can tell."""

    source: str
    text: str
    verdict: str | None
    why: str


@dataclass(frozen=True)
class Part:
    """One finding: the answer in a sentence, verdicts, figures, the table that they rest on."""

    title: str
    sentence: str
    claims: tuple[Claim, ...]
    figures: tuple[Figure, ...]
    table: Table | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """All that a study's page says. `anchor` begins the ids of its places.

    `facts` are where, how much and when.
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
