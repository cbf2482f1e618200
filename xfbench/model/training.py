"""The workload that a cell trains: the published one, with the cell's solver settings.

A cell with changed solver settings trains another workload. This workload has its own digest and
its own tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from xfbench.base.errors import UsageError
from xfbench.model.request import SOLVER, Cell
from xfbench.worker.input import known_images_per_epoch
from xfbench.workloads import Workload, workloads


def workload_with_solver_of_cell(cell: Cell) -> Workload:
    """Return the workload that the cell trains.

    With "linear" scaling, the learning rate grows with the ratio of the global batch to the
    published batch (Goyal et al. 2017). Raises UsageError if the cell has a warm-up in epochs and
    the length of an epoch is unknown.
    """
    published = workloads()[cell.workload]
    solver = published.solver
    if cell.lars is not None:
        solver = replace(solver, lars=cell.lars)
    if cell.learning_rate is not None:
        solver = replace(solver, base_lr=cell.learning_rate)
    if cell.rate_scaling == "linear":
        rate = solver.base_lr * cell.global_batch_size / published.batch_size
        solver = replace(solver, base_lr=rate)
    if cell.rate_warmup is not None:
        solver = replace(solver, warmup=_warmup_updates(cell, published))
    return published if solver == published.solver else replace(published, solver=solver)


def solver_variants(
    cell: Cell, values_by_setting: Mapping[str, Sequence[Any] | None]
) -> Iterator[Cell]:
    """Yield the cell with every combination of solver settings.

    `values_by_setting` has the values of each setting in `SOLVER`; a missing setting keeps its
    published value. Raises UsageError as `workload_with_solver_of_cell` does, and ValidationError
    if a value is invalid.
    """
    if not any(values_by_setting.values()):
        yield cell
        return
    published = workloads()[cell.workload]
    values = [
        replace_defaults_with_none(published, name, values_by_setting.get(name)) for name in SOLVER
    ]
    for point in itertools.product(*values):
        variant = Cell(**{**dict(cell), **dict(zip(SOLVER, point, strict=True))})
        workload_with_solver_of_cell(variant)
        yield variant


def replace_defaults_with_none(
    published: Workload, setting_name: str, values: Sequence[Any] | None
) -> list[Any]:
    """Return the values of a solver setting, with None in place of the published value.

    Cells store the published value as None. If `values` is None or empty, return [None].
    """
    defaults = {
        "lars": published.solver.lars,
        "learning_rate": published.solver.base_lr,
        "rate_scaling": "none",
        "rate_warmup": None if published.solver.warmup else 0,
    }
    return [None if value == defaults[setting_name] else value for value in values or [None]]


def _warmup_updates(cell: Cell, published: Workload) -> int:
    """Return the number of updates in the warm-up of the learning rate."""
    if not cell.rate_warmup:
        return 0
    images = (
        cell.data_set.train_images
        if cell.data_set
        else known_images_per_epoch(cell.data, published)
    )
    if images is None:
        raise UsageError(
            f"lr_warmup is in epochs, but the number of images in an epoch of {published.name} "
            "is unknown: leave out the warm-up"
        )
    return max(1, cell.rate_warmup * (images // cell.global_batch_size))
