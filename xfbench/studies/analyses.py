"""The basic analyses of a study: each turns measured cells into a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from xfbench import pairwise, statistics
from xfbench.analysis import best_comparison, means, scaling
from xfbench.analysis.leaderboard import Certificates
from xfbench.base.wording import pluralize
from xfbench.model.record import is_asynchronous
from xfbench.planning.study_form import Analysis, Claim, Scalar
from xfbench.statistics import Interval, Launches
from xfbench.studies import cells as of_cells
from xfbench.studies import framework_tables, machine_comparison
from xfbench.studies.cells import MeasuredCell
from xfbench.studies.finding import (
    Agreement,
    Finding,
    JudgedClaim,
    Value,
    judge_claims_with_bounds,
    tally_text,
    verdict_if_all_must_agree,
)
from xfbench.studies.quantities import (
    QUANTITIES,
    TIME_TO_SOLUTION,
    Quantity,
    counted_values_by_block,
    describe_time_basis,
    find_quantity,
    score_launches,
)
from xfbench.studies.wording import (
    format_ends,
    format_number_without_unit,
    format_value_with_bounds,
    join_words,
)

AnalysisFunction = Callable[[Analysis, Sequence[MeasuredCell], Certificates], Finding]
NOTHING = "No matching cell was measured here."


def settings_and_strategy_options(cell: MeasuredCell) -> dict[str, Any]:
    """Return the values of the cell's settings and non-default strategy options, by name.

    The `where` of a claim is compared with these values.
    """
    options = dict(cell.request.strategy_options)
    return {**options, **{name: cell.setting(name) for name in of_cells.SETTINGS}}


def analyze_values(analysis: Analysis, cells: Sequence[MeasuredCell], _: Certificates) -> Finding:
    """Return a finding with the median launch of each cell in the quantity."""
    quantity = find_quantity(analysis)
    values = [
        _build_value(
            analysis, cell, cells, _median_launch(counted_values_by_block(quantity, cell.records))
        )
        for cell in cells
    ]
    measured = [(value, value.interval) for value in values if value.interval]
    sentence = NOTHING
    title = quantity.title[:1].upper() + quantity.title[1:]  # keeps the capitals of "GPU"
    if measured:
        extremes = [
            min(measured, key=lambda p: p[1].value),
            max(measured, key=lambda p: p[1].value),
        ]
        figures = [format_value_with_bounds(i, quantity.unit) for _, i in extremes]
        examples = [
            f"{text} ({_configuration_and_setting_label(value)})"
            for text, (value, _) in zip(figures, extremes, strict=True)
        ]
        sentence = f"{title}: {examples[0]} to {examples[1]}."
        if figures[0] == figures[1]:
            sentence = f"{title}: {figures[0] if len(measured) > 1 else examples[0]}."
    return _build_finding_and_judge_bounds(analysis, sentence, quantity.unit, values)


def analyze_launch_spread(
    analysis: Analysis, cells: Sequence[MeasuredCell], _: Certificates
) -> Finding:
    """Return a finding that shows how much the launches of each cell differ in the quantity.

    The spread of a cell is the standard deviation of the logarithms of its launches' values.
    """
    quantity = find_quantity(analysis)
    values = []
    for cell in cells:
        cell_launches = [*counted_values_by_block(quantity, cell.records).values()]
        interval = statistics.log_deviation_interval(cell_launches)
        reason = None if interval else "needs two launches that count"
        values.append(_build_value(analysis, cell, cells, interval, reason))
    intervals = [value.interval for value in values if value.interval]
    sentence = "There are too few launches to measure their spread."
    if intervals:
        low, high = (pick(i.value for i in intervals) for pick in (min, max))
        max_launches = max(i.launches for i in intervals)
        sentence = (
            f"Launches of one configuration vary by {low:.1%} to {high:.1%} in {quantity.title} "
            f"(standard deviation of up to {max_launches} launches, "
            f"{pluralize(len(intervals), 'configuration')})."
        )
    return _build_finding_and_judge_bounds(analysis, sentence, "%", values)


def analyze_launch_range(
    analysis: Analysis, cells: Sequence[MeasuredCell], _: Certificates
) -> Finding:
    """Return a finding that shows how far the longest launch lies above the shortest.

    The figure is that of five launches (see `statistics.range_interval`).
    """
    quantity = find_quantity(analysis)
    values = []
    for cell in cells:
        cell_launches = [*counted_values_by_block(quantity, cell.records).values()]
        interval = statistics.range_interval(cell_launches)
        reason = None if interval else f"needs {statistics.RANGE_LAUNCHES} launches that count"
        note = ""
        if len(cell_launches) > statistics.RANGE_LAUNCHES:
            whole_range = max(cell_launches) / min(cell_launches) - 1
            note = f"{whole_range:.1%} among all launches"
        values.append(_build_value(analysis, cell, cells, interval, reason, note))
    measured = [value.interval.value for value in values if value.interval]
    sentence = "There are too few launches to measure their range."
    if measured:
        sentence = (
            f"Of {statistics.RANGE_LAUNCHES} launches of one configuration, the largest "
            f"{quantity.title} is {min(measured):.1%} to {max(measured):.1%} above the smallest "
            f"({pluralize(len(measured), 'configuration')})."
        )
    return _build_finding_and_judge_bounds(analysis, sentence, "%", values)


def analyze_best_of(
    analysis: Analysis, cells: Sequence[MeasuredCell], certificates: Certificates
) -> Finding:
    """Return a finding that says which value of the setting `analysis.over` is best.

    Only verified cells of the same comparison group are compared (see `cells.comparison_groups`).
    If the launches do not show which of several values is best, all of these values count as
    possibly best. The ranks of all groups hold together with 95 %.
    """
    quantity = find_quantity(analysis)
    groups = of_cells.comparison_groups(cells, analysis.over)
    compared_count = sum(len(group) > 1 for group in groups)
    confidence = 1 - (1 - statistics.CONFIDENCE) / max(1, compared_count)
    values: list[Value] = []
    outcomes: list[tuple[list[MeasuredCell], list[MeasuredCell]]] = []
    tried_values: Counter[str] = Counter()
    for group in groups:
        launches_of_cell = {
            id(cell): counted_values_by_block(quantity, cell.records) for cell in group
        }
        measured = [cell for cell in group if launches_of_cell[id(cell)]]
        reasons = of_cells.unverified_reasons_by_id(measured, certificates)
        verified = [cell for cell in measured if id(cell) not in reasons]
        scores = [score_launches(launches_of_cell[id(cell)], quantity) for cell in verified]
        ranks = dict(
            zip(map(id, verified), pairwise.rank_cells(scores, confidence).ranks, strict=True)
        )
        possible_best = [cell for cell in verified if ranks[id(cell)][0] == 1]
        if len({str(cell.setting(analysis.over)) for cell in verified}) > 1:
            outcomes.append((verified, possible_best))
            tried_values.update(
                dict.fromkeys((str(cell.setting(analysis.over)) for cell in verified), 1)
            )
        for cell in group:
            rank = ranks.get(id(cell))
            note = "" if rank is None or len(verified) < 2 else _format_rank(*rank)
            reason = reasons.get(id(cell))
            values.append(
                _build_value(
                    analysis,
                    cell,
                    cells,
                    _median_launch(launches_of_cell[id(cell)]),
                    reason,
                    note if not reason else "",
                )
            )
    verdicts = tuple(
        _judge_best(claim, analysis, outcomes) for claim in analysis.claim if claim.best is not None
    )
    sentence = (
        _best_sentence(analysis, outcomes, list(tried_values))
        if outcomes
        else _describe_no_comparison(analysis, values)
    )
    return _build_finding_and_judge_bounds(analysis, sentence, quantity.unit, values, verdicts)


def _best_sentence(analysis: Analysis, outcomes: Any, tried_values: Sequence[str]) -> str:
    tried_words = f"{analysis.over.replace('_', ' ')} {join_words(tried_values)}"
    certain_wins = Counter(
        str(possible_best[0].setting(analysis.over))
        for _, possible_best in outcomes
        if len(possible_best) == 1
    )
    undecided = sum(len(possible_best) != 1 for _, possible_best in outcomes)
    if len(outcomes) == 1 and certain_wins:
        [best] = certain_wins
        return (
            f"Of {tried_words}, "
            f"{of_cells.format_setting(analysis.over, _parse_if_whole_number(best))} is best."
        )
    parts = [
        f"{of_cells.format_setting(analysis.over, _parse_if_whole_number(value))} "
        f"is best in {count} of {len(outcomes)} cases"
        for value, count in certain_wins.most_common()
    ]
    if undecided:
        parts.append(
            f"in {undecided} of {len(outcomes)} cases "
            "these launches do not show which value is best"
        )
    return f"Of {tried_words}: {'; '.join(parts)}."


def _describe_no_comparison(analysis: Analysis, values: Sequence[Value]) -> str:
    """Return the sentence of a finding without a comparison, with the most frequent reason."""
    if not values:
        return NOTHING
    default = f"there are no different values of {analysis.over}"
    reasons = Counter(value.reason for value in values if value.reason)
    [(reason, _)] = reasons.most_common(1) or [(default, 0)]
    return f"No cells can be compared: {reason}."


def _judge_best(claim: Claim, analysis: Analysis, outcomes: Any) -> JudgedClaim:
    agreements: list[Agreement] = []
    untried_count = few_count = 0
    for verified, possible_best in outcomes:
        matching = [cell for cell in verified if cell.matches(claim.where)]
        if not matching:
            continue
        expected = _replace_cores_by_core_count(claim.best, matching[0])
        expected_cells = [cell for cell in matching if str(cell.setting(analysis.over)) == expected]
        if not expected_cells:
            untried_count += 1
        elif min(len(cell.ok_records()) for cell in matching) < statistics.INDICATIVE_LAUNCHES:
            few_count += 1
            agreements.append("unknown")
        elif expected_cells[0] in possible_best:
            agreements.append("yes" if len(possible_best) == 1 else "unknown")
        else:
            agreements.append("no")
    reason = tally_text(agreements)
    if few_count:
        reason += f". Cells have fewer than {statistics.INDICATIVE_LAUNCHES} launches"
    if untried_count and not agreements:
        reason = f"{of_cells.format_setting(analysis.over, claim.best)} was not measured here"
    return JudgedClaim(
        claim.source,
        claim.text,
        verdict_if_all_must_agree(agreements),
        reason or "no matching cell was measured here",
    )


def _replace_cores_by_core_count(claimed_best: Scalar | None, cell: MeasuredCell) -> str:
    machine = cell.records[-1].machine
    return str(machine.cores) if claimed_best == "cores" and machine else str(claimed_best)


def analyze_ratio(
    analysis: Analysis, cells: Sequence[MeasuredCell], certificates: Certificates
) -> Finding:
    """Return a finding with each cell's quantity divided by the quantity of its baseline.

    `analysis.against` chooses the baseline among the cells of the same comparison group (see
    `cells.comparison_groups`).

    If `against` is "best", the ratio always says how many times worse the cell is than the best
    cell. For quantities of which more is better, the ratio is therefore inverted. The intervals
    allow for the luck of the cell that seems to be the best (see `best_comparison.py`).

    If frameworks are compared, the finding has a table with one row for each framework. If machines
    are compared, launches of different machines are never paired.
    """
    quantity = find_quantity(analysis)
    pairs, candidate_groups = _pair_with_baselines(analysis, cells, certificates, quantity)
    launches = {
        id(cell): machine_comparison.launches_to_compare(quantity, cell.records, analysis.over)
        for pair in pairs
        for cell in pair
        if cell
    }
    reasons = [
        _no_ratio_reason(cell, baseline, launches[id(cell)], certificates)
        for cell, baseline in pairs
    ]
    against_best = _ratios_to_best(candidate_groups, quantity, analysis.over)
    ratios = iter(
        pairwise.compare_all(
            [
                (launches[id(cell)], launches[id(baseline)])
                for (cell, baseline), reason in zip(pairs, reasons, strict=True)
                if not reason and id(cell) not in against_best
            ]
        )
    )
    values: list[Value] = []
    for (cell, baseline), reason in zip(pairs, reasons, strict=True):
        if baseline is None or not launches[id(cell)]:
            values.append(_build_value(analysis, cell, cells, None, reason))
            continue
        interval = None
        if not reason:
            interval = against_best.get(id(cell)) or next(ratios).ratio
        setting = of_cells.format_setting(analysis.over, baseline.setting(analysis.over))
        values.append(
            _build_value(analysis, cell, cells, interval, reason, f"against {setting}", baseline)
        )
    plain_analysis, judged = machine_comparison.judge_claims_against_machines(
        analysis, cells, certificates, analyze_ratio
    )
    sentence = _ratio_sentence(analysis, quantity, values)
    finding = _build_finding_and_judge_bounds(
        plain_analysis, sentence, "times", values, judged, are_joint=True
    )
    if analysis.over == "machine":
        return replace(finding, notes=machine_comparison.describe_ranges(values))
    if analysis.over != "framework":
        return finding
    word = "best" if analysis.against == "best" else "baseline"
    table, notes = framework_tables.build_framework_table(pairs, values, word)
    return replace(finding, table=table, notes=notes)


def _pair_with_baselines(
    analysis: Analysis,
    cells: Sequence[MeasuredCell],
    certificates: Certificates,
    quantity: Quantity,
) -> tuple[list[tuple[MeasuredCell, MeasuredCell | None]], list[list[MeasuredCell]]]:
    """Return each cell with its baseline, and the groups of cells that are compared with the best.

    If machines are compared, the best cell of each machine counts.
    """
    pairs: list[tuple[MeasuredCell, MeasuredCell | None]] = []
    candidate_groups: list[list[MeasuredCell]] = []
    groups = of_cells.comparison_groups(cells, analysis.over)
    if analysis.over == "machine":
        groups = [
            machine_comparison.choose_best_cells(group, quantity, certificates) for group in groups
        ]
    for group in groups:
        if len({str(cell.setting(analysis.over)) for cell in group}) == 1:
            continue
        measured = [cell for cell in group if counted_values_by_block(quantity, cell.records)]
        if analysis.against == "best":
            unverified = of_cells.unverified_reasons_by_id(measured, certificates)
            measured = [cell for cell in measured if id(cell) not in unverified] or measured
            candidate_groups.append(measured)
        baselines = [_choose_baseline(analysis, cell, measured, quantity) for cell in group]
        pairs += [
            (cell, baseline)
            for cell, baseline in zip(group, baselines, strict=True)
            if baseline is not cell
        ]
    return pairs, candidate_groups


def _ratio_sentence(analysis: Analysis, quantity: Quantity, values: Sequence[Value]) -> str:
    """Return the smallest and the largest ratio, their mean, and how many of them are certain."""
    compared = [(value, value.interval) for value in values if value.interval]
    if not compared:
        return _describe_no_comparison(analysis, values)
    low = min(compared, key=lambda pair: pair[1].value)
    high = max(compared, key=lambda pair: pair[1].value)
    above = sum(i.low is not None and i.low > 1 for _, i in compared)
    below = sum(i.high is not None and i.high < 1 for _, i in compared)
    mean = means.geometric_mean_of_joint([i for _, i in compared])
    mean_text = format_value_with_bounds(mean, "times").removesuffix(" times")
    word = "worse" if analysis.against == "best" else f"the {quantity.title}"
    low_label, high_label = (_configuration_and_setting_label(end[0]) for end in (low, high))
    if len(compared) == 1:
        return f"{format_value_with_bounds(low[1], 'times')} {word} ({low_label})."
    range_and_mean = (
        f"{format_number_without_unit(low[1].value, 'times')} times ({low_label}) to "
        f"{format_number_without_unit(high[1].value, 'times')} times ({high_label}) {word}. "
        f"The geometric mean is {mean_text}."
    )
    if all(interval.low is None for _, interval in compared):
        return f"{range_and_mean} No comparison has an interval."
    return (
        f"{range_and_mean} Of {pluralize(len(compared), 'comparison')}, {above} have an interval "
        f"above 1, and {below} one below. All intervals together hold with 95 %."
    )


def _ratios_to_best(
    groups: Sequence[Sequence[MeasuredCell]], quantity: Quantity, over: str
) -> dict[int, Interval]:
    """Return how many times worse each cell is than the best of its group, by `id(cell)`."""
    scores = [
        [
            score_launches(
                machine_comparison.launches_to_compare(quantity, cell.records, over), quantity
            )
            for cell in group
        ]
        for group in groups
    ]
    intervals = best_comparison.slowdowns_against_best(scores)
    return {
        id(cell): interval
        for group, of_group in zip(groups, intervals, strict=True)
        for cell, interval in zip(group, of_group, strict=True)
    }


def _no_ratio_reason(
    cell: MeasuredCell,
    baseline: MeasuredCell | None,
    cell_launches: Launches,
    certificates: Certificates,
) -> str | None:
    """Return why there is no ratio of a cell to its baseline, or None if there is one."""
    if not cell_launches:
        return _divergence_note(cell) or no_result_reason(cell)
    if baseline is None:
        return "its baseline was not measured"
    return of_cells.incomparable_reason(cell, baseline, certificates)


def no_result_reason(cell: MeasuredCell) -> str:
    """Return why no launch of the cell counts.

    If the last launch failed, return the reason in its record. Otherwise, return "no launch
    counts".
    """
    last = cell.records[-1]
    return last.reason if last.status != "ok" and last.reason else "no launch counts"


def _choose_baseline(
    analysis: Analysis, cell: MeasuredCell, candidates: Sequence[MeasuredCell], quantity: Quantity
) -> MeasuredCell | None:
    """Return the candidate that is the baseline of `cell`; None if no candidate is.

    `candidates` are sorted by the setting `analysis.over`. `analysis.against` chooses one:

    - "best": the candidate with the best quantity.
    - "previous": the candidate with the next smaller value of the setting. If there is none, return
      `cell` itself.
    - "least": the first candidate.
    - Any other text or number: the candidate with this value of the setting. Of a machine, a part
      of the name is enough, and of several candidates the best is chosen.

    If `analysis.against` is a table, the entry of the cell's framework is used.
    """
    against = analysis.against
    if isinstance(against, dict):
        against = against.get(cell.request.framework, "least")
    if against == "best":
        return max(candidates, key=lambda candidate: _score_cell(candidate, quantity), default=None)
    if against == "previous":
        smaller = [
            candidate for candidate in candidates if _is_before(candidate, cell, analysis.over)
        ]
        return smaller[-1] if smaller else cell
    if against == "least":
        return candidates[0] if candidates else None
    matching = [
        candidate for candidate in candidates if candidate.matches({analysis.over: against})
    ]
    if analysis.over == "machine":
        return max(matching, key=lambda candidate: _score_cell(candidate, quantity), default=None)
    return matching[0] if matching else None


def _is_before(candidate: MeasuredCell, cell: MeasuredCell, over: str) -> bool:
    a, b = candidate.setting(over), cell.setting(over)
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a < b
    return str(a) < str(b)


def _score_cell(cell: MeasuredCell, quantity: Quantity) -> float:
    """Return a score for the cell.

    A higher score is better, even if a lower value of the quantity is better.
    """
    mean = _median_launch(counted_values_by_block(quantity, cell.records))
    assert mean is not None
    return -mean.value if quantity.lower_is_better else mean.value


def analyze_efficiency(
    analysis: Analysis, cells: Sequence[MeasuredCell], certificates: Certificates
) -> Finding:
    """Return a finding with the scaling efficiency of each cell.

    Cells without a scaling law are left out. The baseline of a cell is the measured cell with the
    fewest ranks in the same comparison group.
    """
    throughput = QUANTITIES["images_per_second"]
    values: list[Value] = []
    for group in of_cells.comparison_groups(
        [cell for cell in cells if cell.request.scaling], "ranks"
    ):
        measured = [cell for cell in group if counted_values_by_block(throughput, cell.records)]
        for cell in group:
            if not measured or cell not in measured:
                values.append(_build_value(analysis, cell, cells, None, "no launch counts"))
                continue
            baseline, law = measured[0], cell.request.scaling
            if cell is baseline:
                continue
            assert law is not None
            reason = of_cells.incomparable_reason(cell, baseline, certificates)
            cell_launches, base_launches = (
                counted_values_by_block(throughput, cell.records),
                counted_values_by_block(throughput, baseline.records),
            )
            ratio = scaling.compute_scaling_efficiency(
                law, cell.request.ranks, cell_launches, baseline.request.ranks, base_launches
            )
            interval = Interval(
                ratio.value, ratio.low, ratio.high, min(len(cell_launches), len(base_launches))
            )
            note = (
                f"against {of_cells.format_setting('ranks', baseline.request.ranks)} at "
                f"{format_number_without_unit(ratio.baseline_images_per_second, 'images/s')} "
                f"images/s, {law} scaling"
            )
            values.append(
                _build_value(
                    analysis, cell, cells, None if reason else interval, reason, note, baseline
                )
            )
    compared = [(value, value.interval) for value in values if value.interval]
    sentence = "There are no cells with different numbers of ranks to compare."
    if compared:
        max_ranks = max(value.x or 0 for value, _ in compared)
        examples = sorted(
            (
                (i.value, f"{format_value_with_bounds(i, '%')} ({value.name})")
                for value, i in compared
                if value.x == max_ranks
            ),
        )
        sentence = f"On {max_ranks:g} ranks, efficiency is {format_ends(examples)}."
    return _build_finding_and_judge_bounds(analysis, sentence, "%", values)


def _build_value(
    analysis: Analysis,
    cell: MeasuredCell,
    all_cells: Sequence[MeasuredCell],
    interval: Interval | None,
    reason: str | None = None,
    note: str = "",
    baseline: MeasuredCell | None = None,
) -> Value:
    over = analysis.over or ("ranks" if analysis.name == "efficiency" else "")
    is_strategy_option = over == "nodes" or over not in of_cells.SETTINGS
    omitted = (over, *(["strategy"] if is_strategy_option else [])) if over else ()
    if over == "machine":
        omitted = (over, *of_cells.settings_fixed_by_machine(tuple(all_cells)))
    setting_value = cell.setting(over) if over else None
    divergence = _divergence_note(cell)
    if interval is None and reason is None:
        last_record = cell.records[-1]
        reason = divergence or (
            last_record.reason if last_record.status != "ok" else "no launch counts"
        )
    elif divergence and not reason:
        note = "; ".join(filter(None, (note, divergence)))
    if interval and analysis.of == TIME_TO_SOLUTION:
        basis = describe_time_basis(cell.ok_records()[-1])
        note = "; ".join(filter(None, (note, basis)))
    if is_asynchronous(cell.records[-1]):
        note = "; ".join(filter(None, (note, "asynchronous")))
    x = float(setting_value) if isinstance(setting_value, int | float) else None
    return Value(
        name=of_cells.cell_name(cell, all_cells, omitted),
        at=of_cells.format_setting(over, setting_value) if over else "",
        x=x,
        interval=interval,
        fields=settings_and_strategy_options(cell),
        reason=reason,
        note=note,
        is_mostly_noisy=any(each.is_mostly_noisy for each in (cell, baseline) if each),
    )


def _divergence_note(cell: MeasuredCell) -> str:
    """Return a text with the number of diverged launches and the reason of the first of them.

    Return "" if no launch of the cell diverged.
    """
    diverged = cell.diverged_records()
    if not diverged:
        return ""
    total = pluralize(len(cell.records), "launch")
    return f"{len(diverged)} of {total} diverged: {diverged[0].reason}"


def _build_finding_and_judge_bounds(
    analysis: Analysis,
    sentence: str,
    unit: str,
    values: Sequence[Value],
    best_verdicts: Sequence[JudgedClaim] = (),
    *,
    are_joint: bool = False,
) -> Finding:
    over = analysis.over or ("ranks" if analysis.name == "efficiency" else "")
    bound_verdicts = judge_claims_with_bounds(
        analysis.claim,
        values,
        lambda interval: format_value_with_bounds(interval, unit),
        are_joint=are_joint,
    )
    return Finding(
        title=analysis.title or analysis.name,
        sentence=sentence,
        over=over.replace("_", " "),
        unit=unit,
        values=tuple(values),
        judged=(*best_verdicts, *bound_verdicts),
        plot=analysis.plot,
        beside=analysis.beside,
    )


def _median_launch(cell_launches: Launches) -> Interval | None:
    return statistics.interval_of_launches(cell_launches) if cell_launches else None


def _format_rank(first: int, last: int) -> str:
    return f"rank {first}" if first == last else f"rank {first}–{last}"


def _configuration_and_setting_label(value: Value) -> str:
    return ", ".join(filter(None, (value.name, value.at)))


def _parse_if_whole_number(text: str) -> Any:
    return int(text) if text.isdecimal() else text
