"""The summary in sentences: what is fastest, how sure that is, and how to do it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xfbench.analysis.leaderboard import Row, Table
from xfbench.analysis.statistics import CLAIM_LAUNCHES
from xfbench.layout import tables
from xfbench.report.figures import name, parts

_NAMED = 3


@dataclass(frozen=True)
class Summary:
    """What one board comes to. `best` is its fastest, ranked or not; None if nothing ran.

    `finding` says what it is and `speed` how fast, `sure` how sure that is: a sentence each.
    """

    best: Row | None
    ranked: bool
    who: str
    finding: str
    speed: str
    sure: tuple[str, ...]
    command: tuple[str, ...]


def summary(table: Table, command: Sequence[str]) -> Summary:
    """The summary of a board; `command` repeats its first row."""
    best = next((row for row in (*table.rows, *table.unranked) if row.images_per_second), None)
    if best is None:
        why = table.unranked[0].reason if table.unranked else "there is no row"
        return Summary(None, False, "", f"Nothing was measured: {why}.", "", (), ())
    ranked = best.reason is None
    certain = best.rank is not None and best.rank[1] == 1
    verdict = "is fastest" if certain else "leads; others may be as fast"
    if not ranked:
        verdict = "was fastest, and is not ranked"
    sure = _sure(best, table) if ranked else _unproven(best)
    return Summary(
        best=best,
        ranked=ranked,
        who=_who(best),
        finding=verdict,
        speed=unbroken(tables.format_speed(best.images_per_second)),
        sure=tuple(sure),
        command=tuple(command),
    )


def _who(row: Row) -> str:
    """In words: "torch with onednn on 2 threads"."""
    parts = [f"{row.framework} with {row.kernel} on {row.threads} thread{_s(row.threads)}"]
    if row.ranks > 1:
        parts.append(f"in each of {row.ranks} ranks ({row.strategy})")
    if row.data_format:
        parts.append(f"from {row.data_format}")
    return " ".join(parts)


def _sure(best: Row, table: Table) -> list[str]:
    """Rank interval, throughput's interval, launches, certificate."""
    return [_place(best, table), _interval(best), "Its network was proven equal."]


def _unproven(best: Row) -> list[str]:
    return [f"Not ranked: {best.reason}.", _interval(best)]


def _place(best: Row, table: Table) -> str:
    assert best.rank is not None
    first, last = best.rank
    rest = len(table.rows) - 1
    if not rest:
        return "It is the only one that is ranked, so that nothing is said against others."
    if last == 1:
        slower = f"all {rest} others are" if rest > 1 else "the other one is"
        return f"Rank 1 for certain: {slower} slower."
    alike = [row for row in table.rows if row is not best and row.rank and row.rank[0] == 1]
    all_parts = [parts(row) for row in table.rows]
    same = {key for key in all_parts[0] if len({one[key] for one in all_parts}) == 1}
    named = ", ".join(name(row, without=same) or name(row) for row in alike[:_NAMED])
    more = f" and {len(alike) - _NAMED} more" if len(alike) > _NAMED else ""
    might = f" May be first as well: {named}{more}." if alike else ""
    others = f"{last - 1} other{_s(last - 1)}"
    return f"Rank {first}–{last} of {len(table.rows)}: {others} cannot be told from it.{might}"


def _interval(row: Row) -> str:
    found = row.images_per_second
    assert found is not None
    count = f"{found.launches} launch{'es' if found.launches > 1 else ''}"
    if found.low is None or found.high is None:
        return f"{count}, so that there is no interval: do more with --launches."
    low, high = (unbroken(tables.format_number(end, 3)) for end in (found.low, found.high))
    label = {
        "claim": "enough for a claim",
        "indicative": f"indicative; a claim takes {CLAIM_LAUNCHES}",
        "smoke": "no more than a sign of life",
    }[found.label]
    spoiled = [f"{row.unstable} never became steady"] if row.unstable else []
    spoiled += [f"{row.outliers} far off"] if row.outliers else []
    over = "; ".join([f"{count} ({label})", *spoiled])
    return f"The 95 % interval is {low} to {high} images/s, over {over}."


def unbroken(figure: str) -> str:
    """A figure that no line ends in: its spaces keep its digits together."""
    return figure.replace(" ", "\u00a0")


def _s(count: int) -> str:
    return "s" if count != 1 else ""
