"""Records: the schema file matches the models, and an id is the digest of the content."""

import json

import jsonschema
import pytest
from pydantic import ValidationError

from xfbench.base import digests, paths
from xfbench.model.record import Record, json_schema
from xfbench.store.results_folder import Store

SCHEMA_FILE = paths.package_folder("xfbench.model") / "record.schema.json"


def test_schema_file_is_generated_from_the_models():
    """Regenerate with: python -m xfbench.model.record > xfbench/model/record.schema.json."""
    assert json.loads(SCHEMA_FILE.read_text()) == json_schema()


def test_record_validates_against_the_schema_file(record):
    jsonschema.validate(record().document(), json.loads(SCHEMA_FILE.read_text()))


def test_record_has_all_documented_fields(record):
    assert set(record().document()) >= set(
        "schema id cell created source citation figure status reason request workload observed "
        "certificate canary measurement learning communication machine conditions software".split()
    )
    assert set(record().document()["request"]) >= set(
        "framework environment workload device precision kernel threads ranks nodes strategy "
        "scaling global_batch_size batch_size_per_rank data steps warmup seed launcher site "
        "launch".split()
    )


def test_id_is_the_digest_of_the_content(record):
    first = record()
    assert first.id == first.computed_id()
    edited = first.model_copy(update={"status": "failed"})
    assert edited.id != edited.computed_id()


def test_unknown_field_is_refused(record):
    with pytest.raises(ValidationError, match="extra"):
        Record.model_validate({**record().document(), "throughput": 1e9})


def test_store_returns_records_and_reports_invalid_files(record, tmp_path):
    store = Store(tmp_path)
    store.create_and_check_folders()
    valid_record = record()
    store.add(valid_record)
    folder = tmp_path / "records" / "00"
    folder.mkdir()
    (folder / "half.json").write_text('{"schema": "xfbench.rec')
    (folder / "edited.json").write_text(
        json.dumps({**valid_record.document(), "created": "2000-01-01T00:00:00Z"})
    )
    complaints = []
    assert list(store.records(complaints.append)) == [valid_record]
    assert len(complaints) == 2
    assert any("half.json" in line for line in complaints)
    assert any("does not match its id" in line for line in complaints)


def read_stored_document(tmp_path, document):
    """Store a JSON document under its digest; return the records and complaints of the store."""
    document = {key: value for key, value in document.items() if key != "id"}
    document["id"] = digests.of_json(document)
    name = document["id"].removeprefix("sha256:")
    path = tmp_path / "records" / name[:2] / f"{name}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(document))
    complaints = []
    return list(Store(tmp_path).records(complaints.append)), complaints


def test_record_without_newer_fields_is_read(record, tmp_path):
    document = record().document()
    del document["limit"], document["measurement"]["window"], document["observed"]["pools"]
    [stored_record], complaints = read_stored_document(tmp_path, document)
    assert complaints == []
    assert (
        stored_record.limit,
        stored_record.measurement.window,
        stored_record.observed.pools,
    ) == (None, 1, {})


def test_record_with_unknown_fields_is_read(record, tmp_path):
    document = record().document()
    document["weather"] = "fair"
    document["measurement"]["tides_metres"] = [1.5, 2.5]
    [stored_record], complaints = read_stored_document(tmp_path, document)
    assert complaints == []
    assert stored_record.measurement == record().measurement
