"""Traces: the inputs, parameters, gradients and losses of a few steps of a framework.

The framework runs in its own interpreter. The trace is written to an .npz file.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xfbench.base.errors import UnavailableError, UsageError, XfbenchError
from xfbench.environments import environment
from xfbench.execution import job, launch
from xfbench.model import adapter, training
from xfbench.model.request import Cell
from xfbench.planning import experiment
from xfbench.planning.matrix import Matrix


class TraceError(XfbenchError):
    """The framework returned no trace. The message says why."""


def trace_only_cell(
    matrix: Matrix, pythons: Mapping[str, Path], output: Path, time_limit: float
) -> dict[str, Any]:
    """Trace the matrix's only cell to the file `output` (.npz). Return the worker's observations.

    `time_limit` is in seconds. Raises these errors:

    - UsageError if a name is unknown, or if the folder of `output` does not exist.
    - UnavailableError if the framework is unavailable.
    - TraceError if the framework does not support the cell, or fails.
    """
    if not output.absolute().parent.is_dir():
        raise UsageError(f"--output {output}: the folder does not exist")
    [(cell, _)] = experiment.expand_matrices([matrix], pythons)
    framework_adapter = adapter.load(cell.framework)
    if status_and_reason := launch.launch_obstacle(cell.request(1)):
        raise TraceError(f"{cell.label()}: {': '.join(status_and_reason)}")
    framework_environment = environment.ensure_environment(
        framework_adapter, pythons.get(cell.framework)
    )
    return trace_cell(cell, framework_adapter, framework_environment, output, time_limit)


def trace_cell(
    cell: Cell,
    framework_adapter: adapter.Adapter,
    framework_environment: environment.Environment,
    output: Path,
    time_limit: float,
    keep: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Trace one cell to the file `output` (.npz). Return the worker's observations.

    - `time_limit`: in seconds.
    - `keep`: groups of arrays to write, such as "gradient" (see `worker/trace.py`). None: all.

    Raises UnavailableError if the framework is unavailable, and TraceError if it fails.
    """
    request = cell.request(1)
    with tempfile.TemporaryDirectory(prefix="xfbench-trace-") as scratch:
        folder = Path(scratch)
        document = job.build_job_document(
            "trace",
            request,
            training.workload_with_solver_of_cell(cell),
            dropout="identity",
            output="trace.npz",
            keep=keep,
        )
        reply = job.run_job(
            document, request, framework_adapter, framework_environment, folder, time_limit
        )
        if reply["status"] == "unavailable":
            raise UnavailableError(f"{cell.label()}: {reply['reason']}")
        if reply["status"] != "ok":
            raise TraceError(f"{cell.label()}: {reply['status']}: {reply['reason']}")
        shutil.move(folder / "trace.npz", output)
    return reply["observed"]  # type: ignore[no-any-return]
