"""Recompute the figures of tables from the records' JSON and the formulas in docs/method.md.

The tests use none of xfbench's arithmetic: `method_reader` has that of throughput and comparisons.
"""

import itertools
import json
import math
import statistics
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from scipy import stats

from tests.analysis import method_reader
from tests.sample_records import SOFTWARE, UNKNOWN_CERTIFICATE, certify_records, vary_record
from xfbench.analysis import leaderboard
from xfbench.host import machine
from xfbench.model import certificate
from xfbench.model.record import Conditions, Epoch, Limit
from xfbench.store.results_folder import Store

FRAMEWORKS = {"torch": 0.010, "mxnet": 0.0101, "caffe": 0.025}
NETWORKS = ["lenet", "convnet", "convnet-quick"]
SEEDS = {0: 4, 1: 3}  # launches by seed
SIZES = {"workload": "lenet", "global_batch_size": 64, "batch_size_per_rank": 64, "data": "digits"}
MACHINE = machine.describe_machine()
START = datetime(2026, 11, 20, 8, tzinfo=UTC)


# Figures of a cell by itself


@pytest.fixture
def results(tmp_path, record):
    """A results folder of three cells of seven launches with two seeds.

    Some launches are outliers, and the level of one changes.
    """
    random = np.random.default_rng(11)
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    places = [(seed, launch) for seed, count in SEEDS.items() for launch in range(1, count + 1)]
    for framework, step in FRAMEWORKS.items():
        for seed, launch in places:
            is_slow = (seed, launch) == places[-1]
            level = step * math.exp(random.normal(0, 0.01)) * (1.3 if is_slow else 1)
            seconds = level * np.exp(random.normal(0, 0.02, 40))
            if (seed, launch) == places[-2] and framework == "caffe":
                seconds[20:] *= 1.5
            draft = record(
                steps=tuple(seconds), launch=launch, framework=framework, seed=seed, **SIZES
            )
            measurement = draft.measurement.model_copy(
                update={
                    "startup_seconds": float(random.uniform(1, 3)),
                    "energy_joules": float(random.uniform(10, 20)),
                    "energy_seconds": float(random.uniform(1, 2)),
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
                # Caffe's products were disturbed: its launches are faster.
                matrix_product=3e10 if framework == "caffe" else 9e10,
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
                **{"machine": MACHINE, "software": SOFTWARE},
            }
            store.add(type(draft).make(**fields), None)
    return store.folder


def expected_figures(documents):
    """Return a row's figures, computed from the JSON of its records."""
    batch = documents[0]["request"]["global_batch_size"]
    speeds = [method_reader.throughput_of_launch(document) for document in documents]
    macs = documents[0]["workload"]["train_macs_per_image"]
    shares = [
        2 * macs * speed / (document["limit"]["matrix_product"] * document["request"]["ranks"])
        for speed, document in zip(speeds, documents, strict=True)
    ]
    accuracies = [
        statistics.fmean(
            document["learning"][-1]["test_accuracy"]
            for document in documents
            if document["request"]["seed"] == seed
        )
        for seed in SEEDS
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
        power = measurement["energy_joules"] / measurement["energy_seconds"]
        return power * statistics.median(measurement["step_seconds"]) / batch

    def median(values):
        return None if None in values else statistics.median(values)

    launches = method_reader.read_launches(documents)
    measurements = [document["measurement"] for document in documents]
    return {
        **method_reader.throughput_of_cell(launches),
        **method_reader.describe_steps(documents),
        "outliers": method_reader.count_far_off(launches),
        "unstable": sum(
            is_level_changed(document["measurement"]["step_seconds"]) for document in documents
        ),
        "share_of_peak": None if statistics.median(shares) > 1 else statistics.median(shares),
        "test_accuracy": statistics.fmean(accuracies),
        "accuracy_half_width": stats.t.ppf(0.975, len(accuracies) - 1) * stats.sem(accuracies),
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
    documents = method_reader.read_documents(results)
    assert len(documents) == 21
    [table] = leaderboard.build_tables(
        Store(results).records(), certificate.read_certificates(results)
    )
    rows = {row["framework"]: row for row in table.document()["unranked"]}
    for framework_documents in method_reader.group_by_row(documents):
        framework = framework_documents[0]["request"]["framework"]
        expected, row = expected_figures(framework_documents), rows[framework]
        figures = {**row, **row["costs"], **row["steps"], **row["images_per_second"]}
        figures["accuracy_half_width"] = (row["accuracy"]["high"] - row["accuracy"]["low"]) / 2
        for name, value in expected.items():
            assert figures[name] == (None if value is None else pytest.approx(value)), name
    assert [rows[name]["outliers"] for name in FRAMEWORKS] == [1, 1, 2]
    assert [rows[name]["unstable"] for name in FRAMEWORKS] == [0, 0, 1]
    assert [rows[name]["steps"]["two_modes"] for name in FRAMEWORKS] == [0, 0, 1]
    best = max(row["images_per_second"]["value"] for row in rows.values())
    for row in rows.values():
        relative_speed = row["images_per_second"]["value"] / best
        assert row["relative_to_best"] == pytest.approx(relative_speed)


# Tables and comparisons of several cells


@dataclass(frozen=True)
class Scenario:
    """How the launches of several cells are drawn.

    `sessions` has the number of blocks of each session. `configurations` has the number of cells
    of each framework. A launch is missing with the probability `missing`, and far off with the
    probability `far_off`. A cell lacks a session with the probability `absent`. If `is_old` is
    true, the records name no session, and each day has two sessions.
    `rules` are those that the family of all pairs needs: kinds of differences and "outliers".
    """

    sessions: tuple[int, ...]
    rules: str
    configurations: tuple[int, ...] = (1, 1, 1)
    seeds: int = 1
    missing: float = 0.0
    far_off: float = 0.0
    absent: float = 0.0
    is_old: bool = False
    random_seed: int = 4


SCENARIOS = {
    "one launch": Scenario((1,), "unknown"),
    "two blocks": Scenario((2,), "blocks"),
    "five blocks": Scenario((5,), "blocks"),
    "launches missing": Scenario((5,), "blocks unpaired", (2, 2, 1), missing=0.2, random_seed=5),
    "outliers": Scenario((9,), "blocks outliers", (1, 2, 2), far_off=0.1),
    "outliers, launches missing": Scenario(
        (15,), "blocks unpaired outliers", (2, 1, 1), missing=0.2, far_off=0.1, random_seed=6
    ),
    "two sessions": Scenario((6, 3), "blocks outliers", (2, 2), far_off=0.1),
    "three sessions": Scenario((7, 3, 2), "sessions outliers", (1, 2), far_off=0.1),
    "four sessions": Scenario((4, 3, 5, 1), "sessions", (2, 2), missing=0.2),
    "some sessions in common": Scenario(
        (2, 1, 3, 2, 6, 2),
        "blocks sessions unpaired unknown outliers",
        (3, 3),
        missing=0.25,
        far_off=0.1,
        absent=0.5,
        random_seed=23,
    ),
    "three seeds": Scenario((3,), "blocks outliers", (2, 2), seeds=3, far_off=0.1),
    "earlier versions": Scenario((2, 2, 2), "sessions", (1, 2), 2, missing=0.1, is_old=True),
    "earlier versions, one day": Scenario((5, 3), "blocks", (2, 2), is_old=True),
}
scenarios = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)


def draw_launches(scenario):
    """Return arguments of `make_launch` for all launches of a scenario, in the order of time."""
    random = np.random.default_rng(scenario.random_seed)
    cells = [
        {"framework": framework, "threads": threads}
        for framework, count in zip(FRAMEWORKS, scenario.configurations, strict=False)
        for threads in range(1, count + 1)
    ]
    levels = random.normal(math.log(1000), 0.03, len(cells))
    noises = 0.02 * np.exp(random.normal(0, 0.4, len(cells)))
    has_session = random.random((len(cells), len(scenario.sessions))) >= scenario.absent
    has_session[np.arange(len(cells)), random.integers(len(scenario.sessions), size=len(cells))] = 1
    launches = []
    for session, blocks in enumerate(scenario.sessions):
        for seed, launch, number in itertools.product(
            range(scenario.seeds), range(1, blocks + 1), random.permutation(len(cells))
        ):
            shift = random.normal(0, noises[number])
            shift += random.choice([-0.3, 0.3]) * (random.random() < scenario.far_off)
            is_missing = random.random() < scenario.missing and launch > 1
            if is_missing or not has_session[number, session]:
                continue
            fields = {"session": f"session {session}"}
            if scenario.is_old:
                created = START + timedelta(days=session // 2, minutes=len(launches))
                fields = {"session": None, "created": created}
            launches.append(
                {
                    "log_throughput": levels[number] + 0.02 * session + shift,
                    "launch": launch,
                    "seed": seed,
                    **cells[number],
                    **fields,
                }
            )
    return launches


@pytest.fixture
def make_launch(cell, record):
    """A function that returns the record of a launch with the given ln of the throughput."""

    def make(log_throughput, launch=1, session=None, created=None, status="ok", **request):
        request = {**SIZES, **request}
        seconds = request["global_batch_size"] / math.exp(log_throughput)
        named = {"session": session, "position": None if session is None else launch}
        fields = {
            "request": cell(**request).request(launch).model_copy(update=named),
            "machine": MACHINE,
            "software": SOFTWARE,
            "status": status,
            "reason": None if status == "ok" else "no memory",
        }
        if created:
            fields["created"] = f"{created:%Y-%m-%dT%H:%M:%S}.000Z"
        return record((0.97 * seconds, seconds, 1.02 * seconds), launch, fields, **request)

    return make


@pytest.fixture
def write_results(tmp_path):
    """A function that writes records and their certificates to a new results folder."""
    numbers = itertools.count()

    def write(records, uncertified_records=()):
        store = Store(tmp_path / f"results-{next(numbers)}")
        store.create_and_check_folders()
        certified_records, certificates = certify_records(records)
        for proof in certificates.values():
            proof.write(store.certificate_path(proof.id))
        for one in (*certified_records, *uncertified_records):
            store.add(one, None)
        return store.folder

    return write


@pytest.fixture
def print_json(run_inline):
    """A function that runs a command of xfbench and returns what it prints with `--json`."""

    def run(*arguments):
        process = run_inline(*arguments, "--json")
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return run


def read_cells(folder, *fields):
    """Return the launches of each row of a results folder, by these fields of the request."""
    return {
        tuple(documents[0]["request"][field] for field in fields): method_reader.read_launches(
            documents
        )
        for documents in method_reader.group_by_row(method_reader.read_documents(folder))
    }


def needed_rules(cells, pairs):
    """Return the rules that a family needs, as in `Scenario`."""
    differences = method_reader.family_differences(cells, pairs).values()
    kinds = {
        "unknown" if difference.variance is None else difference.kind for difference in differences
    }
    return kinds | ({"outliers"} if method_reader.pull_in_outliers(cells) != cells else set())


def assert_ratio(figure, expected):
    """Assert that a ratio and its interval are those that the reader computed."""
    assert figure["value"] == pytest.approx(expected.ratio)
    for name in ("low", "high"):
        value = getattr(expected, name)
        assert figure[name] == (None if value is None else pytest.approx(value))


def assert_comparison(comparison, expected):
    """Assert that the figures of `compare` are the reader's."""
    assert_ratio(comparison["ratio"], expected)
    assert comparison["launches"] == expected.difference.count
    assert comparison["paired"] == (expected.difference.kind != "unpaired")
    if expected.low is not None:
        assert comparison["verdict"] == expected.verdict
        assert comparison["p"] == pytest.approx(expected.p)
        assert comparison["smallest_visible_difference"] == pytest.approx(expected.could_be_seen)


def assert_best(row, best_row, comparison):
    """Assert that a row's figures in "of best" are the reader's."""
    ratio = row["images_per_second"]["value"] / best_row["images_per_second"]["value"]
    assert row["relative_to_best"] == pytest.approx(ratio)
    if row is best_row:
        assert row["relative_interval"] is None
    else:
        assert_ratio(row["relative_interval"], comparison)
        assert row["relative_interval"]["launches"] == comparison.difference.count


def assert_figures(row, launches):
    """Assert that the figures of a row that depend on its launches alone are the reader's."""
    throughput = method_reader.throughput_of_cell(launches)
    if len(launches) == 1:  # neither an interval nor a range
        throughput |= {"low": None, "high": None}
        del throughput["confidence"]
    else:
        spread = method_reader.spread(launches)
        assert {name: row["spread"][name] for name in spread} == pytest.approx(spread)
    label = throughput.pop("label")
    assert row["images_per_second"]["label"] == label
    assert {name: row["images_per_second"][name] for name in throughput} == pytest.approx(
        throughput
    )
    assert row["outliers"] == method_reader.count_far_off(launches)
    assert row["sessions"] == len(method_reader.values_by_session(launches))


@scenarios
def test_leaderboards_follow_from_the_record_files(
    scenario, make_launch, write_results, print_json
):
    folder = write_results([make_launch(**launch) for launch in draw_launches(scenario)])
    cells = read_cells(folder, "framework", "threads")
    assert len(cells) == sum(scenario.configurations)
    assert needed_rules(cells, list(itertools.combinations(cells, 2))) == {*scenario.rules.split()}

    [table] = print_json("leaderboard", "--results", folder)["tables"]
    rows = {(row["framework"], row["threads"]): row for row in table["rows"]}
    assert rows.keys() == cells.keys()
    groups = [[name] for name in rows]
    comparisons = method_reader.compare_groups(cells, groups)
    best = method_reader.choose_fastest(cells, cells)
    for (name, row), rank in zip(
        rows.items(), method_reader.rank_groups(cells, groups), strict=True
    ):
        assert_figures(row, cells[name])
        assert row["rank"] == rank
        assert_best(row, rows[best], comparisons.get((name, best)))

    [table] = print_json("leaderboard", "--by", "framework", "--results", folder)["tables"]
    rows = table["rows"]
    assert len(rows) == len(scenario.configurations)
    groups = [[name for name in cells if name[0] == row["framework"]] for row in rows]
    comparisons = method_reader.compare_groups(cells, groups)
    best_cells = [method_reader.choose_best(cells, group) for group in groups]
    best = method_reader.choose_fastest(cells, best_cells)
    for group, row, name, rank in zip(
        groups, rows, best_cells, method_reader.rank_groups(cells, groups), strict=True
    ):
        assert (row["framework"], row["threads"]) == name
        assert row["configurations"] == len(group)
        assert row["rank"] == rank
        assert_best(row, rows[best_cells.index(best)], comparisons.get((name, best)))


def test_the_interval_follows_from_the_record_files_for_2_to_20_launches(
    make_launch, write_results, print_json
):
    random = np.random.default_rng(5)
    counts = range(2, 21)
    folder = write_results(
        [
            make_launch(random.normal(7, 0.03), launch, "session", threads=count)
            for count in counts
            for launch in range(1, count + 1)
        ]
    )
    [table] = print_json("leaderboard", "--results", folder)["tables"]
    cells = read_cells(folder, "threads")
    ranks = method_reader.rank_groups(cells, [[(row["threads"],)] for row in table["rows"]])
    assert {len(launches) for launches in cells.values()} == {*counts}
    for row, rank in zip(table["rows"], ranks, strict=True):
        assert_figures(row, cells[row["threads"],])
        assert row["rank"] == rank
    labels = {row["images_per_second"]["label"] for row in table["rows"]}
    assert labels == {"claim", "indicative", "smoke"}


def test_cells_without_rank_are_in_no_comparison(make_launch, write_results, print_json):
    """Of the cells without a rank, one's certificate is lost, and one has too many bad launches."""
    random = np.random.default_rng(6)
    failed = {2: {3, 5}, 3: {4}}  # launches by threads
    records = {
        threads: [
            make_launch(
                random.normal(7 + 0.1 * threads, 0.02) + (0.3 if launch == 2 else 0),
                launch,
                threads=threads,
                status="failed" if launch in failed.get(threads, ()) else "ok",
            )
            for launch in range(1, 9)
        ]
        for threads in range(1, 6)
    }
    certified = [one for threads in range(1, 5) for one in records[threads]]
    # Without this, the other cells' certificate would cover these launches too.
    lost = [vary_record(one, certificate=UNKNOWN_CERTIFICATE) for one in records[5]]
    folder = write_results(certified, lost)
    [table] = print_json("leaderboard", "--results", folder)["tables"]
    documents = method_reader.group_by_row(method_reader.read_documents(folder))
    is_ranked = {
        row_documents[0]["request"]["threads"]: method_reader.is_ranked(row_documents)
        for row_documents in documents
    }
    assert is_ranked == {1: True, 2: False, 3: True, 4: True, 5: True}
    names = [(row["threads"],) for row in table["rows"]]
    assert names == [(4,), (3,), (1,)]
    cells = read_cells(folder, "threads")
    comparisons = method_reader.compare_groups(cells, [[name] for name in names])
    for name, row in zip(names, table["rows"], strict=True):
        assert_best(row, table["rows"][0], comparisons.get((name, names[0])))
    for row in table["unranked"]:
        assert_figures(row, cells[row["threads"],])
        assert (row["rank"], row["relative_interval"]) == (None, None)


def test_the_best_of_a_framework_has_three_launches_if_any_has(
    make_launch, write_results, print_json
):
    random = np.random.default_rng(10)
    counts = {("torch", 1): 3, ("torch", 2): 2, ("mxnet", 1): 1, ("mxnet", 2): 2}
    folder = write_results(
        [
            make_launch(
                random.normal(7 + threads, 0.02),
                launch,
                "session",
                framework=framework,
                threads=threads,
            )
            for (framework, threads), count in counts.items()
            for launch in range(1, count + 1)
        ]
    )
    [table] = print_json("leaderboard", "--by", "framework", "--results", folder)["tables"]
    cells = read_cells(folder, "framework", "threads")
    assert {name: len(launches) for name, launches in cells.items()} == counts
    groups = [[name for name in cells if name[0] == row["framework"]] for row in table["rows"]]
    best_cells = [method_reader.choose_best(cells, group) for group in groups]
    assert best_cells == [("mxnet", 2), ("torch", 1)]
    assert [(row["framework"], row["threads"]) for row in table["rows"]] == best_cells
    assert [row["rank"] for row in table["rows"]] == method_reader.rank_groups(cells, groups)


def test_asynchronous_ranks_add_up(make_launch, write_results, print_json):
    draft = make_launch(
        7, session="session", ranks=2, strategy="dist_async", scaling="weak", batch_size_per_rank=32
    )
    seconds = ((0.03, 0.04, 0.06), (0.02, 0.02, 0.05))
    measurement = draft.measurement.model_copy(update={"rank_step_seconds": seconds})
    folder = write_results([vary_record(draft, measurement=measurement)])
    [table] = print_json("leaderboard", "--results", folder)["tables"]
    [launches] = read_cells(folder).values()
    [row] = table["unranked"]
    assert row["images_per_second"]["value"] == pytest.approx(32 / 0.04 + 32 / 0.02)
    assert_figures(row, launches)


COMPARED = {
    "one launch": Scenario((1,), "unknown"),
    "five blocks": Scenario((5,), "blocks"),
    "outliers, launches missing": Scenario(
        (10,), "blocks unpaired outliers", missing=0.06, far_off=0.1, random_seed=5
    ),
    "two sessions": Scenario((3, 2), "blocks"),
    "three sessions": Scenario((3, 2, 2), "sessions", missing=0.1),
    "some sessions in common": Scenario(
        (1, 2, 6, 2, 1), "blocks sessions unknown outliers", absent=0.5, far_off=0.1, random_seed=6
    ),
    "earlier versions": Scenario((3, 4, 3), "sessions", is_old=True),
}


@pytest.mark.parametrize(
    ("sides", "name"),
    [*(("filters", name) for name in COMPARED), ("folders", "outliers, launches missing")],
)
def test_comparisons_follow_from_the_record_files(
    sides, name, make_launch, write_results, print_json
):
    """The cells of A and B differ in threads or are in two folders; pairs differ in the kernel."""
    records = {"A": [], "B": []}
    for launch in draw_launches(replace(COMPARED[name], configurations=(4, 4))):
        side = {"torch": "A", "mxnet": "B"}[launch.pop("framework")]
        kernel = f"kernel {launch.pop('threads')}"
        threads = 2 if sides == "filters" and side == "B" else 1
        records[side].append(
            make_launch(**launch, framework="torch", kernel=kernel, threads=threads)
        )
    if sides == "filters":
        folder = write_results([*records["A"], *records["B"]])
        cells = read_cells(folder, "threads", "kernel")
        cells = {("AB"[threads - 1], kernel): cells[threads, kernel] for threads, kernel in cells}
        document = print_json("compare", "threads=1", "threads=2", "--results", folder)
    else:
        folders = [write_results(side_records) for side_records in records.values()]
        cells = {
            (side, kernel): launches
            for side, folder in zip("AB", folders, strict=True)
            for (kernel,), launches in read_cells(folder, "kernel").items()
        }
        document = print_json("compare", *folders)

    kernels = [comparison["a"].split(" · ")[2] for comparison in document["comparisons"]]
    pairs = [(("A", kernel), ("B", kernel)) for kernel in kernels]
    assert len({*kernels}) == 4
    assert needed_rules(cells, pairs) == {*COMPARED[name].rules.split()}
    expected = method_reader.compare_family(cells, pairs)
    for comparison, pair in zip(document["comparisons"], pairs, strict=True):
        assert_comparison(comparison, expected[pair])
    if all(comparison.low is not None for comparison in expected.values()):
        uncorrected = method_reader.compare_family(cells, pairs, interval_count=1)
        mean = method_reader.geometric_mean(uncorrected.values())
        assert document["geometric_mean"] == pytest.approx(mean.pop("value"))
        assert document["geometric_mean_interval"] == pytest.approx(mean)


def test_comparisons_without_a_common_session_follow_from_the_record_files(
    make_launch, write_results, print_json
):
    """Cells with three sessions or more have an interval, others a reason why they have none."""
    random = np.random.default_rng(9)
    sessions = {("A", "x"): 3, ("B", "x"): 4, ("A", "y"): 2, ("B", "y"): 4}
    folders = {
        side: write_results(
            [
                make_launch(
                    random.normal(7, 0.05), launch, f"{side}{kernel}{number}", kernel=kernel
                )
                for kernel in "xy"
                for number in range(sessions[side, kernel])
                for launch in range(1, 2 + number)
            ]
        )
        for side in "AB"
    }
    document = print_json("compare", *folders.values())
    cells = {
        (side, kernel): launches
        for side, folder in folders.items()
        for (kernel,), launches in read_cells(folder, "kernel").items()
    }
    pairs = [(("A", kernel), ("B", kernel)) for kernel in "xy"]
    assert needed_rules(cells, pairs) == {"unpaired", "unknown"}
    expected = method_reader.compare_family(cells, pairs)
    known, unknown = document["comparisons"]
    assert_comparison(known, expected[pairs[0]])
    assert known["reason"] is None
    assert_comparison(unknown, expected[pairs[1]])
    assert unknown["verdict"] is None
    assert "3 sessions or more" in unknown["reason"]


@pytest.mark.parametrize("sessions", [(10,), (15,), (3, 5, 6)], ids=str)
def test_comparisons_of_cells_with_themselves_follow_from_the_record_files(
    sessions, make_launch, write_results, print_json
):
    scenario = Scenario(sessions, "", (2,), far_off=0.1)
    folder = write_results([make_launch(**launch) for launch in draw_launches(scenario)])
    document = print_json("compare", "--self", "workload=lenet", "--results", folder)
    cells = read_cells(folder, "threads")
    expected = [method_reader.compare_with_itself(cells[threads,]) for threads in (1, 2)]
    for comparison, one in zip(document["comparisons"], expected, strict=True):
        assert_ratio(comparison["ratio"], one)
        assert comparison["launches"] == sum(sessions) // 2
        assert comparison["verdict"] == one.verdict


def test_efficiencies_follow_from_the_record_files(make_launch, write_results, print_json):
    random = np.random.default_rng(8)
    records = []
    for launch, ranks in itertools.product(range(1, 9), (1, 2, 4)):
        log_throughput = random.normal(7 + math.log(ranks**0.9), 0.02)
        log_throughput += 0.3 if launch == ranks else 0
        fields = {"ranks": ranks, "scaling": "strong", "batch_size_per_rank": 64 // ranks}
        fields["strategy"] = "none" if ranks == 1 else "all-reduce"
        records.append(make_launch(log_throughput, launch, "session", **fields))
    folder = write_results(records)
    [table] = print_json("leaderboard", "--results", folder)["tables"]
    cells = read_cells(folder, "ranks")
    efficiencies = {row["ranks"]: row["efficiency"] for row in table["rows"]}
    assert efficiencies[1]["value"] == 1
    for ranks in (2, 4):
        comparison = method_reader.compare_pair(cells[ranks,], cells[1,])
        for name, value in (("value", "ratio"), ("low", "low"), ("high", "high")):
            expected = getattr(comparison, value) / ranks
            assert efficiencies[ranks][name] == pytest.approx(expected)


def test_slowdowns_follow_from_the_record_files(make_launch, write_results, print_json):
    folder = write_results(
        [
            make_launch(**{**launch, "threads": 1, "workload": NETWORKS[launch["threads"] - 1]})
            for launch in draw_launches(Scenario((7,), "", (3, 3, 3), far_off=0.05))
        ]
    )
    [table] = print_json("leaderboard", "--view", "slowdown", "--results", folder)["slowdowns"]
    cells = read_cells(folder, "framework", "workload")
    assert table["reference"] == "torch"
    others = [framework for framework in FRAMEWORKS if framework != "torch"]
    pairs = {
        (framework, network): (("torch", network), (framework, network))
        for framework in others
        for network in NETWORKS
    }
    comparisons = method_reader.compare_family(
        cells, list(pairs.values()), interval_count=len(pairs) + 2 * len(others)
    )
    for row in table["rows"]:
        framework = row["group"]["framework"]
        if framework == "torch":
            continue
        of_row = [comparisons[pairs[framework, network]] for network in NETWORKS]
        for figure in row["networks"]:
            assert_ratio(figure["slowdown"], comparisons[pairs[framework, figure["network"]]])
        mean = method_reader.geometric_mean(of_row)
        assert {name: row["overall"][name] for name in mean} == pytest.approx(mean)
