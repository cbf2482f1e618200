"""Run cases in a framework's interpreter, with the same launch code as a measurement."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xfbench.base import paths
from xfbench.base.errors import XfbenchError
from xfbench.base.shared_files import copy_content, open_file
from xfbench.environments import worker_archive
from xfbench.environments.environment import Environment
from xfbench.equality import array_files
from xfbench.execution import job
from xfbench.execution.reference import TIME_LIMIT
from xfbench.model.adapter import Adapter
from xfbench.model.request import Request
from xfbench.model.worker_reply import WRONG
from xfbench.worker.block_input import draw_input
from xfbench.worker.distributed import path_for_rank
from xfbench.workloads import Workload, workload_from_json

Arrays = dict[str, np.ndarray]


class CheckError(XfbenchError):
    """Missing or unusable results of a framework's cases. The message says why."""


@dataclass(frozen=True)
class CaseResults:
    """Results of cases.

    - `arrays`: the arrays of each case by case name, then by quantity
    - `unsupported`: the reason why the framework did not run a case, by case name
    - `kernel_evidence`: what showed which kernels ran in the first case
    - `evidence_by_images`: the same for the first case of each number of images. Empty if a worker
      of an earlier revision ran
    """

    arrays: dict[str, Arrays]
    unsupported: dict[str, str]
    kernel_evidence: tuple[str, ...] = ()
    evidence_by_images: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


def run_cases(
    documents: Sequence[dict[str, Any]],
    request: Request,
    workload: Workload,
    adapter: Adapter,
    environment: Environment,
    inputs_file: Path | None = None,
    time_limit: float = TIME_LIMIT,
) -> CaseResults:
    """Run the cases in one launch and return their results.

    - `documents`: the cases as JSON documents (see `Case.document`)
    - `inputs_file`: the file of tables from which inputs of cases are drawn; None without blocks
    - `time_limit`: seconds for the launch

    Raises CheckError if there are no usable results.
    """
    if not documents:
        return CaseResults({}, {})
    checks_folder = paths.cache_folder("checks")  # shared: ranks may be on other nodes
    checks_folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=checks_folder) as scratch:
        folder = Path(scratch)
        job_document = copy_inputs_and_build_job(documents, request, workload, inputs_file, folder)
        reply = job.run_job(job_document, request, adapter, environment, folder, time_limit)
        return read_results(documents, request, reply, folder)


def copy_inputs_and_build_job(
    documents: Sequence[dict[str, Any]],
    request: Request,
    workload: Workload,
    inputs_file: Path | None,
    folder: Path,
) -> dict[str, Any]:
    """Copy `inputs_file` to `folder` and return the job that runs the cases there."""
    if inputs_file is not None and _has_worker_of_drawn_inputs(request):
        copy_content(inputs_file, folder / "inputs.npz")
    elif inputs_file is not None:
        _write_drawn_inputs(documents, inputs_file, folder / "inputs.npz")
    return job.build_job_document(
        "check",
        request,
        workload,
        cases=list(documents),
        inputs="inputs.npz" if inputs_file else None,
        output="found.npz",
    )


def _has_worker_of_drawn_inputs(request: Request) -> bool:
    """Return whether the request's worker draws inputs from tables. Earlier ones read them."""
    files = worker_archive.read_worker_files(request.revision) if request.revision else None
    return files is None or "block_input.py" in files


def _write_drawn_inputs(
    documents: Sequence[dict[str, Any]], tables_file: Path, target: Path
) -> None:
    """Write the inputs that the cases would draw from the tables in `tables_file`."""
    inputs, tables = {}, array_files.load_arrays(tables_file)
    for case in documents:
        if name := case["input"]:
            network = workload_from_json(case["workload"]).network
            shape = (case["batch_size"], *network.input_shape)
            inputs[name] = draw_input(tables[name], shape, case["seed"])
    with open_file(target, "xb") as file:
        np.savez(file, **inputs)  # type: ignore[arg-type]


def read_results(
    documents: Sequence[dict[str, Any]],
    request: Request,
    reply: dict[str, Any],
    folder: Path,
    max_bytes: int | None = None,
) -> CaseResults:
    """Return the results of the cases from the ranks' merged reply and the files in `folder`.

    `max_bytes` limits the files of all ranks together. None: each file has its own limit.

    Raises CheckError if the launch failed, a result cannot be read, or another kernel ran.
    """
    if reply["status"] != "ok":
        raise CheckError(f"{request.label()}: {reply['status']}: {reply['reason']}")
    arrays: dict[str, Arrays] = {case["name"]: {} for case in documents}
    try:
        for key, array in _merge_rank_files(folder, request.ranks, max_bytes).items():
            name, _, quantity = key.rpartition(":")
            arrays[name][quantity] = array
        unsupported = dict(reply["unsupported"])
        first = _read_kernel(reply["observed"], request) if reply["observed"] else ()
        by_images = {
            int(images): _read_kernel(facts, request)
            for images, facts in reply.get("kernels", {}).items()
        }
    except (*WRONG, *array_files.ERRORS) as error:
        raise CheckError(f"{request.label()}: cannot read its results: {error}") from error
    supported_arrays = {
        name: case_arrays for name, case_arrays in arrays.items() if name not in unsupported
    }
    return CaseResults(supported_arrays, unsupported, first, by_images)


def _read_kernel(facts: Mapping[str, Any], request: Request) -> tuple[str, ...]:
    """Return the evidence of the kernel that ran. Raises CheckError if another kernel ran."""
    kernel, evidence = facts["kernel"], tuple(map(str, facts["kernel_evidence"]))
    if kernel != request.kernel:
        raise CheckError(
            f"{request.label()}: kernel {kernel} ran, not {request.kernel}: {'; '.join(evidence)}"
        )
    return evidence


def _merge_rank_files(folder: Path, ranks: int, max_bytes: int | None) -> Arrays:
    """Merge the results of the ranks.

    - Losses of updates: the mean over the ranks
    - Running averages, test losses and test scores: the values of the first rank
    - Other quantities, such as weights, should be equal on all ranks. To show a difference, the
      array that differs most from the first rank's array is returned.
    """
    files = [path_for_rank(folder / "found.npz", rank) for rank in range(ranks)]
    if max_bytes is not None and sum(file.lstat().st_size for file in files) > max_bytes:
        raise ValueError(f"the files of all ranks are longer than {max_bytes >> 30} GiB together")
    parts: list[Arrays] = []
    for file in files:
        parts.append(array_files.load_arrays(file))
    return {
        key: _mean_first_or_most_different(key, [part[key] for part in parts]) for key in parts[0]
    }


def _mean_first_or_most_different(key: str, rank_arrays: Sequence[np.ndarray]) -> np.ndarray:
    if key.endswith(":losses"):
        return np.asarray(np.mean(rank_arrays, axis=0))
    if key.endswith(("/mean", "/variance", "_loss", "_scores")):  # each rank has its own averages
        return rank_arrays[0]
    return max(rank_arrays, key=lambda array: float(np.linalg.norm(array - rank_arrays[0])))
