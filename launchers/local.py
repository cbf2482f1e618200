"""The local launcher: one command per rank on this machine."""

from __future__ import annotations

from xfbench.base.processes import Command
from xfbench.launchers.resources import Resources


def build_commands(command: Command, resources: Resources) -> list[Command]:
    """Return the commands that start the ranks. Each gets its rank and the number of ranks."""
    return [
        command.with_environment({"XFBENCH_RANK": str(rank), "XFBENCH_SIZE": str(resources.ranks)})
        for rank in range(resources.ranks)
    ]
