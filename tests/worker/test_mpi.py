"""Which arrays the all-reduce over MPI packs into one message."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np

from xfbench.worker import mpi
from xfbench.worker.protocol import Group


class SingleRank:
    """A communicator of one rank that keeps the size of each message. It sends nothing."""

    rank, size = 0, 1

    def __init__(self):
        self.message_bytes = []

    def Allreduce(self, _in_place, message):
        self.message_bytes.append(message.nbytes)


def test_only_small_arrays_share_a_message(monkeypatch):
    communicator = SingleRank()
    module = ModuleType("mpi4py")
    module.rc = SimpleNamespace()
    module.MPI = SimpleNamespace(COMM_WORLD=communicator, IN_PLACE=None)
    monkeypatch.setitem(sys.modules, "mpi4py", module)
    limit = mpi._MIN_SINGLE_BYTES // 4
    arrays = [np.full(size, size, np.float32) for size in (3, limit - 1, limit, limit + 1)]
    mpi.AllReduce(Group(0, 1, "mpi", None)).average_in_place(arrays)
    assert sorted(communicator.message_bytes) == [4 * limit, 4 * (limit + 1), 4 * (limit + 2)]
    assert all((array == array.size).all() for array in arrays)
