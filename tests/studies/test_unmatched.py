"""Tests of the reason why no record of a file belongs to a study."""

import json

import pytest

from xfbench.store.results_folder import Store
from xfbench.studies.unmatched import explain_unmatched_records


@pytest.fixture
def explain(make_study):
    """Return a function that explains why records do not belong to a study of size smoke."""

    def explain(records, size="smoke", **matrix):
        study = make_study({"name": "values"}, {"size": "smoke", "device": ["cpu"], **matrix})
        return explain_unmatched_records(study, size, "theirs.tar.gz", records)

    return explain


def test_records_of_the_study_need_no_reason(explain, make_launches):
    records = [*make_launches(0.1), *make_launches(0.1, workload="convnet")]
    assert explain(records) is explain(records, None) is None


@pytest.mark.parametrize(
    ("request_fields", "matrix", "difference"),
    [
        ({"workload": "convnet"}, {}, "workload convnet (the study has lenet)"),
        ({}, {"framework": ["torch"]}, "framework reference (the study has torch)"),
        ({}, {"device": ["cuda"]}, "device cpu (the study has cuda)"),
        ({"threads": 2}, {"threads": [1, 4]}, "threads 2 (the study has 1, 4)"),
        ({}, {"batch_size": [8, 16]}, "batch size 4 (the study has 8, 16)"),
        ({}, {"data": ["digits"]}, "data synthetic (the study has digits)"),
        ({}, {"warmup": 2}, "warmup 1 (the study has 2)"),
        ({}, {"probe": ["process"]}, "probe none (the study has process)"),
    ],
)
def test_the_reason_names_the_setting_that_differs(
    explain, make_launches, request_fields, matrix, difference
):
    sentence = explain(make_launches(0.1, 0.1, **request_fields), **matrix)
    start = "No record of theirs.tar.gz belongs to a cell of mine, size smoke: its records"
    assert sentence == f"{start} have {difference}."


def test_the_reason_is_that_of_most_records(explain, make_launches):
    eight, sixteen = (
        dict.fromkeys(("global_batch_size", "batch_size_per_rank"), n) for n in (8, 16)
    )
    records = [
        *make_launches(0.1, **eight),
        *make_launches(0.1, 0.1, threads=2, **eight),
        *make_launches(0.1, threads=3, **sixteen),
    ]
    sentence = explain(records, threads=[1])
    differences = "batch size 8, 16 (the study has 4) and threads 2, 3 (the study has 1)."
    assert sentence.endswith(f"its records have {differences}")


def test_records_of_another_size_name_it(make_study, make_launches):
    study = make_study({"name": "values"}, {"size": "smoke"})
    larger = study.matrix[0].model_copy(update={"size": ("paper",), "batch_size": [8]})
    study = study.model_copy(update={"matrix": (*study.matrix, larger)})
    sentence = explain_unmatched_records(study, "paper", "theirs", make_launches(0.1))
    assert sentence.endswith(
        "size paper: its records belong to the size smoke, which --size chooses."
    )


def test_a_file_without_records_is_named(explain):
    assert explain([]) == "theirs.tar.gz has no record for mine, size smoke."


def test_a_report_says_that_nothing_of_a_file_is_used(make_launches, run_inline, tmp_path):
    for folder, workload in (("results", "lenet"), ("theirs", "convnet")):
        for launch in make_launches(0.1, workload=workload):
            Store(tmp_path / folder).add(launch)
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\ntitle = "t"\nquestion = "q?"\n[[matrix]]\nframework = ["reference"]\n'
        'workload = ["lenet"]\nbatch_size = [4]\nsteps = 3\nwarmup = 1\ndata = "synthetic"\n'
        '[[analysis]]\nname = "values"\n'
    )
    words = ["study", "report", "mine.toml"]
    with_theirs = [*words, "--with", "theirs"]
    sentence = "No record of theirs belongs to a cell of mine, size laptop: its records have "
    sentence += "workload convnet (the study has lenet)."
    outcome = run_inline(*with_theirs, "--json")
    assert outcome.stderr.splitlines() == [sentence], outcome.stdout
    assert json.loads(outcome.stdout)["limits"][0] == sentence
    run_inline(*with_theirs, "--output", "page.html")
    assert sentence in (tmp_path / "page.html").read_text()
    assert not run_inline(*words, "--with", "results").stderr
    outcome = run_inline(*words, "--results", "nothing", "--with", "theirs")
    assert outcome.returncode == 2 and "a cell of mine: its records have workload" in outcome.stderr
