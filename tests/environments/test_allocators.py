"""Memory allocators that replace the C library's: memory really comes from them."""

import pytest

from xfbench.analysis.leaderboard import build_tables
from xfbench.base.errors import UnavailableError, UsageError
from xfbench.environments import allocators, environment
from xfbench.execution import dry_run
from xfbench.execution.launch import LaunchContext
from xfbench.model import adapter
from xfbench.planning import plan_builder
from xfbench.planning.experiment import build_matrix, expand_matrices
from xfbench.rendering.report import repeat
from xfbench.rendering.tables import to_text
from xfbench.session import Session
from xfbench.store.results_folder import Store

ALLOCATORS = [name for name in allocators.NAMES if name != allocators.SYSTEM]


@pytest.fixture
def launch_with(framework_cell, tmp_path):
    """Return a function that trains LeNet briefly with an allocator and returns the record."""

    def launch(framework, name, **fields):
        cell = framework_cell(framework, allocator=name, **fields)
        session = Session(LaunchContext(Store(tmp_path / "results"), time_limit=120.0))
        session.prepare([framework], allocator_names=[name])
        [record] = session.launch([cell.request(1)])
        return record

    return launch


@pytest.fixture
def framework_cell(cell):
    """Return a function that builds a framework's cell."""

    def build_cell(framework, kernel=None, **fields):
        description = adapter.load(framework)
        kind = environment.determine_kind(description)
        environment_fields = {"framework": framework, "environment": kind}
        return cell(**environment_fields, kernel=kernel or description.default_kernel, **fields)

    return build_cell


# The quick tests try each allocator in one framework.
QUICK = {("mxnet", "jemalloc"), ("torch", "tcmalloc")}
PAIRS = [
    pytest.param(framework, name, marks=() if (framework, name) in QUICK else pytest.mark.deep)
    for framework in ("caffe", "jax", "mxnet", "tensorflow", "torch")
    for name in ALLOCATORS
]


@pytest.mark.parametrize(("framework", "name"), PAIRS)
def test_memory_comes_from_the_requested_allocator(launch_with, framework, name):
    record = launch_with(framework, name)
    assert record.status == "ok", record.reason
    assert f"/lib{name}" in record.observed.allocator
    assert record.observed.kernel == record.request.kernel


@pytest.mark.deep
def test_default_allocator_is_that_of_the_c_library(launch_with):
    record = launch_with("torch", None)
    assert record.observed.allocator.rpartition("/")[2].startswith("libc.so")
    assert "allocator" not in record.request.cell_digest_fields()


def test_allocator_keeps_the_preloaded_kernel_library(launch_with):
    record = launch_with("caffe", "jemalloc", kernel="mkl")
    assert record.status == "ok" and record.observed.kernel == "mkl", record.reason
    assert "jemalloc" in record.observed.allocator


@pytest.mark.deep
def test_allocator_that_fails_to_load_makes_the_launch_invalid(launch_with, monkeypatch, tmp_path):
    broken = tmp_path / "libjemalloc.so.2"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(allocators, "_library_path", lambda _: broken)
    record = launch_with("torch", "jemalloc")
    assert record.status == "invalid"
    assert record.reason.startswith("allocator jemalloc was requested, but memory came from")


def test_allocator_that_cannot_be_fetched_is_unavailable(launch_with, monkeypatch, tmp_path):
    monkeypatch.setattr(allocators, "_prefix_folder", lambda: tmp_path / "allocators" / "none")
    monkeypatch.setenv("XFBENCH_DEBIAN_MIRROR", f"file://{tmp_path}")
    with pytest.raises(UnavailableError, match="no mirror of Debian"):
        allocators.ensure_library("tcmalloc", print)
    record = launch_with("torch", "tcmalloc")
    assert record.status == "unavailable" and "no mirror of Debian" in record.reason
    assert [*(tmp_path / "allocators").glob("*.part")] == []


def test_dry_run_fetches_no_allocator(framework_cell, monkeypatch, tmp_path):
    monkeypatch.setattr(allocators, "_prefix_folder", lambda: tmp_path / "none")
    settings = {"framework": ["torch"], "workload": ["lenet"], "allocator": ["jemalloc"]}
    lines = dry_run.list_commands_by_cell(plan_builder.build_plan(settings))
    assert [*lines.values()] == [["# jemalloc would be downloaded"]]
    assert not (tmp_path / "none").exists()


def test_allocator_list_becomes_cells_and_system_is_the_default():
    settings = {"framework": ["torch"], "workload": ["lenet"]}
    both_cells = expand_matrices([build_matrix(**settings, allocator=["system", "jemalloc"])])
    [plain] = expand_matrices([build_matrix(**settings)])
    assert [cell.allocator for cell, _ in both_cells] == [None, "jemalloc"]
    assert both_cells[0] == plain
    with pytest.raises(UsageError, match="jemaloc"):
        expand_matrices([build_matrix(**settings, allocator=["jemaloc"])])


def test_rows_and_repeat_command_show_the_allocator(record):
    records = [record(), record(steps=(0.2,) * 3, allocator="tcmalloc")]
    [table] = build_tables(records, {})
    assert sorted(row.request.allocator or "–" for row in table.unranked) == ["tcmalloc", "–"]
    assert {row.differs for row in table.unranked} == {""}
    assert "tcmalloc" in to_text([table]) and "allocator" not in to_text(
        build_tables(records[:1], {})
    )
    assert "--allocator tcmalloc" in " ".join(repeat.repeat_command_display_parts(records[1:]))
    assert "--allocator" not in " ".join(repeat.repeat_command_display_parts(records[:1]))
    assert records[1].request.label().endswith("tcmalloc")
