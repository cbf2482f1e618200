"""The summary of a board in sentences: the fastest row, how certain it is, and its command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xfbench.analysis.leaderboard import Row, Table
from xfbench.rendering import tables
from xfbench.rendering.report.figures import row_name, row_name_parts
from xfbench.statistics import CLAIM_HALF_WIDTH, CLAIM_LAUNCHES

_MAX_NAMED = 3


@dataclass(frozen=True)
class Summary:
    """The summary of one board.

    - `best`: the fastest row, ranked or not; None: nothing was measured.
    - `ranked`: whether that row is ranked.
    - `configuration`: the settings of that row in words.
    - `verdict`: what is said about the configuration, such as "is fastest".
    - `speed`: the throughput in images/s, as text.
    - `certainty`: sentences about how certain the verdict is.
    - `command`: the parts of the command that repeats the board's first row.
    """

    best: Row | None
    ranked: bool
    configuration: str
    verdict: str
    speed: str
    certainty: tuple[str, ...]
    command: tuple[str, ...]


def build_summary(table: Table, repeat_command: Sequence[str]) -> Summary:
    """Return the summary of a board.

    `repeat_command` has the parts of the command that repeats the board's first row.
    """
    best = next((row for row in (*table.rows, *table.unranked) if row.images_per_second), None)
    if best is None:
        reason = table.unranked[0].reason if table.unranked else "there are no rows"
        return Summary(None, False, "", f"Nothing was measured: {reason}.", "", (), ())
    ranked = best.reason is None
    is_certain = best.rank is not None and best.rank[1] == 1
    verdict = "is fastest" if is_certain else "leads, but others may be as fast"
    if not ranked:
        verdict = "is fastest but not ranked"
    certainty = _certainty_sentences(best, table) if ranked else _unranked_sentences(best)
    return Summary(
        best=best,
        ranked=ranked,
        configuration=_describe_configuration(best),
        verdict=verdict,
        speed=use_no_break_spaces(tables.format_with_interval(best.images_per_second)),
        certainty=tuple(certainty),
        command=tuple(repeat_command),
    )


def _describe_configuration(row: Row) -> str:
    """Return a text such as "torch with onednn on 2 threads"."""
    parts = [
        f"{row.framework} with {row.kernel} on {row.threads} thread{_plural_suffix(row.threads)}"
    ]
    if row.ranks > 1:
        parts.append(f"per rank on {row.ranks} ranks ({row.strategy})")
    if row.data_format:
        parts.append(f"from {row.data_format}")
    return " ".join(parts)


def _certainty_sentences(best: Row, table: Table) -> list[str]:
    """Return sentences about the rank, the throughput's interval and the certificate."""
    verified = (
        "Its network is verified at small batches."
        if best.is_proven_at_small_batches
        else "Its network is verified, also at its batch size."
    )
    return [_rank_sentence(best, table), _interval_sentence(best), verified]


def _unranked_sentences(best: Row) -> list[str]:
    return [f"Not ranked: {best.reason}.", _interval_sentence(best)]


def _rank_sentence(best: Row, table: Table) -> str:
    assert best.rank is not None
    first, last = best.rank
    rival_count = len(table.rows) - 1
    if not rival_count:
        return "It is the only ranked row, so there is no comparison."
    if last == 1:
        slower = f"all {rival_count} others are" if rival_count > 1 else "the other row is"
        if any(row.label != "claim" for row in table.rows):
            return f"By the intervals, {slower} slower, but this supports no claim about order."
        return f"Rank 1 is certain: {slower} slower."
    possible_firsts = [
        row for row in table.rows if row is not best and row.rank and row.rank[0] == 1
    ]
    row_parts = [row_name_parts(row) for row in table.rows]
    common_keys = {key for key in row_parts[0] if len({texts[key] for texts in row_parts}) == 1}
    names = ", ".join(
        (row_name(row, omitted_parts=common_keys) or row_name(row)) + _doubt_text(row, best)
        for row in possible_firsts[:_MAX_NAMED]
    )
    more = (
        f" and {len(possible_firsts) - _MAX_NAMED} more"
        if len(possible_firsts) > _MAX_NAMED
        else ""
    )
    possible = f" These may also be first: {names}{more}." if possible_firsts else ""
    indistinguishable = f"{last - 1} other{_plural_suffix(last - 1)}"
    return (
        f"Rank {first}–{last} of {len(table.rows)}: not distinguishable from {indistinguishable}."
        f"{possible}"
    )


def _doubt_text(row: Row, best: Row) -> str:
    """Return why the row may be as fast as the best one, such as " (only 2 launches)".

    With enough launches of one run, it is the interval that decides the ranks.
    """
    if row.is_of_another_run(best):
        return " (launched in another run)"
    launches = row.images_per_second.launches if row.images_per_second else 0
    if launches < CLAIM_LAUNCHES:
        return f" (only {_count_launches(launches)})"
    ratio = row.relative_interval
    if ratio is None or ratio.low is None or ratio.high is None:
        return ""
    low, high = (use_no_break_spaces(f"{bound:.2f}") for bound in (ratio.low, ratio.high))
    return f" ({low}–{high} times as fast, launch by launch)"


def _count_launches(count: int) -> str:
    return f"{count} launch{'' if count == 1 else 'es'}"


def _interval_sentence(row: Row) -> str:
    speed = row.images_per_second
    assert speed is not None
    count = _count_launches(speed.launches)
    if speed.low is None or speed.high is None:
        return f"There is no interval from {count}: run more with --launches."
    low, high = (
        use_no_break_spaces(tables.format_number(bound, 3)) for bound in (speed.low, speed.high)
    )
    label = {
        "claim": "enough for a claim",
        "indicative": "indicative; a claim needs "
        + (
            f"{CLAIM_LAUNCHES}"
            if speed.launches < CLAIM_LAUNCHES
            else f"an interval of ±{CLAIM_HALF_WIDTH:.0%}"
        ),
        "smoke": "only a smoke test",
    }[row.label]
    if row.is_mostly_noisy and speed.label == "claim":
        label = "indicative; most of them were noisy"
    if row.sessions == 2:
        label = "two sessions: the interval does not contain the difference between them"
    remarks = [f"{row.unstable} changed level"] if row.unstable else []
    remarks += [f"{row.outliers} outlier{'s' if row.outliers > 1 else ''}"] if row.outliers else []
    remarks += [f"{row.failed} more failed"] if row.failed else []
    launches = "; ".join([f"{count} ({label})", *remarks])
    sessions = f" of {row.sessions} sessions" if row.sessions > 2 else ""
    name = "95 % interval" if speed.confidence else "range"
    return f"The {name} is {low} to {high} images/s, over {launches}{sessions}."


def use_no_break_spaces(text: str) -> str:
    """Return the text with no-break spaces instead of spaces, so that it stays on one line."""
    return text.replace(" ", "\u00a0")


def _plural_suffix(count: int) -> str:
    return "s" if count != 1 else ""
