"""What is searched: all that trains the same, and what of it cannot be had here."""

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


def searched(framework="torch", workload="lenet", **asked):
    return build_space(SpaceRequest(framework, workload, **asked), {})


def test_space_has_every_kernel_thread_count_and_affinity():
    found = searched()
    kernels = adapter.load("torch").kernels_on("cpu")
    assert {one.kernel for one in found.cells} == {*kernels}
    assert {one.threads for one in found.cells} >= {1, CORES}
    assert {one.affinity for one in found.cells} == {"none", "cores"}
    assert {build_setting(one)["allocator"] for one in found.cells} == {*NAMES}
    assert len({tuple(build_setting(one).values()) for one in found.cells}) == len(found.cells)
    assert {(one.ranks, one.scaling, one.steps) for one in found.cells} == {(1, None, 20)}
    assert {one.global_batch_size for one in found.cells} == {64}


def test_default_setting_equals_the_setting_of_run():
    found = searched()
    assert found.default in found.cells
    assert found.default.threads == CORES and found.default.affinity == "none"
    assert found.default.kernel == adapter.load("torch").default_kernel
    narrow = searched(over={"threads": ["1"], "affinity": ["cores"]})
    assert narrow.default == found.default and narrow.default not in narrow.cells


def test_named_values_restrict_the_search_space():
    over = {"threads": ["1"], "kernel": ["native"], "affinity": ["cores"]}
    over["allocator"] = ["tcmalloc"]
    [one] = searched(over=over).cells
    assert describe_setting(one) == "native · 1 thread · affinity cores · tcmalloc"
    assert searched(over=over).values()["threads"] == (1,)


def test_ranks_share_the_same_batch():
    found = searched(over={"ranks": ["1", "2"], "threads": ["1"], "affinity": ["cores"]})
    of_two = [one for one in (*found.cells, *(c for c, _ in found.left_out)) if one.ranks == 2]
    assert {one.global_batch_size for one in of_two} == {64}
    assert {(one.batch_size_per_rank, one.scaling, one.strategy) for one in of_two} == {
        (32, "strong", "ddp")
    }
    assert {one.scaling for one in found.cells if one.ranks == 1} == {None}


def test_impossible_settings_are_omitted_with_the_reason():
    found = searched(over={"threads": ["1", "4096"], "affinity": ["none"]})
    assert {one.threads for one in found.cells} == {1}
    reasons = {one.threads: why for one, why in found.left_out}
    assert "4096 threads need 4096 processors" in reasons[4096]
    assert {*found.values()} == {*SETTING_FIELDS} and found.values()["threads"] == (1, 4096)
    mxnet = searched("mxnet", precision="bfloat16")
    assert mxnet.cells == () and "no precision bfloat16" in mxnet.left_out[0][1]
    without = found.without([(found.cells[0], "not proven equal")])
    assert found.cells[0] not in without.cells and len(without.left_out) == 1 + len(found.left_out)


def test_first_batch_size_is_the_default():
    found = searched(batch_sizes=(32, 16), over={"affinity": ["none"], "threads": ["1"]})
    assert {one.global_batch_size for one in found.cells} == {16, 32}
    assert found.default.global_batch_size == 32


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"framework": "torhc"}, "did you mean torch"),
        ({"workload": "lnet"}, "did you mean lenet"),
        ({"over": {"kernel": ["onedn"]}}, "did you mean onednn"),
        ({"over": {"treads": ["1"]}}, "did you mean threads"),
        ({"over": {"threads": ["two"]}}, "--over threads: 'two' is not a whole number"),
        ({"over": {"affinity": ["core"]}}, "affinity"),
        ({"over": {"batch_size": ["8"]}}, "--batch-size"),
        ({"over": {"ranks": ["3"]}}, "cannot be divided evenly among 3 ranks"),
        ({"device": "gpu"}, "unknown device"),
    ],
)
def test_wrong_name_is_refused_before_the_search_starts(asked, words):
    with pytest.raises(UsageError, match=words):
        searched(**asked)
