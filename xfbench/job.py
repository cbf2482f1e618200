"""Does one job in a framework's interpreter: a folder goes in, a reply comes out.

A job says all that the worker needs; whatever becomes of it is a status and a reason, and
the folder keeps the command, so that it can be done again by hand.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xfbench import adapter, command, digest, ranks, worker_archive
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
    worker came so far, reply.json; of every rank but the first, stdout.1, stderr.1, reply.1.json
    and so on.
    """
    content = json.dumps(job, indent=1).encode()
    (folder / "request.json").write_bytes(content)
    _link(worker_archive.worker_archive(request.framework), folder / "worker.pyz")
    base = command.Command(
        (str(found.interpreter), "worker.pyz", "request.json", "reply.json"),
        found.variables(described, request.kernel, request.threads),
        folder,
    )
    started = local.commands(base, request)
    _keep_command(started, folder)
    try:
        outcome = command.run(
            started,
            stdout=[folder / file_of_rank("stdout", rank) for rank in range(request.ranks)],
            stderr=[folder / file_of_rank("stderr", rank) for rank in range(request.ranks)],
            time_limit=time_limit,
        )
    except command.CommandError as error:
        return {"status": "unavailable", "reason": str(error)}
    if outcome.timed_out:
        limit = f"no reply within the time limit of {time_limit:g} s"
        return {"status": "timed_out", "reason": f"{limit}: raise it with --time-limit"}
    # The rank that failed first knows why; the others were ended for its sake.
    order = sorted(range(request.ranks), key=lambda rank: rank != outcome.rank)
    answers = {}
    for rank in order:
        answer = _answer(folder, rank, digest.of_bytes(content), outcome)
        if answer["status"] != "ok":
            named = f"rank {rank} of {request.ranks}: " if request.ranks > 1 else ""
            return {**answer, "reason": f"{named}{answer.get('reason') or 'no reason given'}"}
        answers[rank] = answer
    try:
        return ranks.merged([answers[rank] for rank in range(request.ranks)])
    except (ValueError, KeyError, TypeError) as error:
        return {"status": "crashed", "reason": f"the ranks' replies do not fit together: {error}"}


def file_of_rank(name: str, rank: int) -> str:
    """What one of a launch's files is called for a rank: stdout, stdout.1; reply.1.json."""
    stem, dot, kind = name.partition(".")
    return f"{stem}.{rank}{dot}{kind}" if rank else name


def _answer(folder: Path, rank: int, wanted: str, outcome: command.Outcome) -> dict[str, Any]:
    """One rank's reply to the job with the digest `wanted`, or what stands for it."""
    reply, words = folder / file_of_rank("reply.json", rank), _last_words(folder, rank)
    if not reply.is_file():
        return {"status": "crashed", "reason": f"no reply: {outcome}{words}"}
    try:
        answer: dict[str, Any] = json.loads(reply.read_bytes())
        if answer["job"] != wanted:
            return {"status": "crashed", "reason": "the reply answers another request"}
        if answer["status"] not in ("ok", "failed", "unsupported", "unavailable"):
            raise KeyError("status")
    except (ValueError, KeyError, TypeError) as error:
        return {"status": "crashed", "reason": f"the reply is not whole ({error}): {outcome}"}
    if outcome.status != 0 and outcome.rank == rank and answer["status"] == "ok":
        return {"status": "crashed", "reason": f"after its reply {outcome}{words}"}
    return answer


def _link(archive: Path, target: Path) -> None:
    try:
        target.hardlink_to(archive)
    except OSError:  # another file system
        target.write_bytes(archive.read_bytes())


def _keep_command(started: Sequence[command.Command], folder: Path) -> None:
    documents = [{"argv": one.argv, "environment": dict(one.environment)} for one in started]
    kept = documents[0] if len(documents) == 1 else documents
    (folder / "command.json").write_text(json.dumps(kept, indent=1))
    again = folder / "command.sh"
    lines = [f"{one.as_shell().removesuffix('reply.json')}reply-again.json" for one in started]
    last = f"exec {lines[0]}" if len(lines) == 1 else " &\n".join([*lines, "wait"])
    again.write_text(
        "#!/bin/sh\n# Runs this launch again; the reply goes to reply-again.json.\n"
        f'cd "$(dirname "$0")" && rm -f meeting\n{last}\n'
    )
    again.chmod(0o755)


def _last_words(folder: Path, rank: int) -> str:
    written = (folder / file_of_rank("stderr", rank)).read_bytes()
    lines = written[-2000:].decode(errors="replace").split("\n")
    words = [line.strip() for line in lines if line.strip()]
    return f": {words[-1][:200]}" if words else ""
