"""The summary in sentences: what is fastest, how sure that is, and how to do it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xfbench.analysis.leaderboard import Row, Table
from xfbench.rendering import tables
from xfbench.rendering.report.figures import name, parts
from xfbench.statistics import CLAIM_LAUNCHES

_MAX_NAMED = 3


@dataclass(frozen=True)
class Summary:
    """What one board comes to. `best` is its fastest, ranked or not; None if nothing ran.

    `verdict` says what it is, `speed` how fast it is, `certainty` how sure that is, in sentences.
    """

    best: Row | None
    ranked: bool
    configuration: str
    verdict: str
    speed: str
    certainty: tuple[str, ...]
    command: tuple[str, ...]


def build_summary(table: Table, command: Sequence[str]) -> Summary:
    """The summary of a board; `command` repeats its first row."""
    best = next((row for row in (*table.rows, *table.unranked) if row.images_per_second), None)
    if best is None:
        reason = table.unranked[0].reason if table.unranked else "there is no row"
        return Summary(None, False, "", f"Nothing was measured: {reason}.", "", (), ())
    ranked = best.reason is None
    is_certain = best.rank is not None and best.rank[1] == 1
    verdict = "is fastest" if is_certain else "leads; others may be as fast"
    if not ranked:
        verdict = "was fastest, and is not ranked"
    certainty = _certainty_sentences(best, table) if ranked else _unranked_sentences(best)
    return Summary(
        best=best,
        ranked=ranked,
        configuration=_describe_configuration(best),
        verdict=verdict,
        speed=join_digits(tables.format_speed(best.images_per_second)),
        certainty=tuple(certainty),
        command=tuple(command),
    )


def _describe_configuration(row: Row) -> str:
    """In words: "torch with onednn on 2 threads"."""
    parts = [
        f"{row.framework} with {row.kernel} on {row.threads} thread{_plural_suffix(row.threads)}"
    ]
    if row.ranks > 1:
        parts.append(f"in each of {row.ranks} ranks ({row.strategy})")
    if row.data_format:
        parts.append(f"from {row.data_format}")
    return " ".join(parts)


def _certainty_sentences(best: Row, table: Table) -> list[str]:
    """Rank interval, throughput's interval, launches, certificate."""
    return [_rank_sentence(best, table), _interval_sentence(best), "Its network was proven equal."]


def _unranked_sentences(best: Row) -> list[str]:
    return [f"Not ranked: {best.reason}.", _interval_sentence(best)]


def _rank_sentence(best: Row, table: Table) -> str:
    assert best.rank is not None
    first, last = best.rank
    rival_count = len(table.rows) - 1
    if not rival_count:
        return "It is the only one that is ranked, so that nothing is said against others."
    if last == 1:
        slower = f"all {rival_count} others are" if rival_count > 1 else "the other one is"
        return f"Rank 1 for certain: {slower} slower."
    possible_firsts = [
        row for row in table.rows if row is not best and row.rank and row.rank[0] == 1
    ]
    row_parts = [parts(row) for row in table.rows]
    common_keys = {key for key in row_parts[0] if len({texts[key] for texts in row_parts}) == 1}
    names = ", ".join(
        name(row, without=common_keys) or name(row) for row in possible_firsts[:_MAX_NAMED]
    )
    more = (
        f" and {len(possible_firsts) - _MAX_NAMED} more"
        if len(possible_firsts) > _MAX_NAMED
        else ""
    )
    possible = f" May be first as well: {names}{more}." if possible_firsts else ""
    indistinguishable = f"{last - 1} other{_plural_suffix(last - 1)}"
    return (
        f"Rank {first}–{last} of {len(table.rows)}: {indistinguishable} cannot be told from it."
        f"{possible}"
    )


def _interval_sentence(row: Row) -> str:
    speed = row.images_per_second
    assert speed is not None
    count = f"{speed.launches} launch{'es' if speed.launches > 1 else ''}"
    if speed.low is None or speed.high is None:
        return f"{count}, so that there is no interval: do more with --launches."
    low, high = (join_digits(tables.format_number(bound, 3)) for bound in (speed.low, speed.high))
    label = {
        "claim": "enough for a claim",
        "indicative": f"indicative; a claim takes {CLAIM_LAUNCHES}",
        "smoke": "no more than a sign of life",
    }[speed.label]
    exclusions = [f"{row.unstable} never became steady"] if row.unstable else []
    exclusions += [f"{row.outliers} far off"] if row.outliers else []
    launches = "; ".join([f"{count} ({label})", *exclusions])
    return f"The 95 % interval is {low} to {high} images/s, over {launches}."


def join_digits(figure: str) -> str:
    """A figure that no line ends in: its spaces keep its digits together."""
    return figure.replace(" ", "\u00a0")


def _plural_suffix(count: int) -> str:
    return "s" if count != 1 else ""
