"""What the ranks of a launch need, in words that every launcher understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xfbench.base.processes import Command

LAUNCHERS = ("local", "mpi", "slurm")


@dataclass(frozen=True)
class Resources:
    """So many `ranks`, evenly over `nodes`, each with `threads` cores.

    `hosts` are the nodes where the user names them. `options` are further words for the start
    command, `variables` its environment: what starts ranks is not measured, and keeps what
    the scheduler and modules have set.
    """

    ranks: int
    nodes: int = 1
    threads: int = 1
    hosts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def per_node(self) -> int:
        """Ranks on each node."""
        return self.ranks // self.nodes

    def fill_placeholders(self, words: Sequence[str]) -> tuple[str, ...]:
        """A site's own words, with "{ranks}", "{nodes}", "{per_node}", "{threads}" filled in."""
        values = {
            "{ranks}": self.ranks,
            "{nodes}": self.nodes,
            "{per_node}": self.per_node,
            "{threads}": self.threads,
        }
        return tuple(_replace_placeholders(word, values) for word in words)


def _replace_placeholders(word: str, values: Mapping[str, int]) -> str:
    for name, value in values.items():
        word = word.replace(name, str(value))
    return word


def wrap_command(start_words: Sequence[str], command: Command, resources: Resources) -> Command:
    """`command` behind the words that start it on all ranks.

    A rank gets its variables from `env`, wherever it runs: what start commands forward differs.
    Library paths are theirs, and would mix with those of a framework.
    """
    variables = [f"{key}={value}" for key, value in sorted(command.environment.items())]
    paths = ("-u", "LD_LIBRARY_PATH", "-u", "LD_PRELOAD", "-u", "PYTHONPATH", "-u", "PYTHONHOME")
    argv = (*start_words, "env", *paths, *variables, *command.argv)
    return Command(argv, resources.variables, command.cwd)
