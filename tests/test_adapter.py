"""Adapters that call another adapter's code: it goes along, and is part of what they are."""

import zipfile

import pytest

from xfbench import adapter
from xfbench.base import errors
from xfbench.running import worker_archive

ONE = "ONE = 1\n"
MINE = "from xfbench.adapters.under.train import build\n"


def test_archive_includes_the_code_an_adapter_reuses(fake_adapter):
    fake_adapter(ONE, name="under")
    fake_adapter(MINE, name="over", reuses=["under"])
    with zipfile.ZipFile(worker_archive.worker_archive("over")) as archive:
        assert MINE in archive.read("xfbench/adapters/over/train.py").decode()
        assert ONE in archive.read("xfbench/adapters/under/train.py").decode()
    with zipfile.ZipFile(worker_archive.worker_archive("under")) as archive:
        assert "xfbench/adapters/over/train.py" not in archive.namelist()


def test_digest_changes_when_reused_code_changes(fake_adapter):
    fake_adapter(ONE, name="under")
    fake_adapter(MINE, name="over", reuses=["under"])
    fake_adapter(MINE, name="alone")
    before = {name: adapter.load(name).digest for name in ("under", "over", "alone")}
    fake_adapter("ONE = 2\n", name="under")
    after = {name: adapter.load(name).digest for name in before}
    assert {name for name in before if before[name] != after[name]} == {"under", "over"}


def test_reuse_of_an_unknown_adapter_is_an_error(fake_adapter):
    fake_adapter(MINE, name="over", reuses=["undr"])
    with pytest.raises(errors.UsageError, match="undr"):
        _ = adapter.load("over").digest
