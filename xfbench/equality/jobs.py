"""Runs cases in a framework's interpreter, through the same door as any launch."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xfbench import adapter, job
from xfbench.adapter import Adapter
from xfbench.environment import Environment
from xfbench.errors import XfbenchError
from xfbench.request import Request
from xfbench.workloads import Workload

Arrays = dict[str, np.ndarray]

TIME_LIMIT = 3600.0


class CheckError(XfbenchError):
    """A framework was given cases and gave nothing back; the message says why."""


@dataclass(frozen=True)
class Results:
    """Per case name its arrays by quantity; the cases not done, with reasons."""

    arrays: dict[str, Arrays]
    unsupported: dict[str, str]


def reference_request(
    workload: str, batch_size: int, *, threads: int, data: str = "synthetic", seed: int = 0
) -> Request:
    """What the oracle is asked for: the `reference` adapter, in xfbench's own interpreter."""
    described = adapter.load("reference")
    return Request(
        framework=described.name,
        environment="own",
        workload=workload,
        precision="float64",
        kernel=described.default_kernel,
        threads=threads,
        global_batch_size=batch_size,
        batch_size_per_rank=batch_size,
        data=data,
        steps=1,
        seed=seed,
        launch=1,
    )


def check(
    documents: Sequence[dict[str, Any]],
    request: Request,
    workload: Workload,
    described: Adapter,
    found: Environment,
    inputs: Path | None = None,
    time_limit: float = TIME_LIMIT,
) -> Results:
    """Run the cases in one worker. Raises CheckError if it gives no results."""
    if not documents:
        return Results({}, {})
    with tempfile.TemporaryDirectory(prefix="xfbench-check-") as scratch:
        folder = Path(scratch)
        if inputs is not None:
            shutil.copyfile(inputs, folder / "inputs.npz")
        document = job.document(
            "check",
            request,
            workload,
            cases=list(documents),
            inputs="inputs.npz" if inputs else None,
            output="found.npz",
        )
        reply = job.work(document, request, described, found, folder, time_limit)
        if reply["status"] != "ok":
            raise CheckError(f"{request.label()}: {reply['status']}: {reply['reason']}")
        arrays: dict[str, Arrays] = {case["name"]: {} for case in documents}
        with np.load(folder / "found.npz", allow_pickle=False) as file:
            for key in file.files:
                name, _, quantity = key.rpartition(":")
                arrays[name][quantity] = file[key]
    unsupported, observed = reply["unsupported"], reply["observed"]
    if observed and observed["kernel"] != request.kernel:
        evidence = "; ".join(observed["kernel_evidence"])
        raise CheckError(
            f"{request.label()}: kernel {observed['kernel']} ran, not {request.kernel}: {evidence}"
        )
    done = {name: found for name, found in arrays.items() if name not in unsupported}
    return Results(done, unsupported)
