"""The search space: all settings with which a framework trains a workload in the same way.

A setting has a kernel, threads, an affinity, an allocator, and ranks on one node that share the
batch. If an adapter offers several data layouts, each is a kernel. A different batch size is
different training, so several batch sizes are searched only on request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xfbench.base import errors
from xfbench.environments import allocators
from xfbench.execution import launch
from xfbench.model import adapter
from xfbench.model.request import Cell
from xfbench.model.strategy import format_options
from xfbench.planning import experiment
from xfbench.planning.matrix import Matrix
from xfbench.studies import running
from xfbench.tuning.effects import Factors

OVER_NAMES = ("affinity", "allocator", "kernel", "ranks", "strategy", "threads")
# The fields of a cell in which settings may differ.
SETTING_FIELDS = (
    "kernel",
    "threads",
    "affinity",
    "allocator",
    "ranks",
    "strategy",
    "global_batch_size",
)


@dataclass(frozen=True)
class SpaceRequest:
    """A framework, a workload, and the values to try.

    - `batch_sizes`: images per update; empty: the published batch.
    - `over`: values to try, by a name in OVER_NAMES.
    - `steps`: number of timed steps of a launch of usual length.
    - `warmup`: number of untimed steps after the first step.

    If a name is missing in `over`, all values are tried, with three exceptions:

    - "threads": 1, 2, 4, … up to the number of cores, and that number.
    - "ranks": one rank.
    - "strategy": the default strategy.
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
    """The cells to search.

    - `cells`: each cell has the steps of a launch of usual length.
    - `default`: the cell that `run` measures if no setting is chosen. It may be missing from
      `cells`.
    - `left_out`: cells that cannot be searched here, each with the reason.
    - `data_folders`: folders of prepared data sets, as in `Plan`.
    """

    cells: tuple[Cell, ...]
    default: Cell
    left_out: tuple[tuple[Cell, str], ...]
    data_folders: Mapping[str, Path] = field(default_factory=dict)

    def without_cells(self, left_out: Sequence[tuple[Cell, str]]) -> Space:
        """Return the space with these cells moved to `left_out`, each with its reason."""
        excluded = {cell for cell, _ in left_out}
        cells = tuple(cell for cell in self.cells if cell not in excluded)
        return Space(cells, self.default, (*self.left_out, *left_out), self.data_folders)

    def values(self) -> dict[str, tuple[str | int, ...]]:
        """Return the values that occur in each setting field. Cells left out are included."""
        all_cells = [*self.cells, *(cell for cell, _ in self.left_out)]
        return {
            name: tuple(dict.fromkeys(build_setting(cell)[name] for cell in all_cells))
            for name in SETTING_FIELDS
        }


def build_space(request: SpaceRequest, pythons: Mapping[str, Path]) -> Space:
    """Return the space of all combinations of the requested values.

    `pythons` are interpreters by framework. Raises UsageError if a name or a value is invalid.
    """
    for name in request.over:
        if name not in OVER_NAMES:
            if name in ("batch_size", "batch-size"):
                raise errors.UsageError("--over batch_size: use --batch-size instead")
            raise errors.unknown_name_error("setting to try", name, OVER_NAMES)
    [(default, _)] = experiment.expand_matrices(
        [_build_matrix(request, request.batch_sizes[:1])], pythons
    )
    matrices = _build_matrices(request)
    cells = dict.fromkeys(cell for cell, _ in experiment.expand_matrices(matrices, pythons))
    reasons = {
        cell: _unsupported_or_no_gpu_reason(cell) or running.oversubscription_reason(cell)
        for cell in cells
    }
    return Space(
        tuple(cell for cell, reason in reasons.items() if reason is None),
        default,
        tuple((cell, reason) for cell, reason in reasons.items() if reason is not None),
        experiment.data_folders_by_lookup_key(matrices),
    )


def _unsupported_or_no_gpu_reason(cell: Cell) -> str | None:
    """Return why the cell cannot be launched here; None if it can."""
    obstacle = launch.launch_obstacle(cell.request(1))
    return obstacle and obstacle[1]


def split_work_allocator_affinity(cell: Cell) -> Factors:
    """Return the factors of the cell (see `effects.py`): its work, allocator and affinity.

    The work is the cell with default allocator and affinity.
    """
    default_placement = {"affinity": "none", "allocator": None}
    return cell.model_copy(update=default_placement), cell.allocator, cell.affinity


def build_setting(cell: Cell) -> dict[str, str | int]:
    """Return the cell's values by name, for the names in SETTING_FIELDS.

    The allocator of the C library is `allocators.SYSTEM` instead of None.
    """
    return {name: getattr(cell, name) or allocators.SYSTEM for name in SETTING_FIELDS}


def describe_setting(cell: Cell) -> str:
    """Return the setting in words, such as "onednn · 2 threads · affinity cores"."""
    parts = [cell.kernel, f"{cell.threads} thread{'s' if cell.threads > 1 else ''}"]
    parts += [f"affinity {cell.affinity}"] if cell.affinity != "none" else []
    parts += [cell.allocator] if cell.allocator else []
    if cell.ranks > 1:
        options = format_options(cell.strategy_options)
        parts.append(f"{cell.ranks} ranks {cell.strategy} {options}".rstrip())
    return " · ".join(parts)


def _build_matrices(request: SpaceRequest) -> list[Matrix]:
    over = request.over
    kernels = [*over.get("kernel", ("all",))]
    if kernels == ["all"]:
        kernels = adapter.load(request.framework).kernels_on(request.device)
    threads = [*over.get("threads", ("powers",))]
    matrices: list[Matrix] = []
    for ranks in _parse_positive_integers("ranks", over.get("ranks", ("1",))):
        rank_settings: dict[str, Any] = {"ranks": [ranks]}
        if ranks > 1:
            rank_settings |= {
                "scaling": "strong",
                "strategy": [*over.get("strategy", ("default",))],
            }
        matrices += [
            _build_matrix(
                request,
                request.batch_sizes,
                kernel=kernels,
                threads="powers"
                if threads == ["powers"]
                else _parse_positive_integers("threads", threads),
                affinity=affinity,
                allocator=[*over.get("allocator", allocators.NAMES)],
                **rank_settings,
            )
            for affinity in over.get("affinity", ("none", "cores"))
        ]
    return matrices


def _build_matrix(request: SpaceRequest, batch_sizes: Sequence[int], **settings: Any) -> Matrix:
    return experiment.build_matrix(
        framework=[request.framework],
        workload=[request.workload],
        device=[request.device],
        precision=[request.precision],
        batch_size=[*batch_sizes] or None,
        data=request.data,
        steps=request.steps,
        warmup=request.warmup,
        **settings,
    )


def _parse_positive_integers(name: str, texts: Sequence[str]) -> list[int]:
    invalid = [text for text in texts if not text.isdecimal() or int(text) < 1]
    if invalid:
        raise errors.UsageError(f"--over {name}: {invalid[0]!r} is not a whole number of 1 or more")
    return [int(text) for text in texts]
