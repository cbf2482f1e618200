"""Loops are joined, timed and told; what they take is not a test's matter."""

import pytest

from tests.measuring import versus
from xfbench.model import adapter

NATIVE_LOOPS = {
    "caffe": "the solver's step, MPI_Allreduce",
    "mxnet": "Module, dist_sync",
    "tensorflow": "MultiWorkerMirroredStrategy",
    "torch": "DistributedDataParallel",
}


@pytest.mark.deep
@pytest.mark.parametrize("framework", versus.STRATEGIES)
def test_adapter_and_framework_loop_alternate_on_two_ranks(framework):
    kernel = adapter.load(framework).default_kernel
    times = versus.measure(framework, [kernel], "lenet", 2, ranks=2, cores=2, own_first=False)
    assert set(times) == {kernel, NATIVE_LOOPS[framework]}
    assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in times.values())


def test_processes_may_have_different_round_counts():
    times = [{"k": [1.0, 2.0, 3.0], "own": [2.0, 4.0, 6.0]}, {"k": [1.0], "own": [2.0]}]
    assert versus.format_times(times, "k", "own") == ("3000.0", "1500.0", "2.000 (2.000–2.000)")


@pytest.mark.deep
def test_single_process_repeats_rounds_until_cores_are_near():
    times = versus.measure("caffe", ["openblas"], "lenet", 3, ranks=1, cores=2, own_first=True)
    assert {*times} == {"openblas", "the solver's own step"}
    assert all(3 <= len(seconds) <= 9 for seconds in times.values())
