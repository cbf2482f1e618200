"""Recompute the figures of a table from the records' JSON and the formulas in docs/method.md.

The tests use none of xfbench's arithmetic.
"""

import json
import math
import statistics

import numpy as np
import pytest
from scipy import stats

from xfbench.analysis import leaderboard
from xfbench.model import certificate
from xfbench.model.record import Conditions, Epoch, Limit
from xfbench.store.results_folder import Store

FRAMEWORKS = {"torch": 0.010, "mxnet": 0.0101, "caffe": 0.025}
SIZES = {"workload": "lenet", "global_batch_size": 64, "batch_size_per_rank": 64, "data": "digits"}


@pytest.fixture
def results(tmp_path, record):
    """A results folder of three cells of seven launches.

    Some launches are outliers, and the level of one changes.
    """
    random = np.random.default_rng(11)
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    for framework, step in FRAMEWORKS.items():
        for launch in range(1, 8):
            level = step * math.exp(random.normal(0, 0.01)) * (1.3 if launch == 7 else 1)
            seconds = level * np.exp(random.normal(0, 0.02, 40))
            if launch == 6 and framework == "caffe":
                seconds[20:] *= 1.5
            draft = record(steps=tuple(seconds), launch=launch, framework=framework, **SIZES)
            measurement = draft.measurement.model_copy(
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
            conditions = Conditions(load_before=0, load_after=0, steal_seconds=0, swap_bytes=0)
            fields = {
                **{
                    name: getattr(draft, name) for name in ("status", "cell", "request", "workload")
                },
                **{
                    "measurement": measurement,
                    "observed": draft.observed,
                    "learning": tuple(epochs),
                },
                **{"limit": limit, "conditions": conditions},
            }
            store.add(type(draft).make(**fields), None)
    return store.folder


def expected_figures(documents):
    """Return a row's figures, computed from the JSON of its records."""
    batch = documents[0]["request"]["global_batch_size"]
    speeds = [
        batch / statistics.median(document["measurement"]["step_seconds"]) for document in documents
    ]
    logs = [math.log(speed) for speed in speeds]
    mean, count = sum(logs) / len(logs), len(logs)
    half_width = stats.t.ppf(0.975, count - 1) * statistics.stdev(logs) / math.sqrt(count)
    centre = statistics.median(logs)
    deviations = [abs(value - centre) for value in logs]
    is_outlier = [
        0.6745 * deviation / statistics.median(deviations) > 3.5 for deviation in deviations
    ]
    macs = documents[0]["workload"]["train_macs_per_image"]
    shares = [
        2 * macs * speed / (document["limit"]["matrix_product"] * document["request"]["ranks"])
        for speed, document in zip(speeds, documents, strict=True)
    ]

    def seconds_to_accuracy(document, accuracy):
        elapsed = (
            document["measurement"]["startup_seconds"] + document["measurement"]["build_seconds"]
        )
        previous = None
        for epoch in document["learning"]:
            if epoch["test_accuracy"] >= accuracy:
                rise = epoch["test_accuracy"] - previous if previous else 0
                share = (accuracy - previous) / rise if rise else 1
                return elapsed + share * epoch["seconds"]
            elapsed += epoch["seconds"]
            previous = epoch["test_accuracy"]
        return None

    def joules_per_image(document):
        measurement = document["measurement"]
        power = measurement["energy_joules"] / measurement["wall_seconds"]
        return power * statistics.median(measurement["step_seconds"]) / batch

    def median(values):
        return None if None in values else statistics.median(values)

    measurements = [document["measurement"] for document in documents]
    return {
        "value": math.exp(mean),
        "low": math.exp(mean - half_width),
        "high": math.exp(mean + half_width),
        "launches": count,
        "outliers": sum(is_outlier),
        "unstable": sum(
            is_level_changed(document["measurement"]["step_seconds"]) for document in documents
        ),
        "share_of_peak": math.exp(sum(map(math.log, shares)) / len(shares)),
        "test_accuracy": statistics.fmean(
            document["learning"][-1]["test_accuracy"] for document in documents
        ),
        "startup_seconds": median([measurement["startup_seconds"] for measurement in measurements]),
        "build_seconds": median([measurement["build_seconds"] for measurement in measurements]),
        "first_step_seconds": median(
            [measurement["first_step_seconds"] for measurement in measurements]
        ),
        "solution_seconds": median(
            [
                seconds_to_accuracy(document, math.inf) or total_seconds(document)
                for document in documents
            ]
        ),
        "accuracy_seconds": median([seconds_to_accuracy(document, 0.95) for document in documents]),
        "peak_rss_bytes": max(measurement["peak_rss_bytes"] for measurement in measurements),
        "joules_per_image": median([joules_per_image(document) for document in documents]),
    }


def total_seconds(document):
    measurement = document["measurement"]
    epochs = sum(epoch["seconds"] for epoch in document["learning"])
    return measurement["startup_seconds"] + measurement["build_seconds"] + epochs


def is_level_changed(seconds):
    """Return whether the block medians have a step or a trend of more than 5 % (p < 0.001)."""
    width = max(1, len(seconds) // 40)
    ends = range(width, len(seconds) + 1, width)
    medians = [statistics.median(seconds[end - width : end]) for end in ends]
    logs = np.log(medians)
    count = len(logs)
    residuals_by_place = {}
    for place in range(3, count - 2):
        means = np.repeat([logs[:place].mean(), logs[place:].mean()], [place, count - place])
        residuals_by_place[place] = logs - means
    place = min(residuals_by_place, key=lambda place: sum(residuals_by_place[place] ** 2))
    shift = statistics.median(medians[:place]) / statistics.median(medians[place:]) - 1
    line = stats.linregress(range(count), logs)
    rise = math.exp(line.slope * (count - 1)) - 1
    line_residuals = logs - line.intercept - line.slope * np.arange(count)
    return (
        abs(shift) > 0.05
        and (count - 5) * change_probability(logs, residuals_by_place[place]) < 0.001
    ) or (abs(rise) > 0.05 and change_probability(logs, line_residuals) < 0.001)


def change_probability(logs, residuals):
    total, within, count = sum((logs - logs.mean()) ** 2), sum(residuals**2), len(logs)
    correlation = sum(residuals[1:] * residuals[:-1]) / within
    correlation += (2 + 4 * max(correlation, 0)) / count
    correlation = min(max(correlation, 0), 0.95)
    squared_t = (total - within) / within * (count - 2) * (1 - correlation) / (1 + correlation)
    return 2 * stats.t.sf(math.sqrt(squared_t), count - 2)


def test_table_figures_follow_from_the_record_files(results):
    documents = [json.loads(path.read_text()) for path in results.glob("records/*/*.json")]
    documents.sort(key=lambda document: document["request"]["launch"])
    assert len(documents) == 21
    [table] = leaderboard.build_tables(
        Store(results).records(), certificate.read_certificates(results)
    )
    rows = {row["framework"]: row for row in table.document()["unranked"]}
    for framework in FRAMEWORKS:
        framework_documents = [
            document for document in documents if document["request"]["framework"] == framework
        ]
        expected, row = expected_figures(framework_documents), rows[framework]
        figures = {**row, **row["costs"], **row["images_per_second"]}
        for name, value in expected.items():
            assert figures[name] == (None if value is None else pytest.approx(value)), name
        assert figures["label"] == "claim"
    assert [rows[name]["outliers"] for name in FRAMEWORKS] == [1, 1, 2]
    assert [rows[name]["unstable"] for name in FRAMEWORKS] == [0, 0, 1]
    best = max(row["images_per_second"]["value"] for row in rows.values())
    for row in rows.values():
        relative_speed = row["images_per_second"]["value"] / best
        assert row["relative_to_best"] == pytest.approx(relative_speed)


def test_leaderboard_ranks_follow_from_the_record_files(results):
    """Ranks follow from paired t-tests on logarithms of speeds, with Holm's correction."""
    documents = [json.loads(path.read_text()) for path in results.glob("records/*/*.json")]
    logs = {
        framework: {
            document["request"]["launch"]: math.log(
                64 / statistics.median(document["measurement"]["step_seconds"])
            )
            for document in documents
            if document["request"]["framework"] == framework
        }
        for framework in FRAMEWORKS
    }
    names = list(FRAMEWORKS)
    pairs = [(a, b) for n, a in enumerate(names) for b in names[n + 1 :]]
    tests = {}
    for a, b in pairs:
        common = sorted(set(logs[a]) & set(logs[b]))
        differences = [logs[a][launch] - logs[b][launch] for launch in common]
        tests[a, b] = stats.ttest_1samp(differences, 0)
    certain = set()
    for position, pair in enumerate(sorted(pairs, key=lambda pair: tests[pair].pvalue)):
        if tests[pair].pvalue >= 0.05 / (len(pairs) - position):
            break
        certain.add(pair if tests[pair].statistic > 0 else pair[::-1])
    expected = [
        (
            1 + sum((competitor, name) in certain for competitor in names),
            len(names) - sum((name, competitor) in certain for competitor in names),
        )
        for name in names
    ]
    records = [*Store(results).records()]
    cells = [
        leaderboard.counted_speeds_by_block(r for r in records if r.request.framework == name)
        for name in names
    ]
    assert leaderboard.cell_ranks(cells) == expected
    assert expected[2] == (3, 3)
