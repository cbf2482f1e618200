"""Allocators instead of the C library's: that they are the ones that give memory."""

import pytest

from xfbench.analysis.leaderboard import tables
from xfbench.base.errors import UnavailableError, UsageError
from xfbench.environments import allocators, environment
from xfbench.execution import dry_run
from xfbench.execution.launch import LaunchContext
from xfbench.model import adapter
from xfbench.planning import plan_builder
from xfbench.planning.experiment import cells, matrix
from xfbench.rendering.report import repeat
from xfbench.rendering.tables import to_text
from xfbench.session import run_requests
from xfbench.store.results_folder import Store

OTHERS = [name for name in allocators.NAMES if name != allocators.SYSTEM]


@pytest.fixture
def launched(own_cell, tmp_path):
    """A function: the record of a short training of LeNet with that allocator."""

    def do(framework, name, **fields):
        one = own_cell(framework, allocator=name, **fields)
        session = LaunchContext(Store(tmp_path / "results"), time_limit=120.0)
        session.prepare([framework], {}, print, allocated=[name])
        [record] = run_requests([one.request(1)], session)
        return record

    return do


@pytest.fixture
def own_cell(cell):
    """A function that makes a framework's cell."""

    def make(framework, kernel=None, **fields):
        described = adapter.load(framework)
        kind = environment.kind(described)
        own = {"framework": framework, "environment": kind}
        return cell(**own, kernel=kernel or described.default_kernel, **fields)

    return make


# Each allocator in one framework for every change.
QUICK = {("mxnet", "jemalloc"), ("torch", "tcmalloc")}
PAIRS = [
    pytest.param(framework, name, marks=() if (framework, name) in QUICK else pytest.mark.deep)
    for framework in ("caffe", "jax", "mxnet", "tensorflow", "torch")
    for name in OTHERS
]


@pytest.mark.parametrize(("framework", "name"), PAIRS)
def test_memory_comes_from_the_requested_allocator(launched, framework, name):
    record = launched(framework, name)
    assert record.status == "ok", record.reason
    assert f"/lib{name}" in record.observed.allocator
    assert record.observed.kernel == record.request.kernel


@pytest.mark.deep
def test_default_allocator_is_that_of_the_c_library(launched):
    record = launched("torch", None)
    assert record.observed.allocator.rpartition("/")[2].startswith("libc.so")
    assert "allocator" not in record.request.cell_fields()


def test_allocator_keeps_the_preloaded_kernel_library(launched):
    record = launched("caffe", "jemalloc", kernel="mkl")
    assert record.status == "ok" and record.observed.kernel == "mkl", record.reason
    assert "jemalloc" in record.observed.allocator


@pytest.mark.deep
def test_allocator_that_fails_to_load_makes_the_launch_invalid(launched, monkeypatch, tmp_path):
    broken = tmp_path / "libjemalloc.so.2"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(allocators, "_library", lambda _: broken)
    record = launched("torch", "jemalloc")
    assert record.status == "invalid"
    assert record.reason.startswith("jemalloc was asked for, and memory came from")


def test_allocator_that_cannot_be_fetched_is_unavailable(launched, monkeypatch, tmp_path):
    monkeypatch.setattr(allocators, "_prefix", lambda: tmp_path / "allocators" / "none")
    monkeypatch.setenv("XFBENCH_DEBIAN_MIRROR", f"file://{tmp_path}")
    with pytest.raises(UnavailableError, match="no mirror of Debian"):
        allocators.ensure("tcmalloc", print)
    record = launched("torch", "tcmalloc")
    assert record.status == "unavailable" and "no mirror of Debian" in record.reason
    assert [*(tmp_path / "allocators").glob("*.part")] == []


def test_dry_run_fetches_no_allocator(own_cell, monkeypatch, tmp_path):
    monkeypatch.setattr(allocators, "_prefix", lambda: tmp_path / "none")
    settings = {"framework": ["torch"], "workload": ["lenet"], "allocator": ["jemalloc"]}
    lines = dry_run.list_commands(plan_builder.build_plan(settings, pythons={}))
    assert [*lines.values()] == [["# jemalloc would be fetched"]]
    assert not (tmp_path / "none").exists()


def test_allocator_list_becomes_cells_and_system_is_the_default():
    settings = {"framework": ["torch"], "workload": ["lenet"]}
    found = cells([matrix(**settings, allocator=["system", "jemalloc"])])
    [plain] = cells([matrix(**settings)])
    assert [one.allocator for one, _ in found] == [None, "jemalloc"]
    assert found[0] == plain
    with pytest.raises(UsageError, match="jemaloc"):
        cells([matrix(**settings, allocator=["jemaloc"])])


def test_rows_and_repeat_command_show_the_allocator(record):
    made = [record(), record(steps=(0.2,) * 3, allocator="tcmalloc")]
    [table] = tables(made, {})
    assert sorted(row.request.allocator or "–" for row in table.unranked) == ["tcmalloc", "–"]
    assert {row.differs for row in table.unranked} == {""}
    assert "tcmalloc" in to_text([table]) and "allocator" not in to_text(tables(made[:1], {}))
    assert "--allocator tcmalloc" in " ".join(repeat.build_repeat_command(made[1:]))
    assert "--allocator" not in " ".join(repeat.build_repeat_command(made[:1]))
    assert made[1].request.label().endswith("tcmalloc")
