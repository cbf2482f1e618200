"""The search space: all settings with which a framework does the same training of a workload.

A setting is a combination of kernel, threads, affinity, allocator, ranks and strategy. The ranks
run on one node and share the batch. If an adapter offers several data layouts, each layout is a
kernel of its own.

With another batch size, the training would be different. Other batch sizes are therefore searched
only if the user requests them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xfbench.base import errors
from xfbench.base.wording import pluralize
from xfbench.environments import allocators
from xfbench.execution import launch
from xfbench.model import adapter
from xfbench.model.request import Cell
from xfbench.model.strategy import format_options
from xfbench.planning import experiment, pinning
from xfbench.planning.matrix import Matrix
from xfbench.studies import running
from xfbench.tuning.effects import Factors

OVER_NAMES = ("pinning", "allocator", "kernel", "ranks", "strategy", "threads")
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

    - `batch_sizes`: images per update; empty: the published batch size.
    - `over`: the values to try of each setting. The keys are names in OVER_NAMES.
    - `steps`: number of timed steps of a launch in the confirmation; None: the default number.
    - `warmup`: number of untimed steps after the first step.

    If a name is missing in `over`, all values of this setting are tried, with three exceptions:

    - "threads": only 1, 2, 4, … and the number of cores.
    - "ranks": only one rank.
    - "strategy": only the default strategy.
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

    - `cells`: the cells, with the number of steps that the confirmation uses.
    - `default`: the cell that `xfbench run` measures if the user chooses no setting. `cells` need
      not contain the default.
    - `left_out`: cells that cannot be searched here, each with the reason.
    - `data_folders`: folders of prepared data sets, as in `Plan`.
    """

    cells: tuple[Cell, ...]
    default: Cell
    left_out: tuple[tuple[Cell, str], ...]
    data_folders: Mapping[str, Path] = field(default_factory=dict)

    def without_cells(self, left_out: Sequence[tuple[Cell, str]]) -> Space:
        """Return the space without the given cells.

        In the returned space, these cells and their reasons are appended to `Space.left_out`.
        """
        excluded = {cell for cell, _ in left_out}
        cells = tuple(cell for cell in self.cells if cell not in excluded)
        return Space(cells, self.default, (*self.left_out, *left_out), self.data_folders)

    def values(self) -> dict[str, tuple[str | int, ...]]:
        """Return the different values of each field in SETTING_FIELDS, by field name.

        Both `cells` and the cells in `left_out` are included.
        """
        all_cells = [*self.cells, *(cell for cell, _ in self.left_out)]
        return {
            name: tuple(dict.fromkeys(build_setting(cell)[name] for cell in all_cells))
            for name in SETTING_FIELDS
        }


def build_space(request: SpaceRequest, pythons: Mapping[str, Path]) -> Space:
    """Return the space of all combinations of the requested values.

    `pythons` maps framework names to interpreters. Raises UsageError if a name or a value is
    invalid.
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
        cell: _unsupported_or_no_gpu_reason(cell)
        or pinning.misfit_reason(cell)
        or running.oversubscription_reason(cell)
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
    """Return the factors of the cell (see `effects.py`): its work, its allocator and its affinity.

    The work is represented by the same cell with the default allocator and the default affinity.
    """
    default_placement = {"affinity": "none", "allocator": None}
    return cell.model_copy(update=default_placement), cell.allocator, cell.affinity


def build_setting(cell: Cell) -> dict[str, str | int]:
    """Return the cell's value of each field in SETTING_FIELDS, by field name.

    For the allocator of the C library, the value is `allocators.SYSTEM` instead of None.
    """
    return {name: getattr(cell, name) or allocators.SYSTEM for name in SETTING_FIELDS}


def describe_setting(cell: Cell) -> str:
    """Return the setting in words, such as "onednn · 2 threads · affinity cores"."""
    parts = [cell.kernel, pluralize(cell.threads, "thread")]
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
                pinning=pinning_name,
                allocator=[*over.get("allocator", allocators.NAMES)],
                **rank_settings,
            )
            for pinning_name in over.get("pinning", ("none", "cores"))
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
