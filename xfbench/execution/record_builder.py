"""Builds the record of a launch from its reply and checks that its figures are possible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xfbench import statistics
from xfbench.base import digests, revisions
from xfbench.base.version import __version__
from xfbench.environments import worker_archive
from xfbench.environments.environment import Environment
from xfbench.execution import canary, probing, rank_communication, validity
from xfbench.host import conditions, roofline
from xfbench.model import gpus, worker_reply
from xfbench.model.adapter import Adapter
from xfbench.model.record import (
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
from xfbench.model.request import Request


def build_record(
    request: Request,
    answer: dict[str, Any],
    framework_adapter: Adapter,
    framework_environment: Environment,
    known_fields: dict[str, Any],
    noise_invalidates: bool = False,
    data_folder: Path | None = None,
) -> Record:
    """Build the record of a launch from its reply `answer`.

    - `answer`: the launch's reply, merged from the ranks' replies.
    - `known_fields`: the record's fields that do not come from the reply: workload, machine, limit
      of a CPU, storage, conditions (None if they were not read), certificate.
    - `noise_invalidates`: whether a noisy launch gets the status "invalid". A launch with
      impossible figures gets this status in any case.
    - `data_folder`: the folder of the prepared data set; None without one.
    """
    fields = {
        **known_fields,
        "request": request,
        "software": _build_software(framework_adapter, framework_environment),
    }
    fields["cell"] = digests.of_json(
        {
            "request": request.cell_digest_fields(),
            "workload": known_fields["workload"].digest,
            "adapter": framework_adapter.digest,
            "environment": framework_environment.digest,
        }
    )
    status, reason = answer["status"], answer.get("reason")
    if status != "ok":
        return Record.make(status=status, reason=reason or "no reason given", **fields)
    try:
        if request.probe == "native":
            return Record.make(
                status="ok", support=probing.build_probe_support(request, answer), **fields
            )
        fields |= read_measured_fields(
            request, answer, framework_adapter, known_fields.get("storage")
        )
        kinds = [str(kind) for kind in answer.get("kinds") or ()]
    except worker_reply.WRONG as error:  # includes pydantic's ValidationError
        reason = f"the reply is invalid: {' '.join(str(error).split())[:300]}"
        return Record.make(status="crashed", reason=reason, **fields)
    measurement, observed, loss = fields["measurement"], fields["observed"], fields["canary"].loss
    del fields["canary"]  # incomplete
    expected_loss = canary.compute_expected_loss_before_training(
        request.workload,
        request.data,
        request.batch_size_per_rank,
        request.seed,
        request.precision,
        (request.data_set, data_folder) if request.data_set and data_folder else None,
    )
    if expected_loss:
        relative_error = None if loss is None else expected_loss.relative_error(loss)
        fields["canary"] = Canary(
            loss=loss, expected=expected_loss.loss, relative_error=relative_error
        )
    launch_conditions = fields["conditions"]
    speed = statistics.throughput(request, measurement)
    if request.device != "cpu":
        fields["limit"] = roofline.find_or_measure_limit(request, observed.gpus)
    share_of_peak = roofline.compute_min_peak_share(
        fields.get("limit"), fields["workload"], speed, request, observed.gpus
    )
    if share_of_peak is not None and share_of_peak > 1 and request.device == "cpu":
        roofline.measure_again_and_keep_best_peaks(request.threads)
        fields["limit"] = roofline.find_or_measure_limit(request)
        share_of_peak = roofline.compute_min_peak_share(
            fields["limit"], fields["workload"], speed, request
        )
    reason = validity.measurement_defect(
        request, measurement, observed, loss, expected_loss, share_of_peak
    )
    reason = reason or validity.mixed_nodes_defect(kinds)
    reason = reason or validity.checkpoint_defect(request, fields.get("checkpoints"))
    reason = reason or validity.cache_state_error(fields.get("storage"))
    reason = reason or validity.reader_mismatch(fields.get("storage"))
    reason = reason or gpus.invalid_reason(observed.gpus, measurement.wall_seconds)
    if launch_conditions and not reason:
        reason = conditions.throttle_swap_or_gpu_sharing_defect(
            launch_conditions, request.device, ranks_report_gpu_sharing=bool(observed.gpus)
        )
    record = Record.make(status="invalid" if reason else "ok", reason=reason, **fields)
    noise = conditions.list_record_disturbances(record) if noise_invalidates and not reason else []
    if not noise:
        return record
    return Record.make(status="invalid", reason=f"noisy: {'; '.join(noise)}", **fields)


def read_measured_fields(
    request: Request,
    answer: dict[str, Any],
    framework_adapter: Adapter,
    known_storage: Storage | None,
) -> dict[str, Any]:
    """Return the record's fields that come from the reply of a training.

    - `known_storage`: the storage of the data set without the reply's fields; None without one.

    Raises one of `worker_reply.WRONG` if the reply is invalid.
    """
    fields: dict[str, Any] = {
        "measurement": Measurement.model_validate(answer["measurement"]),
        "observed": Observed.model_validate(answer["observed"]),
        "learning": [Epoch.model_validate(epoch) for epoch in answer["learning"] or ()] or None,
        "canary": Canary.model_validate(answer["canary"]),
    }
    if answer.get("checkpoints"):
        checkpoint_fields = {**answer["checkpoints"], "format": framework_adapter.checkpoint}
        fields["checkpoints"] = Checkpoints.model_validate(checkpoint_fields)
    if answer.get("communication"):
        fields["communication"] = _build_communication(
            framework_adapter, request, answer["communication"]
        )
    if known_storage:
        fields["storage"] = Storage(
            medium=known_storage.medium, reads=known_storage.reads, **answer["storage"]
        )
    if request.probe:
        fields["support"] = probing.build_probe_support(request, answer)
    return fields


def _build_communication(
    framework_adapter: Adapter, request: Request, reported_fields: dict[str, Any]
) -> Communication:
    strategy = framework_adapter.find_or_build_strategy(request.strategy)
    has_server = strategy.algorithm == "server"
    bytes_per_step = rank_communication.min_bytes_of_all_ranks(
        reported_fields["payload_bytes"], request.ranks, server=has_server
    )
    return Communication(
        strategy=request.strategy,
        bytes_per_step=bytes_per_step,
        strategy_options=strategy.options_with_defaults(
            dict(request.strategy_options), request.device
        ),
        **reported_fields,
    )


def _build_software(framework_adapter: Adapter, framework_environment: Environment) -> Software:
    revision = framework_adapter.revision
    commit, dirty = (revision, False) if revision else revisions.find_revision()
    return Software(
        xfbench_version=__version__,
        git_commit=commit,
        git_dirty=dirty,
        worker_digest=worker_archive.worker_digest(framework_adapter.name, revision),
        adapter_digest=framework_adapter.digest,
        environment_digest=framework_environment.digest,
        packages=framework_environment.packages,
    )
