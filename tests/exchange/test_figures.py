"""Other tools' files are imported: each figure a record that says where it is from."""

import csv
import getpass
import io
import json
import platform
import shutil
import subprocess
import sys

import pytest

from xfbench.base.errors import UsageError
from xfbench.exchange import audit, figures
from xfbench.model.record import Record, json_schema
from xfbench.store.results_folder import Store

HOSTILE_TEXT = "=cmd|' /C calc'!A0\x1b[31m\u202e<script>alert(1)</script>\x00" + "x" * 2**20


def import_figures(source, folder):
    """The records, what was wrong and what had no figure."""
    complaints, notes = [], []
    figures.import_figures(source, Store(folder), complaints.append, notes.append)
    return list(Store(folder).records()), complaints, notes


def format_mllog_line(key, value=None, ms=0, kind="POINT_IN_TIME", **metadata):
    """A line as MLPerf's logging library writes it."""
    document = {
        "namespace": "",
        "time_ms": 1_700_000_000_000 + ms,
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": {"file": "/workspace/train.py", "lineno": 7, **metadata},
    }
    return f":::MLLOG {json.dumps(document)}"


def make_mllog_lines(status="success", benchmark="resnet"):
    return [
        format_mllog_line("submission_benchmark", benchmark),
        format_mllog_line("submission_division", "closed"),
        format_mllog_line("submission_org", "Example"),
        format_mllog_line("submission_platform", "8xAccelerator"),
        format_mllog_line("submission_poc_email", "jane@example.org"),
        format_mllog_line("global_batch_size", 3264),
        format_mllog_line("run_start", ms=1000, kind="INTERVAL_START"),
        format_mllog_line("epoch_start", ms=1000, kind="INTERVAL_START", epoch_num=0),
        format_mllog_line("tracked_stats", {"throughput": 2500.5}, ms=1500, step=1),
        format_mllog_line("epoch_stop", ms=5000, kind="INTERVAL_END", epoch_num=0),
        format_mllog_line("eval_accuracy", 0.4, ms=6000, epoch_num=1),
        format_mllog_line("epoch_start", ms=6000, kind="INTERVAL_START", epoch_num=1),
        format_mllog_line("tracked_stats", {"throughput": 2400.5}, ms=7000, step=2),
        format_mllog_line("epoch_stop", ms=9000, kind="INTERVAL_END", epoch_num=1),
        format_mllog_line("eval_accuracy", 0.76, ms=9500, epoch_num=2),
        format_mllog_line("run_stop", ms=10250, kind="INTERVAL_END", status=status),
    ]


@pytest.fixture
def write_log(tmp_path):
    """A function that writes a log of these lines."""

    def write(*lines, name="result_0.txt"):
        path = tmp_path / name
        path.write_text("\n".join(["+ python train.py", *lines, "done"]))
        return path

    return write


@pytest.fixture
def write_changed_document(tmp_path):
    """A function that writes a file's JSON with changes made to it."""

    def write(source, change, name="changed.json"):
        content = json.loads(source.read_text())
        change(content)
        path = tmp_path / name
        path.write_text(json.dumps(content))
        return path

    return write


def test_pytest_benchmark_result_becomes_a_figure_with_rounds(benchmarks, tmp_path):
    source = json.loads((benchmarks / "full.json").read_text())
    records, complaints, _ = import_figures(benchmarks / "full.json", tmp_path / "results")
    assert not complaints and len(records) == len(source["benchmarks"]) == 4
    by_place = {record.citation.where: record for record in records}
    first = source["benchmarks"][0]
    record = by_place["full.json: benchmarks[0] test_sums.py::test_sum[10], stats.median"]
    assert record.source == "imported" and record.status == "ok"
    assert (record.citation.key, record.citation.title) == (
        "pytest-benchmark",
        f"pytest-benchmark {source['version']}",
    )
    figure, stats = record.figure, first["stats"]
    assert (figure.value, figure.low, figure.high) == (stats["median"], stats["min"], stats["max"])
    assert (figure.unit, figure.values) == ("s", tuple(stats["data"]))
    assert record.created[:19] == source["datetime"][:19]
    for name in ("request", "certificate", "workload", "measurement", "machine", "software"):
        assert getattr(record, name) is None


def test_figure_without_saved_rounds_has_no_values(benchmarks, tmp_path):
    [saved] = (benchmarks / ".benchmarks").rglob("*.json")
    records, complaints, _ = import_figures(saved, tmp_path / "results")
    assert not complaints and len(records) == 4
    assert {record.figure.values for record in records} == {()}


def test_benchmark_workload_comes_only_from_exact_parameters(benchmarks, tmp_path):
    records, _, _ = import_figures(benchmarks / "full.json", tmp_path / "results")
    about = {record.citation.where.partition("::")[2]: record.figure.about for record in records}
    named = about["test_named[lenet-torch-2], stats.median"]
    assert (named.workload, named.framework) == ("lenet", "torch")
    unmatched = about["test_otherwise_named[lenet5-pytorch], stats.median"]
    assert (unmatched.workload, unmatched.framework, unmatched.threads) == (None, None, None)


@pytest.mark.deep
def test_xfbench_benchmarks_do_not_duplicate_a_launch(run_inline, tmp_path):
    options = ["--benchmark-only", "--benchmark-json=out.json", "--xfbench-framework=reference"]
    selection = ["--xfbench-workload=lenet", "--xfbench-steps=2", "--xfbench-results=results"]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--pyargs", "xfbench", *options, *selection],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=120,
    )
    [launch] = Store(tmp_path / "results").records()
    before = run_inline("leaderboard", "--json").stdout
    assert run_inline("results", "import", "out.json").returncode == 0
    [record] = [
        stored_record
        for stored_record in Store(tmp_path / "results").records()
        if stored_record.source == "imported"
    ]
    assert launch.id in record.citation.where
    assert record.figure.values == launch.measurement.step_seconds
    about, request = record.figure.about, launch.request
    for name in ("workload", "framework", "kernel", "device", "precision", "global_batch_size"):
        assert getattr(about, name) == getattr(request, name)
    assert about.framework_version == launch.observed.framework_version
    assert about.threads == launch.observed.threads
    assert run_inline("leaderboard", "--json").stdout == before
    assert (
        json.loads(run_inline("results", "validate", "results", "--json").stdout)["defects"] == []
    )


def test_reframe_performance_variables_become_figures(reframe, tmp_path):
    records, complaints, notes = import_figures(reframe, tmp_path / "results")
    report = json.loads(reframe.read_text())
    session, cases = report["session_info"], report["runs"][0]["testcases"]
    completion_times = {case["job_completion_time"][:19] for case in cases}
    figures = {
        (figure_record.figure.quantity, figure_record.figure.value, figure_record.figure.unit)
        for figure_record in records
    }
    assert figures == {
        ("speed", 100.0, "images/s"),
        ("speed", 200.0, "images/s"),
        ("loss", 0.25, "1"),
    }
    assert len(records) == 4
    for record in records:
        assert record.citation.key == "ReFrame" and session["version"] in record.citation.title
        assert record.citation.where.startswith("report.json: runs[0].testcases[")
        about = record.figure.about
        assert (about.workload, about.framework, about.ranks) == ("lenet", None, 1)
        assert about.machine == "generic:default"
        assert record.created[:19] in completion_times
    [failure_complaint] = complaints
    assert "Failing" in failure_complaint and "phase sanity" in failure_complaint
    [silent_note] = notes
    assert "Silent" in silent_note and "no performance variable" in silent_note


def convert_to_older_report(report):
    """As ReFrame 4.0 to 4.6 wrote the same: variables in lists, parameters apart."""
    report["session_info"] |= {"data_version": "3.1", "version": "4.6.4"}
    report["session_info"]["time_end"] = "2026-11-22T09:27:59+0000"
    del report["session_info"]["time_end_unix"]
    for case in report["runs"][0]["testcases"]:
        variables = case.pop("perfvalues") or {}
        names = ("value", "reference", "thres_lower", "thres_upper", "unit")
        case["perfvars"] = [
            {"name": key.split(":")[2], **dict(zip(names, values, strict=False))}
            for key, values in variables.items()
        ] or None
        case["check_params"] = {f"{case['name']}.workload": case.pop("workload", None)}
        case["check_vars"] = {"num_tasks": case.pop("num_tasks")}
        case["nodelist"] = [case.pop("job_nodelist")]
        for name in ("job_completion_time", "job_completion_time_unix", "partition"):
            del case[name]
        case["system"] = "generic:default"


def test_older_reframe_report_gives_the_same_figures(reframe, write_changed_document, tmp_path):
    records, _, _ = import_figures(reframe, tmp_path / "new")
    older_records, _, _ = import_figures(
        write_changed_document(reframe, convert_to_older_report), tmp_path / "old"
    )
    assert [record.created for record in older_records] == ["2026-11-22T09:27:59.000Z"] * 4
    assert sorted(repr(record.figure) for record in older_records) == sorted(
        repr(record.figure) for record in records
    )
    assert {record.citation.title for record in older_records} == {"ReFrame 4.6.4, report 3.1"}


def test_mlperf_log_gives_train_time_accuracy_and_throughput(write_log, tmp_path):
    records, complaints, notes = import_figures(
        write_log(*make_mllog_lines()), tmp_path / "results"
    )
    assert not complaints and not notes
    figures = {
        (record.figure.quantity, record.figure.value, record.figure.unit) for record in records
    }
    assert figures == {
        ("time to train", 9.25, "s"),
        ("eval accuracy", 0.4, ""),
        ("eval accuracy", 0.76, ""),
        ("throughput (median)", 2450.5, ""),
        ("time per epoch (median)", 3.5, "s"),
    }
    [throughput_record] = [
        record for record in records if record.figure.quantity == "throughput (median)"
    ]
    assert (throughput_record.figure.low, throughput_record.figure.high) == (2400.5, 2500.5)
    assert throughput_record.figure.values == (2500.5, 2400.5)
    [train_time_record] = [
        record for record in records if record.figure.quantity == "time to train"
    ]
    assert (
        train_time_record.citation.title
        == "MLPerf Training log, resnet, closed, submitted by Example"
    )
    assert train_time_record.citation.where == "result_0.txt: lines 8 to 17, run_start to run_stop"
    assert train_time_record.created == "2023-11-14T22:13:30.250Z"
    about = train_time_record.figure.about
    assert (about.global_batch_size, about.machine) == (3264, "8xAccelerator")
    assert about.workload is None  # its resnet is not the one that is ours


def test_mlperf_lines_repeated_by_ranks_count_once(write_log, tmp_path):
    lines = [f"{rank}: {line}" for line in make_mllog_lines() for rank in (0, 1)]
    records, complaints, _ = import_figures(write_log(*lines), tmp_path / "results")
    assert not complaints and len(records) == 5


def test_mlperf_log_may_hold_two_runs(write_log, tmp_path):
    second_run = [
        line.replace("17000000", "17000001")
        for line in make_mllog_lines(benchmark="lenet", status="aborted")
    ]
    records, complaints, _ = import_figures(
        write_log(*make_mllog_lines(), *second_run), tmp_path / "results"
    )
    assert not complaints and len(records) == 10
    successful_record, failed_record = (
        next(
            record
            for record in records
            if record.status == status and "run_stop" in record.citation.where
        )
        for status in ("ok", "failed")
    )
    assert (
        "resnet" in successful_record.citation.title
        and successful_record.figure.about.workload is None
    )
    assert (
        "lenet" in failed_record.citation.title and failed_record.figure.about.workload == "lenet"
    )
    assert "aborted" in failed_record.reason


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            [":::MLLOG {not json", *make_mllog_lines()],
            "line 2: the text after :::MLLOG is not JSON",
        ),
        ([':::MLLOG {"key": "run_stop"}', *make_mllog_lines()], "line 2: no key or no time"),
        (
            [format_mllog_line("eval_accuracy", float("nan")), *make_mllog_lines()],
            "line 2: eval_accuracy is not a number",
        ),
        (
            [format_mllog_line("run_stop", ms=1), *make_mllog_lines()],
            "line 2: run_stop without a run_start",
        ),
        ([format_mllog_line("run_start", ms=1), *make_mllog_lines()], "line 9: second run_start"),
        (
            [*make_mllog_lines()[:-1], format_mllog_line("run_stop", ms=1)],
            "the figure is a time of -0.999 s",
        ),
        (
            [*make_mllog_lines(), format_mllog_line("run_start", ms=10**6)],
            "line 18: no time to train: run_start has no run_stop",
        ),
        (
            [format_mllog_line("tracked_stats", {"throughput": "fast"}), *make_mllog_lines()],
            "throughput is not a number: 'fast'",
        ),
        (
            [
                format_mllog_line("run_stop", ms=1),
                format_mllog_line("epoch_stop"),
                *make_mllog_lines(),
            ],
            "epoch_stop without",
        ),
        ([f":::MLLOG {'[' * 100_000}", *make_mllog_lines()], "line 2: the text after"),
        (
            [f':::MLLOG {{"key": "eval_error", "time_ms": {"9" * 4000}}}', *make_mllog_lines()],
            "line 2: no key",
        ),
    ],
)
def test_invalid_mlperf_line_is_reported_and_skipped(write_log, tmp_path, lines, words):
    records, complaints, _ = import_figures(write_log(*lines), tmp_path / "results")
    assert any(words in line for line in complaints), complaints
    assert {"eval accuracy", "throughput (median)"} <= {
        record.figure.quantity for record in records
    }


def set_field(document, path, value):
    *parents, field = path
    for name in parents:
        document = document[name]
    document[field] = value


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("stats", "median"), None, "the stats have no numeric median"),
        (("stats", "median"), "fast", "the stats have no numeric median; they have 'fast'"),
        (("stats", "median"), "1,5", "the stats have no numeric median; they have '1,5'"),
        (("stats", "median"), float("inf"), "the stats have no numeric median"),
        (("stats", "median"), 10**400, "the stats have no numeric median"),
        (("stats", "data", 0), None, "data that are not numbers"),
        (("stats", "min"), 1e9, "range goes from"),
        (("stats", "max"), 0.0, "range goes from"),
        (("stats", "data", 0), 1e9, "outside its range"),
    ],
)
def test_invalid_benchmark_is_reported_and_skipped(
    benchmarks, write_changed_document, tmp_path, path, value, words
):
    changed_path = write_changed_document(
        benchmarks / "full.json", lambda document: set_field(document["benchmarks"][1], path, value)
    )
    records, [line], _ = import_figures(changed_path, tmp_path / "results")
    assert words in line and "changed.json: benchmarks[1]" in line
    assert len(records) == 3


def test_non_numeric_reframe_variable_is_reported_and_skipped(
    reframe, write_changed_document, tmp_path
):
    def change(report):
        for case in report["runs"][0]["testcases"]:
            if "speed" in str(case["perfvalues"]):
                case["perfvalues"]["generic:default:speed"][0] = float("nan")

    records, complaints, _ = import_figures(
        write_changed_document(reframe, change), tmp_path / "results"
    )
    assert (
        len([line for line in complaints if "speed: the value is not a number: 'nan'" in line]) == 2
    )
    assert {record.figure.quantity for record in records} == {"loss"}


def test_figures_twice_changes_nothing(run_inline, benchmarks, reframe, write_log, tmp_path):
    sources = [benchmarks / "full.json", reframe, write_log(*make_mllog_lines())]
    counts = [4, 4, 5]
    for source, count in zip(sources, counts, strict=True):
        first_import = json.loads(run_inline("results", "import", source, "--json").stdout)
        assert (first_import["imported"], first_import["known"]) == (count, 0)
        second_import = json.loads(run_inline("results", "import", source, "--json").stdout)
        assert (second_import["imported"], second_import["known"]) == (0, count)
    assert len(list(Store(tmp_path / "results").records())) == sum(counts)


def test_folder_import_reports_unreadable_files(run_inline, benchmarks, tmp_path):
    folder = tmp_path / "kept"
    shutil.copytree(benchmarks, folder)
    (folder / "broken.json").write_text('{"machine_info": {}, "benchmarks": []}')
    completed = run_inline("results", "import", "kept")
    assert completed.stdout.startswith("8 records imported") and completed.returncode == 1
    assert "broken.json: not a valid file of pytest-benchmark" in completed.stderr
    assert "test_sums.py: neither an exported archive nor a file of" in completed.stderr


def test_imported_figures_are_listed_but_never_ranked(
    run_inline, benchmarks, write_log, tmp_path, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "250")  # wide enough for all columns
    run_inline("results", "import", benchmarks / "full.json")
    run_inline("results", "import", write_log(*make_mllog_lines()))
    listing = run_inline("results", "list").stdout
    assert "time to train 9.25 s" in listing and "MLPerf Training" in listing and "3264" in listing
    assert "time per call (median)" in listing
    [train_time_record] = [
        record
        for record in Store(tmp_path / "results").records()
        if record.figure.quantity[:7] == "time to"
    ]
    shown_record = run_inline("results", "show", train_time_record.id[7:19]).stdout
    assert "figure.value  9.25" in shown_record and "submitted by Example" in shown_record
    assert run_inline("results", "validate", "results").returncode == 0
    assert json.loads(run_inline("leaderboard", "--json").stdout) == {"tables": []}
    assert run_inline("compare", "framework=torch", "framework=caffe").returncode == 1
    assert run_inline("report", "--output", "page.html").returncode == 0
    run_inline("results", "export", "all.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text())))
    assert "9.25" in {row["figure.value"] for row in rows} and len(rows) == 9
    for name in ("all.parquet", "all.tar"):
        assert "9 records" in run_inline("results", "export", name).stdout
    assert run_inline("results", "import", "all.tar", "--results", "b").stdout.startswith(
        "9 records"
    )


def replace_texts(value, hostile, kept_keys=()):
    """The same with each text replaced, but those without which it is no such file."""
    if isinstance(value, dict):
        fields = {
            k: v if k in kept_keys else replace_texts(v, hostile, kept_keys)
            for k, v in value.items()
        }
        return {**fields, hostile: hostile}
    if isinstance(value, list):
        return [replace_texts(child, hostile, kept_keys) for child in value]
    return hostile if isinstance(value, str) else value


@pytest.mark.parametrize("tool", ["benchmarks", "reframe", "mllog"])
def test_hostile_text_in_any_field_is_escaped(
    run_inline, benchmarks, reframe, write_log, tmp_path, tool
):
    name = "=1+1 <script>\x1b[31m\u202e.json"
    if tool == "mllog":
        lines = []
        for line in make_mllog_lines():
            event = json.loads(line[9:])
            hostile_event = replace_texts(event, HOSTILE_TEXT[:2000], ("key", "event_type"))
            lines.append(":::MLLOG " + json.dumps(hostile_event))
        source = write_log(*lines, HOSTILE_TEXT, name=name)
    else:
        original = benchmarks / "full.json" if tool == "benchmarks" else reframe
        kept_keys = ("datetime", "time_end", "fail_phase", "perfvalues")
        event = replace_texts(json.loads(original.read_text()), HOSTILE_TEXT, kept_keys)
        if tool == "reframe":
            for case in event["runs"][0]["testcases"]:
                for key in list(case.get("perfvalues") or ()):
                    case["perfvalues"][f"a:b:{HOSTILE_TEXT}{key}"] = case["perfvalues"].pop(key)
                    case["perfvalues"][f"a:b:{HOSTILE_TEXT}{key}"][4] = HOSTILE_TEXT
        source = tmp_path / name
        source.write_text(json.dumps(event))
    imported = run_inline("results", "import", source)
    forbidden_characters = {"\x1b", "\u202e", "\x00"}
    assert not forbidden_characters & set(imported.stderr + imported.stdout)
    records = list(Store(tmp_path / "results").records())
    assert records
    for record in records:
        content = json.dumps(record.document(), ensure_ascii=False)
        assert len(content) < 10_000 and not forbidden_characters & set(content)
    listing = ("results list", f"results show {records[0].id}", "results validate results")
    for command in (*listing, "leaderboard --published --format html"):
        completed = run_inline(*command.split())
        assert completed.returncode == 0 and not forbidden_characters & set(
            completed.stdout + completed.stderr
        )
    assert run_inline("report", "--output", "page.html").returncode == 0
    page = (tmp_path / "page.html").read_text()
    assert "<script>alert" not in page and not forbidden_characters & set(page)
    run_inline("results", "export", "all.csv")
    cells = [
        cell for row in csv.reader(io.StringIO((tmp_path / "all.csv").read_text())) for cell in row
    ]
    assert not [cell for cell in cells if cell.startswith("=")]
    assert not forbidden_characters & set("".join(cells))
    assert run_inline("results", "submit", "given").returncode == 0
    text = "".join(path.read_text() for path in (tmp_path / "given").glob("*.md"))
    assert "<script>" not in text and not forbidden_characters & set(text)
    assert run_inline("results", "validate", "given").returncode == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"null",
        b"[" * 100_000,
        b"\x00" * 1000,
        b'{"session_info": 1, "runs": 2}',
        b'{"session_info": {}, "runs": []}',
        b'{"session_info": {"time_end": "yesterday"}, "runs": []}',
        b'{"session_info": {"time_end_unix": 1e300}, "runs": [{"testcases": [1, null]}]}',
        b'{"machine_info": null, "benchmarks": null}',
        b'{"machine_info": {}, "benchmarks": [], "datetime": "2026-01-01"}',
        b'{"machine_info": {}, "benchmarks": 7, "datetime": "2026-01-01"}',
        b":::MLLOG",
        b"no log at all",
    ],
)
def test_invalid_file_gives_a_one_line_error_and_no_records(run_inline, tmp_path, content):
    (tmp_path / "bad.json").write_bytes(content)
    completed = run_inline("results", "import", "bad.json")
    assert completed.returncode == 2 and "Traceback" not in completed.stderr
    assert completed.stderr.splitlines()[-1].startswith("xfbench: bad.json")
    assert not (tmp_path / "results").exists()


def test_imported_records_contain_no_user_or_host_names(
    benchmarks, reframe, write_changed_document, tmp_path
):
    def add_private_names_to_benchmarks(content):
        content["machine_info"]["node"] = "node7.cluster.example.org"
        content["machine_info"]["cpu"]["brand_raw"] = "Processor of node7.cluster.example.org"
        content["benchmarks"][0]["fullname"] = "/home/jane/b.py::test[/home/jane/data-NODE7]"

    def add_private_names_to_report(report):
        report["session_info"] |= {"hostname": "login1", "user": "jane"}
        for case in report["runs"][0]["testcases"]:
            case |= {"job_nodelist": "nid00042", "system": "login1", "partition": "nid00042"}
            case["display_name"] = "Speed of jane on nid00042 at jane@example.org"

    sources = [
        write_changed_document(benchmarks / "full.json", add_private_names_to_benchmarks),
        write_changed_document(reframe, add_private_names_to_report, name="report-login1.json"),
    ]
    for source in sources:
        records, complaints, _ = import_figures(source, tmp_path / "results")
        text = json.dumps([record.document() for record in records]) + "".join(complaints).replace(
            str(tmp_path), ""
        ).replace(source.name, "")
        for name in ("jane", "node7", "login1", "nid00042", "example.org"):
            assert name not in text.lower()
    for tool_output in (benchmarks / "full.json", reframe):
        records, _, _ = import_figures(tool_output, tmp_path / "plain")
        text = json.dumps([record.document() for record in records])
        assert f'"{platform.node()}"' not in text and f'"{getpass.getuser()}"' not in text


def write_record_with_figure(store, record, **figure):
    """Keep the record with another figure, whose id is right."""
    fields = {name: getattr(record, name) for name in Record.model_fields}
    fields["figure"] = record.figure.model_copy(update=figure)
    changed_record = Record.make(**{k: v for k, v in fields.items() if k not in ("id", "schema_")})
    store.add(changed_record)
    return store.record_path(changed_record.id[7:])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"low": 9.0, "high": 1.0, "values": ()}, "from 9 down to 1"),
        ({"value": None, "low": None, "high": None}, "neither a value nor a range"),
        ({"low": 1e3, "high": None}, "outside its range"),
        ({"value": None, "low": 1e3, "high": None, "values": (1.0,)}, "some of the figure"),
    ],
)
def test_impossible_figure_is_a_defect(benchmarks, tmp_path, changes, words):
    [record, *_], _, _ = import_figures(benchmarks / "full.json", tmp_path / "results")
    path = write_record_with_figure(Store(tmp_path / "results"), record, **changes)
    _, [defect] = audit.validate_results(tmp_path / "results")
    assert (defect.file, defect.defect) == (str(path), "figure")
    assert words in defect.detail


def test_figure_without_number_or_citation_is_a_defect(benchmarks, record, tmp_path):
    [imported_record, *_], _, _ = import_figures(benchmarks / "full.json", tmp_path / "results")
    store = Store(tmp_path / "results")
    path = store.record_path(imported_record.id[7:])
    path.write_text(path.read_text().replace('"relative_to": null', '"relative_to": NaN'))
    path.write_text(
        path.read_text().replace(f'"value": {imported_record.figure.value}', '"value": NaN')
    )
    assert [defect.defect for defect in audit.validate_results(path)[1]] == ["schema"]
    for fields in (
        {"source": "imported", "citation": None},
        {"source": "measured"},
        {"certificate": "sha256:" + "0" * 64},
        {"figure": None},
    ):
        other_fields = {
            name: getattr(imported_record, name)
            for name in Record.model_fields
            if name not in fields
        }
        invalid_record = Record.make(
            **{k: v for k, v in {**other_fields, **fields}.items() if k not in ("id", "schema_")}
        )
        store.add(invalid_record)
        kinds = [
            defect.defect
            for defect in audit.validate_results(store.record_path(invalid_record.id[7:]))[1]
        ]
        assert "figure" in kinds


def test_imported_records_match_the_json_schema(benchmarks, reframe, write_log, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json_schema())
    for source in (benchmarks / "full.json", reframe, write_log(*make_mllog_lines())):
        for record in import_figures(source, tmp_path / "results")[0]:
            validator.validate(record.document())


def test_files_outside_of_a_folder_are_not_taken_through_a_link(write_log, tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    write_log(*make_mllog_lines(), name="outside.txt")
    write_log(*make_mllog_lines(), name="runs/inside.txt")
    unlinked, _, _ = import_figures(folder, tmp_path / "alone")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    linked, complaints, _ = import_figures(folder, tmp_path / "linked")
    assert {record.id for record in linked} == {record.id for record in unlinked}
    assert not complaints and {record.citation.where[:10] for record in linked} == {"inside.txt"}


def test_a_file_beyond_the_size_limit_is_refused_unread(write_log, tmp_path, monkeypatch):
    path = write_log(*make_mllog_lines())
    size = path.stat().st_size
    monkeypatch.setattr(figures, "_MAX_FILE_BYTES", size - 1)
    with pytest.raises(UsageError, match="larger than"):
        import_figures(path, tmp_path / "results")
    monkeypatch.setattr(figures, "_MAX_FILE_BYTES", size)
    assert import_figures(path, tmp_path / "results")[0]
