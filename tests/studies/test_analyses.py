"""What analyses make of records whose answer is known, and verdicts on claims about it."""

import random

import pytest

from tests.equality.test_certificate import build_record_certificate
from xfbench import experiment
from xfbench.host.machine import describe
from xfbench.studies import answer, cells

FAST, SLOW = (0.1, 0.101, 0.099), (0.2, 0.202, 0.198)


def claimed(**claim):
    return [{"source": "X", "text": "so it is", **claim}]


def by_threads(launched, one=SLOW, two=FAST, **request):
    return [*launched(*one, threads=1, **request), *launched(*two, threads=2, **request)]


def test_best_of_names_a_certain_best_value(study, launched, found):
    made = study({"name": "best_of", "over": "threads"})
    finding = found(made, by_threads(launched))
    assert finding.sentence == "Of threads 1 and 2, 2 threads is best."
    assert [value.note for value in finding.values] == ["rank 2", "rank 1"]
    assert [value.x for value in finding.values] == [1.0, 2.0]


def test_indistinguishable_values_share_the_best_rank(study, launched, found):
    made = study({"name": "best_of", "over": "threads"})
    finding = found(made, by_threads(launched, one=(0.1, 0.11, 0.12), two=(0.12, 0.1, 0.11)))
    assert "several cannot be told from the best" in finding.sentence
    assert {value.note for value in finding.values} == {"rank 1–2"}


@pytest.mark.parametrize(
    ("best", "one", "two", "verdict"),
    [
        (2, SLOW, FAST, "holds"),
        (1, SLOW, FAST, "does not hold"),
        (2, FAST, FAST[::-1], "cannot be told"),
        (64, SLOW, FAST, "cannot be told"),
    ],
)
def test_best_claim_gets_a_verdict(study, launched, found, best, one, two, verdict):
    made = study({"name": "best_of", "over": "threads", "claim": claimed(best=best)})
    [judged] = found(made, by_threads(launched, one, two)).judged
    assert judged.verdict == verdict
    assert ("was not tried here" in judged.why) == (best == 64)


def test_best_claim_may_refer_to_the_core_count(study, launched, found):
    seen = describe().model_copy(update={"cores": 2})
    made = study({"name": "best_of", "over": "threads", "claim": claimed(best="cores")})
    records = by_threads(launched, fields={"machine": seen})
    assert found(made, records).judged[0].verdict == "holds"


def test_best_of_prefers_lower_memory(study, launched, found):
    made = study({"name": "best_of", "over": "threads", "of": "peak_memory"})
    records = [
        record.model_copy(
            update={
                "measurement": record.measurement.model_copy(
                    update={"peak_rss_bytes": 10**8 * record.request.threads + number}
                )
            }
        )
        for number, record in enumerate(by_threads(launched))
    ]
    assert "1 thread is best" in found(made, records).sentence


@pytest.mark.parametrize(("against", "expected"), [("least", {2: 2.0}), ("best", {2: 2.0})])
def test_ratio_of_peak_memory_uses_the_chosen_baseline(study, launched, found, against, expected):
    made = study({"name": "ratio", "over": "threads", "against": against, "of": "peak_memory"})
    records = [
        one.model_copy(
            update={
                "measurement": one.measurement.model_copy(
                    update={"peak_rss_bytes": 10**8 * one.request.threads}
                )
            }
        )
        for one in by_threads(launched)
    ]
    values = found(made, records).values
    assert {v.x: v.interval.value for v in values} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("against", "expected"),
    [("least", {2: 2.0}), ("previous", {2: 2.0}), (2, {1: 0.5}), ("best", {1: 2.0})],
)
def test_ratio_uses_the_chosen_baseline(study, launched, found, against, expected):
    made = study({"name": "ratio", "over": "threads", "against": against})
    finding = found(made, by_threads(launched))
    assert {v.x: v.interval.value for v in finding.values} == pytest.approx(expected, rel=1e-6)


def test_ratio_to_previous_uses_the_preceding_value(study, launched, found):
    made = study({"name": "ratio", "over": "threads", "against": "previous"})
    records = [*by_threads(launched), *launched(0.05, 0.051, 0.049, threads=4)]
    values = {value.x: value for value in found(made, records).values}
    assert values[4].interval.value == pytest.approx(2.0, rel=0.01)
    assert values[4].note == "against 2 threads"


def test_each_framework_may_have_its_own_baseline(study, launched, found):
    against = {"reference": 2}
    made = study({"name": "ratio", "over": "threads", "against": against})
    [value] = found(made, by_threads(launched)).values
    assert value.x == 1 and value.interval.value == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ({"low": 1.9, "high": 2.1}, "holds"),
        ({"low": 1.9}, "holds"),
        ({"high": 1.9}, "does not hold"),
        ({"low": 2.1}, "does not hold"),
        ({"low": 1.99, "high": 3.0}, "cannot be told"),
        ({"low": 1.9, "where": {"threads": 4}}, "cannot be told"),
        ({"low": 1.9, "where": {"threads": 2}}, "holds"),
    ],
)
def test_bounds_claim_gets_a_verdict(study, launched, found, claim, verdict):
    made = study({"name": "ratio", "over": "threads", "claim": claimed(**claim)})
    records = by_threads(launched, SLOW, (0.1, 0.102, 0.0985))
    [judged] = found(made, records).judged
    assert judged.verdict == verdict


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("name", "claim"), [("ratio", {"low": 1.0}), ("best_of", {"best": 1})])
def test_claim_needs_at_least_3_launches(study, launched, found, name, claim, count):
    made = study({"name": name, "over": "threads", "claim": claimed(**claim)})
    [judged] = found(made, by_threads(launched, SLOW[:count], FAST[:count])).judged
    assert judged.verdict == "cannot be told"


def test_counterexample_refutes_a_claim_about_all_cells(study, launched, found):
    made = study(
        {"name": "ratio", "over": "threads", "claim": claimed(low=1.0)},
        matrix={"workload": ["lenet", "convnet"]},
    )
    records = [
        *by_threads(launched),
        *by_threads(launched, FAST, SLOW, workload="convnet"),
    ]
    [judged] = found(made, records).judged
    assert judged.verdict == "does not hold"
    assert "1 of 2 so, 1 of 2 otherwise" in judged.why
    assert "convnet" in judged.why


def test_unverified_frameworks_are_not_compared(study, launched, found):
    made = study(
        {"name": "ratio", "over": "framework", "against": "best"},
        matrix={"framework": ["torch", "reference"]},
    )
    proof = build_record_certificate(launched(0.1)[0])
    records = [*launched(*FAST), *launched(*SLOW, framework="torch", kernel="onednn")]
    [value] = found(made, records, {proof.id: proof}).values
    assert value.interval is None
    assert "certificate" in value.reason


@pytest.mark.parametrize("slowest", ["torch", "reference", "mxnet"])
def test_unverified_framework_does_not_block_other_comparisons(study, launched, found, slowest):
    names = {"torch": "onednn", "reference": "numpy", "mxnet": "onednn"}
    records, proofs = [], {}
    for name, kernel in names.items():
        own = {"framework": name, "kernel": kernel}
        proof = build_record_certificate(launched(0.1, **own)[0])
        fields = {} if name == slowest else {"certificate": proof.id}
        proofs |= {} if name == slowest else {proof.id: proof}
        speeds = FAST if name == slowest else SLOW
        factor = {"torch": 1.0, "reference": 1.5, "mxnet": 1.2}[name]
        records += launched(*(one * factor for one in speeds), fields=fields, **own)
    matrix = {"framework": list(names)}
    best = found(study({"name": "best_of", "over": "framework"}, matrix), records, proofs)
    assert {value.at for value in best.values if value.reason} == {slowest}
    fastest = "mxnet" if slowest == "torch" else "torch"
    assert f"{fastest} is best" in best.sentence
    ratio = {"name": "ratio", "over": "framework", "against": "best"}
    times = {one.at: one for one in found(study(ratio, matrix), records, proofs).values}
    assert times[slowest].interval is None and fastest not in times
    assert [one.interval.value > 1 for name, one in times.items() if name != slowest] == [True]


def test_efficiency_is_relative_to_the_fewest_ranks(study, launched, found):
    sizes = {"global_batch_size": 8, "batch_size_per_rank": 4, "scaling": "weak"}
    made = study(
        {"name": "efficiency", "plot": "lines", "claim": claimed(low=0.7, where={"ranks": 2})},
        matrix={"framework": ["torch"], "ranks": [1, 2], "scaling": "weak"},
    )
    torch = {"framework": "torch", "kernel": "onednn"}
    proven = []
    for settings in ({"scaling": "weak"}, {"ranks": 2, "strategy": "ddp", **sizes}):
        [one] = launched(0.1, **torch, **settings)
        proven.append(build_record_certificate(one))
    records = [
        *launched(*FAST, **torch, scaling="weak", fields={"certificate": proven[0].id}),
        *launched(
            *(1.25 * one for one in FAST),
            **(torch | sizes),
            ranks=2,
            strategy="ddp",
            fields={"certificate": proven[1].id},
        ),
    ]
    finding = found(made, records, {one.id: one for one in proven})
    [value] = finding.values
    assert value.reason is None
    assert value.interval.value == pytest.approx(0.8, rel=0.01)
    assert value.note == "against 1 rank, weak scaling"
    assert finding.judged[0].verdict == "holds"
    assert "On 2 ranks efficiency is 80.0%" in finding.sentence


def test_spread_is_the_variation_between_launches(study, launched, found):
    noise = random.Random(0)
    seconds = [0.1 * noise.lognormvariate(0, 0.05) for _ in range(40)]
    made = study({"name": "spread", "claim": claimed(low=0.001, high=0.2)})
    finding = found(made, launched(*seconds))
    [value] = finding.values
    assert value.interval.low < 0.05 < value.interval.high
    assert finding.unit == "%" and finding.judged[0].verdict == "holds"
    [alone] = found(made, launched(0.1)).values
    assert alone.interval is None and "two launches" in alone.reason


def test_accuracy_is_compared_per_seed(study, trained, found):
    made = study(
        {"name": "ratio", "of": "test_accuracy", "over": "batch_size", "claim": claimed(high=1.0)},
        matrix={
            "batch_size": [4, 8],
            "epochs": 1,
            "steps": None,
            "data": ["digits"],
            "seed": [0, 1, 2],
        },
    )
    records = []
    for seed, accuracy in enumerate((0.9, 0.8, 0.7)):
        for size, share in ((4, 1.0), (8, 0.98 + 0.001 * seed)):
            sizes = {"global_batch_size": size, "batch_size_per_rank": size}
            records.append(trained([1.0], accuracy=accuracy * share, seed=seed, **sizes))
    one, other = records[::2], records[1::2]
    finding = found(made, [*one, *other[::-1]])  # in whatever order they were had
    [value] = finding.values
    assert value.interval.value == pytest.approx(0.981, rel=1e-3)
    assert value.interval.low > 0.97
    assert value.interval.high < 0.99
    assert finding.judged[0].verdict == "holds"


def test_records_outside_the_study_are_ignored(study, launched, found):
    made = study({"name": "values"}, matrix={"threads": [1], "kernel": ["default"]})
    own = launched(*FAST)
    others = [
        *launched(*SLOW, threads=2),
        *launched(*SLOW, warmup=2),
        *launched(*SLOW, seed=1),
        *launched(*SLOW, workload="convnet"),
        *launched(*SLOW, checkpoints=1),
        *launched(*SLOW, fields={"source": "imported"}),
    ]
    said = answer.answer_study(made, "laptop", [*own, *others], {})
    assert said.launches == 3
    assert len(said.findings[0].values) == 1


def test_fullest_size_is_inferred_from_the_records(study, launched):
    own = {"framework": ["reference"], "workload": ["lenet"], "batch_size": [4], "steps": 3}
    own |= {"warmup": 1, "data": ["synthetic"]}
    sizes = [{**own, "size": "smoke", "threads": [1]}, {**own, "size": "laptop", "threads": [1, 2]}]
    made = study({"name": "values"}).model_copy(
        update={"matrix": [experiment.matrix(**one) for one in sizes]}
    )
    assert cells.most_measured_size(made, launched(*FAST)) == "smoke"
    assert cells.most_measured_size(made, by_threads(launched)) == "laptop"
    assert cells.most_measured_size(made, launched(*FAST, threads=4)) is None


def test_cell_without_a_result_is_listed_with_its_reason(study, launched, record):
    made = study({"name": "values"}, matrix={"threads": [1, 2]})
    from xfbench.records.record import Record

    asked = record(threads=2).request
    refused = Record.make(
        status="unsupported", reason="it has no such thing", request=asked, workload=None
    )
    said = answer.answer_study(made, "laptop", [*launched(*FAST), refused], {})
    assert [reason for _, reason in said.missing] == ["unsupported: it has no such thing"]


def test_failed_launch_is_listed_in_the_limits(study, launched):
    made = study({"name": "values"})
    [failed] = launched(0.1, fields={"status": "crashed", "reason": "signal 9"})
    said = answer.answer_study(made, "laptop", [*launched(*FAST), failed], {})
    assert said.missing == () and said.launches == 3
    assert "A launch does not count: lenet · reference: crashed: signal 9." in said.limits


def test_limits_mention_few_launches_and_a_small_size(study, launched):
    made = study({"name": "values"}, limits=["This is not tried."])
    said = answer.answer_study(made, "laptop", launched(*FAST[:2]), {})
    assert said.limits[0] == "This is not tried."
    assert any("2 launches alone: a smoke test" in one for one in said.limits)
    assert any("laptop, not what was published" in one for one in said.limits)


def test_only_intervals_on_one_side_of_one_are_certainly_there(study, launched, found):
    """Of three ratios one is surely above 1, one surely below, and one may be either."""
    made = study(
        {"name": "ratio", "over": "threads"}, matrix={"workload": ["lenet", "convnet", "alexnet"]}
    )
    records = [
        *by_threads(launched, SLOW, FAST),
        *by_threads(launched, FAST, SLOW, workload="convnet"),
        *by_threads(launched, (0.1, 0.11, 0.12), (0.12, 0.1, 0.108), workload="alexnet"),
    ]
    sentence = found(made, records).sentence
    assert sentence.endswith("of 3 comparisons 1 certainly above 1, 1 certainly below.")


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (2, "Some figures rest on 2 launches alone: a smoke test."),
        (3, "Some figures rest on 3 launches: indicative."),
        (4, "Some figures rest on 4 launches: indicative."),
        (5, None),
    ],
)
def test_it_is_said_how_few_launches_figures_rest_on(study, launched, answered, count, words):
    limits = answered(study({"name": "values"}), launched(*[0.1] * count)).limits
    assert [line for line in limits if line.startswith("Some figures")] == (
        [words] if words else []
    )


@pytest.mark.parametrize(("threads", "crowded"), [(4, 0), (5, 1)])
def test_launches_beyond_the_processors_are_oversubscribed(
    study, launched, answered, threads, crowded
):
    """Four ranks on two nodes have two each: of eight processors, four for a rank."""
    nodes = {"ranks": 4, "nodes": 2, "scaling": "weak"}
    made = study(
        {"name": "values"},
        {"framework": ["torch"], **{k: [v] for k, v in nodes.items()}}
        | {"scaling": "weak", "launcher": "mpi", "threads": [threads]},
    )
    machine = describe().model_copy(update={"logical_cpus": 8})
    records = launched(
        0.1,
        fields={"machine": machine},
        framework="torch",
        kernel="onednn",
        strategy="ddp",
        launcher="mpi",
        threads=threads,
        global_batch_size=16,
        **nodes,
    )
    found = answered(made, records)
    assert found.launches == 1
    assert found.oversubscribed == crowded


def test_the_days_of_a_study_are_its_first_and_last(study, launched, answered):
    days = ("2026-03-02", "2026-01-05", "2026-02-03")
    records = [
        one.model_copy(update={"created": f"{day}T00:00:00.000Z"})
        for one, day in zip(launched(0.1, 0.1, 0.1), days, strict=True)
    ]
    assert answered(study({"name": "values"}), records).span == ("2026-01-05", "2026-03-02")
