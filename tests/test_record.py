"""Records: the schema file is the models', an id is its content's, nothing can be slipped in."""

import json
from pathlib import Path

import jsonschema
import pytest
from pydantic import ValidationError

import xfbench
from xfbench.record import Record, json_schema
from xfbench.store import Store

SCHEMA_FILE = Path(xfbench.__file__).parent / "record.schema.json"


def test_the_schema_file_is_generated_from_the_models():
    """Renew with: python -m xfbench.record > xfbench/record.schema.json."""
    assert json.loads(SCHEMA_FILE.read_text()) == json_schema()


def test_a_record_is_valid_by_the_schema_file(record):
    jsonschema.validate(record().document(), json.loads(SCHEMA_FILE.read_text()))


def test_the_fixed_names_are_all_there(record):
    assert set(record().document()) >= set(
        "schema id cell created source citation figure status reason request workload observed "
        "certificate canary measurement learning communication machine conditions software".split()
    )
    assert set(record().document()["request"]) >= set(
        "framework environment workload device precision kernel threads ranks nodes strategy "
        "scaling global_batch_size batch_size_per_rank data steps warmup seed launcher site "
        "launch".split()
    )


def test_an_id_is_the_digest_of_everything_else(record):
    first = record()
    assert first.id == first.computed_id()
    edited = first.model_copy(update={"status": "failed"})
    assert edited.id != edited.computed_id()


def test_an_unknown_field_is_refused(record):
    with pytest.raises(ValidationError, match="extra"):
        Record.model_validate({**record().document(), "throughput": 1e9})


def test_a_store_gives_back_what_it_was_given_and_complains_of_the_rest(record, tmp_path):
    store = Store(tmp_path)
    store.prepare()
    kept = record()
    store.add(kept)
    folder = tmp_path / "records" / "00"
    folder.mkdir()
    (folder / "half.json").write_text('{"schema": "xfbench.rec')
    (folder / "edited.json").write_text(
        json.dumps({**kept.document(), "created": "2000-01-01T00:00:00Z"})
    )
    complaints = []
    assert list(store.records(complaints.append)) == [kept]
    assert len(complaints) == 2
    assert any("half.json" in line for line in complaints)
    assert any("not what its id says" in line for line in complaints)
