"""The resources of a launch, in a form that every launcher understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xfbench.base.process_variables import UNSET_FOR_RANKS
from xfbench.base.processes import Command

_VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
LAUNCHERS = ("local", "mpi", "slurm")


@dataclass(frozen=True)
class Resources:
    """The ranks of a launch, and where and how they are started.

    - `ranks`: total number of ranks, spread evenly over the nodes.
    - `nodes`: number of nodes.
    - `threads`: number of cores per rank.
    - `hosts`: names of the nodes that mpirun uses. If empty, mpirun chooses the nodes.
    - `options`: additional arguments of the start command, such as srun or mpirun.
    - `variables`: environment variables of the start command, such as those of the scheduler and of
      loaded modules. `wrap_in_start_and_env_commands` sets the variables of the ranks.
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
        """Return `words` with all placeholders replaced by the numbers of this launch.

        The placeholders are "{ranks}", "{nodes}", "{per_node}" (ranks per node) and "{threads}".
        """
        values = {
            "{ranks}": self.ranks,
            "{nodes}": self.nodes,
            "{per_node}": self.ranks_per_node,
            "{threads}": self.threads,
        }
        return tuple(_replace_placeholders(word, values) for word in words)


def _replace_placeholders(word: str, number_by_placeholder: Mapping[str, int]) -> str:
    for name, value in number_by_placeholder.items():
        word = word.replace(name, str(value))
    return word


def wrap_in_start_and_env_commands(
    start_words: Sequence[str], command: Command, resources: Resources
) -> Command:
    """Return a command that runs `command` on all ranks: `start_words`, then `env`, then `command`.

    - `env` sets the variables of `command`, because not every start command forwards them.
    - `env` unsets `UNSET_FOR_RANKS`. The start command may need some of these variables, and a
      node's shell may set others, but they could make a framework load wrong files or take other
      threads.
    - `env` does not set the visible GPUs. The start command has the value of this process, and may
      give each rank, or each node, another one.
    """
    of_ranks, of_start = dict(command.environment), dict(resources.variables)
    if _VISIBLE_GPUS in of_ranks:
        of_start.setdefault(_VISIBLE_GPUS, of_ranks.pop(_VISIBLE_GPUS))
    variables = [f"{key}={value}" for key, value in sorted(of_ranks.items())]
    unset = (word for name in UNSET_FOR_RANKS for word in ("-u", name))
    argv = (*start_words, "env", *unset, *variables, *command.argv)
    return Command(argv, of_start, command.cwd)
