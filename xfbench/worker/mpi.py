"""Strategy `mpi`: gradients joined by MPI itself, straight from the training loop.

Every adapter may offer it. It needs mpi4py in the framework's interpreter, and ranks that were
started by something that speaks to the MPI library in use: the launchers see to both.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from xfbench.worker.protocol import Group, Unsupported


class AllReduce:
    """Means over all ranks, each call one `MPI_Allreduce` of everything it is given.

    Raises Unsupported where there is no mpi4py, RuntimeError where MPI sees other ranks.
    """

    def __init__(self, group: Group) -> None:
        try:
            import mpi4py

            mpi4py.rc.thread_level = "serialized"  # a framework may call from a thread of its own
            from mpi4py import MPI
        except ImportError as error:
            raise Unsupported(f"strategy mpi needs mpi4py: {error}") from error
        self.mpi, self.ranks = MPI, MPI.COMM_WORLD
        if (self.ranks.rank, self.ranks.size) != (group.rank, group.size):
            raise RuntimeError(
                f"MPI calls this rank {self.ranks.rank} of {self.ranks.size}, and the launcher "
                f"{group.rank} of {group.size}: ranks were started by another MPI's start command"
            )
        self.buffer = np.empty(0)

    def mean(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Each array's mean over the ranks, as views of one buffer that the next call reuses.

        All of one floating-point type and, on every rank, of the same shapes.
        """
        sizes = [array.size for array in arrays]
        if self.buffer.size != sum(sizes) or self.buffer.dtype != arrays[0].dtype:
            self.buffer = np.empty(sum(sizes), arrays[0].dtype)
        views = [
            view.reshape(array.shape)
            for view, array in zip(np.split(self.buffer, np.cumsum(sizes)[:-1]), arrays)
        ]
        for view, array in zip(views, arrays):
            view[...] = array
        self.ranks.Allreduce(self.mpi.IN_PLACE, self.buffer)
        self.buffer /= self.ranks.size
        return views

    def library(self) -> str:
        """The MPI library in use, in a line."""
        words: Any = self.mpi.Get_library_version().split()
        return " ".join(words[:4])
