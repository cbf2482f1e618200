"""Entry point: `PYTHON worker.pyz JOB REPLY` does one job and writes one reply.

The reply is written atomically. It contains the digest of its job, so that a reply to another job
is recognised. If the framework cannot do the job, the reply's status is "unsupported" or
"unavailable". After any other error, the status is "failed" and the reply contains the traceback.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from xfbench.worker import affinity, distributed, host, memory, nvml, observe, watch


def main(job_path: Path, reply_path: Path) -> int:
    """Do the job in `job_path`, write the reply to `reply_path`, and return the exit status.

    A single rank returns 0 even if its reply reports a failure. If one of several ranks fails, that
    rank returns 1, because other ranks may wait for it.
    """
    rank, size = distributed.rank_and_size()
    return watch.run_watched(
        rank, lambda: _run_job_and_write_reply(job_path, reply_path, rank, size)
    )


def _run_job_and_write_reply(job_path: Path, reply_path: Path, rank: int, size: int) -> int:
    content = job_path.read_bytes()
    reply_path = distributed.path_for_rank(reply_path, rank)
    result = _run_job(json.loads(content))
    used_seconds = observe.cpu_seconds() + observe.descendants_cpu_seconds()
    reply = {
        "schema": "xfbench.reply/1",
        "job": "sha256:" + hashlib.sha256(content).hexdigest(),
        **result,
        "machine": host.machine_facts(),
        "used": {socket.gethostname(): used_seconds},
        "used_on_kernel": {observe.boot_id(): used_seconds},
    }
    partial = reply_path.with_suffix(".partial")
    # Messages may contain paths with bytes that are not UTF-8; "replace" writes "?" for each.
    with partial.open("w", encoding="utf-8", errors="replace") as file:
        json.dump(reply, file, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(reply_path)
    return int(size > 1 and reply["status"] != "ok")


def _run_job(job: dict[str, Any]) -> dict[str, Any]:
    try:
        pinned_cpus = _pin_as_requested(job)
    except affinity.PinningError as error:
        pinning = job["request"]["affinity"]
        return _build_failure_reply("unavailable", f"--pinning {pinning}: {error}", "")
    limit = job["request"].get("memory_limit") if job["action"] == "train" else None
    memory.set_memory_limit(limit)
    try:
        import numpy  # noqa: F401
    except ImportError:
        return _build_failure_reply("unavailable", f"{sys.executable} has no NumPy", "")
    from xfbench.worker.protocol import Unavailable, Unsupported

    try:
        with contextlib.ExitStack() as at_end:
            return {"status": "ok", "reason": None, **_run_action(job, pinned_cpus, at_end)}
    except (Unsupported, Unavailable) as error:
        return _build_failure_reply(type(error).__name__.lower(), str(error), "")
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        reason = memory.out_of_memory_reason(error, limit) or f"{type(error).__name__}: {first}"
        return _build_failure_reply("failed", reason, traceback.format_exc())


def _build_failure_reply(status: str, reason: str, traceback_text: str) -> dict[str, Any]:
    return {"status": status, "reason": reason[:500], "traceback": traceback_text}


def _pin_as_requested(job: dict[str, Any]) -> list[int] | None:
    """Pin this rank to its CPUs and return them. Call this before NumPy starts threads.

    Returns None if the job requests no pinning, or if it requests cores and the node has too few
    CPUs. Raises PinningError if the rank cannot get a socket or NUMA node as requested.
    """
    request = job.get("request", {})
    pinning = request.get("affinity", "none")
    if pinning == "none":
        return None
    per_node = request["ranks"] // request["nodes"]
    reserved = job.get("reserved_cores", 0)
    rank, _ = distributed.rank_and_size()
    first = rank - rank % per_node
    near_cpus: list[set[int]] = []
    if request["device"] == "cuda":
        ranks_of_node = range(first, first + per_node)
        near_cpus = nvml.list_cpus_near_ranks(ranks_of_node, job.get("share_gpus", False))
    return affinity.pin_rank(pinning, rank, per_node, request["threads"], reserved, near_cpus)


def _run_action(
    job: dict[str, Any], pinned_cpus: list[int] | None, at_end: contextlib.ExitStack
) -> dict[str, Any]:
    """Do the job and return the fields of the reply. `at_end` is closed after the job."""
    from xfbench.worker import check, core_latency, gpus, loop, probes, program_cache, trace
    from xfbench.worker.protocol import Options, Unsupported
    from xfbench.workloads import workload_from_json

    if job["action"] == "inspect":
        # Before the import: some frameworks import setuptools, which adds its bundled packages.
        packages = observe.installed_packages()
        module = importlib.import_module(job["module"])
        return {
            "version": str(getattr(module, "__version__", "")),
            "python": sys.version.split()[0],
            "packages": packages,
        }
    request = job["request"]
    if request.get("probe") == "native":
        return probes.probe_native_rank_count(_import_rank_counter(request["framework"]))
    remote = job.get("remote", False)
    distributed.replace_address_placeholders_in_env(remote)
    group = distributed.build_group(request, remote, job.get("strategy_options"))
    options = Options(
        kernel=request["kernel"],
        threads=request["threads"],
        precision=request["precision"],
        device=request["device"],
        dropout=job.get("dropout", "random"),
        seed=request["seed"],
    )
    workload = workload_from_json(job["workload"])
    # The probe starts before the framework is imported, so that it inherits nothing from it. With
    # several ranks there is no probe, because every rank would wait for each measurement.
    alone = job["action"] == "train" and group.size == 1 and options.device == "cpu"
    cores = core_latency.CoreLatencyProbe() if alone else None
    adapter = importlib.import_module(f"xfbench.adapters.{request['framework']}.train")
    if workload.solver.lars and not getattr(adapter, "LARS", False):
        raise Unsupported(f"the {request['framework']} adapter does not translate LARS")
    if options.device == "cuda" and job["action"] == "train" and not job.get("share_gpus"):
        gpus.require_own_gpu(group)
    if "program_cache" in job:
        cache = program_cache.private_copy(
            Path(job["program_cache"]), request["framework"], Path(f"programs.{group.rank}")
        )
        if programs_folder := at_end.enter_context(cache):
            adapter.keep_programs(programs_folder)
    folder = job.get("data_folder")
    if job["action"] == "trace":
        output = Path(job["output"])
        return trace.train_and_write_trace(
            workload, request, options, adapter.build, output, job.get("keep")
        )
    if job["action"] == "check":
        inputs = Path(job["inputs"]) if job["inputs"] else None
        output = distributed.path_for_rank(Path(job["output"]), group.rank)
        return check.run_cases(job["cases"], options, adapter.build, group, inputs, output)
    if job["action"] == "canary":
        return check.compute_canary_losses_before_training(
            workload, request, options, adapter.build, folder
        )
    if job["action"] == "train":
        saved_in = Path(job.get("checkpoint_folder", "checkpoint"))
        attempt = probes.ProbeRun(adapter.build, request["probe"]) if request.get("probe") else None
        reply = loop.train_and_measure(
            workload,
            request,
            options,
            attempt.build if attempt else adapter.build,
            group,
            folder,
            saved_in,
            _import_open_reader(request) if request.get("input") == "native" else None,
            cores,
        )
        if cores:
            cores.end_process()
        reply["observed"]["laid_out"] = pinned_cpus
        return {**reply, **(attempt.report(pinned_cpus) if attempt else {})}
    raise ValueError(f"unknown action {job['action']!r}")


def _import_rank_counter(framework: str) -> Any:
    """Return `join_and_count_ranks` of the adapter's `native.py`.

    Raises Unsupported if the adapter has no such file.
    """
    from xfbench.worker.protocol import Unsupported

    try:
        return importlib.import_module(f"xfbench.adapters.{framework}.native").join_and_count_ranks
    except ModuleNotFoundError as error:
        if not str(error.name).endswith(".native"):
            raise
        raise Unsupported(f"adapter {framework} has no native.py") from error


def _import_open_reader(request: dict[str, Any]) -> Any:
    """Return the function `open_reader` of the adapter's `reader.py`."""
    return importlib.import_module(f"xfbench.adapters.{request['framework']}.reader").open_reader


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
