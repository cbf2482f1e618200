"""Tests of adapters that reuse another adapter's code."""

import zipfile

import pytest

from xfbench.base import errors
from xfbench.environments import worker_archive
from xfbench.model import adapter

BASE_CODE = "ONE = 1\n"
REUSING_CODE = "from xfbench.adapters.under.train import build\n"


def test_archive_includes_the_code_an_adapter_reuses(fake_adapter):
    fake_adapter(BASE_CODE, name="under")
    fake_adapter(REUSING_CODE, name="over", reuses=["under"])
    with zipfile.ZipFile(worker_archive.ensure_worker_archive("over")) as archive:
        assert REUSING_CODE in archive.read("xfbench/adapters/over/train.py").decode()
        assert BASE_CODE in archive.read("xfbench/adapters/under/train.py").decode()
    with zipfile.ZipFile(worker_archive.ensure_worker_archive("under")) as archive:
        assert "xfbench/adapters/over/train.py" not in archive.namelist()


def test_digest_changes_when_reused_code_changes(fake_adapter):
    fake_adapter(BASE_CODE, name="under")
    fake_adapter(REUSING_CODE, name="over", reuses=["under"])
    fake_adapter(REUSING_CODE, name="alone")
    original_digests = {name: adapter.load(name).digest for name in ("under", "over", "alone")}
    fake_adapter("ONE = 2\n", name="under")
    changed_digests = {name: adapter.load(name).digest for name in original_digests}
    assert {
        name for name in original_digests if original_digests[name] != changed_digests[name]
    } == {"under", "over"}


def test_reuse_of_an_unknown_adapter_is_an_error(fake_adapter):
    fake_adapter(REUSING_CODE, name="over", reuses=["undr"])
    with pytest.raises(errors.UsageError, match="undr"):
        _ = adapter.load("over").digest


@pytest.mark.parametrize(
    ("names", "kernels"),
    [
        (["default"], ["onednn"]),
        (["all"], ["onednn", "native"]),
        (["channels_last", "native"], ["native"]),
        (["channels_last"], ["channels_last"]),  # refused later, with a reason
        (["native", "default", "native"], ["native", "onednn"]),
    ],
)
def test_names_of_kernels_stand_for_those_that_a_framework_has(names, kernels):
    assert adapter.load("mxnet").choose_kernels(names, "cpu") == kernels


@pytest.mark.parametrize("setting", ["folder", "revision"])
def test_the_place_of_an_adapter_is_no_setting_of_its_file(fake_adapter, setting):
    fake_adapter(BASE_CODE, name="odd")
    file = adapter.find_folders()["odd"] / "adapter.toml"
    file.write_text(f'{setting} = "x"\n{file.read_text()}')
    with pytest.raises(errors.UsageError, match=f"line 1: unknown setting '{setting}'"):
        adapter.load("odd")
