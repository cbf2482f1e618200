"""Tests of xfbench's Python interface: launches and results."""

import importlib.metadata
import json
import subprocess
import sys

import pytest

import xfbench
from xfbench.model.request import Protocol
from xfbench.store.results_folder import Store


@pytest.fixture
def results(record, tmp_path):
    """A folder with records of three launches on one thread and three on two."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    for launch in (1, 2, 3):
        for threads in (1, 2):
            seconds = (0.1 + launch / 100 + threads / 1000,)
            store.add(record(steps=seconds, launch=launch, threads=threads))
    return store.folder


def run_python(script, **options):
    return subprocess.run(
        [sys.executable, *options.pop("before", ()), "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def test_the_import_of_xfbench_imports_no_submodule():
    script = "import sys, xfbench; print([m for m in sys.modules if m.startswith('xfbench')])"
    process = run_python(script)
    assert process.stdout == "['xfbench']\n"
    process = run_python("import xfbench; print([hasattr(xfbench, n) for n in xfbench.__all__])")
    assert set(json.loads(process.stdout.lower())) == {True}
    assert not hasattr(xfbench, "lood")
    assert set(xfbench.__all__) <= set(dir(xfbench))


def test_a_run_is_verified_loaded_and_resumed(tmp_path):
    settings = {"steps": 2, "warmup": 0, "batch_size": 2, "launches": 2}
    settings["results"] = tmp_path / "results"
    records = xfbench.run("reference", "lenet", threads=1, **settings)
    assert [record.status for record in records] == ["ok"] * 2
    loaded_records = xfbench.load(tmp_path / "results").records()
    assert [record.id for record in loaded_records] == [record.id for record in records]
    assert {record.protocol for record in loaded_records} == {Protocol.fixed(2)}
    assert all(record.certificate for record in loaded_records)
    resumed = xfbench.run("reference", "lenet", threads=1, resume=True, **settings)
    assert {record.id for record in resumed} == {record.id for record in records}
    assert len(xfbench.load(tmp_path / "results").records()) == 2


def test_records_are_loaded_in_the_order_of_their_creation(results):
    records = xfbench.load(results).records()
    assert [record.created for record in records] == sorted(r.created for r in records)
    assert {record.request.threads for record in records} == {1, 2} and len(records) == 6


def test_conditions_choose_records(results):
    assert len(xfbench.load(results, where="threads=2,launch>=2").records()) == 2
    assert len(xfbench.load(str(results), ["threads=2", "status!=ok"]).records()) == 0


def test_a_dataframe_has_a_row_per_record(results):
    frame = xfbench.load(results).to_dataframe()
    assert len(frame) == 6
    assert frame["images_per_second"].gt(0).all()
    assert frame["request.threads"].value_counts().to_dict() == {1: 3, 2: 3}
    [first, *_] = xfbench.load(results).records()
    assert frame["id"][0] == first.id
    assert frame["measurement.build_seconds"][0] == first.measurement.build_seconds


def test_missing_pandas_error_gives_the_install_command(results):
    process = run_python(
        "import sys; sys.modules['pandas'] = None\nimport xfbench\n"
        f"try: xfbench.load({str(results)!r}).to_dataframe()\n"
        "except xfbench.UnavailableError as error: print(error)"
    )
    assert process.stdout == "to_dataframe needs pandas: python -m pip install pandas\n"


def test_leaderboards_equal_those_of_the_command_line(results, run_inline):
    [table] = xfbench.load(results).leaderboards()
    outcome = run_inline("leaderboard", "--json")
    assert json.loads(json.dumps(table.document())) == json.loads(outcome.stdout)["tables"][0]
    [single_table] = xfbench.load(results, where="threads=1").leaderboards()
    assert [row.threads for row in (*single_table.rows, *single_table.unranked)] == [1]


def test_a_comparison_is_of_the_chosen_records(results):
    [comparison] = xfbench.load(results).compare("threads=1", "threads=2")
    assert comparison.figures.ratio.launches == 3
    assert 1 < comparison.figures.ratio.low < comparison.figures.ratio.value < 1.02
    early_comparisons = xfbench.load(results, where="launch<=2").compare("threads=1", "threads=2")
    assert early_comparisons[0].figures.ratio.launches == 2
    with pytest.raises(xfbench.UsageError, match="no ok launch of threads=2"):
        xfbench.load(results, where="threads=1").compare("threads=1", "threads=2")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"framework": "torhc"}, "did you mean torch"),
        ({"workload": ["lenet", "lnet"]}, "did you mean lenet"),
        ({"threads": 0}, "threads.0: give at least 1 .got 0."),
        ({"batch_size": [0]}, "batch_size.0"),
        ({"steps": 0}, "steps"),
        ({"steps": 2, "epochs": 2, "workload": "lenet"}, "exactly one"),
        ({"launches": 0}, "at least 1"),
        ({"launches": 3, "until_precision": 0.01}, "exclude each other"),
        ({"until_precision": 2.0}, "until_precision"),
        ({"python": {"torch": "/nonexistent"}}, "no such file"),
        ({"python": {"torhc": sys.executable}}, "did you mean torch"),
        ({"checkpoint_dir": "/nonexistent", "checkpoints": 1}, "no such folder"),
        ({"ranks": 2}, "--scaling"),
    ],
)
def test_a_wrong_setting_is_refused_before_a_launch(settings, words, tmp_path):
    with pytest.raises(xfbench.UsageError, match=words):
        xfbench.run(**settings, results=tmp_path / "results")
    assert not list(tmp_path.iterdir())


def test_without_settings_the_experiment_is_quick():
    from xfbench.planning import experiment, plan_builder

    plan = plan_builder.build_plan({})
    expected = experiment.expand_matrices(experiment.load("quick").matrix)
    assert list(plan.protocols) == expected
    five_launch_plan = plan_builder.build_plan({"launches": 5})
    assert {protocol for _, protocol in five_launch_plan.protocols} == {Protocol.fixed(5)}
    precision_plan = plan_builder.build_plan({"until_precision": 0.01})
    assert {protocol.precision for _, protocol in precision_plan.protocols} == {0.01}


def test_missing_results_and_wrong_conditions_are_errors(tmp_path):
    with pytest.raises(xfbench.UsageError, match="xfbench run"):
        xfbench.load(tmp_path / "nowhere")
    with pytest.raises(xfbench.UsageError, match="unknown field"):
        (tmp_path / "records").mkdir()
        xfbench.load(tmp_path, where="framwork=torch")


def test_the_version_is_that_of_the_installed_package():
    assert xfbench.__version__ == importlib.metadata.version("xfbench")
