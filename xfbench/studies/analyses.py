"""The analyses that a study's file can name: functions from its cells to a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from xfbench.analysis import scaling, statistics
from xfbench.analysis.leaderboard import Certificates
from xfbench.analysis.statistics import Interval, Launches
from xfbench.base import errors
from xfbench.studies import cells as of_cells
from xfbench.studies.cells import Measured
from xfbench.studies.finding import Finding, Judged, Told, Value, judge, tally, verdict
from xfbench.studies.form import Analysis, Claim, Scalar
from xfbench.studies.quantities import QUANTITIES, Quantity, launches
from xfbench.studies.wording import figure, joined, plural

Answer = Callable[[Analysis, Sequence[Measured], Certificates], Finding]
NOTHING = "Nothing of it was measured here."


def fields(one: Measured) -> dict[str, Any]:
    """All settings that a claim may choose by."""
    options = dict(one.request.strategy_options)
    return {**options, **{name: one.value(name) for name in of_cells.NAMED}}


def quantity(of: Analysis) -> Quantity:
    """Raises UsageError for one that nobody knows."""
    if of.of not in QUANTITIES:
        raise errors.unknown_name_error("quantity", of.of, QUANTITIES)
    return QUANTITIES[of.of]


def values(of: Analysis, cells: Sequence[Measured], _: Certificates) -> Finding:
    """Each cell's figure."""
    what = quantity(of)
    found = [_value(of, one, cells, _mean(launches(what, one.records))) for one in cells]
    known = [(one, one.interval) for one in found if one.interval]
    sentence = NOTHING
    if known:
        ends = [min(known, key=lambda p: p[1].value), max(known, key=lambda p: p[1].value)]
        figures = [figure(i, what.unit) for _, i in ends]
        told = [f"{words} ({_called(one)})" for words, (one, _) in zip(figures, ends, strict=True)]
        sentence = f"{what.title.capitalize()}: {told[0]} to {told[1]}."
        if figures[0] == figures[1]:
            sentence = f"{what.title.capitalize()}: {figures[0] if len(known) > 1 else told[0]}."
    return _finding(of, sentence, what.unit, found)


def spread(of: Analysis, cells: Sequence[Measured], _: Certificates) -> Finding:
    """How far a cell's launches lie apart: the standard deviation of their logarithms."""
    what = quantity(of)
    found = []
    for one in cells:
        own = [*launches(what, one.records).values()]
        apart = statistics.spread_interval(own)
        reason = None if apart else "two launches that count are needed"
        found.append(_value(of, one, cells, apart, reason))
    known = [one.interval for one in found if one.interval]
    sentence = "There are too few launches to say how far they lie apart."
    if known:
        low, high = (pick(i.value for i in known) for pick in (min, max))
        most = max(i.launches for i in known)
        sentence = (
            f"Launches of one configuration lie {low:.1%} to {high:.1%} apart in {what.title}: "
            f"the standard deviation of up to {most}, of {plural(len(known), 'configuration')}."
        )
    return _finding(of, sentence, "%", found)


def best_of(of: Analysis, cells: Sequence[Measured], certificates: Certificates) -> Finding:
    """Which value of a setting is best, all else being equal, and which others may be."""
    what = quantity(of)
    found: list[Value] = []
    outcomes: list[tuple[list[Measured], list[Measured]]] = []
    tried: Counter[str] = Counter()
    for group in of_cells.alike(cells, of.over):
        speeds = {id(one): launches(what, one.records) for one in group}
        known = [one for one in group if speeds[id(one)]]
        reasons = of_cells.unproven(known, certificates)
        fair = [one for one in known if id(one) not in reasons]
        ranked = [_better(speeds[id(one)], what) for one in fair]
        places = dict(zip(map(id, fair), statistics.cell_ranks(ranked), strict=True))
        may = [one for one in fair if places[id(one)][0] == 1]
        if len({str(one.value(of.over)) for one in fair}) > 1:
            outcomes.append((fair, may))
            tried.update(dict.fromkeys((str(one.value(of.over)) for one in fair), 1))
        for one in group:
            place = places.get(id(one))
            note = "" if place is None or len(fair) < 2 else _place(*place)
            reason = reasons.get(id(one))
            found.append(
                _value(of, one, cells, _mean(speeds[id(one)]), reason, note if not reason else "")
            )
    judged = tuple(_best(claim, of, outcomes) for claim in of.claim if claim.best is not None)
    sentence = _which(of, outcomes, list(tried))
    return _finding(of, sentence, what.unit, found, judged)


def _which(of: Analysis, outcomes: Any, tried: Sequence[str]) -> str:
    if not outcomes:
        return f"There are no two values of {of.over} to compare." if tried else NOTHING
    tried_words = f"{of.over.replace('_', ' ')} {joined(tried)}"
    certain = Counter(str(may[0].value(of.over)) for _, may in outcomes if len(may) == 1)
    open_ = sum(len(may) != 1 for _, may in outcomes)
    if len(outcomes) == 1 and certain:
        [best] = certain
        return f"Of {tried_words}, {of_cells.worded(of.over, _number(best))} is best."
    parts = [
        f"{of_cells.worded(of.over, _number(value))} is best in {count} of {len(outcomes)} cases"
        for value, count in certain.most_common()
    ]
    if open_:
        parts.append(
            f"in {open_} of {len(outcomes)} several cannot be told from the best by these launches"
        )
    return f"Of {tried_words}: {'; '.join(parts)}."


def _best(claim: Claim, of: Analysis, outcomes: Any) -> Judged:
    told: list[Told] = []
    untried = 0
    for fair, may in outcomes:
        about = [one for one in fair if one.matches(claim.where)]
        if not about:
            continue
        wanted = _wanted(claim.best, about[0])
        own = [one for one in about if str(one.value(of.over)) == wanted]
        if not own:
            untried += 1
        elif min(len(one.steady()) for one in about) < statistics.INDICATIVE_LAUNCHES:
            told.append("unknown")
        elif own[0] in may:
            told.append("yes" if len(may) == 1 else "unknown")
        else:
            told.append("no")
    why = tally(told)
    if untried and not told:
        why = f"{of_cells.worded(of.over, claim.best)} was not tried here"
    return Judged(claim.source, claim.text, verdict(told), why or "nothing of it was measured here")


def _wanted(best: Scalar | None, one: Measured) -> str:
    machine = one.records[-1].machine
    return str(machine.cores) if best == "cores" and machine else str(best)


def ratio(of: Analysis, cells: Sequence[Measured], certificates: Certificates) -> Finding:
    """How many times one value of a setting gives what the other does, all else being equal."""
    what = quantity(of)
    found: list[Value] = []
    for group in of_cells.alike(cells, of.over):
        if len({str(one.value(of.over)) for one in group}) == 1:
            continue
        known = [one for one in group if launches(what, one.records)]
        if of.against == "best":
            without = of_cells.unproven(known, certificates)
            known = [one for one in known if id(one) not in without] or known
        for one in group:
            base = _baseline(of, one, known, what)
            if base is one:
                continue
            own = launches(what, one.records)
            if base is None or not own:
                lacks = "what it is relative to is not here"
                lacks = lacks if own else _lost(one) or lacking(one)
                found.append(_value(of, one, cells, None, lacks))
                continue
            reason = of_cells.comparable(one, base, certificates)
            pair = (own, launches(what, base.records))
            if of.against == "best" and not what.less_is_better:  # how many times worse it is
                pair = (pair[1], pair[0])
            times = None if reason else statistics.compare(*pair).ratio
            note = f"against {of_cells.worded(of.over, base.value(of.over))}"
            found.append(_value(of, one, cells, times, reason, note))
    known_values = [(one, one.interval) for one in found if one.interval]
    sentence = NOTHING if not found else "Nothing of it can be compared."
    if known_values:
        low = min(known_values, key=lambda pair: pair[1].value)
        high = max(known_values, key=lambda pair: pair[1].value)
        certain = sum(i.low is not None and i.low > 1 for _, i in known_values)
        below = sum(i.high is not None and i.high < 1 for _, i in known_values)
        mean = statistics.geometric_interval([i.value for _, i in known_values]).value
        word = "worse" if of.against == "best" else f"the {what.title}"
        sentence = (
            f"{low[1].value:.3g} times ({_called(low[0])}) to {high[1].value:.3g} times "
            f"({_called(high[0])}) {word}, {mean:.3g} in the geometric mean: of "
            f"{plural(len(known_values), 'comparison')} {certain} certainly above 1, "
            f"{below} certainly below."
        )
        if len(known_values) == 1:
            sentence = f"{figure(low[1], 'times')} {word} ({_called(low[0])})."
    return _finding(of, sentence, "times", found)


def lacking(one: Measured) -> str:
    """Why nothing counts of it."""
    last = one.records[-1]
    return last.reason if last.status != "ok" and last.reason else "nothing counts of it"


def _baseline(
    of: Analysis, one: Measured, known: Sequence[Measured], what: Quantity
) -> Measured | None:
    """What `one` is relative to; itself where it is that."""
    against = of.against
    if isinstance(against, dict):
        against = against.get(one.request.framework, "least")
    if against == "best":
        return max(known, key=lambda other: _value_of(other, what), default=None)
    if against == "previous":
        before = [other for other in known if _before(other, one, of.over)]
        return before[-1] if before else one
    if against == "least":
        return known[0] if known else None
    return next((other for other in known if str(other.value(of.over)) == str(against)), None)


def _before(other: Measured, one: Measured, over: str) -> bool:
    a, b = other.value(over), one.value(over)
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a < b
    return str(a) < str(b)


def _value_of(one: Measured, what: Quantity) -> float:
    mean = _mean(launches(what, one.records))
    assert mean is not None
    return -mean.value if what.less_is_better else mean.value


def efficiency(of: Analysis, cells: Sequence[Measured], certificates: Certificates) -> Finding:
    """Throughput per rank relative to that on the least ranks, under the law of the cells."""
    what = QUANTITIES["images_per_second"]
    found: list[Value] = []
    for group in of_cells.alike([one for one in cells if one.request.scaling], "ranks"):
        known = [one for one in group if launches(what, one.records)]
        for one in group:
            if not known or one not in known:
                found.append(_value(of, one, cells, None, "nothing counts of it"))
                continue
            base, law = known[0], one.request.scaling
            if one is base:
                continue
            assert law is not None
            reason = of_cells.comparable(one, base, certificates)
            own, least = launches(what, one.records), launches(what, base.records)
            share = scaling.efficiency(law, one.request.ranks, own, base.request.ranks, least)
            interval = Interval(share.value, share.low, share.high, min(len(own), len(least)))
            note = f"against {of_cells.worded('ranks', base.request.ranks)}, {law} scaling"
            found.append(_value(of, one, cells, None if reason else interval, reason, note))
    known_values = [(one, one.interval) for one in found if one.interval]
    sentence = "There are no two numbers of ranks to compare."
    if known_values:
        most = max(one.x or 0 for one, _ in known_values)
        told = [f"{figure(i, '%')} ({one.name})" for one, i in known_values if one.x == most]
        sentence = f"On {most:g} ranks efficiency is {joined(told)}."
    return _finding(of, sentence, "%", found)


def _value(
    of: Analysis,
    one: Measured,
    among: Sequence[Measured],
    interval: Interval | None,
    reason: str | None = None,
    note: str = "",
) -> Value:
    over = of.over or ("ranks" if of.name == "efficiency" else "")
    of_strategy = over == "nodes" or over not in of_cells.NAMED
    without = (over, *(["strategy"] if of_strategy else [])) if over else ()
    at = one.value(over) if over else None
    lost = _lost(one)
    if interval is None and reason is None:
        last = one.records[-1]
        reason = lost or (last.reason if last.status != "ok" else "no launch of it counts")
    elif lost and not reason:
        note = "; ".join(filter(None, (note, lost)))
    number = float(at) if isinstance(at, int | float) else None
    return Value(
        name=of_cells.name(one, among, without),
        at=of_cells.worded(over, at) if over else "",
        x=number,
        interval=interval,
        fields=fields(one),
        reason=reason,
        note=note,
    )


def _lost(one: Measured) -> str:
    """How many of its launches diverged, and where the first did; "" where none did."""
    lost = one.diverged()
    if not lost:
        return ""
    of_all = plural(len(one.records), "launch")
    return f"{len(lost)} of {of_all} diverged: {lost[0].reason}"


def _finding(
    of: Analysis,
    sentence: str,
    unit: str,
    found: Sequence[Value],
    judged: Sequence[Judged] = (),
) -> Finding:
    over = of.over or ("ranks" if of.name == "efficiency" else "")
    told = judge(of.claim, found, lambda interval: figure(interval, unit))
    return Finding(
        title=of.title or of.name,
        sentence=sentence,
        over=over.replace("_", " "),
        unit=unit,
        values=tuple(found),
        judged=(*judged, *told),
        plot=of.plot,
        beside=of.beside,
    )


def _mean(found: Launches) -> Interval | None:
    return statistics.geometric_interval([*found.values()]) if found else None


def _better(found: Launches, what: Quantity) -> Launches:
    """So that more is better."""
    return {block: 1 / value for block, value in found.items()} if what.less_is_better else found


def _place(first: int, last: int) -> str:
    return f"rank {first}" if first == last else f"rank {first}–{last}"


def _called(one: Value) -> str:
    return ", ".join(filter(None, (one.name, one.at)))


def _number(text: str) -> Any:
    return int(text) if text.isdecimal() else text
