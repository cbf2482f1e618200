"""Reports of every version of ReFrame and pytest-benchmark are read, without private names."""

import json

import pytest

from xfbench.store.results_folder import Store

PRIVATE_WORDS = ("cn0107", "cn0108", "cn0109", "front3", "kowalski9")
SESSION = {
    "hostname": "front3.example.org",
    "user": "kowalski9",
    "workdir": "/scratch/kowalski9/checks",
    "time_end": "20260301T101500+0000",
}
CASE = {
    "name": "BandwidthTest",
    "system": "hill",
    "result": "pass",
    "fail_phase": None,
    "num_tasks": 2,
}
LIMITS = [30, -0.1, None, "GB/s"]


@pytest.fixture
def import_document(run_inline, tmp_path):
    """A function that imports a JSON document: its records and the process."""

    def read(document, status=0, name="report.json"):
        (tmp_path / name).write_text(json.dumps(document))
        completed = run_inline("results", "import", name)
        assert completed.returncode == status, completed.stderr
        return list(Store(tmp_path / "results").records()), completed

    return read


def make_report(data_version, *cases, **session):
    return {
        "session_info": {
            **SESSION,
            "version": "4.9.1",
            "data_version": data_version,
            **session,
        },
        "runs": [{"num_cases": len(cases), "num_failures": 0, "testcases": cases}],
        "restored_cases": [],
    }


def make_case(values, **fields):
    """A test case as ReFrame 4.7 and later write it, with these values of its variables."""
    perfvalues = {f"hill:part:{name}": [value, *LIMITS] for name, value in values.items()}
    return {**CASE, "partition": "part", "perfvalues": perfvalues, **fields}


def make_early_case(values, **fields):
    """A test case as ReFrame up to 4.6 wrote it."""
    names = ("reference", "thres_lower", "thres_upper", "unit")
    perfvars = [
        {"name": name, "value": value, **dict(zip(names, LIMITS, strict=True))}
        for name, value in values.items()
    ]
    return {**CASE, "system": "hill:part", "perfvars": perfvars, **fields}


RATE = {"rate": 31.25}
REPORTS = {
    "array": make_report(
        "4.2",
        make_case(
            RATE,
            name="BandwidthTest %site=cn0107",
            display_name="BandwidthTest %site=cn0107",
            partition="cn0108",
            job_nodelist=["cn0107", "cn0108"],
            site="cn0107",
        ),
    ),
    "range": make_report(
        "4.0",
        make_case(RATE, name="Test %site=cn0108", job_nodelist="cn[0107-0109,0200]"),
    ),
    "created by --distribute": make_report(
        "4.1",
        make_case(
            {"cn0107_rate": 31.25},
            name="Test %.part=part %.nid=cn[0107-0108]",
            job_nodelist=[],
            **{"$nid": [["cn0107", "cn0108"]]},
        ),
    ),
    "only in the name": make_report("4.2", make_case(RATE, name="Test %job.node_name=cn0107")),
    "node that ran nothing": make_report(
        "4.2", make_case(RATE, name="Test_on_CN0109", job_nodelist=["cn0001"])
    ),
    "check_params": make_report(
        "3.1",
        make_early_case(
            RATE,
            display_name="Test %target=cn0107",
            nodelist=["cn0107.example.org"],
            check_params={"Test.target": "cn0107"},
        ),
    ),
    "name with underscores": make_report(
        "1.3.0", make_early_case(RATE, name="Test_cn0107_TestOncn0108", nodelist=["cn0107,cn0108"])
    ),
    "users in paths": make_report(
        "2.0",
        make_early_case(RATE, name="Test of weber", stagedir="/home/weber/stage/cn0107"),
        user=None,
        hostname="cn0107",
    ),
}


@pytest.mark.case("Node names in a ReFrame report")
@pytest.mark.parametrize("form", REPORTS)
def test_reframe_record_names_no_node_or_user(import_document, form):
    [record], completed = import_document(REPORTS[form])
    assert (record.figure.value, record.figure.unit) == (31.25, "GB/s")
    text = (json.dumps(record.document()) + completed.stderr).lower()
    assert [word for word in (*PRIVATE_WORDS, "weber") if word in text] == []
    assert record.figure.about.machine.startswith("hill:")


def test_variables_of_several_nodes_have_several_names(import_document):
    values = {"cn0107": 29.5, "cn0108": 31.25, "cn0109": 30.5, "total": 91.25}
    records, _ = import_document(
        make_report("4.2", make_case(values, job_nodelist=["cn0107", "cn0108"]))
    )
    quantities = {record.figure.quantity: record.figure.value for record in records}
    assert quantities["total"] == 91.25
    assert sorted(quantities.values()) == sorted(values.values())
    assert not [word for word in PRIVATE_WORDS if word in json.dumps([*quantities])]


def test_words_that_are_like_no_name_are_kept(import_document):
    case = make_case(
        {"n2_rate": 31.25}, name="Test %num_nodes=2 %n=12", job_nodelist=["n1"], nid=12
    )
    [record], _ = import_document(make_report("4.2", case))
    assert "Test %num_nodes=2 %n=12" in record.citation.where
    assert record.figure.quantity == "n2_rate"


def make_benchmark_file(version, *benchmarks, **machine):
    return {
        "machine_info": {"node": "bench42.example.org", "machine": "x86_64", **machine},
        "commit_info": {"id": "unknown"},
        "benchmarks": benchmarks,
        "datetime": "2026-02-03T04:05:06.789",
        "version": version,
    }


def make_benchmark(median, name="test_read", timer="perf_counter", **fields):
    stats = {"min": median / 2, "max": median * 3, "median": median, "rounds": 5, "iterations": 1}
    return {
        "group": None,
        "name": name,
        "fullname": f"tests/test_io.py::{name}",
        "options": {"timer": timer, "min_rounds": 5},
        "stats": stats,
        **fields,
    }


@pytest.mark.case("pytest-benchmark reports, old and new")
@pytest.mark.parametrize(
    ("version", "machine", "fields"),
    [
        ("2.5.0", {"processor": "Processor of bench42"}, {}),
        ("3.2.3", {"cpu": {"brand": "A processor", "count": 8}}, {"params": None, "param": None}),
        (
            "5.2.3",
            {"cpu": {"brand_raw": "A processor", "count": 8}},
            {"params": {"host": "store7"}, "param": "store7", "extra_info": {"user": "weber"}},
        ),
    ],
)
def test_benchmarks_of_every_version_are_read_without_names(
    import_document, version, machine, fields
):
    document = make_benchmark_file(
        version,
        make_benchmark(2.5e-7, "test_read[store7-weber]", **fields),
        make_benchmark(0.00375, "test_on_bench42"),
        **machine,
    )
    if version != "5.2.3":
        document["machine_info"]["user"] = "weber"
        document["machine_info"]["hosts"] = ["store7"]
    records, _ = import_document(document, name="bench42.json")
    assert sorted(record.figure.value for record in records) == [2.5e-7, 0.00375]
    assert {record.figure.unit for record in records} == {"s"}
    assert {record.created for record in records} == {"2026-02-03T04:05:06.789Z"}
    text = json.dumps([record.document() for record in records])
    assert [word for word in ("bench42", "store7", "weber") if word in text] == []


@pytest.mark.parametrize("timer", ["perf_counter_ns", "time.process_time_ns"])
def test_times_in_nanoseconds_are_converted(import_document, timer):
    benchmark = make_benchmark(1_500_000.0, timer=timer)
    benchmark["stats"]["data"] = [1_400_000, 1_500_000, 2_000_000]
    [record], _ = import_document(make_benchmark_file("5.2.3", benchmark))
    figure = record.figure
    assert (figure.value, figure.unit) == (0.0015, "s")
    assert (figure.low, figure.high) == (0.00075, 0.0045)
    assert figure.values == (0.0014, 0.0015, 0.002)


def test_log_of_mlperf_gives_no_name_of_a_host(run_inline, tmp_path):
    """A platform may be called like the host on which the log was written."""
    values = {"submission_platform": "cn0107", "hostname": "cn0107.example.org"}
    lines = [
        json.dumps({"time_ms": 1_600_000_000_000, "key": key, "value": value, "metadata": {}})
        for key, value in {**values, "eval_accuracy": 0.625}.items()
    ]
    (tmp_path / "log.txt").write_text("\n".join(f":::MLLOG {line}" for line in lines))
    assert run_inline("results", "import", "log.txt").returncode == 0
    [record] = Store(tmp_path / "results").records()
    assert record.figure.value == 0.625
    assert "cn0107" not in json.dumps(record.document())


def make_new_case(**fields):
    """A test case in a form that this version does not know."""
    return {"name": "BandwidthTest", "system": "hill", **fields}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            make_report("9.0", make_new_case(metrics={"rate": 31.25})),
            "testcases[0] BandwidthTest: no figure: no performance variable "
            "('perfvalues' or 'perfvars'); the test has name, system, metrics",
        ),
        (make_report("4.2", make_case({})), "no figure: no performance variable"),
        (
            make_report("9.0", make_new_case(perfvalues={"hill:part:rate": {"value": 31.25}})),
            "BandwidthTest, rate: not a list of value, reference, limits and unit",
        ),
        (
            make_report("9.0", make_new_case(perfvalues={"a:b:rate": ["GB/s", 1, 2, 3, 31.25]})),
            "BandwidthTest, rate: not a list of value",
        ),
        (make_report("4.2"), "runs: no test case ('testcases'); the first run has num_cases"),
        (
            make_benchmark_file("6.0", {"name": "test_read", "stats": {"typical": 0.5}}),
            "benchmarks[0] test_read: the stats have no numeric median; they have typical",
        ),
        (make_benchmark_file("5.2.3"), "benchmarks: the list is empty"),
        ({"context": {}, "timings": []}, "it has the keys context, timings"),
        ([1, 2], "it has a JSON value of type list"),
        ("\n", "it is empty"),
        ('{"session_info": {"user": 1}, "runs"', "it is not complete JSON"),
        ("step,seconds\n1,0.5\n", "it begins with 'step,seconds'"),
        (b"\x1f\x8b\x08\x00", "it is compressed with gzip: unpack it"),
        (b"\xff\x00\xfe\x01", "it has binary data"),
        (b"\xff\xfe\x80\x81", "it has binary data"),
        (":::MLLOG {}".encode("utf-16-le"), "or a text in UTF-16: convert it to UTF-8"),
    ],
)
def test_import_without_figures_says_what_the_file_has(run_inline, tmp_path, content, words):
    if isinstance(content, dict | list):
        content = json.dumps(content)
    (tmp_path / "report.json").write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    completed = run_inline("results", "import", "report.json")
    assert completed.returncode == 2
    assert words in completed.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.case("Numbers written as texts")
def test_texts_that_are_numbers_are_values(import_document):
    report = make_report("4.1", make_case({"bandwidth": "123.4", "latency": "1,5"}, num_tasks="8"))
    [record], completed = import_document(report, status=1)
    assert record.figure.value == 123.4 and record.figure.about.ranks == 8
    assert "latency: the value is not a number: '1,5'" in completed.stderr


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"fail_phase": "sanity", "result": "fail"}, "the test failed in phase sanity"),
        ({"fail_phase": None, "result": "failure"}, "the test's result is failure"),
        ({"fail_phase": "performance", "result": "fail"}, None),
    ],
)
def test_figures_of_a_failed_test_have_failed(import_document, fields, reason):
    [record], _ = import_document(make_report("4.1", make_case({"rate": 3.5}, **fields)))
    assert record.reason == reason
