"""`compare`: pairs of cells, and verdicts that the launches support."""

import json
import math
import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.sample_records import (
    SOFTWARE,
    build_batch_certificate,
    build_record_certificate,
    make_block,
    vary_record,
)
from xfbench import pairwise
from xfbench.analysis import comparison, leaderboard
from xfbench.analysis.comparison import CellComparison, Side
from xfbench.analysis.fail_limits import FailLimit
from xfbench.base import digests, errors
from xfbench.host.machine import describe_machine
from xfbench.model import adapter, certificate
from xfbench.model.record import Conditions
from xfbench.pairwise import Comparison
from xfbench.rendering import formats, record_listing, tables
from xfbench.rendering.report.sentences import build_summary
from xfbench.statistics import Interval
from xfbench.store.results_folder import Store


def compare(a, b):
    return comparison.compare(a, b).comparisons


@pytest.fixture
def fill_folder(record, tmp_path):
    """Return a function that fills a results folder with launches.

    A step takes 0.1 s times `slower`.
    """

    def fill(
        name="results",
        slower=1.0,
        launches=6,
        software=SOFTWARE,
        proven=False,
        conditions=None,
        **request,
    ):
        store = Store(tmp_path / name)
        store.create_and_check_folders()
        fields = {"software": software, "machine": describe_machine(), "conditions": conditions}
        if proven:
            certificate = build_record_certificate(record(fields=fields, **request))
            certificate.write(store.certificate_path(certificate.id))
            fields["certificate"] = certificate.id
        rng = random.Random(f"{name} {request}")
        for n in range(launches):  # a common drift and noise
            steps = (0.1 * slower * (1 + 0.001 * n) * (1 + rng.uniform(-0.01, 0.01)),)
            store.add(record(steps=steps, launch=n + 1, fields=fields, **request))
        return tmp_path / name

    return fill


def test_compare_pairs_cells_that_differ_only_in_named_fields(fill_folder):
    for workload in ("lenet", "convnet"):
        for threads, slower in ((1, 2.0), (2, 1.0)):
            results = fill_folder(workload=workload, threads=threads, slower=slower)
    result = comparison.compare(Side.parse("threads=2", results), Side.parse("threads=1", results))
    comparisons = result.comparisons
    assert {pair.a for pair in comparisons} == {
        f"{name} · reference · numpy · 2 threads" for name in ("lenet", "convnet")
    }
    assert [pair.a.split(" · ")[0] for pair in comparisons] == [
        pair.b.split(" · ")[0] for pair in comparisons
    ]
    for pair in comparisons:
        assert pair.verdict == "faster" and pair.figures.paired
        assert pair.figures.ratio.value == pytest.approx(2.0, rel=0.01)
        assert pair.figures.ratio.low < 2.0 < pair.figures.ratio.high
    ratios = [pair.figures.ratio.value for pair in comparisons]
    assert result.mean.value == pytest.approx(math.sqrt(ratios[0] * ratios[1]))


def test_frameworks_are_compared_only_if_both_are_certified(fill_folder):
    results = fill_folder(framework="torch", kernel="onednn", proven=True)
    results = fill_folder(framework="mxnet", kernel="native", slower=1.5)
    sides = Side.parse("framework=torch", results), Side.parse("framework=mxnet", results)
    [pair] = compare(*sides)
    assert pair.verdict is None and "no equality certificate" in pair.reason
    results = fill_folder("proven", framework="torch", kernel="onednn", proven=True)
    results = fill_folder("proven", framework="mxnet", kernel="native", slower=1.5, proven=True)
    sides = Side.parse("framework=torch", results), Side.parse("framework=mxnet", results)
    [pair] = compare(*sides)
    assert (pair.verdict, pair.reason) == ("faster", None)
    assert pair.a == "lenet · torch · onednn" and pair.b == "lenet · mxnet · native"


def test_a_cell_whose_batch_differs_is_not_compared(fill_folder):
    """Cells with the same code need no certificate, but a wrong batch is known to be wrong."""
    for threads in (1, 2):
        results = fill_folder(threads=threads, slower=threads)
    sides = [Side.parse(f"threads={threads}", results) for threads in (1, 2)]
    [pair] = compare(*sides)
    assert (pair.verdict, pair.reason) == ("faster", None)
    store = Store(results)
    record = next(record for record in store.records() if record.request.threads == 2)
    wrong = build_batch_certificate(record, "different", "at a batch of 4: first at conv2")
    wrong.write(store.certificate_path(wrong.id))
    [pair] = compare(*sides)
    assert pair.verdict is None
    assert pair.reason == "verified as different: at a batch of 4: first at conv2"


def test_verdicts_are_corrected_for_multiple_comparisons(record, tmp_path):
    """Each pair alone is faster (p = 0.03), but not as one of three comparisons."""
    store = Store(tmp_path)
    store.create_and_check_folders()
    fields = {"software": SOFTWARE, "machine": describe_machine()}
    noise = (-1.46, -0.88, -0.29, 0.29, 0.88, 1.46)
    for workload in ("lenet", "convnet", "convnet-quick"):
        for n, z in enumerate(noise):
            settings = {"workload": workload, "launch": n + 1, "fields": fields}
            store.add(record(steps=(0.1,), threads=2, **settings))
            store.add(record(steps=(0.1 * math.exp(0.0133 + 0.01 * z),), threads=1, **settings))
    two_threads, one_thread = Side.parse("threads=2", tmp_path), Side.parse("threads=1", tmp_path)
    comparisons = compare(two_threads, one_thread)
    assert all(c.figures.p < 0.04 for c in comparisons)
    assert [c.verdict for c in comparisons] == ["not_distinguishable"] * 3
    assert all(c.figures.ratio.low < 1 < c.figures.ratio.high for c in comparisons)
    single_comparison = compare(Side.parse("threads=2,workload=lenet", tmp_path), one_thread)
    assert [c.verdict for c in single_comparison] == ["faster"]


def test_compare_leaderboard_and_report_have_one_rule(fill_folder):
    fill_folder(framework="torch", kernel="onednn", slower=2.0, launches=2, proven=True)
    folder = fill_folder(framework="tensorflow", kernel="onednn", launches=3, proven=True)
    sides = [Side.parse(f"framework={name}", folder) for name in ("torch", "tensorflow")]
    [pair] = compare(*sides)
    records = [*Store(folder).records()]
    [table] = leaderboard.build_tables(records, certificate.read_certificates(folder))
    assert pair.verdict == "slower"
    ranks = [(row.framework, row.rank) for row in table.rows]
    assert ranks == [("tensorflow", (1, 1)), ("torch", (2, 2))]
    assert build_summary(table, ()).certainty[0].startswith("By the intervals, the other row is")


def test_folders_and_revisions_can_be_compared(fill_folder):
    before = fill_folder("before")
    after = fill_folder(
        "after", slower=1.1, software=SOFTWARE.model_copy(update={"git_commit": "fade"})
    )
    [pair] = compare(Side.parse(str(after), before), Side.parse(str(before), before))
    assert pair.verdict == "slower"
    assert pair.a.endswith("after") and pair.b.endswith("before")
    fill_folder("after", software=SOFTWARE.model_copy(update={"git_commit": "cafe"}))
    [pair] = compare(Side.parse("revision=fad", after), Side.parse("revision=cafe", after))
    assert pair.verdict == "slower" and pair.a.endswith("fad")
    assert FailLimit.parse("slower:5%").is_exceeded(pair)
    assert not FailLimit.parse("slower:15%").is_exceeded(pair)
    assert not FailLimit.parse("faster").is_exceeded(pair)


def test_cell_compared_with_itself_is_not_distinguishable(fill_folder):
    results = fill_folder(launches=22)
    comparisons, trials, false_alarms = comparison.compare_cells_with_themselves(
        Side.parse("workload=lenet", results)
    )
    assert [pair.verdict for pair in comparisons] == ["not_distinguishable"]
    assert (trials, false_alarms) == (2, 0)
    assert comparisons[0].figures.ratio.launches == 11


def test_allocators_can_be_compared(fill_folder):
    fill_folder(allocator="jemalloc")
    results = fill_folder(slower=1.2)
    [pair] = compare(
        Side.parse("allocator=jemalloc", results), Side.parse("allocator=system", results)
    )
    assert pair.verdict == "faster" and (pair.a[-8:], pair.b[-6:]) == ("jemalloc", "system")


def test_launch_with_zero_step_time_is_reported_and_not_counted(fill_folder, record, capsys):
    results = fill_folder()
    store, fields = Store(results), {"software": SOFTWARE, "machine": describe_machine()}
    valid = record(fields=fields, launch=7)
    zero_measurement = valid.measurement.model_copy(update={"step_seconds": (0.0,) * 3})
    forged = record(fields={**fields, "measurement": zero_measurement}, launch=7)
    store.add(forged)
    comparisons, _, _ = comparison.compare_cells_with_themselves(
        Side.parse("workload=lenet", results)
    )
    assert comparisons[0].figures.ratio.launches == 3
    assert f"{forged.id}: step_seconds of 0" in capsys.readouterr().err
    assert (
        record_listing.valid_images_per_second(valid)
        and record_listing.valid_images_per_second(forged) is None
    )
    assert record_listing.format_table([forged])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing=3", "unknown field 'nothing'"),
        ("framework=torch", "no ok launch of framework=torch"),
        ("elsewhere", "neither a results folder nor a filter"),
    ],
)
def test_invalid_side_is_a_usage_error(fill_folder, text, message):
    results = fill_folder()
    with pytest.raises(errors.UsageError, match=message):
        compare(Side.parse(text, results), Side.parse("threads=1", results))


@pytest.mark.parametrize("limit", ["slow", "slower:x", "slower:-1%", "slower:100%"])
def test_invalid_fail_on_limit_is_a_usage_error(limit):
    with pytest.raises(errors.UsageError, match="slower:5%"):
        FailLimit.parse(limit)


def test_compare_command_exits_with_1_on_a_regression(fill_folder):
    before, after = fill_folder("before"), fill_folder("after", slower=1.1)

    def run_compare(*words):
        return subprocess.run(
            [sys.executable, "-m", "xfbench", "compare", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    process = run_compare(after, before)
    assert process.returncode == 0 and "slower" in process.stdout and "6 pairs" in process.stdout
    failed_process = run_compare(after, before, "--fail-on", "slower:5%", "--json")
    assert failed_process.returncode == 1
    document = json.loads(failed_process.stdout)
    assert document["geometric_mean"] is None
    [pair] = document["comparisons"]
    assert set(pair) >= {"a", "b", "ratio", "verdict", "smallest_visible_difference", "launches"}
    assert "is slower" in failed_process.stderr
    assert failed_process.stderr.endswith("\n--fail-on: FAIL\n")
    assert [each["outcome"] for each in document["fail_on"]] == ["fail"]
    passed_process = run_compare(after, before, "--fail-on", "slower:20%")
    assert passed_process.returncode == 0 and "would have been found" in passed_process.stderr
    assert passed_process.stderr.endswith("\n--fail-on: PASS\n")
    both = ("--fail-on", "slower:5%", "--fail-on", "faster:5%", "--must-find", "30%", "--json")
    document = json.loads(run_compare(after, before, *both).stdout)
    outcomes = {each["limit"]: (each["passed"], each["problems"]) for each in document["fail_on"]}
    assert outcomes == {
        "slower:5%": (False, [f"lenet · reference · numpy · {after} is slower"]),
        "faster:5%": (True, []),
    }
    assert run_compare(after, before, *both).returncode == 1
    for limit, word in (("slower:5%", "FAIL"), ("slower:20%", "PASS")):
        summary = run_compare(after, before, "--markdown", "--fail-on", limit).stdout
        assert summary.startswith(f"**Training speed: {word} ({limit}): 1 slower**\n")
    speeds = document["comparisons"][0]["images_per_second"]
    for side in "ab":
        assert f" {side.upper()}: images/s " in summary
        assert f" {formats.format_number(speeds[side], 4)} " in summary
    fill_folder("before", workload="convnet")
    incomplete_process = run_compare(after, before, "--fail-on", "slower:20%")
    assert incomplete_process.returncode == 1
    assert "not checked: B: convnet" in incomplete_process.stderr
    assert incomplete_process.stderr.endswith("\n--fail-on: INCONCLUSIVE\n")
    limit = ("--fail-on", "slower:20%")
    error_process = run_compare("nonsense=1", before, *limit)
    assert error_process.returncode == 2
    assert error_process.stderr.startswith("xfbench: ")
    assert "\n--fail-on: " not in error_process.stderr
    assert "no such cell in A" in incomplete_process.stdout
    summary = run_compare(after, before, "--markdown", "--fail-on", "slower:20%").stdout
    assert summary.startswith("**Training speed: INCONCLUSIVE (slower:20%): 1 slower**\n")
    assert run_compare(after).returncode == 2
    self_process = run_compare("--self", "workload=lenet", "--results", before, "--json")
    assert json.loads(self_process.stdout)["a_a"]["trials"] == 0


@pytest.mark.parametrize(("launches", "verdicts"), [(9, 0), (10, 1), (20, 2)])
def test_every_five_whole_pairs_give_one_verdict(fill_folder, launches, verdicts):
    results = fill_folder(launches=launches)
    _, trials, _ = comparison.compare_cells_with_themselves(Side.parse("workload=lenet", results))
    assert trials == verdicts


def build_comparison(low, high, visible=0.1):
    """Return a comparison with this interval."""
    ratio = Interval(math.sqrt(low * high), low, high, 5)
    figures = Comparison(ratio, 0.001, visible, True)
    return CellComparison("a", "b", figures, figures.verdict)


@pytest.mark.parametrize(
    ("limit", "low", "high", "expected"),
    [
        ("faster:25%", 1.25, 1.4, True),
        ("faster:25%", 1.24, 1.4, False),
        ("slower:25%", 0.5, 0.75, True),
        ("slower:25%", 0.5, 0.76, False),
        ("slower", 0.5, 0.999, True),
        ("slower", 0.5, 1.001, False),
        ("slower", 1.1, 1.2, False),
    ],
)
def test_limit_is_exceeded_if_the_whole_interval_is_beyond_it(limit, low, high, expected):
    assert FailLimit.parse(limit).is_exceeded(build_comparison(low, high)) is expected


def test_detectable_change_is_beyond_the_limit():
    slower, faster = FailLimit.parse("slower:5%"), FailLimit.parse("faster:5%")
    assert slower.detectable_change(build_comparison(0.9, 1.1)) == pytest.approx(1 - 0.95 / 1.1)
    assert faster.detectable_change(build_comparison(0.9, 1.1)) == pytest.approx(1.05 * 1.1 - 1)
    assert slower.detectable_change(build_comparison(0.9, 1.1, visible=None)) is None


def test_change_of_the_detectable_size_is_detected_4_times_out_of_5():
    limit, rng = FailLimit.parse("slower:5%"), np.random.default_rng(0)

    def compare_simulated(slowdown):
        sides = rng.normal(0, 0.02, (2, 7))
        a = {make_block(n): math.exp(x) * (1 - slowdown) for n, x in enumerate(sides[0])}
        b = {make_block(n): math.exp(x) for n, x in enumerate(sides[1])}
        figures = pairwise.compare(a, b)
        return CellComparison("a", "b", figures, figures.verdict)

    slowdown = np.median([limit.detectable_change(compare_simulated(0)) for _ in range(400)])
    found = sum(limit.is_exceeded(compare_simulated(slowdown)) for _ in range(400)) / 400
    assert 0.72 <= found <= 0.88


def test_mean_excludes_unproven_comparisons_and_has_an_interval(fill_folder):
    for workload, slower in (("lenet", 2.0), ("convnet", 8.0)):
        fill_folder(workload=workload, threads=1, slower=slower)
        results = fill_folder(workload=workload, threads=2)
    other = SOFTWARE.model_copy(update={"adapter_digest": "sha256:9"})
    fill_folder(workload="convnet-quick", threads=1, slower=100.0, software=other)
    fill_folder(workload="convnet-quick", threads=2)
    result = comparison.compare(Side.parse("threads=2", results), Side.parse("threads=1", results))
    assert [row.verdict for row in result.comparisons].count(None) == 1
    assert result.mean.value == pytest.approx(4.0, rel=0.01)
    assert result.mean.low < 4.0 < result.mean.high < 4.2


def test_ratios_with_a_common_cell_have_no_mean(fill_folder):
    """One cell of B is in two ratios, so they are not independent."""
    for threads in (1, 2):
        results = fill_folder(framework="torch", kernel="onednn", threads=threads, proven=True)
    fill_folder(framework="mxnet", kernel="onednn", threads=1, proven=True)
    sides = Side.parse("framework=torch", results), Side.parse("framework=mxnet,threads=1", results)
    result = comparison.compare(*sides)
    assert [row.verdict is not None for row in result.comparisons] == [True, True]
    assert result.mean is None


def test_kernels_without_a_launch_are_listed_for_frameworks_only(fill_folder):
    results = fill_folder(framework="torch", kernel="onednn", proven=True)
    fill_folder(framework="torch", kernel="native", proven=True)
    fill_folder(framework="mxnet", kernel="native", proven=True)

    def find_kernels(a, b):
        sides = Side.parse(a, results), Side.parse(b, results)
        return comparison.compare(*sides).uncompared_kernels

    torch_kernels = {*adapter.load("torch").kernels_on("cpu")} - {"onednn", "native"}
    kernels = find_kernels("framework=torch", "framework=mxnet")
    assert {name: {*values} for name, values in kernels.items()} == {
        "torch": torch_kernels,
        "mxnet": {"onednn"},
    }
    assert find_kernels("framework=torch,kernel=onednn", "framework=mxnet") == {}
    assert find_kernels("kernel=onednn,framework=torch", "kernel=native,framework=torch") == {}
    completed = subprocess.run(
        [sys.executable, "-m", "xfbench", "compare", "framework=torch", "framework=mxnet"],
        env={"XFBENCH_RESULTS": str(results), "HOME": str(results.parent), "COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "other kernels of torch (channels_last, inductor) and mxnet (onednn)" in completed.stdout


def test_a_pair_with_one_launch_has_no_verdict(fill_folder):
    results = fill_folder(threads=1, launches=1)
    fill_folder(threads=2)
    [pair] = compare(Side.parse("threads=2", results), Side.parse("threads=1", results))
    assert pair.verdict is None and "too few launches" in pair.reason
    [problem] = FailLimit.parse("slower:5%").list_problems([pair], [])
    assert problem.startswith("not checked: ") and problem.endswith("two launches or more of each")


def test_a_cell_without_a_partner_says_in_what_a_lookalike_differs(fill_folder):
    mine = fill_folder("mine", launcher="local")
    fill_folder("mine", workload="convnet")
    theirs = fill_folder("theirs", launcher="mpi")
    fill_folder("theirs", workload="convnet")
    gaps = comparison.compare(Side.parse(str(mine), mine), Side.parse(str(theirs), mine)).gaps
    endings = [line.partition(": no such cell in ")[2] for line in gaps]
    assert endings == ["B, where launcher is mpi, not local", "A, where launcher is local, not mpi"]


def test_a_check_fails_if_it_would_not_find_the_change_that_it_must_find():
    row = build_comparison(0.97, 1.03, visible=0.1)
    # The whole interval must be beyond 5 %, so that 1 - 0.95 / 1.1 is found.
    assert FailLimit.parse("slower:5%", 0.14).list_problems([row], []) == []
    [problem] = FailLimit.parse("slower:5%", 0.13).list_problems([row], [])
    assert "only a slowdown of 13.6% would probably be found, not of 13.0%" in problem


def test_a_cell_that_is_certainly_faster_passes_however_noisy_it_is():
    row = build_comparison(1.2, 1.9, visible=0.3)
    assert row.verdict == "faster"
    assert FailLimit.parse("slower:5%", 0.1).list_problems([row], []) == []
    [problem] = FailLimit.parse("faster:50%", 0.6).list_problems([row], [])
    assert problem.startswith("too noisy")


@pytest.mark.parametrize(
    ("limit", "must_find", "advice"),
    [
        # Of 1 - 0.9 / 1.1 = 18.2 %, and of half that logarithm: 4 times as many pairs.
        ("slower:10%", 1 - 0.9 / 1.1**0.5, "about 20 pairs"),
        ("faster:10%", 1.1 * 1.1**0.5 - 1, "about 20 pairs"),
    ],
)
def test_a_check_says_how_many_launches_would_find_the_change(limit, must_find, advice):
    row = build_comparison(0.97, 1.03, visible=0.1)
    [problem] = FailLimit.parse(limit, must_find).list_problems([row], [])
    assert problem.endswith(f"use a quieter machine, or {advice}")


def test_a_check_whose_launches_lie_far_apart_asks_for_a_quieter_machine_only():
    row = replace(build_comparison(0.5, 2.0, visible=1.0), launches=10, noisy=1)
    [problem] = FailLimit.parse("slower:5%", 0.1).list_problems([row], [])
    assert problem.endswith("use a quieter machine (1 of 10 launches were disturbed)")


def test_table_says_how_many_intervals_hold_together_and_what_was_counted():
    def build_row(name, **fields):
        figures = Comparison(Interval(1.2, 1.1, 1.3, 3), 0.01, 0.1, True, **fields)
        return CellComparison(f"lenet · {name}", "lenet · b", figures, "faster")

    rows = [build_row("a"), build_row("c", is_over_sessions=True)]
    assert [line.split()[-4:-2] for line in tables.comparison_table(rows).splitlines()[2:]] == [
        ["3", "pairs"],
        ["3", "sessions"],
    ]
    assert "95 % (joint for 2)" in tables.comparison_table(rows)
    assert "joint" not in tables.comparison_table(rows[:1])


def test_a_verdict_from_mostly_noisy_launches_says_so():
    figures = Comparison(Interval(1.2, 1.1, 1.3, 3), 0.01, 0.1, True)
    row = CellComparison("lenet · a", "lenet · b", figures, "faster", launches=6, noisy=3)
    assert tables.comparison_table([row]).splitlines()[2].endswith("faster")
    noisy_row = replace(row, noisy=4)
    assert tables.comparison_table([noisy_row]).splitlines()[2].endswith("faster (noisy)")


def test_idle_threads_of_compared_cells_are_named(record, tmp_path):
    store = Store(tmp_path)
    store.create_and_check_folders()
    for threads, cpus, launch in ((2, 0.4, 1), (2, 0.6, 2), (1, 0.4, 1), (1, 0.6, 2)):
        draft = record(launch=launch, threads=threads)
        store.add(vary_record(draft, observed=draft.observed.model_copy(update={"cpus": cpus})))
    sides = (Side.parse(f"threads={number}", tmp_path) for number in (2, 1))
    assert comparison.compare(*sides).idle_threads == ["reference: 0.5 CPUs busy on 2 threads"]


def test_noisy_launches_of_each_pair_are_counted(fill_folder):
    results = fill_folder(threads=1)
    quiet = {"load_before": 0, "load_after": 0, "steal_seconds": 0, "swap_bytes": 0, "seconds": 10}
    fill_folder(threads=2, conditions=Conditions(**quiet, other_cpus=1.5))
    [row] = compare(Side.parse("threads=2", results), Side.parse("threads=1", results))
    assert (row.launches, row.noisy, row.is_mostly_noisy) == (12, 6, False)


def test_cells_without_a_partner_and_failed_cells_are_listed(fill_folder, record):
    before, after = fill_folder("before"), fill_folder("after")
    fill_folder("before", workload="convnet")
    store, about = Store(after), {"software": SOFTWARE, "machine": describe_machine()}
    crash = {**about, "status": "crashed", "reason": "no memory", "measurement": None}
    store.add(record(fields={**crash, "cell": None}, launch=7, framework="torch"))
    result = comparison.compare(Side.parse(str(after), before), Side.parse(str(before), before))
    assert [row.verdict for row in result.comparisons] == ["not_distinguishable"]
    assert sorted(result.gaps) == [
        "A: lenet · torch · numpy · 1 thread: 1 of 1 launches crashed: no memory",
        "B: convnet · reference · numpy · 1 thread: no such cell in A",
    ]
    for launch in (8, 9):
        store.add(record(fields={**crash, "cell": None}, launch=launch))
    result = comparison.compare(Side.parse(str(after), before), Side.parse(str(before), before))
    [gap] = [gap for gap in result.gaps if "reference" in gap and "lenet" in gap]
    assert gap == "A: lenet · reference · numpy · 1 thread: 2 of 8 launches crashed: no memory"


def test_cells_that_differ_only_in_held_fields_have_different_names(fill_folder):
    for threads, batch in ((1, 4), (2, 4), (2, 8)):
        for framework in ("torch", "mxnet"):
            request = {"threads": threads, "global_batch_size": batch, "batch_size_per_rank": batch}
            results = fill_folder(framework=framework, kernel="native", **request)
    a, b = (Side.parse(f"framework={name}", results) for name in ("torch", "mxnet"))
    details = ("1 thread · batch 4", "2 threads · batch 4", "2 threads · batch 8")
    for framework, names in (
        ("torch", [pair.a for pair in compare(a, b)]),
        ("mxnet", [pair.b for pair in compare(a, b)]),
        ("torch", [pair.a for pair in comparison.compare_cells_with_themselves(a)[0]]),
    ):
        prefix = f"lenet · {framework} · native · "
        assert sorted(names) == [prefix + detail for detail in details]


@pytest.fixture
def fill_two_versions(record, tmp_path):
    """Return a function that fills a folder with launches of two versions of `digest_name`.

    `vary(version, launch)` returns changes of a record.
    """

    def fill(digest_name, launches, vary):
        store = Store(tmp_path)
        store.create_and_check_folders()
        for version in ("old", "new"):
            software = SOFTWARE.model_copy(update={digest_name: f"sha256:{version}"})
            for launch in range(1, launches + 1):
                changes = vary(version, launch)
                settings = changes.get("request", {})
                fields = {"software": software, "machine": describe_machine()}
                fields["cell"] = digests.of_json([version, settings])
                store.add(vary_record(record(launch=launch, fields=fields), **fields, **changes))
        return Side.parse(None, tmp_path)

    return fill


def test_cells_of_other_code_have_different_names(fill_two_versions):
    side = fill_two_versions("adapter_digest", 2, lambda version, launch: {})
    comparisons, _, _ = comparison.compare_cells_with_themselves(side)
    names = {each.a for each in comparisons}
    assert len(names) == 2 and all(" · cell " in name for name in names)


def test_environments_of_the_same_length_have_different_names(fill_two_versions):
    side = fill_two_versions(
        "environment_digest", 4, lambda version, launch: {"request": {"steps": 20 + launch % 2}}
    )
    comparisons, _, _ = comparison.compare_cells_with_themselves(side)
    names = {each.a for each in comparisons}
    assert len(names) == 4 and all(" steps · cell " in name for name in names)


def test_launches_are_not_compared_with_themselves(fill_folder):
    for seed in (0, 1):
        results = fill_folder(seed=seed)
    [pair] = compare(Side.parse("seed=0", results), Side.parse("framework=reference", results))
    assert pair.verdict is None and "launches in common" in pair.reason


def test_launches_without_a_cell_count(record, tmp_path):
    store = Store(tmp_path)
    store.create_and_check_folders()
    for launch in range(1, 6):
        draft = record(launch=launch, fields={"machine": describe_machine()})
        store.add(vary_record(draft, cell=None, software=None, workload=None))
    comparisons, _, _ = comparison.compare_cells_with_themselves(Side.parse(None, tmp_path))
    assert [pair.figures.ratio.launches for pair in comparisons] == [2]


def test_failed_launch_belongs_to_the_cell_that_it_names(fill_two_versions):
    """The versions have the same request. Only launches of the old one fail."""

    def vary(version, launch):
        has_failed = version == "old" and launch > 5
        return {"status": "crashed", "reason": "signal 9"} if has_failed else {}

    cells = comparison._load_cells(fill_two_versions("environment_digest", 10, vary))
    assert sorted((len(cell.records), len(cell.failures)) for cell in cells) == [(5, 5), (10, 0)]


def test_seeds_of_a_cell_are_compared_together(fill_folder):
    for seed in (0, 1):
        for threads, slower in ((1, 1.1), (2, 1.0)):
            results = fill_folder(seed=seed, threads=threads, slower=slower)
    sides = Side.parse("threads=2", results), Side.parse("threads=1", results)
    [pair] = compare(*sides)
    assert pair.verdict == "faster" and pair.figures.paired
    assert pair.figures.ratio.launches == 12
    sides = Side.parse("threads=2,seed=0", results), Side.parse("threads=2,seed=1", results)
    [pair] = compare(*sides)
    assert pair.a.endswith("2 threads · seed 0") and pair.b.endswith("2 threads · seed 1")


def test_launches_of_equal_length_are_preferred(fill_folder):
    for name in ("before", "after"):
        for warmup in (3, 9):
            fill_folder(name, warmup=warmup)
    folder = fill_folder("after", warmup=27, framework="torch")
    before = fill_folder("before", warmup=81, framework="torch")
    comparisons = compare(Side.parse(str(folder), before), Side.parse(str(before), before))
    assert len(comparisons) == 3


def test_cells_of_different_sessions_have_no_verdict(record, tmp_path):
    folders = [tmp_path / "before", tmp_path / "after"]
    about = {"software": SOFTWARE, "machine": describe_machine()}

    def launch_session(number):
        for folder in folders:
            store = Store(folder)
            store.create_and_check_folders()
            for launch in range(1, 6):
                step_s = 0.1 * 1.001 ** (launch + number) * (1.2 if folder == folders[1] else 1)
                draft = record((step_s,), launch, fields=about)
                session = f"{folder.name} {number}"
                store.add(vary_record(draft, request={"session": session}, **about))
        sides = [Side.parse(str(folder), folder) for folder in reversed(folders)]
        return compare(*sides)

    for number in (1, 2):
        [pair] = launch_session(number)
        assert pair.verdict is None and "in 3 sessions or more" in pair.reason
    [pair] = launch_session(3)
    assert pair.verdict == "slower" and pair.figures.ratio.launches == 3
    assert pair.figures.is_over_sessions and not pair.figures.paired


def test_launches_without_a_partner_are_explained(record, tmp_path, run_inline):
    """A run was interrupted after the third launch of the first cell, and resumed."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    about = {"software": SOFTWARE, "machine": describe_machine()}

    def add_launch(threads, session, launch):
        draft = record((0.1 * 1.01**launch / threads,), launch, threads=threads, fields=about)
        store.add(vary_record(draft, request={"session": session}, **about))

    for threads, last_of_first in ((1, 3), (2, 2)):
        for launch in range(1, 6):
            add_launch(threads, "first" if launch <= last_of_first else "second", launch)
    shown = run_inline("compare", "threads=1", "threads=2").stdout
    note = (
        "2 launches without a partner are not counted: the other cell has no such launch in the "
        "same session, because one failed or the run was interrupted."
    )
    assert "4 pairs" in shown and note in " ".join(shown.split())
    [row] = compare(*(Side.parse(f"threads={n}", store.folder) for n in (1, 2)))
    assert row.document()["unpaired_launches"] == 2
    add_launch(2, "first", 3)
    add_launch(1, "second", 3)
    shown = run_inline("compare", "threads=1", "threads=2").stdout
    assert "6 pairs" in shown and "without a partner" not in shown


def test_steady_drift_cancels_in_a_self_comparison(record, tmp_path):
    store = Store(tmp_path)
    store.create_and_check_folders()
    for n in range(8):
        fields = {"software": SOFTWARE, "machine": describe_machine()}
        store.add(record(steps=(0.1 * 1.01**n,), launch=n + 1, fields=fields))
    [self_comparison], _, _ = comparison.compare_cells_with_themselves(
        Side.parse("workload=lenet", tmp_path)
    )
    assert self_comparison.figures.ratio.value == pytest.approx(1.0)


def test_revisions_with_different_workers_need_certificates(fill_folder):
    """Their adapters are equal. Without revisions, records differ in the worker all the time."""
    workers = {"a" * 40: "sha256:1", "b" * 40: "sha256:2"}
    for revision, worker in workers.items():
        changes = {"worker_digest": worker, "git_commit": revision}
        results = fill_folder(software=SOFTWARE.model_copy(update=changes), revision=revision)
    sides = [Side.parse(f"revision={revision}", results) for revision in workers]
    [pair] = compare(*sides)
    assert pair.verdict is None and "no equality certificate" in pair.reason


@pytest.mark.parametrize("digest_name", ["adapter_digest", "environment_digest"])
def test_changed_translation_needs_a_certificate(fill_folder, digest_name):
    before = fill_folder("before")
    after = fill_folder("after", software=SOFTWARE.model_copy(update={digest_name: "sha256:9"}))
    [pair] = compare(Side.parse(str(after), before), Side.parse(str(before), before))
    assert pair.verdict is None and "no equality certificate" in pair.reason


def test_launches_with_a_profile_are_compared_with_those_without(fill_folder, record):
    results = fill_folder(threads=1)
    fill_folder(threads=2)
    profiled = record(launch=7, threads=1, profile=True, fields={"software": SOFTWARE})
    Store(results).add(vary_record(profiled, machine=describe_machine()))
    [pair] = compare(Side.parse("threads=2", results), Side.parse("threads=1", results))
    assert pair.verdict == "not_distinguishable" and "profile" not in pair.a + pair.b
    with_profile = Side.parse("threads=1,profile=true", results)
    assert [record.request.launch for record in with_profile.records(pytest.fail)] == [7]


def test_cells_of_one_label_say_in_what_they_differ(fill_folder):
    results = fill_folder(threads=1, min_seconds=5.0)
    fill_folder(threads=1, min_seconds=2.0)
    fill_folder(threads=2, min_seconds=5.0)
    sides = Side.parse("threads=2", results), Side.parse("threads=1", results)
    [gap] = comparison.compare(*sides).gaps
    assert gap.endswith("1 thread · 2 s or more: no such cell in A")


def test_a_pair_without_a_verdict_does_not_change_the_mean(fill_folder):
    for workload, launches in (("lenet", 6), ("convnet", 6), ("alexnet", 1)):
        for threads, slower in ((1, 2.0), (2, 1.0)):
            results = fill_folder(
                workload=workload, threads=threads, slower=slower, launches=launches
            )
    result = comparison.compare(Side.parse("threads=2", results), Side.parse("threads=1", results))
    assert [row.verdict for row in result.comparisons].count(None) == 1
    assert result.mean.value == pytest.approx(2.0, rel=0.01) and result.mean.low is not None


def test_a_change_that_must_be_found_is_larger_than_the_limit():
    with pytest.raises(errors.UsageError, match=r"give more than the 0\.05 of --fail-on"):
        FailLimit.parse("slower:5%", 0.05)


def test_a_slower_cell_is_listed_once():
    row = build_comparison(0.5, 0.9, visible=0.3)
    assert FailLimit.parse("slower:5%", 0.1).list_problems([row], []) == ["a is slower"]


def test_a_side_of_launches_with_a_profile_is_named_so(fill_folder):
    results = fill_folder(threads=1, profile=True)
    fill_folder(threads=2)
    sides = Side.parse("threads=1,profile=true", results), Side.parse("threads=2", results)
    [pair] = compare(*sides)
    assert pair.a.endswith("1 thread · profile True")
