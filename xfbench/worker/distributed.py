"""Which of the ranks this process is: told by whatever started it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it needs NumPy, and an interpreter without it is to be told so
    from xfbench.worker.protocol import Group

# Under mpirun inside a batch job Slurm's variables are those of the batch step: MPI's come first.
_TOLD_BY = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("XFBENCH_RANK", "XFBENCH_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def place() -> tuple[int, int]:
    """This process's rank, and how many there are; (0, 1) where nobody says."""
    for named, counted in _TOLD_BY:
        if named in os.environ and counted in os.environ:
            return int(os.environ[named]), int(os.environ[counted])
    return 0, 1


def of_rank(path: Path, rank: int) -> Path:
    """Where a rank writes what the first one writes to `path`: reply.json, reply.1.json."""
    return path.with_name(f"{path.stem}.{rank}{path.suffix}") if rank else path


def group(request: dict[str, Any]) -> Group:
    """The group that `request` asks for. Raises RuntimeError where another one was started."""
    from xfbench.worker.protocol import Group

    rank, size = place()
    if size != request["ranks"]:
        raise RuntimeError(f"{request['ranks']} ranks were asked for, and {size} were started")
    return Group(rank, size, request["strategy"], str(Path("meeting").absolute()))
