"""Slowdown relative to a reference, means over networks and missing figures."""

import csv
import io
import json
import math
import random
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.sample_records import SOFTWARE, certify_records, make_block
from xfbench import statistics
from xfbench.analysis import slowdown
from xfbench.analysis.leaderboard import build_tables as all_tables
from xfbench.base.errors import UsageError
from xfbench.host.machine import describe_machine
from xfbench.model.record import Conditions
from xfbench.rendering import slowdown_tables

SPEEDS = {
    ("torch", "lenet"): 100.0,
    ("torch", "convnet"): 40.0,
    ("caffe", "lenet"): 50.0,
    ("caffe", "convnet"): 80.0,
    ("caffe", "alexnet"): 10.0,
    ("mxnet", "lenet"): 20.0,
    ("mxnet", "convnet"): 20.0,
}


@pytest.fixture
def make_launches(record):
    """Return a function that makes five launches; all launches of a block share its noise."""

    def make_launches(speed, fields=None, **request):
        rng = random.Random(1)
        common_fields = {"software": SOFTWARE, "machine": describe_machine()}
        return [
            record(
                steps=(4 / speed * (1 + rng.uniform(0, 0.3)) * (1 + 0.002 * (launch % 2)),) * 3,
                launch=launch,
                fields={**common_fields, **(fields or {})},
                **request,
            )
            for launch in range(1, 6)
        ]

    return make_launches


@pytest.fixture
def boards(make_launches):
    """Return tables of three frameworks on three networks, and of JAX on one.

    Only Caffe has a figure for AlexNet; MXNet on AlexNet and JAX have none.
    """
    launch_records = [
        launch
        for (framework, workload), speed in SPEEDS.items()
        for threads in (1, 2)
        for launch in make_launches(
            speed / threads, framework=framework, workload=workload, threads=threads
        )
    ]
    ranked, certificates = certify_records(launch_records)
    unsupported_fields = {"status": "unsupported", "reason": "no such layer", "measurement": None}
    missing = [
        make_launches(1, framework="mxnet", workload="alexnet", fields=unsupported_fields)[0],
        *make_launches(5, framework="jax", workload="lenet"),
    ]
    return all_tables([*ranked, *missing], certificates)


def entries_by_name(slowdowns):
    return {
        (line.name, network.name): entry
        for line in slowdowns.lines
        for network, entry in zip(slowdowns.networks, line.entries, strict=True)
    }


def slowdown_values(slowdown_table):
    return {
        key: entry.slowdown.value
        for key, entry in entries_by_name(slowdown_table).items()
        if entry.slowdown
    }


def test_slowdown_is_relative_to_the_reference(boards):
    [slowdown_table] = slowdown.build_slowdown_tables(boards, reference="torch")
    assert slowdown_table.reference == "torch"
    assert slowdown_table.title.startswith("slowdown against torch · ")
    reference_speeds = {"lenet": 100, "convnet": 40}
    expected = {
        (framework, network): reference_speeds[network] / speed
        for (framework, network), speed in SPEEDS.items()
        if network in reference_speeds
    }
    assert slowdown_values(slowdown_table) == pytest.approx(expected, rel=1e-6)
    entries = entries_by_name(slowdown_table)
    assert entries["caffe", "alexnet"].reason == "no reference: torch has no ranked row"
    assert "no reference" in slowdown_tables.FORMATS["text"]([slowdown_table])
    assert {entry.row.threads for entry in entries.values() if entry.slowdown} == {1}


def test_slowdown_may_be_relative_to_the_best_of_each_network(boards):
    [slowdown_table] = slowdown.build_slowdown_tables(boards, reference="best")
    assert slowdown_table.title.startswith("slowdown against the best · ")
    best = {"lenet": 100, "convnet": 80, "alexnet": 10}
    assert slowdown_values(slowdown_table) == pytest.approx(
        {key: best[key[1]] / speed for key, speed in SPEEDS.items()}, rel=1e-6
    )


def test_default_reference_has_figures_of_most_networks(boards):
    """Its speed does not matter: the fastest would be the luckiest."""
    [slowdown_table] = slowdown.build_slowdown_tables(boards)
    assert slowdown_table.reference == "caffe"
    without_alexnet = [table for table in boards if table.workload != "alexnet"]
    [slowdown_table] = slowdown.build_slowdown_tables(without_alexnet)
    assert slowdown_table.reference == "torch"
    [slowdown_table] = slowdown.build_slowdown_tables(without_alexnet, ["framework", "threads"])
    assert slowdown_table.reference == "torch · 1"
    [slowdown_table] = slowdown.build_slowdown_tables(boards, ["threads"])
    assert slowdown_table.reference == "1"


def test_reference_is_named_by_the_values_of_its_fields(boards):
    [slowdown_table] = slowdown.build_slowdown_tables(boards, ["framework", "threads"], "mxnet,2")
    assert slowdown_table.reference == "mxnet · 2"
    assert slowdown_values(slowdown_table)["mxnet · 1", "lenet"] == pytest.approx(0.5)
    with pytest.raises(UsageError, match="did you mean mxnet"):
        slowdown.build_slowdown_tables(boards, reference="mxnte")


def test_slowdown_compares_launches_of_the_same_block(boards):
    """Noise that all launches of a block share, here up to 30 %, does not affect a slowdown."""
    [slowdown_table] = slowdown.build_slowdown_tables(boards, reference="torch")
    paired_interval = entries_by_name(slowdown_table)["caffe", "lenet"].slowdown
    assert paired_interval.high / paired_interval.low - 1 < 1e-6
    unpaired_interval = statistics.geometric_interval(
        [*entries_by_name(slowdown_table)["caffe", "lenet"].row.speeds.values()]
    )
    assert unpaired_interval.high / unpaired_interval.low > 1.1


def test_missing_slowdown_shows_its_reason(boards):
    [slowdown_table] = slowdown.build_slowdown_tables(boards)
    reasons = {
        key: entry.reason
        for key, entry in entries_by_name(slowdown_table).items()
        if not entry.slowdown
    }
    assert reasons["torch", "alexnet"] == slowdown.NOT_MEASURED
    assert reasons["mxnet", "alexnet"] == "unsupported: no such layer"
    assert "no equality certificate" in reasons["jax", "lenet"]
    shown = slowdown_tables.FORMATS["text"]([slowdown_table])
    for text in ("not measured", "unsupported", "not ranked", "mxnet in alexnet: unsupported: no"):
        assert text in shown


def test_shared_reason_for_missing_figures_is_printed_once(make_launches):
    launch_records = [
        launch for name in ("torch", "caffe") for launch in make_launches(10, framework=name)
    ]
    launch_records += [
        launch
        for name in ("torch", "caffe")
        for launch in make_launches(9, framework=name, workload="convnet")
    ]
    [slowdown_table] = slowdown.build_slowdown_tables(all_tables(launch_records, {}))
    [note] = slowdown_tables.notes_under_table(slowdown_table)
    assert note.startswith("caffe, torch in convnet, lenet: no equality certificate")


def test_means_are_over_the_networks_of_the_reference(boards):
    [slowdown_table] = slowdown.build_slowdown_tables(boards, reference="torch")
    assert slowdown_table.common == ("convnet", "lenet")
    means = {line.name: line.overall for line in slowdown_table.lines}
    assert means["jax"] is None
    assert means["torch"].value == 1
    assert means["caffe"].value == pytest.approx(math.sqrt(40 / 80 * 100 / 50))
    assert means["mxnet"].value == pytest.approx(math.sqrt(40 / 20 * 100 / 20))
    total_times = {line.name: line.total_time for line in slowdown_table.lines}
    torch_s = 1 / 100 + 1 / 40
    assert total_times["torch"].value == 1
    assert total_times["caffe"].value == pytest.approx((1 / 50 + 1 / 80) / torch_s)
    assert total_times["mxnet"].value == pytest.approx((1 / 20 + 1 / 20) / torch_s)
    assert [line.name for line in slowdown_table.lines][-1] == "jax"
    shown = slowdown_tables.FORMATS["text"]([slowdown_table])
    assert "mean of 2" in shown and "total time of 2" in shown


def test_mean_against_the_best_is_that_of_the_networks(boards):
    [slowdown_table] = slowdown.build_slowdown_tables(boards, reference="best")
    means = {line.name: line.overall.value for line in slowdown_table.lines if line.overall}
    expected = {
        "torch": math.sqrt(80 / 40),
        "caffe": math.sqrt(100 / 50),
        "mxnet": math.sqrt(80 / 20 * 100 / 20),
    }
    assert means == pytest.approx(expected)
    assert all(line.total_time is None for line in slowdown_table.lines)
    assert "total time" not in slowdown_tables.FORMATS["text"]([slowdown_table])
    [lenet_slowdowns] = slowdown.build_slowdown_tables(
        [table for table in boards if table.workload == "lenet"]
    )
    assert all(line.overall is None for line in lenet_slowdowns.lines)


def test_framework_without_a_network_leaves_the_means_of_others_alone(make_launches):
    """Caffe seems slower than MXNet if AlexNet counts for one of them only."""
    speeds = {
        "torch": {"lenet": 100, "convnet": 100, "alexnet": 100},
        "caffe": {"lenet": 80, "convnet": 80, "alexnet": 20},
        "mxnet": {"lenet": 70, "convnet": 70},
        "tensorflow": {"lenet": 90},
    }
    launch_records, certificates = certify_records(
        [
            launch
            for framework, by_network in speeds.items()
            for workload, speed in by_network.items()
            for launch in make_launches(speed, framework=framework, workload=workload)
        ]
    )
    tables = all_tables(launch_records, certificates)
    [slowdown_table] = slowdown.build_slowdown_tables(tables)
    assert slowdown_table.common == ("alexnet", "convnet", "lenet")
    lines = {line.name: line for line in slowdown_table.lines}
    assert lines["caffe"].overall.value == pytest.approx((1 / 0.8 * 1 / 0.8 * 5) ** (1 / 3))
    assert lines["mxnet"].overall.value == pytest.approx(1 / 0.7)
    assert lines["mxnet"].averaged == ("convnet", "lenet")
    assert lines["mxnet"].total_time.value == pytest.approx(1 / 0.7)
    assert lines["tensorflow"].overall is None and lines["tensorflow"].averaged == ("lenet",)
    # MXNet's mean is lower, but not over the same networks. So its line comes after Caffe's.
    assert lines["mxnet"].overall.value < lines["caffe"].overall.value
    assert list(lines) == ["torch", "caffe", "mxnet", "tensorflow"]
    shown = slowdown_tables.FORMATS["text"]([slowdown_table])
    assert "[2 of 3]" in shown and "mxnet: means over fewer networks" in shown
    [same_networks] = slowdown.build_slowdown_tables(
        [table for table in tables if table.workload != "alexnet"]
    )
    assert [line.name for line in same_networks.lines][1:3] == ["caffe", "mxnet"]
    [document] = json.loads(slowdown_tables.to_json([slowdown_table]))["slowdowns"]
    assert document["rows"][2]["overall_networks"] == ["convnet", "lenet"]


@pytest.fixture
def simulate_slowdowns(make_launches):
    """Return a function that simulates launches of six frameworks on four networks.

    The launches vary by 5 %. Framework number n is `factors[n]` times slower than the first.
    """
    frameworks = ("caffe", "ipex", "jax", "mxnet", "tensorflow", "torch")
    workloads = ("alexnet", "convnet", "googlenet", "lenet")
    launch_records, certificates = certify_records(
        [
            make_launches(10, framework=framework, workload=workload)[0]
            for framework in frameworks
            for workload in workloads
        ]
    )
    tables = all_tables(launch_records, certificates)

    def simulate(rng, reference, factors=(1.0,) * 6):
        def draw(row):
            speed = 100 / factors[frameworks.index(row.framework)]
            speeds = {
                make_block(n): float(speed * np.exp(rng.normal(0, 0.05))) for n in range(1, 6)
            }
            interval = statistics.interval_of_launches(speeds)
            return replace(row, speeds=speeds, images_per_second=interval)

        drawn_tables = [replace(table, rows=tuple(map(draw, table.rows))) for table in tables]
        [slowdown_table] = slowdown.build_slowdown_tables(
            drawn_tables, reference=reference, with_leaderboard_ranks=False
        )
        return {line.name: line for line in slowdown_table.lines}

    return simulate


def excludes(interval, value):
    return not interval.low <= value <= interval.high


@pytest.mark.parametrize("reference", ["torch", "best"])
def test_equal_frameworks_seldom_have_a_slowdown(simulate_slowdowns, reference):
    """With the seeming best as the reference, 38 % of the means excluded 1."""
    rng = np.random.default_rng(20)
    means, tables_with_exclusion, count = [], 0, 60
    for _ in range(count):
        lines = simulate_slowdowns(rng, reference)
        intervals = [line.overall for name, line in lines.items() if name != reference]
        intervals += [line.total_time for name, line in lines.items() if name != reference]
        means += [excludes(mean, 1) for mean in intervals if mean]
        entries = [entry.slowdown for line in lines.values() for entry in line.entries]
        tables_with_exclusion += any(
            excludes(interval, 1)
            for interval in [*entries, *filter(None, intervals)]
            if interval.low is not None
        )
    assert np.mean(means) <= 0.06
    assert tables_with_exclusion / count <= 0.1


@pytest.mark.parametrize("reference", ["torch", "best"])
def test_true_slowdowns_are_found_and_covered(simulate_slowdowns, reference):
    rng = np.random.default_rng(21)
    factors = (1.6, 1.0, 1.6, 2.0, 1.3, 1.0)
    found, covered = [], []
    for _ in range(40):
        lines = simulate_slowdowns(rng, reference, factors)
        found.append(lines["mxnet"].overall.low > 1)
        truth = dict(zip(sorted(lines), factors, strict=True))
        covered += [
            not excludes(mean, truth[name])
            for name, line in lines.items()
            if name != reference
            for mean in (line.overall, line.total_time)
            if mean
        ]
    assert np.mean(found) >= 0.9
    assert np.mean(covered) >= 0.95


def test_slowdown_rows_can_be_grouped_by_several_fields(boards):
    [slowdown_table] = slowdown.build_slowdown_tables(boards, ["framework", "threads"])
    names = [line.name for line in slowdown_table.lines]
    assert "torch · 2" in names and len(names) == 7
    shown = slowdown_tables.FORMATS["text"]([slowdown_table])
    assert "threads" in shown and "1 thread" not in shown


def test_network_names_include_the_batch_only_if_ambiguous(make_launches):
    launch_records, certificates = certify_records(
        [
            *make_launches(10, workload="lenet"),
            *make_launches(10, workload="lenet", global_batch_size=8, batch_size_per_rank=8),
            *make_launches(10, workload="convnet"),
        ]
    )
    [slowdown_table] = slowdown.build_slowdown_tables(all_tables(launch_records, certificates))
    names = [network.name for network in slowdown_table.networks]
    assert names == ["convnet", "lenet · batch 4", "lenet · batch 8"]


@pytest.mark.parametrize("name", slowdown_tables.FORMATS)
def test_every_slowdown_format_has_figures_and_reasons(boards, name):
    shown = slowdown_tables.FORMATS[name](slowdown.build_slowdown_tables(boards, reference="torch"))
    for text in ("5.0", "numpy", "no such layer", "mxnet", "alexnet"):
        assert text in shown


@pytest.mark.parametrize("name", ["text", "markdown"])
def test_a_framework_has_one_row_in_tables_that_fit(make_launches, name):
    networks = ["lenet", "convnet", "alexnet", "caffenet", "googlenet", "resnet50"]
    frameworks = ["caffe", "mxnet", "tensorflow", "torch"]
    launch_records, certificates = certify_records(
        [
            launch
            for workload in networks
            for speed, framework in enumerate(frameworks, 10)
            for launch in make_launches(speed, framework=framework, workload=workload)
        ]
    )
    slowdown_list = slowdown.build_slowdown_tables(all_tables(launch_records, certificates))
    whole = slowdown_tables.FORMATS[name](slowdown_list)
    shown = slowdown_tables.FORMATS[name](slowdown_list, 100)
    table_lines = [line for line in shown.splitlines() if not line.startswith("#")]
    assert max(map(len, table_lines)) <= 100 < max(map(len, whole.splitlines()))
    assert not set(re.findall(r"[\w.()–]+", whole)) - set(re.findall(r"[\w.()–]+", shown))
    headers = [
        line.split() for line in shown.splitlines() if line.lstrip("| ").startswith("framework ")
    ]
    names = [field for header in headers for field in header if field in networks]
    assert sorted(names) == sorted(2 * networks)  # slowdowns, and what they were reached with
    rows = [line for line in shown.splitlines() if line.lstrip("| ").startswith("caffe ")]
    assert len([header for header in headers if "by" not in header]) == len(rows)


def test_slowdown_json_and_csv_contain_all_entries(boards):
    slowdown_list = slowdown.build_slowdown_tables(boards, reference="torch")
    [document] = json.loads(slowdown_tables.to_json(slowdown_list))["slowdowns"]
    assert document["reference"] == "torch"
    assert [network["name"] for network in document["networks"]] == ["alexnet", "convnet", "lenet"]
    torch_row = next(row for row in document["rows"] if row["group"] == {"framework": "torch"})
    lenet = next(network for network in torch_row["networks"] if network["network"] == "lenet")
    assert lenet["slowdown"]["value"] == 1 and lenet["configuration"]["kernel"] == "numpy"
    assert lenet["configuration"]["configurations"] == 2
    lines = list(csv.DictReader(io.StringIO(slowdown_tables.to_csv(slowdown_list))))
    assert len(lines) == 4 * 3
    assert {line["reason"] for line in lines} >= {"", "not measured", "unsupported: no such layer"}
    assert {line["reference"] for line in lines} == {"torch"}
    assert slowdown_tables.to_csv([]) == "" and slowdown.build_slowdown_tables([]) == []


def test_slowdowns_without_a_claim_and_noisy_launches_are_named(make_launches):
    conditions = {"load_before": 0, "load_after": 0, "steal_seconds": 0, "swap_bytes": 10**9}
    noisy = {"conditions": Conditions(**conditions)}
    certified, certificates = certify_records(
        [
            *make_launches(100, framework="torch"),
            *make_launches(50, framework="caffe"),
            *make_launches(20, framework="mxnet", fields=noisy),
        ]
    )
    text = slowdown_tables.FORMATS["text"](
        slowdown.build_slowdown_tables(all_tables(certified, certificates))
    )
    assert "Ranks may change: mxnet in lenet (" in text and "torch in lenet" not in text
    assert "5 of 15 launches were noisy" in text
