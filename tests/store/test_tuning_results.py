"""Searches of `xfbench tune` are exported, merged and checked together with their launches."""

import json

import pytest

from tests import sample_records
from xfbench.base import digests
from xfbench.exchange import archive, audit
from xfbench.store import merging, tuning_results
from xfbench.store.results_folder import Store


@pytest.fixture
def store(tmp_path, record, cell):
    """Return a store with three launches and two searches: of the first two and of all three."""
    new_store = Store(tmp_path / "results")
    new_store.create_and_check_folders()
    launches = [record(steps=(0.1 + n / 100,), launch=n) for n in (1, 2, 3)]
    for launch in launches:
        new_store.add(launch)
    for count in (2, 3):
        record_ids = tuple(launch.id for launch in launches[:count])
        sample_records.build_tuning(cell(threads=1), cell(threads=2), records=record_ids).write(
            new_store.folder
        )
    return new_store


def list_search_files(folder):
    return sorted(path.name for path in (folder / tuning_results.FOLDER).glob("*"))


def export_records(store, target, is_included=lambda record: True):
    pairs = ((place, record) for record, place, _ in store.contents() if is_included(record))
    archive.write_archive(target, pairs, store)
    return target


def validate(path):
    checked, defects = audit.validate_results(path)
    return checked, [(defect.defect, defect.detail) for defect in defects]


def test_search_with_all_launches_is_exported_and_imported(store, tmp_path):
    target, complaints = Store(tmp_path / "there"), []
    source = export_records(store, tmp_path / "all.tar.gz")
    assert archive.import_archive(source, target, complaints.append) == (3, 0) and complaints == []
    assert list_search_files(target.folder) == list_search_files(store.folder)
    for path in (store.folder / tuning_results.FOLDER).glob("*"):
        assert (target.folder / tuning_results.FOLDER / path.name).read_bytes() == path.read_bytes()
    assert validate(source) == validate(target.folder) == (5, [])


def test_search_without_all_its_launches_is_not_exported(store, tmp_path):
    target = Store(tmp_path / "there")
    source = export_records(store, tmp_path / "two.tar", lambda record: record.request.launch < 3)
    archive.import_archive(source, target, print)
    [search] = tuning_results.read_sorted_searches(target.folder, print)
    assert len(search.records) == 2


def test_merge_copies_each_search_once(store, tmp_path):
    target = Store(tmp_path / "there")
    for _ in range(2):
        merging.merge_stores([store], target, print)
        assert list_search_files(target.folder) == list_search_files(store.folder)


def test_search_from_an_older_schema_stays_valid(store, tmp_path):
    path = next((store.folder / tuning_results.FOLDER).glob("*"))
    document = json.loads(path.read_text())
    path.unlink()
    del document["id"], document["best"]["allocator"]
    old_id = digests.of_json(document)
    path = path.with_name(f"{old_id[7:]}.json")
    path.write_text(json.dumps({**document, "id": old_id}))
    by_archive, by_merging = Store(tmp_path / "there"), Store(tmp_path / "joined")
    archive.import_archive(
        export_records(store, tmp_path / "all.tar"), by_archive, (complaints := []).append
    )
    merging.merge_stores([store], by_merging, complaints.append)
    assert complaints == []
    for target in (by_archive, by_merging):
        assert (target.folder / tuning_results.FOLDER / path.name).read_bytes() == path.read_bytes()
        assert validate(target.folder) == (5, [])


def test_edited_search_is_a_defect_and_is_not_merged(store, tmp_path):
    path = next((store.folder / tuning_results.FOLDER).glob("*"))
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "confirmed": False}))
    [(kind, _)] = validate(store.folder)[1]
    assert kind == "digest"
    merging.merge_stores([store], target := Store(tmp_path / "there"), (complaints := []).append)
    assert path.name in complaints[0] and path.name not in list_search_files(target.folder)


def test_misnamed_or_incomplete_search_is_a_defect(store, record):
    path = next((store.folder / tuning_results.FOLDER).glob("*"))
    path.rename(path.with_name("0" * 64 + ".json"))
    for launch in store.records():
        if launch.request.launch == 1:
            store.record_path(launch.id[7:]).unlink()
    sorted_defects = sorted(validate(store.folder)[1])
    assert [kind for kind, _ in sorted_defects] == ["name", "whole", "whole"]
    assert {detail for _, detail in sorted_defects[1:]} == {
        f"1 of its {count} launches are missing" for count in (2, 3)
    }


def test_invalid_search_in_an_archive_is_reported_and_skipped(store, tmp_path, monkeypatch):
    contents = [
        (search, json.dumps({"id": search.id}).encode())
        for search in tuning_results.read_sorted_searches(store.folder, print)
    ]
    monkeypatch.setattr(
        tuning_results, "read_searches_with_content", lambda folder, complain: contents
    )
    source, complaints = export_records(store, tmp_path / "bad.tar"), []
    target = Store(tmp_path / "there")
    assert archive.import_archive(source, target, complaints.append) == (3, 0)
    assert len(complaints) == 2 and all(
        line.startswith(tuning_results.FOLDER) for line in complaints
    )
    assert list_search_files(target.folder) == []
