"""Ranks on this machine: one command becomes one command per rank."""

from __future__ import annotations

from xfbench.base.processes import Command
from xfbench.launchers.resources import Resources


def build_commands(command: Command, resources: Resources) -> list[Command]:
    """The commands that start the ranks here, each told its number and how many there are."""
    return [
        command.with_environment({"XFBENCH_RANK": str(rank), "XFBENCH_SIZE": str(resources.ranks)})
        for rank in range(resources.ranks)
    ]
