"""The strategy `mpi`: the training loop averages gradients with MPI.

Every adapter may offer this strategy. The strategy needs mpi4py in the framework's interpreter, and
a launcher that matches the MPI library in use. xfbench's launchers provide both.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from xfbench.worker.protocol import Group, Unsupported

_MIN_SINGLE_BYTES = 2**20  # smaller arrays are packed: two copies cost less than a message


class AllReduce:
    """An average over all ranks, computed with `MPI_Allreduce`.

    Large arrays are sent one by one. Small arrays are packed into one message. The constructor
    raises Unsupported without mpi4py. It raises RuntimeError if MPI's rank or number of ranks
    differs from that in `group`.
    """

    def __init__(self, group: Group) -> None:
        try:
            import mpi4py

            mpi4py.rc.thread_level = "serialized"  # a framework may call from its own thread
            from mpi4py import MPI
        except ImportError as error:
            raise Unsupported(f"strategy mpi needs mpi4py: {error}") from error
        self.mpi, self.ranks = MPI, MPI.COMM_WORLD
        if (self.ranks.rank, self.ranks.size) != (group.rank, group.size):
            raise RuntimeError(
                f"MPI reports rank {self.ranks.rank} of {self.ranks.size}, but the launcher "
                f"reports rank {group.rank} of {group.size}: the ranks were started with the start "
                "command of another MPI library"
            )
        self.buffer = np.empty(0)

    def average_in_place(self, arrays: Sequence[np.ndarray]) -> None:
        """Replace each array by its mean over the ranks.

        All arrays have the same floating-point type and are contiguous. Each array has the same
        shape on all ranks.
        """
        small = [array for array in arrays if array.nbytes < _MIN_SINGLE_BYTES]
        sizes = [array.size for array in small]
        if small and self.buffer.size != sum(sizes):
            self.buffer = np.empty(sum(sizes), small[0].dtype)
        packed = np.split(self.buffer, np.cumsum(sizes)[:-1])
        for array, part in zip(small, packed):
            part[:] = array.ravel()
        large = [array for array in arrays if array.nbytes >= _MIN_SINGLE_BYTES]
        for message in large + [self.buffer] * bool(small):
            self.ranks.Allreduce(self.mpi.IN_PLACE, message)
            np.divide(message, self.ranks.size, out=message)
        for array, part in zip(small, packed):
            array[...] = part.reshape(array.shape)

    def library(self) -> str:
        """Return the name and version of the MPI library in one line."""
        words: Any = self.mpi.Get_library_version().split()
        return " ".join(words[:4])
