"""Does the launches of an experiment, one after another, and keeps a record of each.

Launches of different cells are interleaved in a seeded random order, so that the
machine's drift falls on all alike. A cell that cannot be run costs one record and no
time; whatever a worker does, the next launch starts on a machine without its remains.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from xfbench import (
    __version__,
    adapter,
    command,
    digest,
    environment,
    facts,
    machine,
    revision,
    validity,
    worker_archive,
)
from xfbench.environment import Environment
from xfbench.errors import UnavailableError
from xfbench.launchers import local
from xfbench.record import (
    Canary,
    Epoch,
    Measurement,
    Observed,
    Record,
    Software,
)
from xfbench.request import Cell, Request
from xfbench.store import Store
from xfbench.workloads import Workload, workloads

DEFAULT_TIME_LIMIT = 1800.0


@dataclass
class Session:
    """What the launches of one `run` share: where results go, and the environments found so far.

    `unavailable` says per framework why it cannot be had; `time_limit` is in seconds.
    """

    store: Store
    environments: dict[str, Environment] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    time_limit: float = DEFAULT_TIME_LIMIT

    def prepare(
        self, frameworks: Iterable[str], pythons: Mapping[str, Path], say: environment.Say
    ) -> None:
        """Have an environment for each framework, or the reason why not."""
        for name in dict.fromkeys(frameworks):
            try:
                self.environments[name] = environment.ensure(
                    adapter.load(name), pythons.get(name), say
                )
            except UnavailableError as error:
                self.unavailable[name] = str(error)
                say(f"{name}: unavailable: {error}")


def plan(cells: Iterable[tuple[Cell, int]], seed: int = 0) -> list[Request]:
    """Every launch of every (cell, launches): blocks of one launch each, each block shuffled."""
    wanted = list(cells)
    order = random.Random(seed)
    requests: list[Request] = []
    for launch in range(1, max((count for _, count in wanted), default=0) + 1):
        block = [cell.request(launch) for cell, count in wanted if launch <= count]
        order.shuffle(block)
        requests += block
    return requests


def run(requests: Iterable[Request], session: Session) -> Iterator[Record]:
    """Launch each request and yield its record, stored; an impossible cell is not tried again."""
    session.store.prepare()
    impossible: set[str] = set()
    for request in requests:
        cell = digest.of_json(request.cell_fields())
        if cell in impossible:
            continue
        record, folder = _launch(request, session)
        session.store.add(record, folder)
        if record.status in ("unsupported", "unavailable"):
            impossible.add(cell)
        yield record


def remaining(requests: Iterable[Request], store: Store) -> list[Request]:
    """The requests that have no record with an outcome yet; what failed is tried again."""
    done = {
        record.request
        for record in store.records()
        if record.source == "measured" and record.status in ("ok", "invalid")
    }
    return [request for request in requests if request not in done]


def refusal(request: Request) -> str | None:
    """Why the framework cannot do this, by what its adapter says of itself; None where it may."""
    described = adapter.load(request.framework)
    for kind, wanted, offered in (
        ("device", request.device, described.devices),
        ("precision", request.precision, described.precisions),
        ("kernel", request.kernel, tuple(described.kernels)),
        ("strategy", request.strategy, described.strategies),
    ):
        if wanted not in offered:
            return f"{described.title} has no {kind} {wanted}: it has {', '.join(offered)}"
    precisions = described.kernels[request.kernel].precisions
    if precisions and request.precision not in precisions:
        return f"kernel {request.kernel} of {described.title} has no {request.precision}"
    for exclusion in described.unsupported:
        fields = exclusion.model_dump(exclude={"reason"})
        if all(getattr(request, name) == value for name, value in fields.items() if value):
            return exclusion.reason
    if request.device == "cuda" and not machine.accelerators():
        return "no NVIDIA device was found here"
    return None


def job_document(action: str, request: Request, workload: Workload, **more: Any) -> dict[str, Any]:
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


def _launch(request: Request, session: Session) -> tuple[Record, Path | None]:
    described = adapter.load(request.framework)
    workload = workloads()[request.workload]
    known = facts.facts(workload)
    fields: dict[str, Any] = {"request": request, "workload": known, "machine": machine.describe()}
    reason = refusal(request)
    if reason:
        return Record.make(status="unsupported", reason=reason, **fields), None
    if request.framework in session.unavailable:
        reason = session.unavailable[request.framework]
        return Record.make(status="unavailable", reason=reason, **fields), None
    found = session.environments[request.framework]
    folder = session.store.new_run()
    before = machine.read()
    reply = work(
        job_document("train", request, workload),
        request,
        described,
        found,
        folder,
        session.time_limit,
    )
    fields |= {
        "conditions": machine.conditions(before, machine.read()),
        "software": _software(described, found),
    }
    fields["cell"] = digest.of_json(
        {
            "request": request.cell_fields(),
            "workload": known.digest,
            "adapter": described.digest,
            "environment": found.digest,
        }
    )
    return _record(request, reply, fields), folder


def _record(request: Request, reply: dict[str, Any], fields: dict[str, Any]) -> Record:
    status, reason = reply["status"], reply.get("reason")
    if status != "ok":
        return Record.make(status=status, reason=reason or "no reason given", **fields)
    try:
        measurement = Measurement.model_validate(reply["measurement"])
        observed = Observed.model_validate(reply["observed"])
        fields |= {
            "measurement": measurement,
            "observed": observed,
            "canary": Canary.model_validate(reply["canary"]),
            "learning": [Epoch.model_validate(epoch) for epoch in reply["learning"] or ()] or None,
        }
    except (ValidationError, KeyError, TypeError) as error:
        reason = f"the reply is not one: {' '.join(str(error).split())[:300]}"
        return Record.make(status="crashed", reason=reason, **fields)
    reason = validity.defect(request, measurement, observed)
    return Record.make(status="invalid" if reason else "ok", reason=reason, **fields)


def _software(described: adapter.Adapter, found: Environment) -> Software:
    commit, dirty = revision.of_this_code()
    return Software(
        xfbench_version=__version__,
        git_commit=commit,
        git_dirty=dirty,
        worker_digest=worker_archive.worker_digest(described.name),
        adapter_digest=described.digest,
        environment_digest=found.digest,
        packages=found.packages,
    )


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
