"""How a cell's network is trained: as published, but for what the cell chooses about its solver.

Such a cell trains another workload, of another digest, which stands in tables of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from xfbench.base.errors import UsageError
from xfbench.model.request import SOLVER, Cell
from xfbench.worker.input import images_per_epoch
from xfbench.workloads import Workload, workloads


def build_workload(cell: Cell) -> Workload:
    """The workload that the cell trains.

    Scaled "linear", the rate is that for the published batch times how much larger the update's
    is (Goyal et al. 2017). Raises UsageError for a warm-up over epochs of unknown length.
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


def variants(cell: Cell, lists: Mapping[str, Sequence[Any] | None]) -> Iterator[Cell]:
    """The cell with every combination of the `lists`, by names of `SOLVER`.

    Raises UsageError as `workload` does, and ValidationError for a value that cannot be.
    """
    if not any(lists.values()):
        yield cell
        return
    published = workloads()[cell.workload]
    values = [drop_defaults(published, name, lists.get(name)) for name in SOLVER]
    for point in itertools.product(*values):
        variant = Cell(**{**dict(cell), **dict(zip(SOLVER, point, strict=True))})
        build_workload(variant)
        yield variant


def drop_defaults(published: Workload, name: str, values: Sequence[Any] | None) -> list[Any]:
    """Values of a choice as cells have them: what the network has anyway is not chosen."""
    defaults = {
        "lars": published.solver.lars,
        "learning_rate": published.solver.base_lr,
        "rate_scaling": "none",
        "rate_warmup": None if published.solver.warmup else 0,
    }
    return [None if value == defaults[name] else value for value in values or [None]]


def _warmup_updates(cell: Cell, published: Workload) -> int:
    """In how many updates the rate grows."""
    if not cell.rate_warmup:
        return 0
    images = cell.data_set.train_images if cell.data_set else images_per_epoch(cell.data, published)
    if images is None:
        raise UsageError(
            f"rate_warmup is in epochs: nobody says how many images one of {published.name} has"
        )
    return max(1, cell.rate_warmup * (images // cell.global_batch_size))
