"""Slowdown: each against the best of its network, over networks, and why figures are missing."""

import csv
import io
import json
import math
import random

import numpy as np
import pytest

from tests.sample_records import SOFTWARE, certify_records
from xfbench.analysis import slowdown, statistics
from xfbench.analysis.leaderboard import tables as all_tables
from xfbench.host.machine import describe
from xfbench.layout import slowdown_tables

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
def launches(record):
    """A function that makes five launches, whose noise is that of the block they ran in."""

    def make(speed, fields=None, **request):
        chance = random.Random(1)
        shared = {"software": SOFTWARE, "machine": describe()}
        return [
            record(
                steps=(4 / speed * (1 + chance.uniform(0, 0.3)) * (1 + 0.002 * (launch % 2)),) * 3,
                launch=launch,
                fields={**shared, **(fields or {})},
                **request,
            )
            for launch in range(1, 6)
        ]

    return make


@pytest.fixture
def boards(launches):
    """Three frameworks on three networks, one of them tried by one alone; two have no figure."""
    made = [
        one
        for (framework, workload), speed in SPEEDS.items()
        for threads in (1, 2)
        for one in launches(
            speed / threads, framework=framework, workload=workload, threads=threads
        )
    ]
    known, certificates = certify_records(made)
    bad = {"status": "unsupported", "reason": "no such layer", "measurement": None}
    missing = [
        launches(1, framework="mxnet", workload="alexnet", fields=bad)[0],
        *launches(5, framework="jax", workload="lenet"),
    ]
    return all_tables([*known, *missing], certificates)


def entries(found):
    return {
        (line.name, network.name): entry
        for line in found.lines
        for network, entry in zip(found.networks, line.entries, strict=True)
    }


def test_slowdown_is_relative_to_the_best_of_each_network(boards):
    [found] = slowdown.slowdowns(boards)
    values = {key: one.slowdown.value for key, one in entries(found).items() if one.slowdown}
    best = {"lenet": 100, "convnet": 80, "alexnet": 10}
    assert values == pytest.approx(
        {key: best[key[1]] / speed for key, speed in SPEEDS.items()}, rel=1e-6
    )
    assert {one.row.threads for one in entries(found).values() if one.slowdown} == {1}


def test_slowdown_compares_launches_of_the_same_block(boards):
    """What all of a block have in common, here up to 30 %, is no part of a slowdown."""
    [found] = slowdown.slowdowns(boards)
    one = entries(found)["caffe", "lenet"].slowdown
    assert one.high / one.low - 1 < 1e-6
    apart = statistics.geometric_interval([*entries(found)["caffe", "lenet"].row.speeds.values()])
    assert apart.high / apart.low > 1.1


def test_missing_slowdown_shows_its_reason(boards):
    [found] = slowdown.slowdowns(boards)
    why = {key: one.reason for key, one in entries(found).items() if not one.slowdown}
    assert why["torch", "alexnet"] == slowdown.NOT_MEASURED
    assert why["mxnet", "alexnet"] == "unsupported: no such layer"
    assert "no equality certificate" in why["jax", "lenet"]
    shown = slowdown_tables.FORMATS["text"]([found])
    for text in ("not measured", "unsupported", "not ranked", "mxnet in alexnet: unsupported: no"):
        assert text in shown


def test_shared_reason_for_missing_figures_is_printed_once(launches):
    made = [one for name in ("torch", "caffe") for one in launches(10, framework=name)]
    made += [
        one
        for name in ("torch", "caffe")
        for one in launches(9, framework=name, workload="convnet")
    ]
    [found] = slowdown.slowdowns(all_tables(made, {}))
    [note] = slowdown_tables.notes(found)
    assert note.startswith("caffe, torch in convnet, lenet: no equality certificate")


def test_mean_slowdown_covers_only_common_networks(boards):
    [found] = slowdown.slowdowns(boards)
    assert found.common == ("convnet", "lenet")
    means = {line.name: line.overall for line in found.lines}
    assert means["jax"] is None
    assert means["torch"].value == pytest.approx(math.sqrt(80 / 40))
    assert means["caffe"].value == pytest.approx(math.sqrt(100 / 50))
    assert means["mxnet"].value == pytest.approx(math.sqrt(80 / 20 * 100 / 20))
    assert [line.name for line in found.lines][-1] == "jax"
    [alone] = slowdown.slowdowns([table for table in boards if table.workload == "lenet"])
    assert all(line.overall is None for line in alone.lines)


def test_mean_of_ratios_has_the_interval_of_a_mean():
    """Of one pair it is that pair's; of as many alike, narrower by the root of their number."""
    a = {(n, 0): 10 * 1.02 ** (n % 3) for n in range(6)}
    b = {(n, 0): 5 * 1.03 ** (n % 2) for n in range(6)}
    one, ratio = statistics.overall_ratio([(a, b)]), statistics.compare(a, b).ratio
    assert (one.value, one.low, one.high) == pytest.approx((ratio.value, ratio.low, ratio.high))
    many = statistics.overall_ratio([(a, b)] * 4)
    assert many.value == pytest.approx(one.value)
    narrower = math.log(one.high / one.low) / math.log(many.high / many.low)
    assert 2 < narrower < 2 * 1.4  # more launches are more degrees of freedom, too
    itself = statistics.overall_ratio([(a, b), (a, a)])
    assert itself.value == pytest.approx(math.sqrt(one.value))
    assert math.log(itself.high / itself.low) == pytest.approx(math.log(one.high / one.low) / 2)
    certain = statistics.overall_ratio([(a, a), (b, b)])
    assert (certain.value, certain.low, certain.high) == (1, None, None)
    single = {(0, 0): 5.0}
    assert statistics.overall_ratio([(a, b), (a, single)]).low is None
    with pytest.raises(ValueError):
        statistics.overall_ratio([])


def test_mean_of_ratios_covers_the_truth():
    chance = np.random.default_rng(3)

    def cell(speed):
        return {(n, 0): float(speed * np.exp(chance.normal(0, 0.05))) for n in range(5)}

    covered = 0
    for _ in range(400):
        found = statistics.overall_ratio(
            [(cell(2), cell(1)), (cell(8), cell(1)), (cell(4), cell(1))]
        )
        covered += found.low < 4 < found.high
    assert 0.92 <= covered / 400 <= 0.98


def test_slowdown_rows_can_be_grouped_by_several_fields(boards):
    [found] = slowdown.slowdowns(boards, ["framework", "threads"])
    names = [line.name for line in found.lines]
    assert "torch · 2" in names and len(names) == 7
    shown = slowdown_tables.FORMATS["text"]([found])
    assert "threads" in shown and "1 thread" not in shown


def test_network_names_include_the_batch_only_if_ambiguous(launches):
    made, certificates = certify_records(
        [
            *launches(10, workload="lenet"),
            *launches(10, workload="lenet", global_batch_size=8, batch_size_per_rank=8),
            *launches(10, workload="convnet"),
        ]
    )
    [found] = slowdown.slowdowns(all_tables(made, certificates))
    names = [network.name for network in found.networks]
    assert names == ["convnet", "lenet · batch 4", "lenet · batch 8"]


@pytest.mark.parametrize("name", slowdown_tables.FORMATS)
def test_every_slowdown_format_has_figures_and_reasons(boards, name):
    shown = slowdown_tables.FORMATS[name](slowdown.slowdowns(boards))
    for text in ("5.0", "numpy", "no such layer", "mxnet", "alexnet"):
        assert text in shown


def test_slowdown_json_and_csv_contain_all_entries(boards):
    [found] = json.loads(slowdown_tables.to_json(slowdown.slowdowns(boards)))["slowdowns"]
    assert [one["name"] for one in found["networks"]] == ["alexnet", "convnet", "lenet"]
    first = next(row for row in found["rows"] if row["group"] == {"framework": "torch"})
    lenet = next(one for one in first["networks"] if one["network"] == "lenet")
    assert lenet["slowdown"]["value"] == 1 and lenet["configuration"]["kernel"] == "numpy"
    assert lenet["configuration"]["configurations"] == 2
    lines = list(csv.DictReader(io.StringIO(slowdown_tables.to_csv(slowdown.slowdowns(boards)))))
    assert len(lines) == 4 * 3
    assert {line["reason"] for line in lines} >= {"", "not measured", "unsupported: no such layer"}
    assert slowdown_tables.to_csv([]) == "" and slowdown.slowdowns([]) == []
