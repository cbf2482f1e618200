"""What differs if a study compares machines: sessions, claims about machines, and the baseline.

Launches of different machines are never of the same session. So they are never compared in pairs:
a ratio has an interval if both machines have three sessions or more (see `pairwise.compare`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from xfbench.analysis.leaderboard import Certificates
from xfbench.base import errors
from xfbench.base.wording import pluralize
from xfbench.model.machines import is_part_of_architecture, machine_class
from xfbench.model.record import Record
from xfbench.planning.experiment import Experiment
from xfbench.planning.study_form import Analysis
from xfbench.statistics import MIN_SESSIONS, Launches, interval_of_launches
from xfbench.studies.cells import MeasuredCell, unverified_reasons_by_id
from xfbench.studies.finding import Finding, JudgedClaim, Value
from xfbench.studies.quantities import Quantity, counted_values_by_block, score_launches
from xfbench.studies.wording import format_number_without_unit

# A claim's baseline is its own machine, with its own number of nodes.
_SETTINGS_OF_ONE_SIDE = ("machine", "nodes", "ranks")

Analyze = Callable[[Analysis, Sequence[MeasuredCell], Certificates], Finding]


def launches_to_compare(quantity: Quantity, records: Sequence[Record], over: str) -> Launches:
    """Return the quantity of each launch of a cell, by block, for a comparison over `over`.

    If machines are compared, the session of a block names the machine. So launches of two machines
    are never paired, also if a bundle with one session was run on both.
    """
    launches = counted_values_by_block(quantity, records)
    if over != "machine":
        return launches
    machine = machine_class(records[-1].machine)
    return {
        block._replace(session=f"{block.session} on {machine}"): value
        for block, value in launches.items()
    }


def choose_best_cells(
    cells: Sequence[MeasuredCell],
    quantity: Quantity,
    certificates: Certificates,
    settings: Sequence[str] = ("machine",),
) -> list[MeasuredCell]:
    """Return the best of the cells that have the same values of `settings`.

    Such cells may differ in the number of threads, for example. A cell that is not verified, or
    without a launch that counts, is returned only if there is no other. The order is that of
    `cells`.
    """
    unverified = unverified_reasons_by_id(cells, certificates)

    def sort_key(cell: MeasuredCell) -> tuple[bool, float]:
        launches = score_launches(counted_values_by_block(quantity, cell.records), quantity)
        score = interval_of_launches(launches).value if launches else 0.0
        return bool(launches) and id(cell) not in unverified, score

    best = {
        tuple(str(cell.setting(name)) for name in settings): cell
        for cell in sorted(cells, key=sort_key)
    }
    return [cell for cell in cells if cell in best.values()]


def judge_claims_against_machines(
    analysis: Analysis,
    cells: Sequence[MeasuredCell],
    certificates: Certificates,
    analyze: Analyze,
) -> tuple[Analysis, tuple[JudgedClaim, ...]]:
    """Judge the claims that name their own baseline, whichever the analysis has.

    - `analyze`: the function of the analysis.

    Returns the analysis without these claims, and their verdicts.
    """
    verdicts: list[JudgedClaim] = []
    for claim in analysis.claim:
        if not claim.against:
            continue
        shared = {k: v for k, v in claim.where.items() if k not in _SETTINGS_OF_ONE_SIDE}
        baseline = {**shared, "machine": claim.against}
        chosen = [cell for cell in cells if cell.matches(claim.where) or cell.matches(baseline)]
        alone = claim.model_copy(update={"against": ""})
        changes = {"against": claim.against, "claim": (alone,)}
        verdicts += analyze(analysis.model_copy(update=changes), chosen, certificates).judged
    others = tuple(claim for claim in analysis.claim if not claim.against)
    return analysis.model_copy(update={"claim": others}), tuple(verdicts)


def describe_ranges(ratios: Sequence[Value]) -> tuple[str, ...]:
    """Return notes: the range of ratios of each framework and machine, and which have no interval.

    A range has at least two networks.
    """
    groups: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for ratio in ratios:
        if ratio.interval:
            key = (str(ratio.fields["framework"]), ratio.at, ratio.note.partition("; ")[0])
            groups[key][ratio.name] = ratio.interval.value
    notes = []
    for parts, values in groups.items():
        if len(values) > 1:
            extremes = sorted(values.items(), key=lambda item: item[1])
            low, high = (
                f"{format_number_without_unit(value, 'times')} ({name})"
                for name, value in (extremes[0], extremes[-1])
            )
            notes.append(f"{', '.join(parts)}: {low} to {high} times")
    return (*notes, *describe_missing_intervals(ratios))


def describe_missing_intervals(ratios: Sequence[Value]) -> list[str]:
    """Return a note on the ratios of machines without an interval; none if all have one."""
    intervals = [ratio.interval for ratio in ratios if ratio.interval]
    missing = sum(interval.low is None for interval in intervals)
    if not missing:
        return []
    return [
        f"{missing} of {pluralize(len(intervals), 'ratio')} without an interval: launches of two "
        "machines are never paired, and how much sessions differ is known from "
        f"{MIN_SESSIONS} sessions of each machine on"
    ]


def choose_baseline_machine(
    study: Experiment, text: str, cells: Iterable[MeasuredCell]
) -> Experiment:
    """Return the study with a machine as the baseline of all analyses that compare machines.

    - `text`: the machine's name, or a part of it that no other machine of the cells has.

    Raises UsageError if the study compares no machines, or if `text` is not about one machine.
    """
    if not any(analysis.over == "machine" for analysis in study.analysis):
        raise errors.UsageError(f"--against {text}: the study {study.name} compares no machines")
    machines = sorted({str(cell.setting("machine")) for cell in cells if cell.ok_records()})
    matching = [name for name in machines if name == text] or [
        name for name in machines if is_part_of_architecture(text, name)
    ]
    if len(matching) != 1:
        problem = "is a part of several machines" if matching else "is no part of a machine here"
        raise errors.UsageError(
            f"--against {text}: {problem}: {'; '.join(matching or machines) or 'there is none'}"
        )
    changed = [
        analysis.model_copy(update={"against": matching[0]})
        if analysis.over == "machine"
        else analysis
        for analysis in study.analysis
    ]
    return study.model_copy(update={"analysis": changed})
