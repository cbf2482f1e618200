"""Records of one results folder that are hard to tell apart."""

import pytest


@pytest.fixture
def simultaneous(store, record):
    """The ids of eight records in the test's store, all created in the same millisecond."""
    creation_fields = {"created": "2026-01-01T00:00:00.000Z"}
    records = [record(launch=launch, fields=creation_fields) for launch in range(100, 108)]
    for created_record in records:
        store.add(created_record)
    return [created_record.id for created_record in records]
