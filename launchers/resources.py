"""The resources of a launch, in terms that every launcher understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xfbench.base.processes import Command

LAUNCHERS = ("local", "mpi", "slurm")


@dataclass(frozen=True)
class Resources:
    """A number of `ranks` spread evenly over `nodes`, with `threads` cores per rank.

    `hosts` are the nodes that the user names. `options` are more arguments of the start command
    and `variables` is its environment. The start command is not measured, so it keeps the
    environment that the scheduler and modules have set.
    """

    ranks: int
    nodes: int = 1
    threads: int = 1
    hosts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def ranks_per_node(self) -> int:
        """The number of ranks on each node."""
        return self.ranks // self.nodes

    def fill_placeholders(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return `words` with "{ranks}", "{nodes}", "{per_node}" and "{threads}" filled in."""
        values = {
            "{ranks}": self.ranks,
            "{nodes}": self.nodes,
            "{per_node}": self.ranks_per_node,
            "{threads}": self.threads,
        }
        return tuple(_replace_placeholders(word, values) for word in words)


def _replace_placeholders(word: str, values: Mapping[str, int]) -> str:
    for name, value in values.items():
        word = word.replace(name, str(value))
    return word


def wrap_command(start_words: Sequence[str], command: Command, resources: Resources) -> Command:
    """Return `command` preceded by the words that start it on all ranks.

    A rank gets its variables from `env`, because start commands forward different variables.
    `env` unsets the start command's library paths, which would mix with those of a framework.
    """
    variables = [f"{key}={value}" for key, value in sorted(command.environment.items())]
    paths = ("-u", "LD_LIBRARY_PATH", "-u", "LD_PRELOAD", "-u", "PYTHONPATH", "-u", "PYTHONHOME")
    argv = (*start_words, "env", *paths, *variables, *command.argv)
    return Command(argv, resources.variables, command.cwd)
