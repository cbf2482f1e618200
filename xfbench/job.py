"""Does one job in a framework's interpreter: a folder goes in, a reply comes out.

A job says all that the worker needs; whatever becomes of it is a status and a reason, and
the folder keeps the command, so that it can be done again by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xfbench import adapter, command, digest, worker_archive
from xfbench.environment import Environment
from xfbench.launchers import local
from xfbench.request import Request
from xfbench.workloads import Workload


def document(action: str, request: Request, workload: Workload, **more: Any) -> dict[str, Any]:
    """What a worker is told: one JSON object that leaves nothing open."""
    return {
        "schema": "xfbench.job/1",
        "action": action,
        "request": request.model_dump(mode="json"),
        "workload": workload.to_json(),
        **more,
    }


def work(
    job: dict[str, Any],
    request: Request,
    described: adapter.Adapter,
    found: Environment,
    folder: Path,
    time_limit: float,
) -> dict[str, Any]:
    """Do one job in `folder` and return the reply, or what stands for it: a status and a reason.

    Leaves request.json, command.json, command.sh, worker.pyz, stdout, stderr and, if the
    worker came so far, reply.json.
    """
    content = json.dumps(job, indent=1).encode()
    (folder / "request.json").write_bytes(content)
    _link(worker_archive.worker_archive(request.framework), folder / "worker.pyz")
    base = command.Command(
        (str(found.interpreter), "worker.pyz", "request.json", "reply.json"),
        found.variables(described, request.kernel, request.threads),
        folder,
    )
    [started] = local.commands(base, request)
    _keep_command(started, folder)
    try:
        outcome = command.run(
            started, stdout=folder / "stdout", stderr=folder / "stderr", time_limit=time_limit
        )
    except command.CommandError as error:
        return {"status": "unavailable", "reason": str(error)}
    reply = folder / "reply.json"
    if outcome.timed_out:
        limit = f"no reply within the time limit of {time_limit:g} s"
        return {"status": "timed_out", "reason": f"{limit}: raise it with --time-limit"}
    if not reply.is_file():
        return {"status": "crashed", "reason": f"no reply: {outcome}{_last_words(folder)}"}
    try:
        answer = json.loads(reply.read_bytes())
        if answer["job"] != digest.of_bytes(content):
            return {"status": "crashed", "reason": "the reply answers another request"}
        if answer["status"] not in ("ok", "failed", "unsupported", "unavailable"):
            raise KeyError("status")
    except (ValueError, KeyError, TypeError) as error:
        return {"status": "crashed", "reason": f"the reply is not whole ({error}): {outcome}"}
    if outcome.status != 0 and answer["status"] == "ok":
        return {"status": "crashed", "reason": f"after its reply {outcome}{_last_words(folder)}"}
    return answer  # type: ignore[no-any-return]


def _link(archive: Path, target: Path) -> None:
    try:
        target.hardlink_to(archive)
    except OSError:  # another file system
        target.write_bytes(archive.read_bytes())


def _keep_command(started: command.Command, folder: Path) -> None:
    (folder / "command.json").write_text(
        json.dumps({"argv": started.argv, "environment": dict(started.environment)}, indent=1)
    )
    again = folder / "command.sh"
    line = started.as_shell().removesuffix("reply.json")
    again.write_text(
        "#!/bin/sh\n# Runs this launch again; the reply goes to reply-again.json.\n"
        f'cd "$(dirname "$0")" && exec {line}reply-again.json\n'
    )
    again.chmod(0o755)


def _last_words(folder: Path) -> str:
    lines = (folder / "stderr").read_bytes()[-2000:].decode(errors="replace").split("\n")
    words = [line.strip() for line in lines if line.strip()]
    return f": {words[-1][:200]}" if words else ""
