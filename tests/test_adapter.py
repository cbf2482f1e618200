"""Adapters that call another adapter's code: it goes along, and is part of what they are."""

import zipfile

import pytest

from xfbench import adapter, errors
from xfbench.running import worker_archive

MINE = "from xfbench.adapters.under.train import build\n"


def test_the_code_that_is_reused_goes_along(own_adapter):
    own_adapter("under", "def build(network, solver, options, group): ...\n")
    own_adapter("over", MINE, reuses='["under"]')
    with zipfile.ZipFile(worker_archive.worker_archive("over")) as archive:
        assert archive.read("xfbench/adapters/over/train.py").decode() == MINE
        assert b"def build" in archive.read("xfbench/adapters/under/train.py")
    with zipfile.ZipFile(worker_archive.worker_archive("under")) as archive:
        assert "xfbench/adapters/over/train.py" not in archive.namelist()


def test_a_change_of_what_is_reused_is_a_change(own_adapter):
    own_adapter("under", "ONE = 1\n")
    own_adapter("over", MINE, reuses='["under"]')
    own_adapter("alone", MINE)
    before = {name: adapter.load(name).digest for name in ("under", "over", "alone")}
    own_adapter("under", "ONE = 2\n")
    after = {name: adapter.load(name).digest for name in before}
    assert {name for name in before if before[name] != after[name]} == {"under", "over"}


def test_what_is_reused_has_to_be_there(own_adapter):
    own_adapter("over", MINE, reuses='["undr"]')
    with pytest.raises(errors.UsageError, match="undr"):
        _ = adapter.load("over").digest
