"""Makes the record of a launch from what its ranks replied, and judges whether it can be so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xfbench.adapter import Adapter
from xfbench.analysis import statistics
from xfbench.base import digests
from xfbench.base.version import __version__
from xfbench.environments.environment import Environment
from xfbench.host import conditions, roofline
from xfbench.records import gpus
from xfbench.records.record import (
    Canary,
    Checkpoints,
    Communication,
    Epoch,
    Measurement,
    Observed,
    Record,
    Software,
    Storage,
)
from xfbench.request import Request
from xfbench.running import (
    canary,
    probing,
    rank_communication,
    reply,
    revision,
    validity,
    worker_archive,
)


def record(
    request: Request,
    answer: dict[str, Any],
    described: Adapter,
    found: Environment,
    known: dict[str, Any],
    strict: bool = False,
    data_folder: Path | None = None,
) -> Record:
    """The record of a launch that replied so, by this adapter in the environment `found`.

    `known` are the record's fields that do not come from the reply: workload, machine, limit,
    storage, conditions (None where nobody looked), certificate. A prepared data set is in
    `data_folder`. What cannot be is `invalid`; if `strict`, what other work disturbed is too.
    """
    fields = {**known, "request": request, "software": _software(described, found)}
    fields["cell"] = digests.of_json(
        {
            "request": request.cell_fields(),
            "workload": known["workload"].digest,
            "adapter": described.digest,
            "environment": found.digest,
        }
    )
    status, reason = answer["status"], answer.get("reason")
    if status != "ok":
        return Record.make(status=status, reason=reason or "no reason given", **fields)
    try:
        if request.probe == "native":
            return Record.make(status="ok", support=probing.supported(request, answer), **fields)
        measurement = Measurement.model_validate(answer["measurement"])
        observed = Observed.model_validate(answer["observed"])
        fields |= {
            "measurement": measurement,
            "observed": observed,
            "learning": [Epoch.model_validate(epoch) for epoch in answer["learning"] or ()] or None,
        }
        if answer.get("checkpoints"):
            told = {**answer["checkpoints"], "format": described.checkpoint}
            fields["checkpoints"] = Checkpoints.model_validate(told)
        if answer.get("communication"):
            fields["communication"] = _communication(described, request, answer["communication"])
        if storage := known.get("storage"):
            fields["storage"] = Storage(
                medium=storage.medium, reads=storage.reads, **answer["storage"]
            )
        if request.probe:
            fields["support"] = probing.supported(request, answer)
        loss = Canary.model_validate(answer["canary"]).loss
        kinds = [str(kind) for kind in answer.get("kinds") or ()]
    except reply.WRONG as error:  # among them pydantic's ValidationError
        reason = f"the reply is not one: {' '.join(str(error).split())[:300]}"
        return Record.make(status="crashed", reason=reason, **fields)
    wanted = canary.expected(
        request.workload,
        request.data,
        request.batch_size_per_rank,
        request.seed,
        request.precision,
        (request.data_set, data_folder) if request.data_set and data_folder else None,
    )
    if wanted:
        far = None if loss is None else wanted.relative_error(loss)
        fields["canary"] = Canary(loss=loss, expected=wanted.loss, relative_error=far)
    seen = fields["conditions"]
    speed = statistics.throughput(request, measurement)
    share = roofline.peak_share(fields.get("limit"), fields["workload"], speed, request.ranks)
    if share is not None and share > 1 and request.device == "cpu":
        roofline.measure_again(request.threads)
        fields["limit"] = roofline.find_limit(request, ())
        share = roofline.peak_share(fields["limit"], fields["workload"], speed, request.ranks)
    reason = validity.defect(request, measurement, observed, loss, wanted, share)
    reason = reason or validity.mixed(kinds)
    reason = reason or validity.unsaved(request, fields.get("checkpoints"))
    reason = reason or validity.unheld(fields.get("storage"))
    reason = reason or validity.unlike(fields.get("storage"))
    reason = reason or gpus.invalid_reason(observed.gpus, measurement.wall_seconds)
    if seen and not reason:
        reason = conditions.launch_defect(
            seen, request.device, has_rank_reports=bool(observed.gpus)
        )
    made = Record.make(status="invalid" if reason else "ok", reason=reason, **fields)
    noise = conditions.record_disturbances(made) if strict and not reason else []
    if not noise:
        return made
    return Record.make(status="invalid", reason=f"disturbed: {'; '.join(noise)}", **fields)


def _communication(described: Adapter, request: Request, told: dict[str, Any]) -> Communication:
    together = described.strategy(request.strategy)
    server = together.algorithm == "server"
    asked = rank_communication.asked_bytes(told["payload_bytes"], request.ranks, server=server)
    return Communication(
        strategy=request.strategy,
        bytes_per_step=asked,
        strategy_options=together.resolve_options(dict(request.strategy_options), request.device),
        **told,
    )


def _software(described: Adapter, found: Environment) -> Software:
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
