"""Which of the ranks this process is: told by whatever started it."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it needs NumPy, and an interpreter without it is to be told so
    from xfbench.worker.protocol import Group

_PAUSE_SECONDS, _PATIENCE = 0.01, 6000
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


def addresses(group: Group) -> list[str]:
    """An address for each rank to listen on, "host:port", in order: for frameworks that ask.

    Each rank chooses its own and tells the others through the meeting place. Raises
    RuntimeError where they do not all come within a minute.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        own = f"127.0.0.1:{probe.getsockname()[1]}"
    told = [Path(f"{group.meeting}.{rank}") for rank in range(group.size)]
    partial = Path(f"{group.meeting}.{group.rank}.partial")
    partial.write_text(own)
    partial.replace(told[group.rank])
    for _ in range(_PATIENCE):
        if all(path.exists() for path in told):
            return [path.read_text() for path in told]
        time.sleep(_PAUSE_SECONDS)
    missing = [rank for rank, path in enumerate(told) if not path.exists()]
    raise RuntimeError(f"ranks {missing} did not come to the meeting within a minute")


def group(request: dict[str, Any]) -> Group:
    """The group that `request` asks for. Raises RuntimeError where another one was started."""
    from xfbench.worker.protocol import Group

    rank, size = place()
    if size != request["ranks"]:
        raise RuntimeError(f"{request['ranks']} ranks were asked for, and {size} were started")
    return Group(rank, size, request["strategy"], str(Path("meeting").absolute()))
