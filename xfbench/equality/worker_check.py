"""The check of a git revision's worker before its first launch.

Jobs and replies have no version number. Therefore the worker does two short jobs, and this version
must be able to read the replies. A worker also ignores settings that it does not know. Therefore
the names of the settings are searched in its code.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from xfbench.base.errors import UnavailableError, UsageError
from xfbench.base.revisions import shorten
from xfbench.environments import environment, worker_archive
from xfbench.equality import cases, jobs
from xfbench.execution import job, record_builder, reference
from xfbench.model import adapter, settings, worker_reply
from xfbench.model.request import Cell, Request
from xfbench.workloads import workloads

_WORKLOAD = "lenet"
_TIME_LIMIT = 300.0  # seconds
# How the worker reads a setting: request["steps"] or request.get("min_seconds").
_READ_SETTING = re.compile(rb'request(?:\[|\.get\()"(\w+)"')


def require_compatible_workers(requests: Sequence[Request], say: Callable[[str], None]) -> None:
    """Raise UsageError if this version cannot measure with the worker of a requested revision.

    - `say`: is called with a message for each revision whose worker does the short jobs
    """
    commits = list(dict.fromkeys(each.revision for each in requests if each.revision))
    for commit in commits:
        for field in sorted(_find_unknown_settings(commit)):
            default = Cell.model_fields[field].get_default()
            if any(getattr(each, field) != default for each in requests if each.revision == commit):
                raise UsageError(
                    f"the worker of revision {shorten(commit)} does not know "
                    f"{_format_option(field)}, which this run sets: name a newer revision, or do "
                    "not set it (--steps N replaces --min-time)"
                )
    for commit in commits:
        say(f"revision {shorten(commit)}: checking its worker")
        try:
            _do_short_jobs(commit)
        except (UnavailableError, jobs.CheckError, *worker_reply.WRONG) as error:
            reason = " ".join(str(error).split())[:300]
            raise UsageError(
                f"the worker of revision {shorten(commit)} does not fit this version of xfbench: "
                f"{reason}: name a newer revision, or run the xfbench of that revision"
            ) from error


def _find_unknown_settings(revision: str) -> set[str]:
    """Return the fields of a request that today's worker reads and the revision's never names."""
    today_code, code = (
        b"\n".join(worker_archive.read_worker_files(of).values()) for of in (None, revision)
    )
    fields = {name.decode() for name in _READ_SETTING.findall(today_code)} & {*Cell.model_fields}
    return {field for field in fields if f'"{field}"'.encode() not in code}


def _format_option(field: str) -> str:
    """Return the option of `xfbench run` for a field of a cell, or the field if it has none."""
    options = [each.option for each in settings.SETTINGS if each.cell_field == field]
    return options[0] if options else field


def _do_short_jobs(revision: str) -> None:
    """Train a network and verify a case, with the reference adapter and worker of the revision.

    Raises UnavailableError, CheckError or one of `worker_reply.WRONG` if this fails.
    """
    framework_adapter = adapter.load("reference", revision)
    framework_environment = environment.ensure_environment(framework_adapter)
    workload = workloads()[_WORKLOAD]
    request = reference.build_reference_request(_WORKLOAD, 2, threads=1).model_copy(
        update={"revision": revision}
    )
    with tempfile.TemporaryDirectory(prefix="xfbench-") as scratch:
        answer: dict[str, Any] = job.run_job(
            job.build_job_document("train", request, workload),
            request,
            framework_adapter,
            framework_environment,
            Path(scratch),
            _TIME_LIMIT,
        )
    if answer["status"] != "ok":
        raise jobs.CheckError(f"{answer['status']}: {answer['reason']}")
    record_builder.read_measured_fields(request, answer, framework_adapter, None)
    jobs.run_cases(
        [cases.block_cases(workload, 0)[0].document(request.precision)],
        request,
        workload,
        framework_adapter,
        framework_environment,
        time_limit=_TIME_LIMIT,
    )
