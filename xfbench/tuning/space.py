"""What is searched: every setting of a framework for a network that trains the same.

Kernels, threads, affinity, allocators and ranks on one node, which share the same batch. A layout
is a kernel of its adapter where there is a choice. Another batch is different training, and is
among them only where somebody names several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xfbench import adapter, experiment
from xfbench.base import errors
from xfbench.environments import allocators
from xfbench.matrix import Matrix
from xfbench.request import Cell
from xfbench.running import launch
from xfbench.strategy import format_options
from xfbench.studies import running
from xfbench.tuning.effects import Factors

OVER = ("affinity", "allocator", "kernel", "ranks", "strategy", "threads")
# What one setting has otherwise than another.
FIELDS = ("kernel", "threads", "affinity", "allocator", "ranks", "strategy", "global_batch_size")


@dataclass(frozen=True)
class SpaceRequest:
    """A framework and a network, and what is tried of the settings OVER; else all there is.

    Without `ranks` there is one. `batch_sizes`: images per update, the published where none is
    named. `steps` are those of a launch of usual length.
    """

    framework: str
    workload: str
    device: str = "cpu"
    precision: str = "float32"
    batch_sizes: Sequence[int] = ()
    data: str | None = None
    over: Mapping[str, Sequence[str]] = field(default_factory=dict)
    steps: int | None = None
    warmup: int = 3


@dataclass(frozen=True)
class Space:
    """The cells that are searched, each with the steps of a launch of usual length.

    `default` is what `run` does where nobody chooses, and may be none of them. `left_out` cannot be
    had here, each with the reason.
    """

    cells: tuple[Cell, ...]
    default: Cell
    left_out: tuple[tuple[Cell, str], ...]
    data_folders: Mapping[str, Path] = field(default_factory=dict)

    def without(self, left_out: Sequence[tuple[Cell, str]]) -> Space:
        """The same but for these cells."""
        gone = {cell for cell, _ in left_out}
        cells = tuple(cell for cell in self.cells if cell not in gone)
        return Space(cells, self.default, (*self.left_out, *left_out), self.data_folders)

    def values(self) -> dict[str, tuple[str | int, ...]]:
        """What is tried of each field."""
        every = [*self.cells, *(cell for cell, _ in self.left_out)]
        return {
            name: tuple(dict.fromkeys(setting(cell)[name] for cell in every)) for name in FIELDS
        }


def build_space(asked: SpaceRequest, pythons: Mapping[str, Path]) -> Space:
    """All combinations. Raises UsageError, before anything is started, on a wrong name."""
    for name in asked.over:
        if name not in OVER:
            if name in ("batch_size", "batch-size"):
                raise errors.UsageError("--over batch_size: name batches with --batch-size")
            raise errors.unknown_name_error("setting to try", name, OVER)
    [(default, _)] = experiment.cells([_matrix(asked, asked.batch_sizes[:1])], pythons)
    matrices = _matrices(asked)
    cells = dict.fromkeys(cell for cell, _ in experiment.cells(matrices, pythons))
    reasons = {
        cell: _launch_obstacle(cell) or running.oversubscription_reason(cell) for cell in cells
    }
    return Space(
        tuple(cell for cell, reason in reasons.items() if reason is None),
        default,
        tuple((cell, reason) for cell, reason in reasons.items() if reason is not None),
        experiment.data_set_folders(matrices),
    )


def _launch_obstacle(cell: Cell) -> str | None:
    """Why it cannot be launched here."""
    standing = launch.launch_obstacle(cell.request(1))
    return standing and standing[1]


def factors(cell: Cell) -> Factors:
    """Its work, who gives it memory, and where its threads may run."""
    anywhere = {"affinity": "none", "allocator": None}
    return cell.model_copy(update=anywhere), cell.allocator, cell.affinity


def setting(cell: Cell) -> dict[str, str | int]:
    """What this cell has of the fields that are searched."""
    return {name: getattr(cell, name) or allocators.SYSTEM for name in FIELDS}


def describe_setting(cell: Cell) -> str:
    """The setting in words: "onednn · 2 threads · affinity cores"."""
    parts = [cell.kernel, f"{cell.threads} thread{'s' if cell.threads > 1 else ''}"]
    parts += [f"affinity {cell.affinity}"] if cell.affinity != "none" else []
    parts += [cell.allocator] if cell.allocator else []
    if cell.ranks > 1:
        options = format_options(cell.strategy_options)
        parts.append(f"{cell.ranks} ranks {cell.strategy} {options}".rstrip())
    return " · ".join(parts)


def _matrices(asked: SpaceRequest) -> list[Matrix]:
    over = asked.over
    kernels = [*over.get("kernel", ("all",))]
    if kernels == ["all"]:
        kernels = adapter.load(asked.framework).kernels_on(asked.device)
    threads = [*over.get("threads", ("powers",))]
    matrices: list[Matrix] = []
    for ranks in _numbers("ranks", over.get("ranks", ("1",))):
        of_ranks: dict[str, Any] = {"ranks": [ranks]}
        if ranks > 1:
            of_ranks |= {"scaling": "strong", "strategy": [*over.get("strategy", ("default",))]}
        matrices += [
            _matrix(
                asked,
                asked.batch_sizes,
                kernel=kernels,
                threads="powers" if threads == ["powers"] else _numbers("threads", threads),
                affinity=affinity,
                allocator=[*over.get("allocator", allocators.NAMES)],
                **of_ranks,
            )
            for affinity in over.get("affinity", ("none", "cores"))
        ]
    return matrices


def _matrix(asked: SpaceRequest, batch_sizes: Sequence[int], **settings: Any) -> Matrix:
    return experiment.matrix(
        framework=[asked.framework],
        workload=[asked.workload],
        device=[asked.device],
        precision=[asked.precision],
        batch_size=[*batch_sizes] or None,
        data=asked.data,
        steps=asked.steps,
        warmup=asked.warmup,
        **settings,
    )


def _numbers(name: str, given: Sequence[str]) -> list[int]:
    wrong = [one for one in given if not one.isdecimal() or int(one) < 1]
    if wrong:
        raise errors.UsageError(f"--over {name}: {wrong[0]!r} is not a whole number of one or more")
    return [int(one) for one in given]
