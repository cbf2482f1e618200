"""Tests that each claim of the built-in studies can hold, can fail, and can stay open.

Each claim gets records of the cells that its study has. What the claim is about lies within its
bounds, or outside, or was launched once.
"""

import math
from dataclasses import dataclass

import pytest

from tests.sample_records import SOFTWARE, certify_records
from xfbench.base import digests
from xfbench.host.machine import describe_machine
from xfbench.model.facts import workload_facts
from xfbench.model.record import Checkpoints, Communication, Epoch
from xfbench.planning import experiment
from xfbench.studies import answer, cells, running
from xfbench.workloads import workloads

NOISE = (1.0, 1.0001, 0.9999, 1.00005, 0.99995)  # of five launches
USUAL = 100.0  # the value of cells that a claim is not about


@dataclass(frozen=True)
class Rule:
    """A claim of a study, by the numbers of its analysis and of the claim."""

    study: str
    analysis_number: int
    number: int

    @property
    def analysis(self):
        return experiment.load(self.study).analysis[self.analysis_number]

    @property
    def claim(self):
        return self.analysis.claim[self.number]


RULES = [
    Rule(name, analysis_number, number)
    for name in experiment.list_names()
    for analysis_number, analysis in enumerate(experiment.load(name).analysis)
    for number, _ in enumerate(analysis.claim)
]


@pytest.fixture
def build_record(record):
    """Return a function that makes a launch of a cell, with a value of a quantity."""

    def build(cell, launch, quantity, value):
        request = cell.request(launch)
        fields = {
            "request": request,
            "cell": digests.of_json(request.cell_digest_fields()),
            "workload": workload_facts(workloads()[cell.workload]),
            "software": SOFTWARE,
            "machine": describe_machine(),
        }
        step_s = 0.1
        if quantity == "images_per_second":
            step_s = cell.global_batch_size / value
        fields |= SETTERS.get(quantity, lambda *_: {})(cell, value, step_s)
        return record(steps=(step_s,) * 9, launch=launch, fields=fields)

    return build


def set_epoch_speed(cell, value, _):
    seconds = cell.data_set.train_images / value
    epoch = Epoch(epoch=1, seconds=seconds, train_loss=1.0, test_loss=1.0, test_accuracy=0.5)
    return {"learning": (epoch,)}


def set_accuracy(_, value, __):
    accuracy = value / (4 * USUAL)  # ratios of accuracies count, and none is above 1
    epoch = Epoch(epoch=1, seconds=1.0, train_loss=1.0, test_loss=1.0, test_accuracy=accuracy)
    return {"learning": (epoch,)}


def set_save_seconds(_, value, __):
    seconds = {"save_seconds": (value,), "load_seconds": (value,), "wall_seconds": 0.1}
    return {"checkpoints": Checkpoints(format="f", file_system="f", bytes=1, equal=True, **seconds)}


def set_computing_share(_, value, step_s):
    waiting = {"waiting_seconds": (0.0,), "exposed_seconds": (step_s * (1 - value),)}
    computing = {"compute_seconds": (step_s * value,)}
    return {"communication": Communication(strategy="s", bytes_per_step=1, **waiting, **computing)}


SETTERS = {
    "epoch_images_per_second": set_epoch_speed,
    "test_accuracy": set_accuracy,
    "save_seconds": set_save_seconds,
    "computing_share": set_computing_share,
}


def inside_and_outside(claim):
    """Return a value within the claim's bounds, and one that is outside."""
    low, high = claim.low, claim.high
    if low is not None and high is not None:
        return (math.sqrt(low * high) if low else high / 2), high * 1.5
    return (low * 1.3, low * 0.6) if high is None else (high * 0.7, high * 1.5)


def list_cells(study, size):
    """Return the cells of the study, with each medium that its claims name."""
    plan = running.plan_study_and_write_data(study, size, running.Choices())
    found = [cell for cell, _ in plan.plan.protocols] + [cell for cell, _ in plan.skipped_cells]
    for search in plan.searches:
        sizes = [search.rules.start * 2**doubling for doubling in range(7)]
        found += [search.cell_with_batch(batch) for batch in sizes]
    media = {
        text
        for analysis in study.analysis
        for text in (analysis.against, *(claim.where.get("medium") for claim in analysis.claim))
        if isinstance(text, str) and " on " in text
    }
    if media:
        found = [
            cell.model_copy(
                update={"data_set": cell.data_set.model_copy(update={"medium": medium})}
            )
            for cell in found
            if cell.data_set
            for medium in sorted(media)
        ]
    return list(dict.fromkeys(found))


def choose_values(rule, measured, target):
    """Return the value of each cell by its digest: `target` for what the claim is about."""
    analysis, claim = rule.analysis, rule.claim
    values = {cell.records[0].cell: USUAL for cell in measured}
    if analysis.name in ("ratio", "efficiency"):
        over = analysis.over or "ranks"
        for group in cells.comparison_groups(measured, over):
            previous = USUAL
            for cell in group:
                named = str(cell.setting(over)) == str(analysis.against)
                baseline = named or (analysis.against in ("least", "previous") and cell is group[0])
                value = USUAL
                if cell.matches(claim.where) and not baseline:
                    base = previous if analysis.against == "previous" else USUAL
                    ranks = cell.request.ranks / group[0].request.ranks
                    value = base * target * (ranks if analysis.name == "efficiency" else 1)
                values[cell.records[0].cell] = previous = value
    elif analysis.name == "best_of":
        for cell in measured:
            is_best = str(cell.setting(analysis.over)) == str(target)
            values[cell.records[0].cell] = USUAL * (2 if is_best else 1)
    else:
        matching = [cell for cell in measured if cell.matches(claim.where)]
        values |= {cell.records[0].cell: target for cell in matching}
    return values


@pytest.mark.parametrize("verdict", ["holds", "does not hold", "cannot be told"])
@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule.analysis.name in ("ratio", "efficiency", "values")],
    ids=lambda rule: f"{rule.study}-{rule.analysis_number}-{rule.number}",
)  # fmt: skip
def test_claim_holds_fails_or_stays_open_by_the_records(
    rule, verdict, build_record, data_folder, monkeypatch
):
    monkeypatch.setenv("XFBENCH_DATA", str(data_folder))
    study = experiment.load(rule.study)
    study_cells = list_cells(study, "paper")
    quantity = rule.analysis.of
    probes = [build_record(cell, 1, quantity, USUAL) for cell in study_cells]
    measured = [cell for cell in cells.group_cells(probes) if cell.matches(rule.analysis.where)]
    inside, outside = inside_and_outside(rule.claim)
    target = outside if verdict == "does not hold" else inside
    values = choose_values(rule, measured, target)
    launches = NOISE[:1] if verdict == "cannot be told" else NOISE
    records = [
        build_record(cell, launch, quantity, values[probe.cell] * noise)
        for cell, probe in zip(study_cells, probes, strict=True)
        if probe.cell in values
        for launch, noise in enumerate(launches, 1)
    ]
    records, certificates = certify_records(records)
    finding = answer.answer_study(study, "paper", records, certificates).findings[
        rule.analysis_number
    ]
    [judged] = [each for each in finding.judged if each.text == rule.claim.text]
    assert judged.verdict == verdict, judged.why
