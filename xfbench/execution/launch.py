"""Runs one launch, from a request to its record.

A cell that cannot run gets a record without a launch. When a launch ends, all its processes end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xfbench.environments.environment import Environment
from xfbench.execution import job, record_builder
from xfbench.host import conditions, machine, media, roofline, sites
from xfbench.model import adapter, capabilities, facts, training, worker_reply
from xfbench.model.certificate import (
    CertifiedFields,
    batch_certified_fields,
    certified_fields,
)
from xfbench.model.plan import DEFAULT_TIME_LIMIT
from xfbench.model.record import Reads, Record, Status, Storage
from xfbench.model.request import Protocol, Request
from xfbench.store.results_folder import Store
from xfbench.worker import observe


@dataclass
class LaunchContext:
    """The state that the launches of a session share: the store, environments and certificates.

    - `environments`: the environments, by `Cell.environment_key`.
    - `certificates`: the id of the certificate that covers each combination of `certified_fields`.
    - `batch_certificates`: the id of the certificate for the timed batch of each combination of
      `batch_certified_fields`.
    - `wrong_batches`: for each timed batch whose gradients are wrong, how they differ. The keys are
      those of `batch_certificates`.
    - `unproven_batches`: for each timed batch that could not be verified, the reason. The keys are
      those of `batch_certificates`.
    - `unavailable`: the reason for each unavailable environment, by `Cell.environment_key`.
    - `allocators`: the memory allocators that are ready.
    - `unallocated`: the reason for each unavailable memory allocator.
    - `time_limit`: time limit of one launch in seconds.
    - `strict`: whether a noisy launch is invalid.
    - `data_folders`: the folder of each prepared data set. The keys are
      `PreparedSet.folder_lookup_key`.
    - `checkpoint_dir`: parent folder of temporary checkpoints; None: the run folder.
    - `plain_reads`: the read speed of each prepared data set, measured without a framework. The
      keys are those of `data_folders`.
    """

    store: Store
    environments: dict[str, Environment] = field(default_factory=dict)
    certificates: dict[CertifiedFields, str] = field(default_factory=dict)
    batch_certificates: dict[CertifiedFields, str] = field(default_factory=dict)
    wrong_batches: dict[CertifiedFields, str] = field(default_factory=dict)
    unproven_batches: dict[CertifiedFields, str] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    allocators: set[str] = field(default_factory=set)
    unallocated: dict[str, str] = field(default_factory=dict)
    time_limit: float = DEFAULT_TIME_LIMIT
    strict: bool = False
    data_folders: dict[str, Path] = field(default_factory=dict)
    checkpoint_dir: Path | None = None
    plain_reads: dict[str, tuple[Reads, ...]] = field(default_factory=dict)

    def data_set_folder(self, request: Request) -> Path | None:
        """Return the folder of the request's prepared data set.

        Returns None if the request has no prepared data set, or if its folder is unknown.
        """
        return (
            self.data_folders.get(request.data_set.folder_lookup_key) if request.data_set else None
        )

    def describe_and_measure_data_storage(self, request: Request) -> Storage | None:
        """Return the storage of the request's prepared data set; None without one.

        If the request has `--page-cache`, the result includes the data set's read speed without a
        framework. This speed is measured once per data set.
        """
        folder = self.data_set_folder(request)
        if folder is None or request.data_set is None:
            return None
        place = request.data_set.folder_lookup_key
        if request.page_cache and place not in self.plain_reads:
            try:
                self.plain_reads[place] = media.evict_and_measure_reads_by_pattern(folder)
            except media.UnreadableError:  # too little data to measure
                self.plain_reads[place] = ()
        return Storage(medium=media.describe_medium(folder), reads=self.plain_reads.get(place, ()))

    def certificate_fields(self, request: Request) -> dict[str, str | None]:
        """Return the fields of the request's record that say how its network was verified."""
        batch_key = batch_certified_fields(request)
        batch_certificate = self.batch_certificates.get(batch_key)
        return {
            "certificate": self.certificates.get(certified_fields(request)),
            "batch_certificate": batch_certificate,
            "batch_unproven_reason": None
            if batch_certificate
            else self.unproven_batches.get(batch_key),
        }


def launch_obstacle(request: Request) -> tuple[Status, str] | None:
    """Return the status and the reason if the request cannot be launched, else None.

    With Slurm, the worker checks the devices, because nodes may have devices that this host lacks.
    """
    if reason := capabilities.refusal_reason(request):
        return "unsupported", reason
    if request.device != "cuda":
        return None
    gpus_here = machine.count_visible_gpus() if request.launcher != "slurm" else None
    if gpus_here == 0:
        words = ("no NVIDIA device was found here", *machine.list_accelerator_messages()[:1])
        return "unavailable", ": ".join(words)
    site, per_node = sites.load_site(request.site), request.ranks // request.nodes
    gpus = gpus_here if request.launcher == "local" else site.gpus
    if gpus and gpus < per_node and not site.share_gpus:
        return "unavailable", (
            f"{per_node} ranks on a node need {per_node} GPUs, but it has {gpus}: start fewer "
            "ranks, or set share_gpus in the site file"
        )
    return None


def run_launch(
    request: Request, context: LaunchContext, protocol_to_store: Protocol | None
) -> tuple[Record, Path | None, str]:
    """Start the ranks of a request, wait for them, and return the record and the run folder.

    The third value has the names of other programs that ran during the launch; "" if there were
    none. They are for the screen only: the record counts the programs.

    If a check before the start fails, no rank is started. The record then says why, and the run
    folder is None. For example, the framework may be unavailable. `protocol_to_store` is stored in
    the record.
    """
    framework_adapter = adapter.load(request.framework, request.revision)
    workload = training.workload_with_solver_of_cell(request)
    fields: dict[str, Any] = {"request": request, "protocol": protocol_to_store}
    fields["workload"] = facts.workload_facts(workload)
    fields["machine"] = machine.describe_machine()
    if status_and_reason := launch_obstacle(request):
        status, reason = status_and_reason
        return Record.make(status=status, reason=reason, **fields), None, ""
    reason = context.unavailable.get(request.environment_key, "")
    reason = reason or context.unallocated.get(request.allocator or "", "")
    if reason:
        return Record.make(status="unavailable", reason=reason, **fields), None, ""
    framework_environment = context.environments[request.environment_key]
    # Measure before reading the conditions, so that the measurement does not count as other work.
    if not request.probe and request.device == "cpu":
        fields["limit"] = roofline.find_or_measure_limit(request)
    data_folder = context.data_set_folder(request)
    if request.data_set and data_folder is None:
        reason = f"data set {request.data} does not exist: create it with `xfbench data prepare`"
        return Record.make(status="unavailable", reason=reason, **fields), None, ""
    fields["storage"] = context.describe_and_measure_data_storage(request)
    folder = context.store.create_run_folder()
    conditions_before = conditions.read_conditions()
    answer = job.run_job(
        job.build_job_document(
            "train",
            request,
            workload,
            data_folder=data_folder and str(data_folder),
            **job.build_checkpoint_fields(request, context.checkpoint_dir),
        ),
        request,
        framework_adapter,
        framework_environment,
        folder,
        context.time_limit,
    )
    fields["conditions"] = conditions.conditions_between(
        conditions_before,
        conditions.read_conditions(),
        _slurm_cpu_seconds_on_this_kernel(answer, request),
    )
    fields |= context.certificate_fields(request)
    record = record_builder.build_record(
        request,
        answer,
        framework_adapter,
        framework_environment,
        fields,
        context.strict,
        data_folder,
    )
    programs = conditions.name_other_programs(fields["conditions"], _list_programs_on_gpus(answer))
    return record, folder, programs


def _list_programs_on_gpus(answer: Mapping[str, Any]) -> list[str]:
    """Return the names of other programs that the ranks found on their GPUs."""
    try:
        gpus = answer["observed"].get("gpus", ())
        return [str(name) for gpu in gpus for name in gpu["others"] or ()]
    except worker_reply.WRONG:
        return []


def _slurm_cpu_seconds_on_this_kernel(answer: Mapping[str, Any], request: Request) -> float:
    """Return how many CPU seconds the ranks used on this kernel if Slurm started them, else 0.

    Nodes that are containers on one machine have one kernel, which counts the work of all of them.
    """
    if request.launcher != "slurm":
        return 0.0
    try:
        return float(answer.get("used_on_kernel", {}).get(observe.boot_id(), 0.0))
    except worker_reply.WRONG:
        return 0.0
