"""Tests that each claim of the built-in studies can hold, can fail, and can stay open.

Each claim gets records of the cells that its study has. What the claim is about lies within its
bounds, or outside, or was launched once.
"""

import math
from dataclasses import dataclass
from functools import cache

import pytest

from tests.sample_records import SOFTWARE, certify_records, vary_record
from xfbench.base import digests
from xfbench.host.machine import describe_machine
from xfbench.model.facts import workload_facts
from xfbench.model.features import FEATURES, Support
from xfbench.model.record import (
    Checkpoints,
    Communication,
    Epoch,
    Medium,
    ReadRound,
    Reads,
    Storage,
    is_asynchronous,
)
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
    if analysis.over != "machine"  # test_machine_comparison.py has these
]


@pytest.fixture
def build_record(record, build_gpu):
    """Return a function that makes a launch of a cell, with a value of a quantity."""

    def build(cell, launch, quantity, value, rounds=5):
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
        if quantity == "read_gigabytes_per_second":
            fields["storage"] = build_storage(cell, value, rounds)
        made = record(steps=(step_s,) * 9, launch=launch, fields=fields)
        share = value if value < 1 else value / (4 * USUAL)  # if ratios of shares count
        observed = made.observed.model_copy(
            update={
                "gpus": (build_gpu("K", utilization=share),),
                "gpu_copy_share": share,
            }
        )
        return vary_record(made, observed=observed) if quantity.startswith("gpu_") else made

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


def set_exchanged_bytes(_, value, step_s):
    fields = set_computing_share(_, 0.5, step_s)
    byte_count = {"bytes_per_step": int(1e6 * value)}
    return {"communication": fields["communication"].model_copy(update=byte_count)}


def build_storage(cell, gigabytes_per_second, rounds):
    """Return what a launch says of its medium, with so many rounds of plain reads."""
    counts = {"bytes": 10**9, "operations": 1, "resident_bytes": 0, "device_bytes": 10**9}
    of_rounds = tuple(
        ReadRound(seconds=1 / gigabytes_per_second / noise, **counts) for noise in NOISE[:rounds]
    )
    reads = Reads(pattern="sequential", block_bytes=1, random=False, rounds=of_rounds)
    file_system, _, device = cell.data_set.medium.partition(" on ")
    sizes = {"block_bytes": 1, "total_bytes": 1, "free_bytes": 1}
    medium = Medium(file_system=file_system, device=device, **sizes)
    return Storage(medium=medium, reads=(reads,))


# Quantities of launches that train epochs.
LEARNED = ("test_accuracy", "epoch_images_per_second", "read_gigabytes_per_second")
SETTERS = {
    "exchanged_gigabytes": set_exchanged_bytes,
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


@cache
def list_cells(name, size):
    """Return the cells of the study, with each medium that its claims name."""
    study = experiment.load(name)
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
    else:
        matching = [cell for cell in measured if cell.matches(claim.where)]
        values |= {cell.records[0].cell: target for cell in matching}
    return values


def rules_of(*names):
    """Return a parameter for each rule of these analyses."""
    return [
        pytest.param(rule, id=f"{rule.study}-{rule.analysis_number}-{rule.number}")
        for rule in RULES
        if rule.analysis.name in names
    ]


def test_claims_of_every_analysis_are_tested():
    """A list of rules without a member would skip its test."""
    assert {rule.analysis.name for rule in RULES} == {
        *("ratio", "efficiency", "values"),
        *("best_of", "diverged", "out_of_memory", "support", "range"),
    }


def certify_synchronous(records):
    """Return the records, each with a certificate if it can have one, and the certificates."""
    certified, certificates = certify_records([r for r in records if not is_asynchronous(r)])
    return [*certified, *filter(is_asynchronous, records)], certificates


def judge(rule, size, records, certificates=None):
    """Return the verdict on the rule's claim, and its reason."""
    study = experiment.load(rule.study).model_copy(update={"analysis": [rule.analysis]})
    [finding] = answer.answer_study(study, size, records, certificates or {}).findings
    [judged] = [each for each in finding.judged if each.text == rule.claim.text]
    return judged.verdict, judged.why


@pytest.mark.deep
@pytest.mark.parametrize("verdict", ["holds", "does not hold", "cannot be told"])
@pytest.mark.parametrize("rule", rules_of("ratio", "efficiency", "values"))
def test_claim_holds_fails_or_stays_open_by_the_records(
    rule, verdict, build_record, data_folder, monkeypatch
):
    monkeypatch.setenv("XFBENCH_DATA", str(data_folder))
    analysis, where = rule.analysis, rule.claim.where
    study_cells = [
        cell
        for cell in list_cells(rule.study, "paper")
        if cell.seed == 0
        and all(
            getattr(cell, name) == where[name]
            for name in {"workload", "data", "framework"} & {*where} - {analysis.over}
        )
    ]
    without_epochs = [cell for cell in study_cells if not cell.epochs]
    if analysis.of not in LEARNED and without_epochs:
        study_cells = without_epochs
    quantity = analysis.of
    probes = [build_record(cell, 1, quantity, USUAL) for cell in study_cells]
    measured = [cell for cell in cells.group_cells(probes) if cell.matches(rule.analysis.where)]
    inside, outside = inside_and_outside(rule.claim)
    target = outside if verdict == "does not hold" else inside
    values = choose_values(rule, measured, target)
    launches = NOISE[:1] if verdict == "cannot be told" else NOISE
    records = [
        build_record(cell, launch, quantity, values[probe.cell] * noise, len(launches))
        for cell, probe in zip(study_cells, probes, strict=True)
        if probe.cell in values
        for launch, noise in enumerate(launches, 1)
    ]
    verdict_here, why = judge(rule, "paper", *certify_synchronous(records))
    assert verdict_here == verdict, why


@pytest.mark.parametrize("verdict", ["holds", "does not hold", "cannot be told"])
@pytest.mark.parametrize("rule", rules_of("best_of"))
def test_claim_about_the_best_value_by_the_records(rule, verdict, build_record):
    fastest = 32 if verdict == "does not hold" else rule.claim.best
    launches = NOISE[:1] if verdict == "cannot be told" else NOISE
    records = [
        build_record(cell, launch, "images_per_second", USUAL * noise * speed)
        for cell in list_cells(rule.study, "paper")
        for speed in [2 if cell.threads == fastest else 1]
        for launch, noise in enumerate(launches, 1)
    ]
    assert judge(rule, "paper", *certify_synchronous(records))[0] == verdict


@pytest.mark.parametrize("verdict", ["holds", "does not hold", "cannot be told"])
@pytest.mark.parametrize("rule", rules_of("diverged"))
def test_claim_about_divergence_by_the_records(
    rule, verdict, build_record, data_folder, monkeypatch
):
    monkeypatch.setenv("XFBENCH_DATA", str(data_folder))
    study_cells = list_cells(rule.study, "paper")
    count = {"holds": 8, "does not hold": 12, "cannot be told": 1}[verdict]
    records = [
        build_record(cell, launch, "test_accuracy", USUAL)
        for cell in study_cells
        if cell.workload == rule.claim.where["workload"] and cell.data == "synthetic"
        for launch in range(1, count + 1)
    ]
    if verdict != "does not hold":
        diverged = {"losses": (2.3, *[None] * 9)}
        records = [
            vary_record(
                each, status="invalid", reason="the loss of update 1 is not finite",
                measurement=each.measurement.model_copy(update=diverged),
            )
            for each in records
        ]  # fmt: skip
    assert judge(rule, "paper", records)[0] == verdict


@pytest.mark.parametrize(
    ("verdict", "fits", "fails"),
    [("holds", 512, 1024), ("does not hold", 1024, 2048), ("cannot be told", 512, None)],
)
@pytest.mark.parametrize("rule", rules_of("out_of_memory"))
def test_claim_about_the_largest_batch_by_the_records(rule, verdict, fits, fails, build_record):
    records = []
    for cell in list_cells(rule.study, "paper"):
        if cell.workload != rule.claim.where["workload"]:
            continue
        if cell.fixed_batch_size <= fits:
            records.append(build_record(cell, 1, "images_per_second", USUAL))
        elif cell.fixed_batch_size == fails:
            failed = {"status": "failed", "reason": "out of memory: x", "measurement": None}
            records.append(vary_record(build_record(cell, 1, "", USUAL), **failed))
    assert judge(rule, "paper", records)[0] == verdict


@pytest.mark.parametrize(
    ("verdict", "supported"), [("holds", "no"), ("does not hold", "yes"), ("cannot be told", None)]
)
@pytest.mark.parametrize("rule", rules_of("support"))
def test_claim_about_support_by_the_records(rule, verdict, supported, build_record):
    support = tuple(
        Support(feature=name, supported=supported or "not here", evidence="seen")
        for name in FEATURES
    )
    records = [
        vary_record(build_record(cell, 1, "", USUAL), support=support, measurement=None)
        for cell in list_cells(rule.study, "smoke")
    ]
    assert judge(rule, "smoke", records)[0] == verdict


@pytest.mark.parametrize(
    ("verdict", "factor", "launches"),
    [("holds", 0.125, 5), ("does not hold", 1, 5), ("cannot be told", 0.125, 1)],
)
@pytest.mark.parametrize("rule", rules_of("range"))
def test_claim_about_the_range_by_the_records(
    rule, verdict, factor, launches, build_record, data_folder, monkeypatch
):
    monkeypatch.setenv("XFBENCH_DATA", str(data_folder))
    low, high = rule.claim.low, rule.claim.high
    spread = factor * high if low is None else 0.025
    spread = 3 if verdict == "does not hold" else spread
    records = [
        build_record(cell, number + 1, rule.analysis.of, USUAL * math.exp(spread * number / 4))
        for cell in list_cells(rule.study, "paper")
        for number in range(launches)
    ]
    verdict_here, why = judge(rule, "paper", records)
    assert verdict_here == verdict, why
