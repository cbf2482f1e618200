"""Records of a results folder with the same creation time."""

import pytest


@pytest.fixture
def simultaneous(store, record):
    """Add eight records with the same creation time to the store and return their ids."""
    creation_fields = {"created": "2026-01-01T00:00:00.000Z"}
    records = [record(launch=launch, fields=creation_fields) for launch in range(100, 108)]
    for created_record in records:
        store.add(created_record)
    return [created_record.id for created_record in records]
