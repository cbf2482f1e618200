"""The search space: all settings that train the same, and those not available here."""

import pytest

from xfbench.base.errors import UsageError
from xfbench.environments.allocators import NAMES
from xfbench.host import machine
from xfbench.model import adapter
from xfbench.tuning.space import (
    SETTING_FIELDS,
    SpaceRequest,
    build_setting,
    build_space,
    describe_setting,
)

CORES = machine.usable_cores()


def build_test_space(framework="torch", workload="lenet", **fields):
    return build_space(SpaceRequest(framework, workload, **fields), {})


def test_space_has_every_kernel_affinity_and_allocator():
    cells = build_test_space().cells
    assert {cell.kernel for cell in cells} == {*adapter.load("torch").kernels_on("cpu")}
    assert {cell.affinity for cell in cells} == {"none", "cores"}
    assert {build_setting(cell)["allocator"] for cell in cells} == {*NAMES}


def test_space_has_all_cores_and_the_powers_of_two_below_as_threads():
    powers = {2**n for n in range(10) if 2**n < CORES}
    assert {cell.threads for cell in build_test_space().cells} == powers | {CORES}


def test_space_has_each_setting_once_with_the_published_batch():
    cells = build_test_space().cells
    assert len({tuple(build_setting(cell).values()) for cell in cells}) == len(cells)
    assert {(cell.ranks, cell.scaling, cell.steps) for cell in cells} == {(1, None, 20)}
    assert {cell.global_batch_size for cell in cells} == {64}


def test_default_setting_equals_the_setting_of_run():
    space = build_test_space()
    assert space.default in space.cells
    assert space.default.threads == CORES and space.default.affinity == "none"
    assert space.default.kernel == adapter.load("torch").default_kernel
    narrow = build_test_space(over={"threads": ["1"], "pinning": ["cores"]})
    assert narrow.default == space.default and narrow.default not in narrow.cells


def test_named_values_restrict_the_search_space():
    over = {"threads": ["1"], "kernel": ["native"], "pinning": ["cores"]}
    over["allocator"] = ["tcmalloc"]
    [cell] = build_test_space(over=over).cells
    assert describe_setting(cell) == "native · 1 thread · affinity cores · tcmalloc"
    assert build_test_space(over=over).values()["threads"] == (1,)


def test_ranks_share_the_same_batch():
    space = build_test_space(over={"ranks": ["1", "2"], "threads": ["1"], "pinning": ["cores"]})
    two_rank_cells = [
        cell for cell in (*space.cells, *(cell for cell, _ in space.left_out)) if cell.ranks == 2
    ]
    assert {cell.global_batch_size for cell in two_rank_cells} == {64}
    assert {(cell.batch_size_per_rank, cell.scaling, cell.strategy) for cell in two_rank_cells} == {
        (32, "strong", "ddp")
    }
    assert {cell.scaling for cell in space.cells if cell.ranks == 1} == {None}


def test_impossible_settings_are_omitted_with_the_reason():
    space = build_test_space(over={"threads": ["1", "4096"], "pinning": ["none"]})
    assert {cell.threads for cell in space.cells} == {1}
    reasons = {cell.threads: reason for cell, reason in space.left_out}
    assert "4096 threads need 4096 processors" in reasons[4096]
    assert {*space.values()} == {*SETTING_FIELDS} and space.values()["threads"] == (1, 4096)
    mxnet = build_test_space("mxnet", precision="bfloat16")
    assert mxnet.cells == () and "no precision bfloat16" in mxnet.left_out[0][1]
    reduced = space.without_cells([(space.cells[0], "not proven equal")])
    assert space.cells[0] not in reduced.cells and len(reduced.left_out) == 1 + len(space.left_out)


@pytest.mark.parametrize("pinning", ["sockets", "numa"])
def test_threads_that_do_not_fit_in_a_socket_or_numa_node_are_omitted(pinning):
    space = build_test_space(over={"threads": ["1", "4096"], "pinning": [pinning]})
    assert {(cell.threads, cell.affinity) for cell in space.cells} == {(1, pinning)}
    assert {cell.threads for cell, _ in space.left_out} == {4096}
    assert space.left_out[0][1].startswith(f"--pinning {pinning}: 4096 threads need a ")


def test_first_batch_size_is_the_default():
    space = build_test_space(batch_sizes=(32, 16), over={"pinning": ["none"], "threads": ["1"]})
    assert {cell.global_batch_size for cell in space.cells} == {16, 32}
    assert space.default.global_batch_size == 32


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"framework": "torhc"}, "did you mean torch"),
        ({"workload": "lnet"}, "did you mean lenet"),
        ({"over": {"kernel": ["onedn"]}}, "did you mean onednn"),
        ({"over": {"treads": ["1"]}}, "did you mean threads"),
        ({"over": {"threads": ["two"]}}, "--over threads: 'two' is not a whole number"),
        ({"over": {"pinning": ["core"]}}, "pinning"),
        ({"over": {"batch_size": ["8"]}}, "--batch-size"),
        ({"over": {"ranks": ["3"]}}, "cannot be divided evenly among 3 ranks"),
        ({"device": "gpu"}, "unknown device"),
    ],
)
def test_wrong_name_is_refused_before_the_search_starts(fields, words):
    with pytest.raises(UsageError, match=words):
        build_test_space(**fields)


def test_launches_of_a_search_are_as_long_as_those_of_run():
    space = build_test_space("reference")
    assert {(cell.min_seconds, cell.min_warmup_seconds) for cell in space.cells} == {(5.0, 1.0)}
