"""What `xfbench tune` found goes where its launches go, and is checked with them."""

import json

import pytest

from tests import likenesses
from xfbench.base import digests
from xfbench.results import archive, audit, merging
from xfbench.results.store import Store
from xfbench.tuning import saved


@pytest.fixture
def store(tmp_path, record, cell):
    """Three launches, and two searches: of the first two, and of all of them."""
    made = Store(tmp_path / "results")
    made.prepare()
    launches = [record(steps=(0.1 + n / 100,), launch=n) for n in (1, 2, 3)]
    for one in launches:
        made.add(one)
    for count in (2, 3):
        of = tuple(one.id for one in launches[:count])
        likenesses.search(cell(threads=1), cell(threads=2), records=of).write(made.folder)
    return made


def names(folder):
    return sorted(path.name for path in (folder / saved.FOLDER).glob("*"))


def exported(store, target, keep=lambda record: True):
    found = ((place, record) for record, place, _ in store.contents() if keep(record))
    archive.write_archive(target, found, store)
    return target


def defects(path):
    checked, found = audit.validate(path)
    return checked, [(one.defect, one.detail) for one in found]


def test_search_with_all_launches_is_exported_and_imported(store, tmp_path):
    target, said = Store(tmp_path / "there"), []
    source = exported(store, tmp_path / "all.tar.gz")
    assert archive.import_archive(source, target, said.append) == (3, 0) and said == []
    assert names(target.folder) == names(store.folder)
    for path in (store.folder / saved.FOLDER).glob("*"):
        assert (target.folder / saved.FOLDER / path.name).read_bytes() == path.read_bytes()
    assert defects(source) == defects(target.folder) == (5, [])


def test_search_without_all_its_launches_is_not_exported(store, tmp_path):
    target = Store(tmp_path / "there")
    source = exported(store, tmp_path / "two.tar", lambda record: record.request.launch < 3)
    archive.import_archive(source, target, print)
    [one] = saved.read_folder(target.folder, print)
    assert len(one.records) == 2


def test_merge_copies_each_search_once(store, tmp_path):
    target = Store(tmp_path / "there")
    for _ in range(2):
        merging.merge([store], target, print)
        assert names(target.folder) == names(store.folder)


def test_search_from_an_older_schema_stays_valid(store, tmp_path):
    path = next((store.folder / saved.FOLDER).glob("*"))
    document = json.loads(path.read_text())
    path.unlink()
    del document["id"], document["best"]["allocator"]
    older = digests.of_json(document)
    path = path.with_name(f"{older[7:]}.json")
    path.write_text(json.dumps({**document, "id": older}))
    by_archive, by_merging = Store(tmp_path / "there"), Store(tmp_path / "joined")
    archive.import_archive(exported(store, tmp_path / "all.tar"), by_archive, (said := []).append)
    merging.merge([store], by_merging, said.append)
    assert said == []
    for target in (by_archive, by_merging):
        assert (target.folder / saved.FOLDER / path.name).read_bytes() == path.read_bytes()
        assert defects(target.folder) == (5, [])


def test_edited_search_is_a_defect_and_is_not_merged(store, tmp_path):
    path = next((store.folder / saved.FOLDER).glob("*"))
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "confirmed": False}))
    [(kind, _)] = defects(store.folder)[1]
    assert kind == "digest"
    merging.merge([store], target := Store(tmp_path / "there"), (said := []).append)
    assert path.name in said[0] and path.name not in names(target.folder)


def test_misnamed_or_incomplete_search_is_a_defect(store, record):
    path = next((store.folder / saved.FOLDER).glob("*"))
    path.rename(path.with_name("0" * 64 + ".json"))
    for one in store.records():
        if one.request.launch == 1:
            store.record_path(one.id[7:]).unlink()
    found = sorted(defects(store.folder)[1])
    assert [kind for kind, _ in found] == ["name", "whole", "whole"]
    assert {detail for _, detail in found[1:]} == {
        f"1 of its {count} launches are not there" for count in (2, 3)
    }


def test_invalid_search_in_an_archive_is_reported_and_skipped(store, tmp_path, monkeypatch):
    found = [(one, b'{"id": "sha256:1"}') for one in saved.read_folder(store.folder, print)]
    monkeypatch.setattr(saved, "read_searches", lambda folder, complain: found)
    source, said = exported(store, tmp_path / "bad.tar"), []
    target = Store(tmp_path / "there")
    assert archive.import_archive(source, target, said.append) == (3, 0)
    assert len(said) == 2 and all(line.startswith(saved.FOLDER) for line in said)
    assert names(target.folder) == []
