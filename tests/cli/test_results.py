"""Tests of `xfbench results` and of commands that read a results folder."""

import csv
import io
import json
import re

import duckdb
import pytest

from xfbench.cli import conclusion
from xfbench.host.machine import describe_machine
from xfbench.store import index, published
from xfbench.store.results_folder import Store

HOSTILE_TEXT = "=cmd|' /C calc'!A0\x1b[31m\u202e<script>alert(1)</script>\x00"


@pytest.fixture
def make_results(tmp_path, record):
    """A function that makes a results folder of eight launches in the folder of the command."""

    def make(name="results"):
        store = Store(tmp_path / name)
        store.create_and_check_folders()
        for launch in (1, 2, 3, 4):
            for threads in (1, 2):
                steps = (0.1 + launch / 100 + threads / 1000,)
                store.add(record(steps=steps, launch=launch, threads=threads))
        return store

    return make


def test_list_shows_newest_records_first_and_filters(run_inline, make_results):
    newest = [record.id for record in make_results().records()][::-1]
    listed = json.loads(run_inline("results", "list", "--json").stdout)["records"]
    assert [record["id"] for record in listed] == newest
    listed = run_inline("results", "list", "--where", "threads>=2", "--limit", "3").stdout
    assert len([line for line in listed.splitlines() if "reference" in line]) == 3
    assert "3 of 4 records" in listed
    mistyped = run_inline("results", "list", "--where", "thread=2")
    assert mistyped.returncode == 2 and "mean threads?" in mistyped.stderr


def test_list_that_is_complete_says_nothing_of_more_records(run_inline, make_results, monkeypatch):
    """The index may preselect more records than meet the conditions."""
    make_results()
    monkeypatch.setattr(index.Index, "count_preselected", lambda *_: 100)
    listed = run_inline("results", "list", "--where", "threads>=2", "--limit", "50").stdout
    assert "reference" in listed and "--limit 0" not in listed


def test_show_accepts_the_start_of_an_id(run_inline, make_results):
    record = next(make_results().records())
    document = json.loads(run_inline("results", "show", record.id[:19], "--json").stdout)
    assert document == record.document()
    text = run_inline("results", "show", record.id[7:19]).stdout
    assert record.id in text and "request.framework  reference" in text and "file  " in text
    unknown = run_inline("results", "show", "zz")
    assert unknown.returncode == 2 and len(unknown.stderr.splitlines()) == 1


def test_after_a_run_a_line_says_what_to_do_about_launches_without_a_figure(
    run_inline, record, tmp_path, capsys
):
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    kinds = (("crashed", "no memory"), ("timed_out", "too slow"), ("invalid", "swapped"))
    records = [
        record(launch=launch, fields={"status": status, "reason": reason, "measurement": None})
        for launch, (status, reason) in enumerate(kinds, 1)
    ]
    for each in records:
        store.add(each)
    conclusion.print_leaderboard_and_results_path(records, store)
    failed, invalid = [line for line in capsys.readouterr().out.splitlines() if " launch" in line][
        -2:
    ]
    command = re.fullmatch(
        r"2 launches failed: xfbench (.*) names the files .* --resume .*", failed
    )
    shown = run_inline(*command[1].split())
    assert "reason  too slow" in shown.stdout
    assert invalid.startswith("1 launch invalid, so not counted")


def test_high_rates_have_no_exponent(run_inline, make_results, record):
    fast = record(steps=(2e-4,))
    make_results().add(fast)
    images_per_second = fast.request.global_batch_size / 2e-4
    assert images_per_second >= 10_000
    text = f"{images_per_second:,.0f}".replace(",", " ")
    assert text in run_inline("results", "list").stdout
    assert f"{text} (by the median" in run_inline("results", "show", fast.id[7:19]).stdout


@pytest.mark.parametrize("folder", ["results", "none"])
def test_show_finds_a_published_value(run_inline, make_results, folder):
    make_results()
    value = published.records()[0]
    shown = run_inline("results", "show", value.id[7:19], "--results", folder)
    assert value.citation.title[:40] in shown.stdout and shown.returncode == 0


def test_packing_does_not_change_command_output(run_inline, make_results, record):
    store = make_results()
    commands = [
        ("leaderboard", "--json"),
        ("leaderboard", "--where", "threads=2", "--workload", "lenet"),
        ("compare", "threads=1", "threads=2", "--json"),
        ("results", "list", "--json"),
    ]
    single = [run_inline(*command).stdout for command in commands]
    assert all(single)
    outcome = run_inline("results", "pack", "--json")
    assert json.loads(outcome.stdout)["packed"] == 8
    assert not list(store.record_files())
    assert [run_inline(*command).stdout for command in commands] == single
    store.add(next(store.records()))
    assert [run_inline(*command).stdout for command in commands] == single


def test_merge_validate_export_and_import_work_together(run_inline, make_results, tmp_path):
    make_results("a")
    make_results("b")
    assert run_inline("results", "import", "a", "b").stdout.startswith("16 records imported")
    assert run_inline("results", "import", "a", "b").stdout.startswith("0 records imported")
    validation = run_inline("results", "validate", "results", "--json")
    report = json.loads(validation.stdout)
    assert validation.returncode == 1 and report["checked"] == 16
    assert {defect["defect"] for defect in report["defects"]} == {"duplicate"}
    assert set(report["defects"][0]) == {"file", "defect", "detail"}
    assert run_inline("results", "validate", "a").returncode == 0
    assert run_inline("results", "export", "a.tar", "--results", "a").returncode == 0
    assert run_inline("results", "validate", "a.tar").returncode == 0
    outcome = run_inline("results", "import", "a.tar", "--results", "c")
    assert outcome.stdout.startswith("8 records imported")
    assert [record.id for record in Store(tmp_path / "c").records()] == [
        record.id for record in Store(tmp_path / "a").records()
    ]


def test_packs_are_imported_by_themselves(run_inline, make_results, tmp_path):
    ids = [record.id for record in make_results("a").records()]
    assert run_inline("results", "pack", "--results", "a").returncode == 0
    [pack] = (tmp_path / "a" / "packs").glob("*.ndjson")
    pack = pack.rename(tmp_path / pack.name)
    outcome = run_inline("results", "import", pack.name, "--results", "b", "--json")
    assert json.loads(outcome.stdout) == {"imported": 8, "known": 0, "damaged": []}
    assert [record.id for record in Store(tmp_path / "b").records()] == ids
    again = run_inline("results", "import", pack.name, "--results", "b")
    assert again.stdout.startswith("0 records imported") and "8 already present" in again.stdout
    lines = pack.read_text().splitlines()
    damaged = [line.replace('"ok"', '"failed"') for line in lines[:1]] + lines[1:]
    (tmp_path / "damaged.ndjson").write_text("\n".join(damaged) + "\n")
    outcome = run_inline("results", "import", "damaged.ndjson", "--results", "c")
    assert outcome.returncode == 1 and "damaged.ndjson line 1" in outcome.stderr
    assert len(list(Store(tmp_path / "c").records())) == 7


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give either sources to import, or --bundle PATH"),
        (("a", "--bundle", "b"), "give either sources to import, or --bundle PATH"),
        (("nowhere",), "no such file or folder"),
        (("results",), "is the results folder itself"),
        (("carried",), "results import --bundle carried"),
        (("--bundle", "a"), "a is not a bundle"),
    ],
)
def test_what_cannot_be_imported_is_refused_with_the_remedy(
    run_inline, make_results, tmp_path, arguments, words
):
    make_results("a")
    make_results("results")
    (tmp_path / "carried").mkdir()
    (tmp_path / "carried" / "plan.json").touch()
    outcome = run_inline("results", "import", *arguments)
    assert outcome.returncode == 2 and words in outcome.stderr


def test_every_command_reports_a_damaged_record(run_inline, make_results):
    path = next(make_results().record_files())
    path.write_text(path.read_text().replace('"ok"', '"failed"'))
    for command in ("leaderboard", "results list", "results export x.csv"):
        outcome = run_inline(*command.split())
        assert path.name in outcome.stderr and outcome.returncode == 0
    outcome = run_inline("results", "validate", "results")
    assert outcome.returncode == 1 and f"{path.name}: digest" in outcome.stdout
    assert run_inline("results", "import", "results", "--results", "other").returncode == 1
    assert run_inline("results", "pack").returncode == 1


def test_csv_and_parquet_exports_match_the_records(run_inline, make_results, tmp_path):
    store = make_results()
    run_inline("results", "export", "all.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text())))
    records = list(store.records())
    assert [row["id"] for row in rows] == [record.id for record in records]
    assert [float(row["images_per_second"]) for row in rows] == pytest.approx(
        [4 / record.measurement.step_seconds[0] for record in records]
    )
    run_inline("results", "export", "two.parquet", "--where", "threads=2")
    parquet_rows = duckdb.execute(
        'SELECT id, "request.threads", images_per_second FROM read_parquet(?) ORDER BY created, id',
        [str(tmp_path / "two.parquet")],
    ).fetchall()
    assert [row[0] for row in parquet_rows] == [
        record.id for record in records if record.request.threads == 2
    ]
    assert {row[1] for row in parquet_rows} == {2}
    refused = run_inline("results", "export", "all.xlsx")
    assert refused.returncode == 2 and ".parquet" in refused.stderr


def test_hostile_text_is_escaped_in_list_show_and_export(
    run_inline, make_results, record, tmp_path
):
    store = make_results()
    hostile_record = record(
        steps=(0.5,),
        fields={"status": "failed", "reason": HOSTILE_TEXT * 20, "cell": HOSTILE_TEXT},
    )
    store.add(hostile_record)
    store.pack()
    for command in ("list", f"show {hostile_record.id}", "validate results"):
        output = run_inline("results", *command.split()).stdout
        assert output and not {"\x1b", "\u202e", "\x00"} & set(output)
    run_inline("results", "export", "all.csv")
    [row] = [
        row
        for row in csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text()))
        if row["id"] == hostile_record.id
    ]
    assert row["cell"].startswith("'=cmd")
    assert not {"\x1b", "\u202e", "\x00"} & set(row["reason"])


def test_missing_results_give_a_one_line_error(run_inline):
    for command in ("list", "show x", "pack", "merge none", "validate none", "export x.tar"):
        outcome = run_inline("results", *command.split())
        assert outcome.returncode == 2 and len(outcome.stderr.splitlines()) == 1


def test_failed_jobs_are_left_out_once_their_cells_were_measured(run_inline, record, tmp_path):
    """Records of launches that a job did not do have no machine."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    lost = {"status": "crashed", "reason": "a node failed", "measurement": None, "observed": None}
    for framework in ("reference", "torch"):
        store.add(record(fields={**lost, "cell": None}, framework=framework))
    other = Store(tmp_path / "other")
    other.create_and_check_folders()
    for launch in (1, 2, 3):
        for each in (store, other):
            each.add(record(launch=launch, fields={"machine": describe_machine()}))
    board = run_inline("leaderboard").stdout
    [heading] = [line for line in board.splitlines() if "unknown machine" in line]
    unknown = board[board.index(heading) :]
    assert "torch" in unknown and "reference" not in unknown
    compared = run_inline("compare", "results", "other").stdout
    assert "torch · numpy · 1 thread: 1 of 1 launches crashed" in compared
    assert not any("reference" in line and "crashed" in line for line in compared.splitlines())
    assert run_inline("results", "list").stdout.count("crashed") == 2
