"""On two ranks both loops are joined and timed; what they take is not a test's matter."""

import pytest

from tests.benchmarks import versus
from xfbench import adapter

OWN = {
    "caffe": "the solver's step, MPI_Allreduce",
    "mxnet": "Module, dist_sync",
    "tensorflow": "MultiWorkerMirroredStrategy",
    "torch": "DistributedDataParallel",
}


@pytest.mark.parametrize("framework", versus.TOGETHER)
def test_on_two_ranks_the_adapter_and_the_own_loop_take_their_turns(framework):
    kernel = adapter.load(framework).default_kernel
    found = versus.measure(framework, [kernel], "lenet", 2, ranks=2, cores=2, own_first=False)
    assert set(found) == {kernel, OWN[framework]}
    assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in found.values())
