"""Ranks on this machine: one command becomes one command per rank."""

from __future__ import annotations

from xfbench.command import Command
from xfbench.request import Request


def commands(command: Command, request: Request) -> list[Command]:
    """The commands that start `request` here, one per rank, each told its rank and their number."""
    return [
        command.with_environment(
            {"XFBENCH_RANK": str(rank), "XFBENCH_SIZE": str(request.ranks)},
        )
        for rank in range(request.ranks)
    ]
