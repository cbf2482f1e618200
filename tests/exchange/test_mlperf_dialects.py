"""Logs of every version of MLPerf are read, and what is not understood is reported by its line."""

import json

import pytest

from xfbench.store.results_folder import Store

START_S = 1_600_000_000


@pytest.fixture
def read_log(run_inline, tmp_path):
    """A function that imports lines: the figures by quantity, the records, and the process."""

    def read(lines, status=0):
        (tmp_path / "log.txt").write_text("\n".join(lines))
        completed = run_inline("results", "import", "log.txt")
        assert completed.returncode == status, completed.stderr
        records = list(Store(tmp_path / "results").records()) if status != 2 else []
        figures = {}
        for record in sorted(records, key=lambda record: record.created):
            figures.setdefault(record.figure.quantity, []).append(record.figure.value)
        return figures, records, completed

    return read


def format_mlp(key, seconds=0.0, value=None):
    text = "" if value is None else f": {value}"
    return f":::MLPv0.5.0 resnet {START_S + seconds:.9f} (train.py:7) {key}{text}"


def format_mll(key, seconds=0.0, value=None, **metadata):
    document = {"value": value, "metadata": {**metadata, "lineno": 7, "file": "train.py"}}
    return f":::MLL {START_S + seconds:.6f} {key}: {json.dumps(document)}"


def format_mllog(key, seconds=0.0, value=None, clock="time_ms", **metadata):
    time = START_S + seconds
    number = round(time * 1000) if clock == "time_ms" else time
    document = {"namespace": "", clock: number, "event_type": "", "key": key, "value": value}
    return ":::MLLOG " + json.dumps({**document, "metadata": metadata})


@pytest.mark.case("MLPerf log, version 0.5")
def test_log_of_version_0_5_is_read(read_log):
    lines = [
        format_mlp("run_start", 1),
        format_mlp("eval_accuracy", 5, '{"epoch": 1, "value": 0.25}'),
        format_mlp("eval_accuracy", 6, '{"epoch": 2, "value": {"BBOX": 0.5, "SEGM": 0.375}}'),
        format_mlp("eval_accuracy", 7, "0.75"),
        format_mlp("eval_accuracy", 8, "about 0.8"),
        format_mlp("run_stop", 11.5, '{"success": true}'),
    ]
    figures, records, completed = read_log(lines, status=1)
    assert figures == {
        "eval accuracy": [0.25, 0.75],
        "eval accuracy (BBOX)": [0.5],
        "eval accuracy (SEGM)": [0.375],
        "time to train": [10.5],
    }
    assert {record.citation.title for record in records} == {"MLPerf Training log, resnet"}
    assert {record.status for record in records} == {"ok"}
    assert "line 5: eval_accuracy is not a number: 'about 0.8'" in completed.stderr


@pytest.mark.case("MLPerf log, version 0.6", "Times to train")
def test_log_of_version_0_6_is_read(read_log):
    lines = [
        format_mll("run_start", 1.031),
        format_mll("eval_accuracy", 50, 0.25, epoch_num=4),
        format_mll("eval_accuracy", 99, 0.5, epoch_num=8),
        format_mll("run_stop", 101.807, status="success"),
    ]
    figures, records, _ = read_log(lines)
    assert figures == {"eval accuracy": [0.25, 0.5], "time to train": [100.776]}
    assert {record.status for record in records} == {"ok"}


@pytest.mark.case("MLPerf log with another name for the clock")
def test_log_with_seconds_of_an_aborted_run_is_read(read_log):
    lines = [
        format_mllog("run_start", 1, clock="time_s"),
        format_mllog("eval_accuracy", 3, 0.25, clock="time_s"),
        format_mllog("eval_accuracy", 5, 0.5, clock="time_s")[30:],
        format_mllog("eval_accuracy", 6, 0.5, clock="time_us"),
        format_mllog("run_stop", 8.25, clock="time_s", status="aborted"),
    ]
    figures, records, completed = read_log(lines, status=1)
    assert figures == {"eval accuracy": [0.25], "time to train": [7.25]}
    assert [record.reason for record in records if record.status == "failed"] == [
        "the run's status is aborted, not success"
    ]
    assert "line 3: the line has lost its beginning" in completed.stderr
    assert "line 4: no key or no time ('time_ms' or 'time_s'); the line has" in completed.stderr
    assert "time_us" in completed.stderr


def test_seconds_under_the_name_of_milliseconds_are_refused(read_log):
    line = format_mllog("eval_accuracy", 1, 0.5, clock="time_s").replace("time_s", "time_ms")
    _, _, completed = read_log([line], status=2)
    assert "line 1: time_ms is in seconds, not in milliseconds" in completed.stderr


@pytest.mark.case("Scores of several kinds in one value")
def test_scores_in_an_object_have_names(read_log):
    lines = [
        format_mllog("eval_accuracy", 1, {"BBOX": 0.25, "SEGM": 0.125}, epoch_num=1),
        format_mllog("eval_accuracy", 2, {"BBOX": 0.5, "SEGM": 0.375}, epoch_num=2),
    ]
    figures, _, _ = read_log(lines)
    assert figures == {"eval accuracy (BBOX)": [0.25, 0.5], "eval accuracy (SEGM)": [0.125, 0.375]}


def test_object_with_a_score_that_is_no_number_is_reported(read_log):
    lines = [
        format_mllog("eval_accuracy", 1, 0.25),
        format_mllog("eval_accuracy", 2, {"BBOX": 0.5, "SEGM": "high"}),
    ]
    figures, _, completed = read_log(lines, status=1)
    assert figures == {"eval accuracy": [0.25]}
    assert "line 2: eval_accuracy is not a number: 'high' (SEGM)" in completed.stderr


@pytest.mark.case("Scores of several kinds under one key")
def test_metric_in_the_metadata_is_part_of_the_name(read_log):
    lines = [
        format_mllog("eval_accuracy", 1, 80.5, metric="FID", step_num=1000),
        format_mllog("eval_accuracy", 2, 0.125, metric="CLIP", step_num=1000),
        format_mllog("eval_error", 3, 2.5, samples_count=64),
    ]
    figures, _, _ = read_log(lines)
    assert figures == {
        "eval accuracy (FID)": [80.5],
        "eval accuracy (CLIP)": [0.125],
        "eval error": [2.5],
    }


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        pytest.param(
            {"epoch_num": 0}, {"epoch_num": 0.75}, marks=pytest.mark.case("Part of an epoch")
        ),
        pytest.param(
            {"epoch_num": 0},
            {"epoch_num": 900_000},
            marks=pytest.mark.case("Samples instead of epochs"),
        ),
        ({"epoch_num": 900_000}, {"epoch_num": 900_000}),
        ({"epoch_num": 0.5}, {"epoch_num": 0.5}),
        ({"samples_count": 0}, {"samples_count": 64}),
        ({}, {}),
    ],
)
def test_what_is_not_one_epoch_gives_no_time_per_epoch(read_log, start, stop):
    lines = [
        format_mllog("run_start", 1),
        format_mllog("epoch_start", 1, **start),
        format_mllog("epoch_stop", 41, **stop),
        format_mllog("run_stop", 41.5, status="success"),
    ]
    figures, _, completed = read_log(lines)
    assert figures == {"time to train": [40.5]}
    assert "no time per epoch" in completed.stderr


def test_run_of_several_ranks_is_one_run(read_log):
    lines = [
        format_mllog("run_start", 1.002),
        format_mllog("run_start", 1),
        format_mllog("epoch_start", 1.002, epoch_num=1),
        format_mllog("epoch_start", 1.001, epoch_num=1),
        format_mllog("epoch_stop", 9.002, epoch_num=1),
        format_mllog("epoch_stop", 9.003, epoch_num=1),
        format_mllog("eval_accuracy", 9.5, 0.5, epoch_num=1),
        format_mllog("eval_accuracy", 9.501, 0.5, epoch_num=1)
        + "other output"
        + format_mllog("run_stop", 10, status="success"),
        format_mllog("run_stop", 10.001, status="success"),
    ]
    figures, _, completed = read_log(lines)
    assert not completed.stderr
    assert figures == {
        "time to train": [9.001],
        "eval accuracy": [0.5],
        "time per epoch (median)": [8.0],
    }


def test_starts_without_as_many_stops_give_no_time_to_train(read_log):
    lines = [
        format_mllog("run_start", 1),
        format_mllog("run_start", 90),
        format_mllog("eval_accuracy", 95, 0.5, epoch_num=1),
        format_mllog("run_stop", 99, status="success"),
    ]
    figures, _, completed = read_log(lines, status=1)
    assert figures == {"eval accuracy": [0.5]}
    assert "line 2: second run_start, no time to train" in completed.stderr


def test_attempt_after_a_crash_is_no_rank_of_the_first_attempt(read_log):
    lines = [
        format_mllog("run_start", 1),
        format_mllog("epoch_start", 2, epoch_num=1),
        format_mllog("run_start", 90),
        format_mllog("epoch_start", 91, epoch_num=1),
        format_mllog("epoch_stop", 95, epoch_num=1),
        format_mllog("run_stop", 99, status="success"),
    ]
    figures, _, completed = read_log(lines, status=2)
    assert not figures
    assert "line 3: no time per epoch: run_start lies within an epoch" in completed.stderr


def test_run_without_a_status_has_not_succeeded(read_log):
    _, [record], _ = read_log([format_mllog("run_start", 1), format_mllog("run_stop", 9)])
    assert record.reason == "the run's status is not stated, not success"


def test_log_without_figures_names_its_keys(read_log):
    lines = [format_mllog("cache_clear", 1), ":::MLNEW 1 run_start"]
    _, _, completed = read_log(lines, status=2)
    assert "no figure; keys of the lines read: cache_clear" in completed.stderr
    assert "line 2: ':::MLNEW' is an unknown form of MLPerf log" in completed.stderr


def test_several_epochs_in_one_interval_give_no_time_per_epoch(read_log):
    lines = [
        format_mllog("run_start", 1),
        format_mllog("epoch_start", 2, epoch_num=1, epoch_count=4),
        format_mllog("epoch_stop", 61, epoch_num=1),
        format_mllog("run_stop", 62, status="success"),
    ]
    figures, _, completed = read_log(lines)
    assert figures == {"time to train": [61.0]}
    assert "epoch_count says that it is not one epoch" in completed.stderr


@pytest.mark.parametrize("key", ["metric", "metric_type", "type", "kind", "task"])
def test_scores_under_one_key_are_told_apart_by_their_metadata(read_log, key):
    lines = [
        format_mllog("run_start", 1),
        format_mllog("eval_accuracy", 2, 0.25, **{key: "FID"}),
        format_mllog("eval_accuracy", 3, 0.5, **{key: "CLIP"}),
        format_mllog("run_stop", 4, status="success"),
    ]
    figures, _, _ = read_log(lines)
    assert {name for name in figures if "accuracy" in name} == {
        "eval accuracy (FID)",
        "eval accuracy (CLIP)",
    }


@pytest.mark.case("Numbers written as texts")
def test_texts_that_are_numbers_are_scores(read_log):
    texts = ["0.25", " 5e-1", "+.75", "1."]
    lines = [
        format_mllog("eval_accuracy", number, text, step_num=str(number))
        for number, text in enumerate(texts)
    ]
    lines += [
        format_mllog("tracked_stats", 9, {"throughput": "1250.5"}),
        format_mllog("global_batch_size", 10, "256"),
    ]
    figures, records, _ = read_log(lines)
    assert figures == {"eval accuracy": [0.25, 0.5, 0.75, 1.0], "throughput (median)": [1250.5]}
    assert {record.figure.about.global_batch_size for record in records} == {256}
    assert "line 1, eval_accuracy, step_num 0" in {
        record.citation.where.removeprefix("log.txt: ") for record in records
    }


@pytest.mark.parametrize(
    "text", ["1,5", "12 %", "0x1f", "1_000", "nan", "1e999", "\u0661", "", "-"]
)
def test_texts_that_may_mean_another_number_are_named(read_log, text):
    lines = [format_mllog("eval_accuracy", 1, 0.25), format_mllog("eval_accuracy", 2, text)]
    figures, _, completed = read_log(lines, status=1)
    assert figures == {"eval accuracy": [0.25]}
    assert f"line 2: eval_accuracy is not a number: {text!r}" in completed.stderr


# A line that cannot be read, and the exit status if the other lines give figures.
UNREADABLE_LINES = [
    (':::MLLOG {"time_ms": 1600000000000, "key": "seed", "value": 4', 0),
    (':::MLLOG {"key": "seed", "value": 4}', 0),
    (format_mllog("seed", 2, 4)[30:], 0),
    (":::MLL 1600000000.5 seed: {4}", 0),
    (":::MLPv0.5.0 resnet soon (train.py:7) seed: 4", 0),
    (':::MLLOG {"time_ms": 1600000000000, "key": "eval_accuracy", "value": 0.', 1),
    (':::MLLOG {"time_ms": 1600000000000, "ke', 1),
    (format_mllog("eval_accuracy", 2, 0.5)[30:], 1),
    (":::MLL 1600000000.5 eval_accuracy: {4}", 1),
    (":::MLPv0.5.0 resnet soon (train.py:7) eval_accuracy: 4", 1),
    (":::MLPv0.5.0 resnet", 1),
    (":::MLNEW 1", 1),
    (':::MLLOG {"key": "seed", "value":::MLLOG {"key": "eval_error', 1),
]


@pytest.mark.case("Line of a log that cannot be read")
@pytest.mark.parametrize(("line", "status"), UNREADABLE_LINES)
def test_status_says_whether_an_unreadable_line_may_have_a_figure(read_log, line, status):
    lines = [format_mllog("eval_accuracy", 1, 0.25), line]
    figures, _, completed = read_log(lines, status=status)
    assert figures == {"eval accuracy": [0.25]}
    assert "log.txt: line 2: " in completed.stderr
