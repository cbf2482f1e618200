"""Tests of analyses and claim verdicts on records whose answer is known."""

import random
import re

import pytest

from tests.sample_records import (
    SOFTWARE,
    build_batch_certificate,
    build_certificate,
    build_record_certificate,
    vary_record,
)
from tests.studies.thread_launches import FAST, SLOW, make_thread_launches
from xfbench.host.machine import describe_machine
from xfbench.model.certificate import subject_of_record
from xfbench.model.record import Conditions, Storage
from xfbench.model.request import PreparedSet
from xfbench.planning import experiment
from xfbench.statistics import median_interval
from xfbench.studies import analyses, answer, cells, render
from xfbench.workloads import workloads


def make_claims(**claim):
    return [{"source": "X", "text": "a claim", **claim}]


def test_best_of_names_a_certain_best_value(make_study, make_launches, make_finding):
    study = make_study({"name": "best_of", "over": "threads"})
    finding = make_finding(study, make_thread_launches(make_launches))
    assert finding.sentence == "Of threads 1 and 2, 2 threads is best."
    assert [value.note for value in finding.values] == ["rank 2", "rank 1"]
    assert [value.x for value in finding.values] == [1.0, 2.0]


def test_indistinguishable_values_share_the_best_rank(make_study, make_launches, make_finding):
    study = make_study({"name": "best_of", "over": "threads"})
    finding = make_finding(
        study,
        make_thread_launches(
            make_launches, one_thread=(0.1, 0.11, 0.12), two_threads=(0.12, 0.1, 0.11)
        ),
    )
    assert "these launches do not show which value is best" in finding.sentence
    assert {value.note for value in finding.values} == {"rank 1–2"}


@pytest.mark.parametrize(("networks", "is_known"), [(1, True), (8, False)])
def test_the_best_of_many_groups_needs_more_evidence(
    make_study, make_launches, make_finding, networks, is_known
):
    """A difference at p = 0.01 is no chance in one group, but may be one in eight."""
    names = [*workloads()][:networks]
    study = make_study({"name": "best_of", "over": "threads"}, {"workload": names})
    records = []
    for name in names:
        records += make_launches(0.1, 0.1001, 0.0999, 0.1, 0.1, workload=name, threads=1)
        step_times = (0.1002, 0.1002, 0.1002, 0.1001, 0.1003)
        records += make_launches(*step_times, workload=name, threads=2)
    finding = make_finding(study, records)
    assert ("1 thread is best" in finding.sentence) == is_known, finding.sentence


@pytest.mark.parametrize(
    ("best", "one_thread", "two_threads", "verdict"),
    [
        (2, SLOW, FAST, "holds"),
        (1, SLOW, FAST, "does not hold"),
        (2, FAST, FAST[::-1], "cannot be told"),
        (64, SLOW, FAST, "cannot be told"),
    ],
)
def test_best_claim_gets_a_verdict(
    make_study, make_launches, make_finding, best, one_thread, two_threads, verdict
):
    study = make_study({"name": "best_of", "over": "threads", "claim": make_claims(best=best)})
    [judged_claim] = make_finding(
        study, make_thread_launches(make_launches, one_thread, two_threads)
    ).judged
    assert judged_claim.verdict == verdict
    assert ("was not measured here" in judged_claim.why) == (best == 64)


def test_best_claim_may_refer_to_the_core_count(make_study, make_launches, make_finding):
    machine = describe_machine().model_copy(update={"cores": 2})
    study = make_study({"name": "best_of", "over": "threads", "claim": make_claims(best="cores")})
    records = make_thread_launches(make_launches, fields={"machine": machine})
    assert make_finding(study, records).judged[0].verdict == "holds"


def test_best_of_prefers_lower_memory(make_study, make_launches, make_finding):
    study = make_study({"name": "best_of", "over": "threads", "of": "peak_memory"})
    records = [
        record.model_copy(
            update={
                "measurement": record.measurement.model_copy(
                    update={"peak_rss_bytes": 10**8 * record.request.threads + number}
                )
            }
        )
        for number, record in enumerate(make_thread_launches(make_launches))
    ]
    assert "1 thread is best" in make_finding(study, records).sentence


@pytest.mark.parametrize(("against", "expected"), [("least", {2: 2.0}), ("best", {2: 2.0})])
def test_ratio_of_peak_memory_uses_the_chosen_baseline(
    make_study, make_launches, make_finding, against, expected
):
    study = make_study(
        {"name": "ratio", "over": "threads", "against": against, "of": "peak_memory"}
    )
    records = [
        record.model_copy(
            update={
                "measurement": record.measurement.model_copy(
                    update={"peak_rss_bytes": 10**8 * record.request.threads}
                )
            }
        )
        for record in make_thread_launches(make_launches)
    ]
    values = make_finding(study, records).values
    assert {v.x: v.interval.value for v in values} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("against", "expected"),
    [("least", {2: 2.0}), ("previous", {2: 2.0}), (2, {1: 0.5}), ("best", {1: 2.0})],
)
def test_ratio_uses_the_chosen_baseline(make_study, make_launches, make_finding, against, expected):
    study = make_study({"name": "ratio", "over": "threads", "against": against})
    finding = make_finding(study, make_thread_launches(make_launches))
    assert {v.x: v.interval.value for v in finding.values} == pytest.approx(expected, rel=1e-6)


def test_ratio_to_previous_uses_the_preceding_value(make_study, make_launches, make_finding):
    study = make_study({"name": "ratio", "over": "threads", "against": "previous"})
    records = [*make_thread_launches(make_launches), *make_launches(0.05, 0.051, 0.049, threads=4)]
    values = {value.x: value for value in make_finding(study, records).values}
    assert values[4].interval.value == pytest.approx(2.0, rel=0.01)
    assert values[4].note == "against 2 threads"


def test_each_framework_may_have_its_own_baseline(make_study, make_launches, make_finding):
    against = {"reference": 2}
    study = make_study({"name": "ratio", "over": "threads", "against": against})
    [value] = make_finding(study, make_thread_launches(make_launches)).values
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
def test_bounds_claim_gets_a_verdict(make_study, make_launches, make_finding, claim, verdict):
    study = make_study({"name": "ratio", "over": "threads", "claim": make_claims(**claim)})
    records = make_thread_launches(make_launches, SLOW, (0.1, 0.102, 0.0985))
    [judged_claim] = make_finding(study, records).judged
    assert judged_claim.verdict == verdict


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("name", "claim"), [("ratio", {"low": 1.0}), ("best_of", {"best": 1})])
def test_claim_needs_at_least_3_launches(
    make_study, make_launches, make_finding, name, claim, count
):
    study = make_study({"name": name, "over": "threads", "claim": make_claims(**claim)})
    [judged_claim] = make_finding(
        study, make_thread_launches(make_launches, SLOW[:count], FAST[:count])
    ).judged
    assert judged_claim.verdict == "cannot be told"
    assert ("fewer than 3 launches" if name == "best_of" else "too few") in judged_claim.why or (
        name == "ratio" and count == 2
    )


def test_counterexample_refutes_a_claim_about_all_cells(make_study, make_launches, make_finding):
    study = make_study(
        {"name": "ratio", "over": "threads", "claim": make_claims(low=1.0)},
        matrix={"workload": ["lenet", "convnet"]},
    )
    records = [
        *make_thread_launches(make_launches),
        *make_thread_launches(make_launches, FAST, SLOW, workload="convnet"),
    ]
    [judged_claim] = make_finding(study, records).judged
    assert judged_claim.verdict == "does not hold"
    assert "1 of 2 agree, 1 of 2 disagree" in judged_claim.why
    assert "convnet" in judged_claim.why


@pytest.mark.parametrize("name", ["ratio", "best_of"])
def test_unverified_frameworks_are_not_compared(make_study, make_launches, make_finding, name):
    against = {"against": "best"} if name == "ratio" else {}
    study = make_study(
        {"name": name, "over": "framework", **against},
        matrix={"framework": ["torch", "reference"]},
    )
    records = [*make_launches(*FAST), *make_launches(*SLOW, framework="torch", kernel="onednn")]
    finding = make_finding(study, records)
    assert finding.sentence.startswith("No cells can be compared: no equality certificate")
    if name == "ratio":
        [value] = finding.values
        assert value.interval is None
    assert all("certificate" in value.reason for value in finding.values)


@pytest.mark.parametrize("slowest", ["torch", "reference", "mxnet"])
def test_unverified_framework_does_not_block_other_comparisons(
    make_study, make_launches, make_finding, slowest
):
    kernels = {"torch": "onednn", "reference": "numpy", "mxnet": "onednn"}
    records, certificates = [], {}
    for framework, kernel in kernels.items():
        request_fields = {"framework": framework, "kernel": kernel}
        certificate = build_record_certificate(make_launches(0.1, **request_fields)[0])
        fields = {} if framework == slowest else {"certificate": certificate.id}
        certificates |= {} if framework == slowest else {certificate.id: certificate}
        step_times_s = FAST if framework == slowest else SLOW
        factor = {"torch": 1.0, "reference": 1.5, "mxnet": 1.2}[framework]
        records += make_launches(
            *(step_s * factor for step_s in step_times_s), fields=fields, **request_fields
        )
    matrix = {"framework": list(kernels)}
    best_finding = make_finding(
        make_study({"name": "best_of", "over": "framework"}, matrix), records, certificates
    )
    assert {value.at for value in best_finding.values if value.reason} == {slowest}
    fastest = "mxnet" if slowest == "torch" else "torch"
    assert f"{fastest} is best" in best_finding.sentence
    ratio_analysis = {"name": "ratio", "over": "framework", "against": "best"}
    ratios = {
        value.at: value
        for value in make_finding(make_study(ratio_analysis, matrix), records, certificates).values
    }
    assert ratios[slowest].interval is None and fastest not in ratios
    assert [
        value.interval.value > 1 for framework, value in ratios.items() if framework != slowest
    ] == [True]


def test_a_wrong_batch_is_not_the_best(make_study, make_launches, make_answer):
    """Other cells with the same code need no certificate."""
    launches = make_thread_launches(make_launches, SLOW, FAST)
    finding = "at a batch of 4: first at conv2"
    wrong = build_batch_certificate(launches[-1], "different", finding)
    study = make_study({"name": "best_of", "over": "threads"}, matrix={"threads": [1, 2]})
    assert "2 threads is best" in make_answer(study, launches).findings[0].sentence
    answer = make_answer(study, launches, {wrong.id: wrong})
    reasons = {value.at: value.reason for value in answer.findings[0].values}
    assert reasons == {"1 thread": None, "2 threads": f"verified as different: {finding}"}
    assert "2 threads is best" not in answer.findings[0].sentence
    [limit] = [limit for limit in answer.limits if "not verified" in limit]
    assert limit.startswith("3 of 6 launches were not verified")


def test_comparison_of_frameworks_has_one_row_for_each(make_study, make_launches, make_answer):
    kernels = {"torch": "onednn", "reference": "numpy", "mxnet": "onednn"}
    workloads = ["lenet", "convnet", "alexnet", "caffenet", "googlenet", "resnet50"]
    workloads += ["resnet101", "convnet-quick"]
    records, certificates = [], {}
    for workload in workloads:
        for factor, (framework, kernel) in enumerate(kernels.items(), 1):
            if (framework, workload) == ("mxnet", "alexnet"):
                continue
            fields = {"framework": framework, "kernel": kernel, "workload": workload}
            certificate = build_record_certificate(make_launches(0.1, **fields)[0])
            unverified = (framework, workload) == ("mxnet", "googlenet")
            certificates |= {} if unverified else {certificate.id: certificate}
            records += make_launches(
                *(step_s * factor for step_s in FAST),
                fields={} if unverified else {"certificate": certificate.id},
                **fields,
            )
    study_answer = make_answer(
        make_study(
            {"name": "ratio", "over": "framework", "against": "best"},
            matrix={"framework": list(kernels), "workload": workloads},
        ),
        records,
        certificates,
    )
    [finding] = study_answer.findings
    headers, *rows = finding.table
    assert headers == ("framework", *sorted(workloads))
    assert [row[0] for row in rows] == ["mxnet · onednn", "reference · numpy", "torch · onednn"]
    fields = {
        (row[0].split()[0], name): field
        for row in rows
        for name, field in zip(headers[1:], row[1:], strict=True)
    }
    assert {fields["torch", name] for name in workloads} == {"1 (best)"}
    assert all(re.fullmatch(r"2 \(.+ – .+\)", fields["reference", name]) for name in workloads)
    assert fields["mxnet", "lenet"].startswith("3 (")
    assert fields["mxnet", "alexnet"] == fields["mxnet", "googlenet"] == "–"
    assert any(
        note.startswith("mxnet · onednn in googlenet: ") and "certificate" in note
        for note in finding.notes
    )
    assert "each ratio has 3 launches (indicative)" in finding.notes
    lines = render.render_markdown(study_answer).splitlines()
    table_lines = [line for line in lines if line.startswith("|")]
    assert max(map(len, table_lines)) <= 100
    assert sum(line.startswith("| torch · onednn ") for line in table_lines) == 2


@pytest.mark.parametrize(("speed_up", "rate"), [(1, "40.0"), (100, "4 000")])
def test_efficiency_is_relative_to_the_fewest_ranks(
    speed_up, rate, make_study, make_launches, make_finding
):
    sizes = {"global_batch_size": 8, "batch_size_per_rank": 4, "scaling": "weak"}
    study = make_study(
        {"name": "efficiency", "plot": "lines", "claim": make_claims(low=0.7, where={"ranks": 2})},
        matrix={"framework": ["torch"], "ranks": [1, 2], "scaling": "weak"},
    )
    torch_fields = {"framework": "torch", "kernel": "onednn"}
    certificates = []
    for settings in ({"scaling": "weak"}, {"ranks": 2, "strategy": "ddp", **sizes}):
        [launch] = make_launches(0.1, **torch_fields, **settings)
        certificates.append(build_record_certificate(launch))
    records = [
        *make_launches(
            *(step_s / speed_up for step_s in FAST),
            **torch_fields,
            scaling="weak",
            fields={"certificate": certificates[0].id},
        ),
        *make_launches(
            *(1.25 * step_s / speed_up for step_s in FAST),
            **(torch_fields | sizes),
            ranks=2,
            strategy="ddp",
            fields={"certificate": certificates[1].id},
        ),
    ]
    finding = make_finding(
        study, records, {certificate.id: certificate for certificate in certificates}
    )
    [value] = finding.values
    assert value.reason is None
    assert value.interval.value == pytest.approx(0.8, rel=0.01)
    assert value.note == f"against 1 rank at {rate} images/s, weak scaling"
    assert finding.judged[0].verdict == "holds"
    assert "On 2 ranks, efficiency is 80.0%" in finding.sentence


def test_mostly_noisy_launches_support_no_claim(make_study, make_launches, make_finding):
    study = make_study({"name": "values"}, matrix={"framework": ["torch"]})
    quiet = make_launches(*(1e-3 * n for n in range(100, 105)), framework="torch", kernel="onednn")
    conditions = Conditions(
        load_before=0.0,
        load_after=0.0,
        steal_seconds=0.0,
        swap_bytes=0,
        throttled_seconds=0.0,
        other_cpus=1.5,
    )
    noisy = [vary_record(each, conditions=conditions) for each in quiet]
    for count, label in ((2, "claim"), (3, "indicative")):
        [value] = make_finding(study, [*noisy[:count], *quiet[count:]], {}).values
        assert value.label == label


def test_launches_of_another_adapter_are_no_base_of_an_efficiency(
    make_study, make_launches, make_finding
):
    """Somebody else's records, or those of an earlier version, may have the same settings."""
    study = make_study(
        {"name": "efficiency", "plot": "lines"},
        matrix={"framework": ["torch"], "ranks": [1, 2], "scaling": "strong"},
    )
    single = {"framework": "torch", "kernel": "onednn", "scaling": "strong"}
    double = {**single, "ranks": 2, "strategy": "ddp", "batch_size_per_rank": 2}
    certificates = {}

    def make(seconds, settings, adapter_digest):
        software = SOFTWARE.model_copy(update={"adapter_digest": adapter_digest})
        fields = {"software": software, "cell": f"{adapter_digest} {settings.get('ranks')}"}
        fields["created"] = f"2026-11-2{len(adapter_digest) % 10}T09:00:00.000Z"
        [draft] = make_launches(seconds, fields=fields, **settings)
        certificate = build_certificate(subject_of_record(draft))
        certificates[certificate.id] = certificate
        fields["certificate"] = certificate.id
        return make_launches(*(seconds,) * 3, fields=fields, **settings)

    records = [
        *make(0.1, single, "sha256:other"),
        *make(0.4, single, "sha256:own"),
        *make(0.25, double, "sha256:own"),
    ]
    [value] = make_finding(study, records, certificates).values
    assert value.reason is None
    assert value.interval.value == pytest.approx(0.8, rel=0.01)
    records += make(0.0625, double, "sha256:other")
    values = make_finding(study, records, certificates).values
    names = [value.name for value in values]
    assert [value.interval.value for value in values] == pytest.approx([0.8, 0.8], rel=0.01)
    assert len(set(names)) == 2 and all("launches of 20" in name for name in names)


def build_storage(gigabytes_per_second, device="nvme", device_bytes=10**9):
    """Return the storage of a record whose rounds of sequential reads have these speeds."""
    facts = {"file_system": "ext4", "block_bytes": 4096, "total_bytes": 1, "free_bytes": 1}
    rounds = [
        {"seconds": 1 / speed, "bytes": 10**9, "operations": 1000, "resident_bytes": 10**9}
        for speed in gigabytes_per_second
    ]
    patterns = [{"pattern": "random", "block_bytes": 4096, "random": True, "rounds": rounds[:1]}]
    patterns += [{"pattern": "sequential", "block_bytes": 2**20, "random": False, "rounds": rounds}]
    for each in rounds:
        each["device_bytes"] = device_bytes
    return Storage.model_validate({"medium": {**facts, "device": device}, "reads": patterns})


def test_reads_that_a_session_measured_once_count_as_their_rounds(
    make_study, make_launches, make_finding
):
    speeds = (7.0, 7.3, 7.2, 7.1, 7.2, 7.25)
    storage = {"storage": build_storage(speeds)}
    analysis = {"name": "values", "of": "read_gigabytes_per_second"}
    study = make_study({**analysis, "claim": make_claims(low=6.9, high=7.4)})
    finding = make_finding(study, make_launches(0.1, 0.1, fields=storage))
    [value] = finding.values
    assert value.interval == median_interval(speeds)
    assert finding.unit == "GB/s" and finding.judged[0].verdict == "holds"


@pytest.mark.parametrize(
    ("device", "device_bytes", "speed"),
    [("nvme", 10**9, 2.0), ("nvme", 0, None), ("memory", 0, 2.0), ("network", None, 2.0)],
)
def test_reads_from_memory_are_no_figure_of_a_disk(
    make_study, make_launches, make_finding, device, device_bytes, speed
):
    storage = build_storage((2.0,) * 6, device, device_bytes)
    study = make_study({"name": "values", "of": "read_gigabytes_per_second"})
    [value] = make_finding(study, make_launches(0.1, fields={"storage": storage})).values
    assert (value.interval.value if value.interval else None) == speed


def test_reads_are_compared_over_media(make_study, make_launches, make_finding):
    study = make_study({"name": "ratio", "over": "medium", "of": "read_gigabytes_per_second"})
    records = []
    for medium, speeds in {"ext4 on ata": (0.5, 0.51) * 3, "xfs on nvme": (5.0, 5.1) * 3}.items():
        data_set = PreparedSet(
            **{"digest": "sha256:1", "format": "raw", "channels": 1, "classes": 10, "shape": None},
            **{"train_images": 640, "medium": medium},
        )
        storage = {"storage": build_storage(speeds)}
        records += make_launches(0.1, fields=storage, data="mine", data_set=data_set)
    cells_of_media = cells.group_cells(records)
    [value] = analyses.analyze_ratio(study.analysis[0], cells_of_media, {}).values
    assert value.at == "xfs on nvme" and value.interval.value == pytest.approx(10, rel=1e-3)
    assert value.interval.low > 9.9


def test_gpu_utilization_is_a_quantity(make_study, make_launches, make_finding, build_gpu):
    claim = make_claims(low=0.6, high=0.8)
    study = make_study({"name": "values", "of": "gpu_utilization", "claim": claim})
    records = [
        launch.model_copy(
            update={
                "observed": launch.observed.model_copy(
                    update={"gpus": (build_gpu("a GPU", utilization=share),)}
                )
            }
        )
        for launch, share in zip(
            make_launches(*(0.1,) * 5), (0.69, 0.7, 0.7, 0.7, 0.71), strict=True
        )
    ]
    finding = make_finding(study, records)
    assert finding.sentence.startswith("Utilization of the GPU: 70.0%")
    assert finding.unit == "%" and finding.judged[0].verdict == "holds"
    [unknown] = make_finding(study, make_launches(0.1)).values
    assert unknown.interval is None and unknown.reason == "no launch counts"


def test_share_of_copies_is_a_quantity(make_study, make_launches, make_finding):
    study = make_study({"name": "values", "of": "gpu_copy_share"})
    launches = [
        launch.model_copy(
            update={"observed": launch.observed.model_copy(update={"gpu_copy_share": 0.1806})}
        )
        for launch in make_launches(0.1, 0.1)
    ]
    assert "18.1%" in make_finding(study, launches).sentence
    [unknown] = make_finding(study, make_launches(0.1)).values
    assert unknown.interval is None


def test_spread_is_the_variation_between_launches(make_study, make_launches, make_finding):
    generator = random.Random(0)
    seconds = [0.1 * generator.lognormvariate(0, 0.05) for _ in range(40)]
    study = make_study({"name": "spread", "claim": make_claims(low=0.001, high=0.2)})
    finding = make_finding(study, make_launches(*seconds))
    [value] = finding.values
    assert value.interval.low < 0.05 < value.interval.high
    assert finding.unit == "%" and finding.judged[0].verdict == "holds"
    [single_launch] = make_finding(study, make_launches(0.1)).values
    assert single_launch.interval is None and "two launches" in single_launch.reason


def test_range_is_longest_minus_shortest_of_five_launches(make_study, make_launches, make_finding):
    study = make_study({"name": "range", "claim": make_claims(low=0.001, high=0.31)})
    finding = make_finding(study, make_launches(1.0, 1.01, 1.02, 1.0, 1.005))
    [value] = finding.values
    assert value.interval.value == pytest.approx(0.02)
    assert value.note == "" and finding.unit == "%"
    assert finding.judged[0].verdict == "holds"
    assert "2.0% above the smallest" in finding.sentence.replace("2.0% to ", "")
    [of_six] = make_finding(study, make_launches(1.0, 1.0, 1.0, 1.0, 1.0, 1.06)).values
    # Five of the six groups of five have a range of 6 %, and one has none.
    assert of_six.interval.value == pytest.approx(1.06 ** (5 / 6) - 1)
    assert of_six.note == "6.0% among all launches"
    [of_four] = make_finding(study, make_launches(1.0, 1.0, 1.0, 1.1)).values
    assert of_four.interval is None and of_four.reason == "needs 5 launches that count"


@pytest.mark.parametrize(("high", "verdict"), [(0.01, "does not hold"), (0.03, "cannot be told")])
def test_range_claim_is_judged_by_its_interval(
    make_study, make_launches, make_finding, high, verdict
):
    study = make_study({"name": "range", "claim": make_claims(high=high)})
    finding = make_finding(study, make_launches(1.0, 1.02, 1.03, 1.04, 1.05))
    assert finding.judged[0].verdict == verdict


def test_accuracy_is_compared_per_seed(make_study, make_training, make_finding):
    study = make_study(
        {
            "name": "ratio",
            "of": "test_accuracy",
            "over": "batch_size",
            "claim": make_claims(high=1.0),
        },
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
            records.append(make_training([1.0], accuracy=accuracy * share, seed=seed, **sizes))
    small_batches, large_batches = records[::2], records[1::2]
    # The order of the records must not matter.
    finding = make_finding(study, [*small_batches, *large_batches[::-1]])
    [value] = finding.values
    assert value.interval.value == pytest.approx(0.981, rel=1e-3)
    assert value.interval.low > 0.97
    assert value.interval.high < 0.99
    assert finding.judged[0].verdict == "holds"


def test_records_outside_the_study_are_ignored(make_study, make_launches, make_finding):
    study = make_study({"name": "values"}, matrix={"threads": [1], "kernel": ["default"]})
    study_records = make_launches(*FAST)
    outside_records = [
        *make_launches(*SLOW, threads=2),
        *make_launches(*SLOW, warmup=2),
        *make_launches(*SLOW, seed=1),
        *make_launches(*SLOW, workload="convnet"),
        *make_launches(*SLOW, checkpoints=1),
        *make_launches(*SLOW, fields={"source": "imported"}),
    ]
    study_answer = answer.answer_study(study, "laptop", [*study_records, *outside_records], {})
    assert study_answer.launches == 3
    assert len(study_answer.findings[0].values) == 1


def test_fullest_size_is_inferred_from_the_records(make_study, make_launches):
    shared_settings = {
        "framework": ["reference"],
        "workload": ["lenet"],
        "batch_size": [4],
        "steps": 3,
    }
    shared_settings |= {"warmup": 1, "data": ["synthetic"]}
    matrices = [
        {**shared_settings, "size": "smoke", "threads": [1]},
        {**shared_settings, "size": "laptop", "threads": [1, 2]},
    ]
    study = make_study({"name": "values"}).model_copy(
        update={"matrix": [experiment.build_matrix(**matrix) for matrix in matrices]}
    )
    assert cells.most_measured_size(study, make_launches(*FAST)) == "smoke"
    assert cells.most_measured_size(study, make_thread_launches(make_launches)) == "laptop"
    assert cells.most_measured_size(study, make_launches(*FAST, threads=4)) is None


def test_cell_without_a_result_is_listed_with_its_reason(make_study, make_launches, record):
    study = make_study({"name": "values"}, matrix={"threads": [1, 2]})
    from xfbench.model.record import Record

    request = record(threads=2).request
    refused = Record.make(
        status="unsupported", reason="it has one thread", request=request, workload=None
    )
    study_answer = answer.answer_study(study, "laptop", [*make_launches(*FAST), refused], {})
    assert [reason for _, reason in study_answer.missing] == ["unsupported: it has one thread"]


def test_failed_launch_is_listed_in_the_limits(make_study, make_launches):
    study = make_study({"name": "values"})
    [failed] = make_launches(0.1, fields={"status": "crashed", "reason": "signal 9"})
    study_answer = answer.answer_study(study, "laptop", [*make_launches(*FAST), failed], {})
    assert study_answer.missing == () and study_answer.launches == 3
    assert "A launch does not count: lenet · reference: crashed: signal 9." in study_answer.limits


def test_limits_mention_few_launches_and_a_small_size(make_study, make_launches):
    study = make_study(
        {"name": "values"}, limits=["Larger batches are not measured."], sources=["Z17"]
    )
    study_answer = answer.answer_study(study, "laptop", make_launches(*FAST[:2]), {})
    assert study_answer.limits[0] == "Larger batches are not measured."
    assert any("only 2 launches: a smoke test" in limit for limit in study_answer.limits)
    assert any("laptop, not that of the publication" in limit for limit in study_answer.limits)


def test_limits_say_how_many_launches_were_not_verified(make_study, make_launches, make_answer):
    """Launches with the same code train one network. No certificate covers asynchronous ones."""
    alike = make_launches(*FAST)
    study = make_study({"name": "values"}, matrix={"framework": ["reference", "torch"]})
    launches = [*alike, *make_launches(*FAST, framework="torch", kernel="onednn")]
    count = len(launches)
    sentence = f"{count} of {count} launches were not verified: their networks may differ."
    assert sentence in make_answer(study, launches).limits
    assert not any("not verified" in limit for limit in make_answer(study, alike).limits)
    asynchronous = [
        launch.model_copy(
            update={
                "measurement": launch.measurement.model_copy(
                    update={"rank_step_seconds": ((0.1,) * 3,)}
                )
            }
        )
        for launch in launches
    ]
    assert not any("not verified" in limit for limit in make_answer(study, asynchronous).limits)
    proven = [launch.model_copy(update={"certificate": "sha256:1"}) for launch in launches]
    wrong = {"sha256:1": "of another network"}
    assert sentence in make_answer(study, proven, wrong).limits


def test_ratio_is_certain_if_its_interval_excludes_one(make_study, make_launches, make_finding):
    """One of three ratios is above 1, one is below 1, and one interval includes 1."""
    study = make_study(
        {"name": "ratio", "over": "threads"}, matrix={"workload": ["lenet", "convnet", "alexnet"]}
    )
    records = [
        *make_thread_launches(make_launches, SLOW, FAST),
        *make_thread_launches(make_launches, FAST, SLOW, workload="convnet"),
        *make_thread_launches(
            make_launches, (0.1, 0.11, 0.12), (0.12, 0.1, 0.108), workload="alexnet"
        ),
    ]
    sentence = make_finding(study, records).sentence
    assert sentence.endswith(
        "Of 3 comparisons, 1 have an interval above 1, and 1 one below. "
        "All intervals together hold with 95 %."
    )


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (2, "Some figures rest on only 2 launches: a smoke test."),
        (3, "Some figures rest on 3 launches: indicative."),
        (4, "Some figures rest on 4 launches: indicative."),
        (5, None),
    ],
)
def test_limits_state_how_few_launches_the_figures_have(
    make_study, make_launches, make_answer, count, words
):
    limits = make_answer(make_study({"name": "values"}), make_launches(*[0.1] * count)).limits
    assert [line for line in limits if line.startswith("Some figures")] == (
        [words] if words else []
    )


@pytest.mark.parametrize(("threads", "oversubscribed"), [(4, 0), (5, 1)])
def test_launches_beyond_the_processors_are_oversubscribed(
    make_study, make_launches, make_answer, threads, oversubscribed
):
    """Four ranks on two nodes with eight processors each leave four processors for a rank."""
    nodes = {"ranks": 4, "nodes": 2, "scaling": "weak"}
    study = make_study(
        {"name": "values"},
        {"framework": ["torch"], **{name: [v] for name, v in nodes.items()}}
        | {"scaling": "weak", "launcher": "mpi", "threads": [threads]},
    )
    machine = describe_machine().model_copy(update={"logical_cpus": 8})
    records = make_launches(
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
    study_answer = make_answer(study, records)
    assert study_answer.launches == 1
    assert study_answer.oversubscribed == oversubscribed


def test_span_is_the_first_and_last_day_of_the_records(make_study, make_launches, make_answer):
    days = ("2026-03-02", "2026-01-05", "2026-02-03")
    records = [
        record.model_copy(update={"created": f"{day}T00:00:00.000Z"})
        for record, day in zip(make_launches(0.1, 0.1, 0.1), days, strict=True)
    ]
    assert make_answer(make_study({"name": "values"}), records).span == ("2026-01-05", "2026-03-02")
