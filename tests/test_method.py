"""What a table shows, computed again from the records' JSON alone, as docs/method.md says.

Nothing of xfbench's arithmetic is used here: a reader has the files and the formulas.
"""

import json
import math
import statistics

import numpy as np
import pytest
from scipy import stats

from xfbench.analysis import leaderboard
from xfbench.equality import certificate
from xfbench.records.record import Conditions, Epoch, Limit
from xfbench.results.store import Store

FRAMEWORKS = {"torch": 0.010, "mxnet": 0.0101, "caffe": 0.025}
SIZES = {"workload": "lenet", "global_batch_size": 64, "batch_size_per_rank": 64, "data": "digits"}


@pytest.fixture
def results(tmp_path, record):
    """A results folder: three cells of seven launches, one of them far off and one unstable."""
    random = np.random.default_rng(11)
    store = Store(tmp_path / "results")
    store.prepare()
    for framework, step in FRAMEWORKS.items():
        for launch in range(1, 8):
            level = step * math.exp(random.normal(0, 0.01)) * (1.3 if launch == 7 else 1)
            seconds = level * np.exp(random.normal(0, 0.02, 40))
            if launch == 6 and framework == "caffe":
                seconds[20:] *= 1.5
            made = record(steps=tuple(seconds), launch=launch, framework=framework, **SIZES)
            measured = made.measurement.model_copy(
                update={
                    "startup_seconds": float(random.uniform(1, 3)),
                    "energy_joules": float(random.uniform(10, 20)),
                    "peak_rss_bytes": int(random.integers(1e8, 2e8)),
                }
            )
            epochs = [
                Epoch(
                    epoch=n,
                    seconds=float(random.uniform(0.9, 1.1)),
                    train_loss=1.0,
                    test_loss=1.0,
                    test_accuracy=0.9 + 0.03 * n + float(random.uniform(-0.01, 0.01)),
                )
                for n in (1, 2, 3)
            ]
            limit = Limit(
                threads=1,
                precision="float32",
                matrix_product=9e10,
                memory_bandwidth=2e10,
                source="measured",
            )
            quiet = Conditions(load_before=0, load_after=0, steal_seconds=0, swap_bytes=0)
            fields = {
                **{name: getattr(made, name) for name in ("status", "cell", "request", "workload")},
                **{"measurement": measured, "observed": made.observed, "learning": tuple(epochs)},
                **{"limit": limit, "conditions": quiet},
            }
            store.add(type(made).make(**fields), None)
    return store.folder


def by_hand(files):
    """A row's figures from the JSON of its records, formula by formula."""
    counted = [one for one in files if steady(one["measurement"]["step_seconds"])]
    batch = files[0]["request"]["global_batch_size"]
    speeds = [batch / statistics.median(one["measurement"]["step_seconds"]) for one in counted]
    logs = [math.log(speed) for speed in speeds]
    mean, count = sum(logs) / len(logs), len(logs)
    half = stats.t.ppf(0.975, count - 1) * statistics.stdev(logs) / math.sqrt(count)
    centre = statistics.median(logs)
    deviations = [abs(value - centre) for value in logs]
    far = [0.6745 * one / statistics.median(deviations) > 3.5 for one in deviations]
    macs = files[0]["workload"]["train_macs_per_image"]
    shares = [
        2 * macs * speed / (one["limit"]["matrix_product"] * one["request"]["ranks"])
        for speed, one in zip(speeds, counted, strict=True)
    ]

    def until(one, accuracy):
        passed = one["measurement"]["startup_seconds"] + one["measurement"]["build_seconds"]
        for epoch in one["learning"]:
            passed += epoch["seconds"]
            if epoch["test_accuracy"] >= accuracy:
                return passed
        return None

    def joules(one):
        measured = one["measurement"]
        power = measured["energy_joules"] / measured["wall_seconds"]
        return power * statistics.median(measured["step_seconds"]) / batch

    def median(values):
        return None if None in values else statistics.median(values)

    measured = [one["measurement"] for one in files]
    return {
        "value": math.exp(mean),
        "low": math.exp(mean - half),
        "high": math.exp(mean + half),
        "launches": count,
        "outliers": sum(far),
        "unstable": len(files) - count,
        "share_of_peak": sum(shares) / len(shares),
        "test_accuracy": statistics.fmean(one["learning"][-1]["test_accuracy"] for one in files),
        "startup_seconds": median([one["startup_seconds"] for one in measured]),
        "build_seconds": median([one["build_seconds"] for one in measured]),
        "first_step_seconds": median([one["first_step_seconds"] for one in measured]),
        "solution_seconds": median([until(one, math.inf) or total(one) for one in files]),
        "accuracy_seconds": median([until(one, 0.95) for one in files]),
        "peak_rss_bytes": max(one["peak_rss_bytes"] for one in measured),
        "joules_per_image": median([joules(one) for one in files]),
    }


def total(one):
    measured = one["measurement"]
    epochs = sum(epoch["seconds"] for epoch in one["learning"])
    return measured["startup_seconds"] + measured["build_seconds"] + epochs


def steady(seconds):
    """Pettitt's test, for as many values as there are blocks of two: no change of 5 % at 1 %."""
    width = len(seconds) // 20
    blocks = [statistics.median(seconds[at : at + width]) for at in range(0, len(seconds), width)]
    count = len(blocks)
    ranks = stats.rankdata(blocks)
    sums = [abs(2 * sum(ranks[:k]) - k * (count + 1)) for k in range(1, count)]
    chance = 2 * math.exp(-6 * max(sums) ** 2 / (count**3 + count**2))
    change = sums.index(max(sums)) + 1
    shift = abs(statistics.median(blocks[:change]) / statistics.median(blocks[change:]) - 1)
    return not (chance < 0.01 and shift > 0.05)


def test_table_figures_follow_from_the_record_files(results):
    files = [json.loads(path.read_text()) for path in results.glob("records/*/*.json")]
    files.sort(key=lambda one: one["request"]["launch"])
    assert len(files) == 21
    [table] = leaderboard.tables(Store(results).records(), certificate.read_folder(results))
    rows = {row["framework"]: row for row in table.document()["unranked"]}
    for framework in FRAMEWORKS:
        own = [one for one in files if one["request"]["framework"] == framework]
        expected, row = by_hand(own), rows[framework]
        shown = {**row, **row["costs"], **row["images_per_second"]}
        for name, value in expected.items():
            assert shown[name] == (None if value is None else pytest.approx(value)), name
        assert shown["label"] == "claim"
    assert [rows[name]["outliers"] for name in FRAMEWORKS] == [1, 1, 1]
    assert [rows[name]["unstable"] for name in FRAMEWORKS] == [0, 0, 1]
    best = max(row["images_per_second"]["value"] for row in rows.values())
    for row in rows.values():
        of_best = row["images_per_second"]["value"] / best
        assert row["relative_to_best"] == pytest.approx(of_best)


def test_leaderboard_ranks_follow_from_the_record_files(results):
    """Pairs of launches of one block, Student's t on the differences of logarithms, Holm."""
    files = [json.loads(path.read_text()) for path in results.glob("records/*/*.json")]
    logs = {
        framework: {
            one["request"]["launch"]: math.log(
                64 / statistics.median(one["measurement"]["step_seconds"])
            )
            for one in files
            if one["request"]["framework"] == framework
            and steady(one["measurement"]["step_seconds"])
        }
        for framework in FRAMEWORKS
    }
    names = list(FRAMEWORKS)
    pairs = [(a, b) for n, a in enumerate(names) for b in names[n + 1 :]]
    found = {}
    for a, b in pairs:
        common = sorted(set(logs[a]) & set(logs[b]))
        differences = [logs[a][launch] - logs[b][launch] for launch in common]
        found[a, b] = stats.ttest_1samp(differences, 0)
    certain = set()
    for position, pair in enumerate(sorted(pairs, key=lambda pair: found[pair].pvalue)):
        if found[pair].pvalue >= 0.05 / (len(pairs) - position):
            break
        certain.add(pair if found[pair].statistic > 0 else pair[::-1])
    expected = [
        (
            1 + sum((other, name) in certain for other in names),
            len(names) - sum((name, other) in certain for other in names),
        )
        for name in names
    ]
    records = [*Store(results).records()]
    cells = [
        leaderboard.launch_speeds(r for r in records if r.request.framework == name)
        for name in names
    ]
    assert leaderboard.cell_ranks(cells) == expected
    assert expected[2] == (3, 3)
