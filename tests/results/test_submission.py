"""A folder for a shared leaderboard: what is in it, and what is found wrong with one."""

import json
import platform

import pytest

from tests.sample_records import SOFTWARE, certify_records, vary_record
from xfbench.base import digests, private_names
from xfbench.base.errors import UsageError
from xfbench.cli.options import parse_run_command
from xfbench.host.machine import describe
from xfbench.records.elsewhere import About, Figure
from xfbench.records.record import Citation, Record
from xfbench.results import audit, submission
from xfbench.results.store import Store, open_store

HERE = describe().model_copy(update={"hostname_hash": private_names.host_hash("node7")})
OTHER = HERE.model_copy(update={"hostname_hash": "f" * 16, "cpu_model": "Other"})


@pytest.fixture
def records(record):
    """Launches of three cells on two machines, one that failed, and a figure from elsewhere."""
    fields = {"software": SOFTWARE, "machine": HERE}
    made = [
        record(steps=(0.1 + launch / 100 + batch / 1000,), launch=launch, fields=fields, **sizes)
        for launch in (1, 2)
        for batch in (4, 8)
        for sizes in ({"global_batch_size": batch, "batch_size_per_rank": batch},)
    ]
    there = {**fields, "machine": OTHER}
    made += [record(steps=(0.3 + launch / 100,), launch=launch, fields=there) for launch in (1, 2)]
    found, certificates = certify_records(made)
    gone = {"status": "crashed", "reason": "rank 0 was killed", "measurement": None}
    failed = vary_record(made[0], request={"kernel": "numpy", "threads": 2}, **gone)
    elsewhere = Record.make(
        created="2016-01-01T00:00:00.000Z",
        source="published",
        citation=Citation(key="a", title="A paper", where="table 1"),
        figure=Figure(quantity="speed-up", unit="times", value=2.0, about=About(workload="lenet")),
        status="ok",
        request=None,
        workload=None,
    )
    return [*found, failed, elsewhere], certificates


@pytest.fixture
def store(tmp_path, records):
    """A results folder of them."""
    found, certificates = records
    made = Store(tmp_path / "results")
    made.prepare()
    for one in found:
        made.add(one)
    for one in certificates.values():
        one.write(made.certificate_path(one.id))
    return made


@pytest.fixture
def folder(store, tmp_path):
    """A submission of all of it."""
    wrong = []
    assert write(store, tmp_path / "given", wrong.append) == 8 and not wrong
    return tmp_path / "given"


def write(store, target, complain=print):
    found = sorted(store.contents(), key=lambda one: (one[0].created, one[0].id))
    return submission.write_submission(
        target, [(place, one) for one, place, _ in found], store, complain
    )


def found(folder):
    """Each defect's file, below the folder, and its kind."""
    defects = audit.validate(folder, parse_run_command)[1]
    return {(one.file.removeprefix(f"{folder}/"), one.defect) for one in defects}


def resealed(folder):
    """The manifest made anew, as whoever edits a submission would."""
    (folder / "submission.json").unlink()
    (folder / "submission.json").write_text(json.dumps(submission.build_manifest(folder)))


def test_submission_is_complete_and_valid(folder, records):
    assert audit.validate(folder, parse_run_command) == (8 + len(records[1]), [])
    names = {path.name for path in folder.iterdir()}
    described = {"README.md", "leaderboard.md", "machine.json", "repeat.json", "submission.json"}
    assert names == {"records", "certificates", *described}
    manifest = json.loads((folder / "submission.json").read_text())
    assert manifest["schema"] == "xfbench.submission/1"
    for name, said in manifest["files"].items():
        content = (folder / name).read_bytes()
        assert said == {"bytes": len(content), "digest": digests.of_bytes(content)}


def test_machine_file_lists_the_machines_of_the_records(folder):
    machines = json.loads((folder / "machine.json").read_text())["machines"]
    assert sorted((one["cpu_model"], one["records"]) for one in machines) == sorted(
        [(HERE.cpu_model, 5), ("Other", 2)]
    )


def test_repeat_command_matches_the_request_of_each_record(folder, records):
    cells = json.loads((folder / "repeat.json").read_text())["cells"]
    assert len(cells) == 4
    by_id = {one.id: one for one in records[0]}
    readme = (folder / "README.md").read_text()
    for cell in cells:
        given = parse_run_command(cell["command"].split()[2:])
        for one in cell["records"]:
            asked = by_id[one].request
            assert given["batch_size"] == str(asked.global_batch_size)
            assert given["threads"] == str(asked.threads)
        assert f"\n    {cell['command']}\n" in readme
    assert "A paper" in (folder / "leaderboard.md").read_text()


def test_equal_records_make_equal_submissions(store, folder, tmp_path):
    write(store, tmp_path / "again")
    assert submission.build_manifest(folder) == submission.build_manifest(tmp_path / "again")
    store.pack()
    write(store, tmp_path / "packed")
    assert submission.build_manifest(folder) == submission.build_manifest(tmp_path / "packed")


def test_submission_can_be_read_as_a_results_folder(folder, records):
    assert {one.id for one in open_store(folder).records()} == {one.id for one in records[0]}


def test_added_missing_or_changed_file_is_a_defect(folder):
    (folder / "notes.txt").write_text("more")
    assert found(folder) == {("notes.txt", "whole")}
    (folder / "notes.txt").unlink()
    (folder / "link").symlink_to("README.md")
    assert found(folder) == {("link", "whole")}
    (folder / "link").unlink()
    (folder / "README.md").write_text((folder / "README.md").read_text() + "more")
    assert found(folder) == {("README.md", "whole")}
    (folder / "README.md").unlink()
    assert ("README.md", "whole") in found(folder)
    (folder / "submission.json").write_text("{}")
    assert ("submission.json", "whole") in found(folder)


def test_unexpected_file_is_a_defect_even_if_in_the_manifest(folder):
    (folder / "payload.sh").write_text("true")
    resealed(folder)
    assert found(folder) == {("payload.sh", "whole")}


def test_edited_record_fails_digest_and_manifest(folder):
    path = next((folder / "records").rglob("*.json"))
    path.write_text(path.read_text().replace('"ok"', '"failed"').replace('"crashed"', '"ok"'))
    name = path.relative_to(folder).as_posix()
    assert {(name, "digest"), (name, "whole")} <= found(folder)


def test_removed_record_is_missed_by_every_summary(folder, records):
    one = next(one for one in records[0] if one.certificate)
    Store(folder).record_path(one.id[7:]).unlink()
    resealed(folder)
    kinds = {("machine.json", "machine"), ("leaderboard.md", "whole"), ("repeat.json", "repeat")}
    assert found(folder) == kinds


def test_missing_or_unused_certificate_is_a_defect(folder, records):
    [path, *_] = (folder / "certificates").iterdir()
    content = path.read_bytes()
    path.unlink()
    resealed(folder)
    assert "certificate" in {kind for _, kind in found(folder)}
    path.write_bytes(content)
    for one in records[0]:
        if one.certificate == f"sha256:{path.stem}":
            Store(folder).record_path(one.id[7:]).unlink()
    resealed(folder)
    assert (f"certificates/{path.name}", "whole") in found(folder)


def test_changed_machine_description_is_a_defect(folder):
    path = folder / "machine.json"
    path.write_text(path.read_text().replace('"Other"', '"Better"'))
    resealed(folder)
    assert found(folder) == {("machine.json", "machine")}


def test_changed_leaderboard_is_a_defect(folder):
    path = folder / "leaderboard.md"
    path.write_text(path.read_text().replace("reference", "preference"))
    resealed(folder)
    assert found(folder) == {("leaderboard.md", "whole")}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("--threads 1", "--threads 2", "a record 1"),
        ("--workload lenet", "--workload alexnet", "a record lenet"),
        ("--batch-size 8", "--batch-size 9", "a record 8"),
        ("--steps 3", "--steps 4", "a record 3"),
        ("--warmup 1", "--warmup 0", "a record 1"),
        ("--data synthetic", "--data digits", "a record synthetic"),
        ("--steps 3 ", "", "--steps None"),
        ("--steps 3", "--stops 3", "No such option"),
        ("xfbench run", "rm -rf", "not `xfbench run`"),
        ("--kernel numpy", "--kernel numpy --precision float64", "a record float32"),
    ],
)
def test_command_that_differs_from_its_cell_is_a_defect(folder, old, new, words):
    for name in ("repeat.json", "README.md"):
        path = folder / name
        path.write_text(path.read_text().replace(old, new))
    resealed(folder)
    defects = audit.validate(folder, parse_run_command)[1]
    assert {(one.file, one.defect) for one in defects} == {(str(folder / "repeat.json"), "repeat")}
    assert all(words in one.detail for one in defects), defects


def edited(folder, change):
    path = folder / "repeat.json"
    document = json.loads(path.read_text())
    change(document["cells"])
    path.write_text(json.dumps(document))
    resealed(folder)
    return found(folder)


def test_malformed_or_missing_repeat_cell_is_a_defect(folder):
    repeated = {("repeat.json", "repeat")}
    assert edited(folder, lambda cells: cells[0].update(command=None)) == repeated
    assert edited(folder, lambda cells: cells.pop(0)) == repeated
    assert edited(folder, lambda cells: cells[0].pop("records")) == repeated
    assert edited(folder, lambda cells: cells.insert(0, 7)) == repeated
    assert edited(folder, lambda cells: cells.append(cells[-1])) == repeated


def test_command_missing_from_the_readme_is_a_defect(folder):
    path = folder / "README.md"
    path.write_text(path.read_text().replace("xfbench run", "xfbench  run"))
    resealed(folder)
    assert found(folder) == {("README.md", "repeat")}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rank 0 on node7 was killed", "the host node7"),
        ("node7.example.org died", "the host node7"),
        ("see /home/jane/results", "home folder of jane"),
        ("ask jane@example.org", "the address jane@example.org"),
    ],
)
def test_record_with_private_names_is_withheld_and_a_defect(
    folder, store, tmp_path, records, text, words
):
    bad = vary_record(
        records[0][0], status="failed", reason=text, created="2026-01-01T00:00:00.000Z"
    )
    store.add(bad)
    wrong = []
    assert write(store, tmp_path / "another", wrong.append) == 8
    assert [line for line in wrong if bad.id[7:19] in line and words in line] == wrong != []
    assert found(tmp_path / "another") == set()
    Store(folder).add(bad)
    name = Store(folder).record_path(bad.id[7:]).relative_to(folder).as_posix()
    assert (name, "private") in found(folder)


def test_harmless_words_are_not_private_names():
    hosts = {private_names.host_hash("node7"), private_names.host_hash(platform.node())}
    for text in ("node70", "/homely/thing", "torch@2.1", "localhost", "", "/home/"):
        assert private_names.find_private_name(text, hosts) is None


def test_non_empty_target_or_no_records_is_a_usage_error(store, folder, tmp_path):
    for target in (folder, store.folder, tmp_path / "results" / "README"):
        with pytest.raises(UsageError, match="not empty"):
            write(store, target)
    with pytest.raises(UsageError, match="no records"):
        submission.write_submission(tmp_path / "new", [], store, print)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".xfbench", "new"))]


def test_cli_submits_validates_imports_and_merges(xfbench, store, tmp_path):
    assert xfbench("results", "submit", "given").stdout.startswith("8 records written")
    assert xfbench("results", "validate", "given").returncode == 0
    some = xfbench("results", "submit", "some", "--where", "request.global_batch_size=8", "--json")
    assert json.loads(some.stdout)["submitted"] == 2
    taken = xfbench("results", "import", "given", "--results", "a")
    assert taken.stdout.startswith("8 records imported")
    assert xfbench("results", "merge", "given", "--results", "b").stdout.startswith("8 records")
    boards = [xfbench("leaderboard", "--results", name).stdout for name in ("results", "a", "b")]
    assert boards[0] and boards[0] == boards[1] == boards[2]
    (tmp_path / "given" / "extra").write_text("x")
    refused = xfbench("results", "import", "given", "--results", "c")
    assert refused.returncode == 2 and "extra: it does not belong" in refused.stderr
    assert xfbench("results", "validate", "given").returncode == 1
    assert xfbench("results", "import", "results").returncode == 2


def test_hostile_text_in_records_is_escaped(store, tmp_path, records):
    words = "[x](javascript:alert(1)) <script>alert(1)</script>\x1b[31m\u202e\n# big\x00`|"
    machine = HERE.model_copy(update={"cpu_model": words})
    fields = {"status": "failed", "measurement": None, "machine": machine}
    bad = vary_record(records[0][0], reason=words, **fields)
    store.add(vary_record(bad, request={"data": words, "launcher": words}, created="2026-01-01"))
    write(store, tmp_path / "bad")
    for path in (tmp_path / "bad").glob("*.md"):
        text = path.read_text()
        assert "alert(1)" in text and "<script>" not in text and "\n# big" not in text
        assert "[x]" not in text and not {"\x1b", "\u202e", "\x00"} & set(text)
    assert "No command repeats it" in (tmp_path / "bad" / "README.md").read_text()
    assert found(tmp_path / "bad") == set()


def test_malformed_submission_files_are_defects(folder):
    hostile = ["", "[]", "null", "[" * 100_000, '{"cells": 7, "machines": 7, "files": 7}', "\x00"]
    for name in ("submission.json", "repeat.json", "machine.json"):
        kept = (folder / name).read_bytes()
        for text in [*hostile, '{"cells": [{"records": [[]], "command": {}}]}']:
            (folder / name).write_text(text)
            assert name in {file for file, _ in found(folder)}
        (folder / name).write_bytes(kept)
