"""`compare`: pairs of cells, and verdicts that the launches support."""

import json
import math
import random
import subprocess
import sys

import pytest

from tests.sample_records import SOFTWARE, build_record_certificate
from xfbench.analysis import comparison
from xfbench.analysis.comparison import CellComparison, Side
from xfbench.base import errors
from xfbench.host.machine import describe_machine
from xfbench.rendering import record_listing
from xfbench.statistics import Comparison, Interval
from xfbench.store.results_folder import Store


@pytest.fixture
def fill_folder(record, tmp_path):
    """Return a function that fills a results folder with launches.

    A step takes 0.1 s times `slower`.
    """

    def fill(name="results", slower=1.0, launches=6, software=SOFTWARE, proven=False, **request):
        store = Store(tmp_path / name)
        store.create_and_check_folders()
        fields = {"software": software, "machine": describe_machine()}
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
    comparisons = comparison.compare(
        Side.parse("threads=2", results), Side.parse("threads=1", results)
    )
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
    assert comparison.geometric_mean_of_comparable_ratios(comparisons) == pytest.approx(
        math.sqrt(ratios[0] * ratios[1])
    )
    assert comparison.geometric_mean_of_comparable_ratios(comparisons[:1]) is None


def test_frameworks_are_compared_only_if_both_are_certified(fill_folder):
    results = fill_folder(framework="torch", kernel="onednn", proven=True)
    results = fill_folder(framework="mxnet", kernel="native", slower=1.5)
    sides = Side.parse("framework=torch", results), Side.parse("framework=mxnet", results)
    [pair] = comparison.compare(*sides)
    assert pair.verdict is None and "no equality certificate" in pair.reason
    results = fill_folder("proven", framework="torch", kernel="onednn", proven=True)
    results = fill_folder("proven", framework="mxnet", kernel="native", slower=1.5, proven=True)
    sides = Side.parse("framework=torch", results), Side.parse("framework=mxnet", results)
    [pair] = comparison.compare(*sides)
    assert (pair.verdict, pair.reason) == ("faster", None)
    assert pair.a == "lenet · torch · onednn" and pair.b == "lenet · mxnet · native"


def test_verdicts_are_corrected_for_multiple_comparisons(record, tmp_path):
    """Each pair alone would be faster (p = 0.03), but not as one of three comparisons."""
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
    comparisons = comparison.compare(two_threads, one_thread)
    assert [c.figures.verdict for c in comparisons] == ["faster"] * 3
    assert [c.verdict for c in comparisons] == ["not_distinguishable"] * 3
    single_comparison = comparison.compare(
        Side.parse("threads=2,workload=lenet", tmp_path), one_thread
    )
    assert [c.verdict for c in single_comparison] == ["faster"]


def test_folders_and_revisions_can_be_compared(fill_folder):
    before = fill_folder("before")
    after = fill_folder(
        "after", slower=1.1, software=SOFTWARE.model_copy(update={"git_commit": "fade"})
    )
    [pair] = comparison.compare(Side.parse(str(after), before), Side.parse(str(before), before))
    assert pair.verdict == "slower"
    assert pair.a.endswith("after") and pair.b.endswith("before")
    fill_folder("after", software=SOFTWARE.model_copy(update={"git_commit": "cafe"}))
    [pair] = comparison.compare(
        Side.parse("revision=fad", after), Side.parse("revision=cafe", after)
    )
    assert pair.verdict == "slower" and pair.a.endswith("fad")
    exceeds_limit = comparison.parse_fail_limit("slower:5%")
    assert exceeds_limit(pair) and not comparison.parse_fail_limit("slower:15%")(pair)
    assert not comparison.parse_fail_limit("faster")(pair)


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
    [pair] = comparison.compare(
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
        ("elsewhere", "elsewhere has no results"),
    ],
)
def test_invalid_side_is_a_usage_error(fill_folder, text, message):
    results = fill_folder()
    with pytest.raises(errors.UsageError, match=message):
        comparison.compare(Side.parse(text, results), Side.parse("threads=1", results))


@pytest.mark.parametrize("limit", ["slow", "slower:x", "slower:-1%"])
def test_invalid_fail_on_limit_is_a_usage_error(limit):
    with pytest.raises(errors.UsageError, match="slower:5%"):
        comparison.parse_fail_limit(limit)


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
    assert run_compare(after, before, "--fail-on", "slower:20%").returncode == 0
    assert run_compare(after).returncode == 2
    self_process = run_compare("--self", "workload=lenet", "--results", before, "--json")
    assert json.loads(self_process.stdout)["a_a"]["trials"] == 0


@pytest.mark.parametrize(("launches", "verdicts"), [(9, 0), (10, 1), (20, 2)])
def test_every_five_whole_pairs_give_one_verdict(fill_folder, launches, verdicts):
    results = fill_folder(launches=launches)
    _, trials, _ = comparison.compare_cells_with_themselves(Side.parse("workload=lenet", results))
    assert trials == verdicts


def build_comparison(ratio, verdict):
    """Return a comparison with this ratio and verdict."""
    figures = Comparison(Interval(ratio, None, None, 5), 0.001, None, True)
    return CellComparison("a", "b", figures, verdict)


@pytest.mark.parametrize(
    ("limit", "ratio", "verdict", "expected"),
    [
        ("faster:25%", 1.25, "faster", True),
        ("faster:25%", 1.24, "faster", False),
        ("slower:25%", 0.75, "slower", True),
        ("slower:25%", 0.76, "slower", False),
        ("slower:25%", 0.5, "not_distinguishable", False),
    ],
)
def test_fail_on_limit_includes_its_own_value(limit, ratio, verdict, expected):
    assert comparison.parse_fail_limit(limit)(build_comparison(ratio, verdict)) is expected


def test_overall_ratio_excludes_unproven_comparisons():
    comparisons = [
        build_comparison(2.0, "faster"),
        build_comparison(8.0, "faster"),
        build_comparison(100.0, None),
    ]
    assert comparison.geometric_mean_of_comparable_ratios(comparisons) == pytest.approx(4.0)


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


@pytest.mark.parametrize("digest_name", ["adapter_digest", "environment_digest"])
def test_changed_translation_needs_a_certificate(fill_folder, digest_name):
    before = fill_folder("before")
    after = fill_folder("after", software=SOFTWARE.model_copy(update={digest_name: "sha256:9"}))
    [pair] = comparison.compare(Side.parse(str(after), before), Side.parse(str(before), before))
    assert pair.verdict is None and "no equality certificate" in pair.reason
