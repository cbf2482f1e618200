"""Adapters that call another adapter's code: it goes along, and is part of what they are."""

import zipfile

import pytest

from xfbench import adapter, errors
from xfbench.running import worker_archive

ONE = "ONE = 1\n"
MINE = "from xfbench.adapters.under.train import build\n"


def test_the_code_that_is_reused_goes_along(fake_adapter):
    fake_adapter(ONE, name="under")
    fake_adapter(MINE, name="over", reuses=["under"])
    with zipfile.ZipFile(worker_archive.worker_archive("over")) as archive:
        assert MINE in archive.read("xfbench/adapters/over/train.py").decode()
        assert ONE in archive.read("xfbench/adapters/under/train.py").decode()
    with zipfile.ZipFile(worker_archive.worker_archive("under")) as archive:
        assert "xfbench/adapters/over/train.py" not in archive.namelist()


def test_a_change_of_what_is_reused_is_a_change(fake_adapter):
    fake_adapter(ONE, name="under")
    fake_adapter(MINE, name="over", reuses=["under"])
    fake_adapter(MINE, name="alone")
    before = {name: adapter.load(name).digest for name in ("under", "over", "alone")}
    fake_adapter("ONE = 2\n", name="under")
    after = {name: adapter.load(name).digest for name in before}
    assert {name for name in before if before[name] != after[name]} == {"under", "over"}


def test_what_is_reused_has_to_be_there(fake_adapter):
    fake_adapter(MINE, name="over", reuses=["undr"])
    with pytest.raises(errors.UsageError, match="undr"):
        _ = adapter.load("over").digest
