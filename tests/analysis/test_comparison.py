"""`compare`: what stands against what, and verdicts that say no more than the launches know."""

import json
import math
import random
import subprocess
import sys

import pytest

from tests.equality.test_certificate import SOFTWARE, certified
from xfbench.analysis import comparison
from xfbench.analysis.comparison import CellComparison, Side
from xfbench.analysis.statistics import Comparison, Interval
from xfbench.base import errors
from xfbench.host.machine import describe
from xfbench.results import listing
from xfbench.results.store import Store


@pytest.fixture
def folder(record, tmp_path):
    """A function that fills a results folder: launches of 0.1 s steps, `slower` times as long."""

    def fill(name="results", slower=1.0, launches=6, software=SOFTWARE, proven=False, **request):
        store = Store(tmp_path / name)
        store.prepare()
        fields = {"software": software, "machine": describe()}
        if proven:
            made = certified(record(fields=fields, **request))
            made.write(store.certificate_path(made.id))
            fields["certificate"] = made.id
        noise = random.Random(f"{name} {request}")
        for n in range(launches):  # a drift that all share, and chance
            steps = (0.1 * slower * (1 + 0.001 * n) * (1 + noise.uniform(-0.01, 0.01)),)
            store.add(record(steps=steps, launch=n + 1, fields=fields, **request))
        return tmp_path / name

    return fill


def test_compare_pairs_cells_that_differ_only_in_named_fields(folder):
    for workload in ("lenet", "convnet"):
        for threads, slower in ((1, 2.0), (2, 1.0)):
            results = folder(workload=workload, threads=threads, slower=slower)
    found = comparison.compare(Side.parse("threads=2", results), Side.parse("threads=1", results))
    assert {one.a for one in found} == {
        f"{name} · reference · numpy · 2 threads" for name in ("lenet", "convnet")
    }
    assert [one.a.split(" · ")[0] for one in found] == [one.b.split(" · ")[0] for one in found]
    for one in found:
        assert one.verdict == "faster" and one.figures.paired
        assert one.figures.ratio.value == pytest.approx(2.0, rel=0.01)
        assert one.figures.ratio.low < 2.0 < one.figures.ratio.high
    ratios = [one.figures.ratio.value for one in found]
    assert comparison.overall_ratio(found) == pytest.approx(math.sqrt(ratios[0] * ratios[1]))
    assert comparison.overall_ratio(found[:1]) is None


def test_frameworks_are_compared_only_if_both_are_certified(folder):
    results = folder(framework="torch", kernel="onednn", proven=True)
    results = folder(framework="mxnet", kernel="native", slower=1.5)
    sides = Side.parse("framework=torch", results), Side.parse("framework=mxnet", results)
    [one] = comparison.compare(*sides)
    assert one.verdict is None and "no equality certificate" in one.reason
    results = folder("proven", framework="torch", kernel="onednn", proven=True)
    results = folder("proven", framework="mxnet", kernel="native", slower=1.5, proven=True)
    sides = Side.parse("framework=torch", results), Side.parse("framework=mxnet", results)
    [one] = comparison.compare(*sides)
    assert (one.verdict, one.reason) == ("faster", None)
    assert one.a == "lenet · torch · onednn" and one.b == "lenet · mxnet · native"


def test_verdicts_are_corrected_for_multiple_comparisons(record, tmp_path):
    """Each alone would be faster (p 0.03); that one of three is so says little."""
    store = Store(tmp_path)
    store.prepare()
    fields = {"software": SOFTWARE, "machine": describe()}
    noise = (-1.46, -0.88, -0.29, 0.29, 0.88, 1.46)
    for workload in ("lenet", "convnet", "convnet-quick"):
        for n, z in enumerate(noise):
            asked = {"workload": workload, "launch": n + 1, "fields": fields}
            store.add(record(steps=(0.1,), threads=2, **asked))
            store.add(record(steps=(0.1 * math.exp(0.0133 + 0.01 * z),), threads=1, **asked))
    two, one = Side.parse("threads=2", tmp_path), Side.parse("threads=1", tmp_path)
    found = comparison.compare(two, one)
    assert [c.figures.verdict for c in found] == ["faster"] * 3
    assert [c.verdict for c in found] == ["not_distinguishable"] * 3
    alone = comparison.compare(Side.parse("threads=2,workload=lenet", tmp_path), one)
    assert [c.verdict for c in alone] == ["faster"]


def test_folders_and_revisions_can_be_compared(folder):
    before = folder("before")
    after = folder("after", slower=1.1, software=SOFTWARE.model_copy(update={"git_commit": "fade"}))
    [one] = comparison.compare(Side.parse(str(after), before), Side.parse(str(before), before))
    assert one.verdict == "slower"
    assert one.a.endswith("after") and one.b.endswith("before")
    folder("after", software=SOFTWARE.model_copy(update={"git_commit": "cafe"}))
    [one] = comparison.compare(
        Side.parse("revision=fad", after), Side.parse("revision=cafe", after)
    )
    assert one.verdict == "slower" and one.a.endswith("fad")
    failed = comparison.parse_fail_limit("slower:5%")
    assert failed(one) and not comparison.parse_fail_limit("slower:15%")(one)
    assert not comparison.parse_fail_limit("faster")(one)


def test_cell_compared_with_itself_is_not_distinguishable(folder):
    results = folder(launches=22)
    found, trials, alarms = comparison.compare_with_itself(Side.parse("workload=lenet", results))
    assert [one.verdict for one in found] == ["not_distinguishable"]
    assert (trials, alarms) == (2, 0)
    assert found[0].figures.ratio.launches == 11


def test_allocators_can_be_compared(folder):
    folder(allocator="jemalloc")
    results = folder(slower=1.2)
    [one] = comparison.compare(
        Side.parse("allocator=jemalloc", results), Side.parse("allocator=system", results)
    )
    assert one.verdict == "faster" and (one.a[-8:], one.b[-6:]) == ("jemalloc", "system")


def test_launch_with_zero_step_time_is_reported_and_not_counted(folder, record, capsys):
    results = folder()
    store, fields = Store(results), {"software": SOFTWARE, "machine": describe()}
    good = record(fields=fields, launch=7)
    of_nothing = good.measurement.model_copy(update={"step_seconds": (0.0,) * 3})
    forged = record(fields={**fields, "measurement": of_nothing}, launch=7)
    store.add(forged)
    found, _, _ = comparison.compare_with_itself(Side.parse("workload=lenet", results))
    assert found[0].figures.ratio.launches == 3
    assert f"{forged.id}: step_seconds of 0" in capsys.readouterr().err
    assert listing.images_per_second(good) and listing.images_per_second(forged) is None
    assert listing.format_table([forged])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing=3", "unknown field 'nothing'"),
        ("framework=torch", "no good launch of framework=torch"),
        ("elsewhere", "elsewhere holds no results"),
    ],
)
def test_invalid_side_is_a_usage_error(folder, text, message):
    results = folder()
    with pytest.raises(errors.UsageError, match=message):
        comparison.compare(Side.parse(text, results), Side.parse("threads=1", results))


@pytest.mark.parametrize("limit", ["slow", "slower:x", "slower:-1%"])
def test_invalid_fail_on_limit_is_a_usage_error(limit):
    with pytest.raises(errors.UsageError, match="slower:5%"):
        comparison.parse_fail_limit(limit)


def test_compare_command_exits_with_1_on_a_regression(folder):
    before, after = folder("before"), folder("after", slower=1.1)

    def command(*words):
        return subprocess.run(
            [sys.executable, "-m", "xfbench", "compare", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    shown = command(after, before)
    assert shown.returncode == 0 and "slower" in shown.stdout and "6 pairs" in shown.stdout
    failed = command(after, before, "--fail-on", "slower:5%", "--json")
    assert failed.returncode == 1
    document = json.loads(failed.stdout)
    assert document["geometric_mean"] is None
    [one] = document["comparisons"]
    assert set(one) >= {"a", "b", "ratio", "verdict", "smallest_visible_difference", "launches"}
    assert command(after, before, "--fail-on", "slower:20%").returncode == 0
    assert command(after).returncode == 2
    itself = command("--self", "workload=lenet", "--results", before, "--json")
    assert json.loads(itself.stdout)["a_a"]["trials"] == 0


@pytest.mark.parametrize(("launches", "verdicts"), [(9, 0), (10, 1), (20, 2)])
def test_every_five_whole_pairs_give_one_verdict(folder, launches, verdicts):
    results = folder(launches=launches)
    _, trials, _ = comparison.compare_with_itself(Side.parse("workload=lenet", results))
    assert trials == verdicts


def compared(ratio, verdict):
    """A comparison with this ratio and verdict."""
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
    assert comparison.parse_fail_limit(limit)(compared(ratio, verdict)) is expected


def test_overall_ratio_excludes_unproven_comparisons():
    found = [compared(2.0, "faster"), compared(8.0, "faster"), compared(100.0, None)]
    assert comparison.overall_ratio(found) == pytest.approx(4.0)


def test_steady_drift_cancels_in_a_self_comparison(record, tmp_path):
    store = Store(tmp_path)
    store.prepare()
    for n in range(8):
        fields = {"software": SOFTWARE, "machine": describe()}
        store.add(record(steps=(0.1 * 1.01**n,), launch=n + 1, fields=fields))
    [found], _, _ = comparison.compare_with_itself(Side.parse("workload=lenet", tmp_path))
    assert found.figures.ratio.value == pytest.approx(1.0)


@pytest.mark.parametrize("changed", ["adapter_digest", "environment_digest"])
def test_changed_translation_needs_a_certificate(folder, changed):
    before = folder("before")
    after = folder("after", software=SOFTWARE.model_copy(update={changed: "sha256:9"}))
    [one] = comparison.compare(Side.parse(str(after), before), Side.parse(str(before), before))
    assert one.verdict is None and "no equality certificate" in one.reason
