"""Names and groups of benchmarks.

pytest-benchmark compares benchmarks of equal full names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the pytest plugin must start fast
    from xfbench.model.request import Cell

PARAMETERS = ("workload", "framework", "kernel", "device", "threads")
FUNCTION = "test_training"


def list_parameters(cell: Cell) -> tuple[object, ...]:
    """Return the values of `PARAMETERS` in this cell."""
    return tuple(getattr(cell, name) for name in PARAMETERS)


def format_id(cell: Cell) -> str:
    """Return the id of the plugin's benchmark of a cell, such as "lenet-torch-onednn-cpu-2"."""
    return "-".join(map(str, list_parameters(cell)))


def format_group(cell: Cell) -> str:
    """Return the benchmark's group, such as "lenet · synthetic · float32 · cpu · batch 64"."""
    batch = f"batch {cell.global_batch_size}"
    return " · ".join((cell.workload, cell.data, cell.precision, cell.device, batch))


def format_full_name(benchmark_id: str) -> str:
    """Return the full name of a benchmark. It is the same wherever pytest is started."""
    return f"xfbench/benchmarks/test_cells.py::{FUNCTION}[{benchmark_id}]"
