"""Does one job in a framework's interpreter: a folder goes in, a reply comes out.

A job says all that the worker needs; whatever becomes of it is a status and a reason, and
the folder keeps the command, so that it can be done again by hand.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from xfbench import adapter, command, digest, ranks, worker_archive
from xfbench.environment import Environment
from xfbench.launchers import local
from xfbench.request import Request
from xfbench.worker.distributed import of_rank
from xfbench.workloads import Workload

_REPLY = "reply.json"


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
    base, helpers = _together(base, described, request)
    started = local.commands(base, request)
    _keep_command([*helpers, *started], folder)
    processes = range(request.ranks + len(helpers))
    try:
        outcome = command.run(
            started,
            beside=helpers,
            stdout=[of_rank(folder / "stdout", number) for number in processes],
            stderr=[of_rank(folder / "stderr", number) for number in processes],
            time_limit=time_limit,
        )
    except command.CommandError as error:
        return {"status": "unavailable", "reason": str(error)}
    if outcome.timed_out:
        limit = f"no reply within the time limit of {time_limit:g} s"
        return {"status": "timed_out", "reason": f"{limit}: raise it with --time-limit"}
    if outcome.status and outcome.rank >= request.ranks:
        words = f"a helper of strategy {request.strategy}: {outcome}"
        return {"status": "crashed", "reason": f"{words}{_last_words(folder, outcome.rank)}"}
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


def _together(
    base: command.Command, described: adapter.Adapter, request: Request
) -> tuple[command.Command, list[command.Command]]:
    """The command with what the strategy sets in every rank, and the processes beside them."""
    strategy = described.together.get(request.strategy)
    if strategy is None:
        return base, []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])

    def filled(variables: Mapping[str, str]) -> dict[str, str]:
        return {
            key: value.replace("{ranks}", str(request.ranks)).replace("{port}", port)
            for key, value in variables.items()
        }

    base = base.with_environment(filled(strategy.variables))
    importing = replace(base, argv=(base.argv[0], "-c", f"import {described.module}"))
    return base, [importing.with_environment(filled(helper)) for helper in strategy.helpers]


def _answer(folder: Path, rank: int, wanted: str, outcome: command.Outcome) -> dict[str, Any]:
    """One rank's reply to the job with the digest `wanted`, or what stands for it."""
    reply, words = of_rank(folder / "reply.json", rank), _last_words(folder, rank)
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
    lines = [one.as_shell() for one in started]
    lines = [f"{ln[: -len(_REPLY)]}reply-again.json" if ln.endswith(_REPLY) else ln for ln in lines]
    last = f"exec {lines[0]}"
    if len(lines) > 1:
        last = " &\n".join(["rm -f meeting meeting.*", *lines, "wait"]).replace(" &", "", 1)
    again.write_text(
        "#!/bin/sh\n# Runs this launch again; the reply goes to reply-again.json.\n"
        f'cd "$(dirname "$0")" || exit\n{last}\n'
    )
    again.chmod(0o755)


def _last_words(folder: Path, rank: int) -> str:
    written = (of_rank(folder / "stderr", rank)).read_bytes()
    lines = written[-2000:].decode(errors="replace").split("\n")
    words = [line.strip() for line in lines if line.strip()]
    return f": {words[-1][:200]}" if words else ""
