"""The local launcher: it starts one command per rank on this machine."""

from __future__ import annotations

from xfbench.base.processes import Command
from xfbench.launchers.resources import Resources


def build_commands(command: Command, resources: Resources) -> list[Command]:
    """Return one command per rank.

    Each command sets two variables: `XFBENCH_RANK` is the rank, counted from 0, and `XFBENCH_SIZE`
    is the number of ranks.
    """
    return [
        command.with_environment({"XFBENCH_RANK": str(rank), "XFBENCH_SIZE": str(resources.ranks)})
        for rank in range(resources.ranks)
    ]
