"""Runs cases in a framework's interpreter, through the same door as any launch."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xfbench.base import paths
from xfbench.base.errors import XfbenchError
from xfbench.environments.environment import Environment
from xfbench.execution import job
from xfbench.execution.reference import TIME_LIMIT
from xfbench.model.adapter import Adapter
from xfbench.model.request import Request
from xfbench.model.worker_reply import WRONG
from xfbench.worker.distributed import path_for_rank
from xfbench.workloads import Workload

Arrays = dict[str, np.ndarray]

# What a file of arrays may be, beside what a reply may be.
_ARRAY_ERRORS = (OSError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error)


class CheckError(XfbenchError):
    """A framework was given cases and gave nothing back; the message says why."""


@dataclass(frozen=True)
class CaseResults:
    """Per case name its arrays by quantity; the cases not done, with reasons."""

    arrays: dict[str, Arrays]
    unsupported: dict[str, str]


def run_cases(
    documents: Sequence[dict[str, Any]],
    request: Request,
    workload: Workload,
    adapter: Adapter,
    environment: Environment,
    inputs: Path | None = None,
    time_limit: float = TIME_LIMIT,
) -> CaseResults:
    """Run the cases in one worker. Raises CheckError if it gives no results."""
    if not documents:
        return CaseResults({}, {})
    checks_folder = paths.cache() / "checks"  # ranks may be on other nodes
    checks_folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=checks_folder) as scratch:
        folder = Path(scratch)
        job_document = build_job(documents, request, workload, inputs, folder)
        reply = job.run_job(job_document, request, adapter, environment, folder, time_limit)
        return read_results(documents, request, reply, folder)


def build_job(
    documents: Sequence[dict[str, Any]],
    request: Request,
    workload: Workload,
    inputs: Path | None,
    folder: Path,
) -> dict[str, Any]:
    """The job that runs the cases in `folder`, into which their `inputs` are copied."""
    if inputs is not None:
        shutil.copyfile(inputs, folder / "inputs.npz")
    return job.build_document(
        "check",
        request,
        workload,
        cases=list(documents),
        inputs="inputs.npz" if inputs else None,
        output="found.npz",
    )


def read_results(
    documents: Sequence[dict[str, Any]], request: Request, reply: dict[str, Any], folder: Path
) -> CaseResults:
    """What the cases gave, by the ranks' reply and files. Raises CheckError if they gave none."""
    if reply["status"] != "ok":
        raise CheckError(f"{request.label()}: {reply['status']}: {reply['reason']}")
    arrays: dict[str, Arrays] = {case["name"]: {} for case in documents}
    try:
        for key, array in _merge_ranks(folder, request.ranks).items():
            name, _, quantity = key.rpartition(":")
            arrays[name][quantity] = array
        unsupported, observed = dict(reply["unsupported"]), reply["observed"]
        kernel = observed["kernel"] if observed else request.kernel
        evidence = "; ".join(observed["kernel_evidence"]) if observed else ""
    except (*WRONG, *_ARRAY_ERRORS) as error:
        raise CheckError(f"{request.label()}: what it found cannot be read: {error}") from error
    if kernel != request.kernel:
        raise CheckError(
            f"{request.label()}: kernel {kernel} ran, not {request.kernel}: {evidence}"
        )
    supported_arrays = {
        name: case_arrays for name, case_arrays in arrays.items() if name not in unsupported
    }
    return CaseResults(supported_arrays, unsupported)


def _merge_ranks(folder: Path, ranks: int) -> Arrays:
    """What the ranks found, as one: losses are the mean of theirs, and of weights that should be
    the same everywhere, the one counts that is least like the first rank's.
    """
    files = [path_for_rank(folder / "found.npz", rank) for rank in range(ranks)]
    parts: list[Arrays] = []
    for file in files:
        with np.load(file, allow_pickle=False) as arrays:
            parts.append(dict(arrays))
    return {key: _merge_arrays(key, [part[key] for part in parts]) for key in parts[0]}


def _merge_arrays(key: str, rank_arrays: Sequence[np.ndarray]) -> np.ndarray:
    if key.endswith(":losses"):
        return np.asarray(np.mean(rank_arrays, axis=0))
    if key.endswith(("/mean", "/variance", "_loss", "_scores")):  # of each rank's own averages
        return rank_arrays[0]
    return max(rank_arrays, key=lambda array: float(np.linalg.norm(array - rank_arrays[0])))
