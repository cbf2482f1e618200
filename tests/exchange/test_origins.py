"""Where records came from: nothing that was imported counts as measured here."""

import json
import os
import shutil
import tarfile

import pytest

from tests.sample_records import build_record_certificate, make_certified_record, vary_record
from xfbench.model import certificate, origins
from xfbench.store.results_folder import Store


@pytest.fixture
def store(tmp_path, record):
    """The results folder that the commands use: two certified launches of one cell."""
    new_store = Store(tmp_path / "results")
    new_store.create_and_check_folders()
    first, proof = make_certified_record(record)
    fields = {name: getattr(first, name) for name in ("software", "machine", "certificate")}
    for each in (first, record(steps=(0.13, 0.14), launch=8, fields=fields)):
        new_store.add(each)
    proof.write(new_store.certificate_path(proof.id))
    return new_store


@pytest.fixture
def list_origins(run_inline):
    """A function that returns the origins that `results list` prints for a results folder."""

    def run(folder):
        result = run_inline("results", "list", "--json", "--limit", "0", "--results", folder)
        assert result.returncode == 0, result.stderr
        return {*json.loads(result.stdout)["origins"].values()}

    return run


def import_into(run_inline, source, folder):
    result = run_inline("results", "import", source, "--results", folder)
    assert result.returncode == 0, result.stderr
    return result


def test_launches_of_this_folder_are_measured_here(store, run_inline, list_origins):
    assert list_origins("results") == {"measured here"}
    [shown, *_] = [record.id[7:19] for record in store.records()]
    assert "\norigin  measured here\n" in run_inline("results", "show", shown).stdout
    assert "measured here" not in run_inline("leaderboard").stdout
    document = json.loads(run_inline("leaderboard", "--json").stdout)
    assert "origins" not in document["tables"][0]["rows"][0]


@pytest.mark.parametrize("kind", ["archive", "folder", "pack", "submission"])
def test_every_table_says_what_was_imported(store, run_inline, list_origins, kind, tmp_path):
    words = "submitted" if kind == "submission" else "imported"
    if kind == "archive":
        assert run_inline("results", "export", "theirs.tar.gz").returncode == 0
        source = "theirs.tar.gz"
    elif kind == "submission":
        assert run_inline("results", "submit", "theirs").returncode == 0
        source = "theirs"
    elif kind == "pack":
        store.pack()
        [source] = store.packs()
    else:
        shutil.copytree("results", "theirs")
        source = "theirs"
    import_into(run_inline, source, "ours")
    assert list_origins("ours") == {words}
    [identity, _] = [record.id[7:19] for record in Store(tmp_path / "ours").records()]
    shown = run_inline("results", "show", identity, "--results", "ours").stdout
    name = getattr(source, "name", source)
    assert f"\norigin  {words} (from {name})\n" in shown
    assert words in run_inline("results", "list", "--results", "ours").stdout
    board = run_inline("leaderboard", "--results", "ours").stdout
    assert f"Not measured here: launches of all rows ({words})." in " ".join(board.split())
    [table] = json.loads(run_inline("leaderboard", "--results", "ours", "--json").stdout)["tables"]
    [row] = table["rows"] + table["unranked"]
    assert row["origins"] == {words: 2}
    assert (row["rank"] is None) == (kind == "pack"), "a pack has no certificates"
    assert run_inline("report", "--results", "ours", "-o", "r.html").returncode == 0
    assert words in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("name", [b"th\xffeirs", b"th\xffeirs.tar"])
def test_source_whose_name_is_no_text_is_noted(store, run_inline, list_origins, tmp_path, name):
    run_inline("results", "export", "theirs.tar")
    shutil.move("theirs.tar" if name.endswith(b".tar") else "results", os.fsdecode(name))
    import_into(run_inline, os.fsdecode(name), "ours")
    assert list_origins("ours") == {"imported"}
    [note, *_] = (tmp_path / "ours" / "origins").iterdir()
    assert json.loads(note.read_text())["source"].startswith("th\\xffeirs")


def test_no_detour_makes_a_foreign_record_measured_here(store, run_inline, list_origins, tmp_path):
    run_inline("results", "export", "1.tar")
    import_into(run_inline, "1.tar", "b")
    run_inline("results", "export", "2.tar", "--results", "b")
    import_into(run_inline, "2.tar", "c")
    assert list_origins("c") == {"imported"}
    shutil.rmtree(tmp_path / "b" / "origins")  # as its owner may
    assert list_origins("b") == {"measured here"}
    import_into(run_inline, "b", "d")
    assert run_inline("results", "pack", "--results", "d").returncode == 0
    assert list_origins("d") == {"imported"}
    (tmp_path / "d" / "index.duckdb").unlink()
    assert list_origins("d") == {"imported"}
    assert run_inline("results", "pack", "--all", "--results", "d").returncode == 0
    assert list_origins("d") == {"imported"}
    import_into(run_inline, "2.tar", "d")
    assert list_origins("d") == {"imported"}


def test_archive_cannot_bring_notes_or_claim_an_origin(store, run_inline, list_origins, tmp_path):
    [first, second] = store.records()
    note = origins.Note.make(origin="carried", source="x", records=(first.id,))
    (tmp_path / "note.json").write_text(note.model_dump_json(by_alias=True))
    run_inline("results", "export", "1.tar")
    with tarfile.open("1.tar", "a") as tar:
        tar.add("note.json", f"origins/{note.id[7:]}.json")
    refused = run_inline("results", "import", "1.tar", "--results", "ours")
    assert refused.returncode == 2 and "does not belong" in refused.stderr
    shutil.copytree("results", "theirs")
    claim = origins.Note.make(origin="submitted", source="x", records=(first.id, second.id))
    origins_folder = tmp_path / "theirs" / "origins"
    origins_folder.mkdir()
    (origins_folder / f"{claim.id[7:]}.json").write_text(claim.model_dump_json(by_alias=True))
    import_into(run_inline, "theirs", "ours")
    assert list_origins("ours") == {"imported"}
    import_into(run_inline, "theirs", "results")  # both are there, and stay what they were
    assert list_origins("results") == {"measured here"}


def test_a_damaged_note_makes_origins_unknown(store, run_inline, list_origins, tmp_path):
    run_inline("results", "export", "1.tar")
    import_into(run_inline, "1.tar", "ours")
    [note] = (tmp_path / "ours" / "origins").iterdir()
    note.write_text(note.read_text().replace("imported", "carried"))
    assert list_origins("ours") == {"unknown"}
    result = run_inline("results", "list", "--results", "ours")
    assert "the origin of some records is unknown" in result.stderr


def test_mixed_rows_count_each_origin(store, run_inline, tmp_path):
    run_inline("results", "export", "1.tar", "--where", "request.launch=8")
    import_into(run_inline, "1.tar", "ours")
    [own] = [each for each in store.records() if each.request.launch != 8]
    Store(tmp_path / "ours").add(own)
    [table] = json.loads(run_inline("leaderboard", "--results", "ours", "--json").stdout)["tables"]
    assert table["rows"][0]["origins"] == {"measured": 1, "imported": 1}
    board = run_inline("leaderboard", "--results", "ours", "--wide").stdout
    assert "1 imported" in board and "1 measured here" in board


@pytest.mark.parametrize("verdict", ["equal", "different"])
def test_a_foreign_certificate_says_nothing_about_own_launches(
    store, record, run_inline, tmp_path, verdict
):
    """The record of a launch that names no certificate may be covered by a later one of ours."""
    [first, _] = store.records()
    ours = Store(tmp_path / "ours")
    ours.create_and_check_folders()
    own = vary_record(first, request={"launch": 3}, certificate=None, cell=first.cell)
    ours.add(own)
    their_proof = certificate.Certificate.make(
        **{
            **build_record_certificate(first).model_dump(exclude={"id", "schema_"}),
            "verdict": verdict,
        }
    )
    their_proof.write(store.certificate_path(their_proof.id))
    unnamed = vary_record(first, request={"launch": 4}, certificate=None, cell=first.cell)
    store.add(unnamed)
    run_inline("results", "export", "1.tar")
    import_into(run_inline, "1.tar", "ours")
    certificates = certificate.read_certificates(ours.folder)
    assert certificate.find_certificate_id(own, certificates) is None
    assert certificate.find_certificate_id(unnamed, certificates) in certificates
    assert certificate.find_certificate_id(first, certificates) == first.certificate


@pytest.mark.parametrize("other", ["submission.json", "records", "packs", "certificates"])
@pytest.mark.parametrize("options", [[], ["--bundle"]])
def test_a_folder_that_is_a_bundle_and_something_else_is_refused(
    store, run_inline, tmp_path, other, options
):
    folder = tmp_path / "both"
    if other == "submission.json":
        assert run_inline("results", "submit", folder).returncode == 0
    else:
        (folder / other).mkdir(parents=True)
    (folder / "plan.json").write_text("{}")
    result = run_inline("results", "import", *options, folder, "--results", "ours")
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1
    assert f"has plan.json like a bundle, and {other} like" in result.stderr
    assert not (tmp_path / "ours").exists()
