"""Merging: by content, with certificates and runs, and twice is once."""

import json

import pytest

from tests.results.test_audit import certified
from xfbench.results import merging
from xfbench.results.store import Store


@pytest.fixture
def folder(tmp_path, record):
    """A function that makes a results folder of records with these launch numbers."""

    def make(name, launches, **fields):
        made = Store(tmp_path / name)
        made.prepare()
        for launch in launches:
            run = made.create_run_folder()
            (run / "stdout").write_text(f"launch {launch}")
            made.add(record(steps=(0.1 + launch / 100,), launch=launch, fields=fields), run)
        return made

    return make


def contents(store):
    found = {}
    for path in store.folder.rglob("*"):
        if path.is_file() and path.name not in ("README", "lock"):
            found[path.relative_to(store.folder)] = path.read_bytes()
    return found


def merged(sources, target):
    complaints = []
    return (*merging.merge(sources, target, complaints.append), complaints)


def test_merge_copies_records_with_runs_and_is_idempotent(folder, tmp_path):
    first, second = folder("a", (1, 2, 3)), folder("b", (4, 5))
    target = Store(tmp_path / "all")
    assert merged([first, second], target) == (5, 0, [])
    assert contents(target) == {**contents(first), **contents(second)}
    before = contents(target)
    assert merged([first, second, target], target) == (0, 5, [])
    assert contents(target) == before


def test_merge_reads_packs_and_skips_packed_records(folder, tmp_path):
    first, target = folder("a", (1, 2, 3)), folder("all", ())
    single = contents(first)
    first.pack()
    assert merged([first], target) == (3, 0, [])
    records = {path: text for path, text in single.items() if path.parts[0] == "records"}
    for path, text in records.items():
        assert json.loads(contents(target)[path]) == json.loads(text)
    target.pack()
    assert merged([first], target) == (0, 3, [])
    assert not list(target.record_files())


def test_merge_copies_only_certificates_of_its_records(folder, tmp_path, record):
    made, certificate = certified(record)
    source, target = folder("a", ()), Store(tmp_path / "all")
    source.add(made)
    certificate.write(source.certificate_path(certificate.id))
    stranger = certificate.model_copy(update={"seed": 9})
    stranger = stranger.model_copy(update={"id": stranger.computed_id()})
    stranger.write(source.certificate_path(stranger.id))
    assert merged([source], target) == (1, 0, [])
    path = target.certificate_path(certificate.id)
    assert path.read_bytes() == source.certificate_path(certificate.id).read_bytes()
    assert not target.certificate_path(stranger.id).exists()


def test_damaged_records_and_certificates_are_not_merged(folder, tmp_path, record):
    made, certificate = certified(record)
    source, target = folder("a", (1, 2)), Store(tmp_path / "all")
    source.add(made)
    certificate.write(source.certificate_path(certificate.id))
    path = source.certificate_path(certificate.id)
    path.write_text(path.read_text().replace('"equal"', '"different"'))
    edited = next(path for path in source.record_files() if path.stem != made.id[7:])
    edited.write_text(edited.read_text().replace('"ok"', '"failed"'))
    new, known, complaints = merged([source], target)
    assert (new, known) == (2, 0)
    assert any(edited.name in line for line in complaints)
    assert any("was edited" in line for line in complaints)
    assert not target.certificate_path(certificate.id).exists()
    assert not target.record_path(edited.stem).exists()


def test_links_in_a_run_are_not_followed(folder, tmp_path):
    source, target = folder("a", (1,)), Store(tmp_path / "all")
    (tmp_path / "secret").write_text("secret")
    [record] = source.records()
    (source.run_folder(record) / "link").symlink_to(tmp_path / "secret")
    merged([source], target)
    assert [path.name for path in target.run_folder(record).iterdir()] == ["stdout"]


def test_a_run_folder_that_is_a_link_is_not_followed(folder, tmp_path):
    source, target = folder("a", (1,)), Store(tmp_path / "all")
    [record] = source.records()
    run = source.run_folder(record)
    run.rename(tmp_path / "elsewhere")
    run.symlink_to(tmp_path / "elsewhere")
    assert merged([source], target) == (1, 0, [])
    assert not target.run_folder(record).exists()


def test_a_run_folder_that_is_there_stays_as_it_is(folder, tmp_path):
    source, target = folder("a", (1,)), folder("all", ())
    [record] = source.records()
    target.run_folder(record).mkdir()
    (target.run_folder(record) / "stdout").write_text("kept")
    assert merged([source], target) == (1, 0, [])
    assert [path.name for path in target.run_folder(record).iterdir()] == ["stdout"]
    assert (target.run_folder(record) / "stdout").read_text() == "kept"


def test_of_a_run_only_the_worker_is_one_file_in_both_folders(folder, tmp_path):
    source, target = folder("a", (1,)), Store(tmp_path / "all")
    [record] = source.records()
    (source.run_folder(record) / "worker.pyz").write_bytes(b"archive")
    merged([source], target)

    def is_shared(name):
        paths = [store.run_folder(record) / name for store in (source, target)]
        return paths[0].samefile(paths[1])

    assert is_shared("worker.pyz")
    assert not is_shared("stdout")
