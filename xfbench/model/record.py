"""The record of one launch: the schema `xfbench.record/1`.

A record is written once and never changed. Times are in seconds, sizes in bytes, rates in images
per second. Derived figures are not stored: they are computed when a record is read. Fields may be
added, but none is renamed.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from xfbench.model.external_record import Citation, Figure
from xfbench.model.features import Support
from xfbench.model.gpus import Gpu
from xfbench.model.request import Protocol, Request
from xfbench.model.sealed import DocumentPart, SealedDocument
from xfbench.model.strategy import Value

SCHEMA: Literal["xfbench.record/1"] = "xfbench.record/1"

Status = Literal["ok", "unsupported", "unavailable", "failed", "crashed", "timed_out", "invalid"]
Source = Literal["measured", "imported", "published"]
Digest = Field(pattern=r"^sha256:[0-9a-f]{64}$")


class WorkloadFacts(DocumentPart):
    """The network that was trained, with its size and its work per image."""

    name: str
    digest: str = Digest
    input_shape: tuple[int, int, int]
    classes: int
    parameters: int
    forward_macs_per_image: int
    train_macs_per_image: int


class OfRank(DocumentPart):
    """Observations of one of several ranks."""

    rank: int
    threads: int
    cpus: float | None
    affinity: tuple[int, ...]
    laid_out: tuple[int, ...] | None = None


class Observed(DocumentPart):
    """What actually ran, as observed in the worker and not as requested.

    `threads` is the number of threads that worked during the timed steps.
    `cpus` is the number of CPUs that the threads kept busy.
    `pools` are the framework's thread pools with their sizes.
    `affinity` are the CPUs that the threads may run on.
    `laid_out` are the CPUs that were assigned to the process; null: none were assigned.
    `precision` is the precision of the values between layers.
    `allocator` is the library file that allocated the memory.
    `exchange` is how the framework says that it combines the ranks' gradients.
    `loss_scale` is the factor of the loss in float16, at the end of the launch.
    `gpus` are the GPUs that the ranks computed on.
    """

    framework_version: str
    threads: int
    cpus: float | None = None
    pools: dict[str, int] = Field(default_factory=dict)
    affinity: tuple[int, ...]
    laid_out: tuple[int, ...] | None = None
    kernel: str
    kernel_evidence: tuple[str, ...]
    libraries: tuple[str, ...]
    allocator: str | None = None
    layout: str
    precision: str | None = None
    exchange: tuple[str, ...] = ()
    loss_scale: float | None = None
    profiler: str | None = None
    ranks: tuple[OfRank, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    handover_seconds: tuple[float, ...] = ()


class Canary(DocumentPart):
    """The test-mode loss of the first batch at the initial weights, and its expected value."""

    loss: float | None
    expected: float | None = None
    relative_error: float | None = None


class Measurement(DocumentPart):
    """Times, memory, energy and losses, as measured by the training loop.

    `startup_seconds` is the time from the start of the process until the framework was loaded.
    `window` is the number of steps between two synchronizations with a device that queues its
    steps; the clock and the loss are read only at these times.
    `step_seconds` has the mean duration of a step in each window; asynchronous: the harmonic mean
    over the ranks.
    The harmonic mean is used because the rates of asynchronous ranks add up.
    `rank_step_seconds` has the timed steps of each rank under an asynchronous strategy.
    `wall_seconds` is the duration of the training loop, with evaluations and checkpoints.
    `losses` has one value per window, untimed windows included; null: not finite.
    `peak_rss_bytes` is the sum of the peaks of all processes.
    `energy_joules` is what the training devices used during `wall_seconds`.
    """

    startup_seconds: float | None = None
    build_seconds: float
    first_step_seconds: float
    warmup_seconds: tuple[float, ...]
    step_seconds: tuple[float, ...]
    rank_step_seconds: tuple[tuple[float, ...], ...] = ()
    window: int = Field(default=1, ge=1)
    wall_seconds: float
    images: int
    peak_rss_bytes: int
    losses: tuple[float | None, ...]
    energy_joules: float | None = None
    phases: dict[str, float] = Field(default_factory=dict)


class Epoch(DocumentPart):
    """One pass over the training data: the seconds of its steps, and the evaluation after it."""

    epoch: int
    seconds: float
    train_loss: float | None
    test_loss: float | None
    test_accuracy: float | None


class Limit(DocumentPart):
    """The peak performance of a launch's cores, measured before the launch in the same session.

    `matrix_product` is in floating-point operations per second, with the launch's precision and
    number of threads.
    `memory_bandwidth` is in bytes per second, read and written.
    `source` is "measured", or the publication that states the peak.
    """

    threads: int
    precision: str
    matrix_product: float
    memory_bandwidth: float
    source: str


class Link(DocumentPart):
    """The traffic per step of one link of a node, from all processes, as the link counts it.

    `kind` is loopback, network, infiniband, nvlink (all links of a device) or pcie.
    `bits_per_second` is the capacity of the link in each direction; null: unknown.
    """

    node: int
    kind: str
    name: str
    sent_bytes: float
    received_bytes: float
    bits_per_second: float | None = None


class Communication(DocumentPart):
    """What the ranks exchanged, and how long it took.

    `bytes_per_step` is the minimum that the strategy must send per step, summed over all ranks.
    `payload_bytes` is the size of the gradients of each rank.
    `interface_bytes` is what each network interface sent per step, summed over processes and nodes;
    shared memory is not counted.
    `compute_seconds` is the duration of each step that a rank does alone after the timed steps, as
    the mean over the ranks.
    `waiting_seconds` is how much longer the slowest rank took for a step alone than the ranks'
    mean.
    `exposed_seconds` is how much longer each timed step took than the slowest rank's median step
    alone; noise may make it negative.
    Under an asynchronous strategy no rank waits. The harmonic mean over the ranks then replaces
    both their mean and the slowest rank.
    `strategy_options` has every option of the strategy, defaults included.
    `links` are the links of each node that have a counter.
    `uncounted` says for each kind of link without a counter why there is none.
    """

    strategy: str
    bytes_per_step: int
    exposed_seconds: tuple[float, ...]
    waiting_seconds: tuple[float, ...]
    compute_seconds: tuple[float, ...] = ()
    payload_bytes: int | None = None
    interface_bytes: dict[str, float] = Field(default_factory=dict)
    strategy_options: dict[str, Value] = Field(default_factory=dict)
    links: tuple[Link, ...] = ()
    uncounted: dict[str, str] = Field(default_factory=dict)


class Checkpoints(DocumentPart):
    """Checkpoints that were taken between steps. Each was saved, read back and compared.

    `format` is the framework's own format.
    `file_system` is the type of the file system.
    `bytes` is the size of one checkpoint.
    `save_seconds` is the time until all of a checkpoint was on the medium (fsync).
    `load_seconds` is the time until the trainer had read a checkpoint back, after its eviction from
    the page cache (if possible).
    `equal` is whether every parameter came back bit for bit.
    `differing` are the parameters that did not come back bit for bit.
    `wall_seconds` is the total time, with comparing and deleting; it is part of the measurement's
    wall time, but not of its step times.
    """

    format: str
    file_system: str
    bytes: int
    save_seconds: tuple[float, ...]
    load_seconds: tuple[float, ...]
    wall_seconds: float
    equal: bool
    differing: tuple[str, ...] = ()


class Medium(DocumentPart):
    """The medium of a data set. No field names a host, a user or a path.

    `device` is the kind of block device ("nvme", "virtio", "loop", …), or "memory", "network",
    "host" (of a virtual machine), "overlay", "unknown".
    `disks` are the kinds of the underlying disks.
    `options` are the mount options that cannot contain a name.
    `below` are the visible file systems that hold this one; of an overlay, the writable one is
    first.
    """

    file_system: str
    device: str
    disks: tuple[str, ...] = ()
    rotational: bool | None = None
    options: tuple[str, ...] = ()
    block_bytes: int
    total_bytes: int
    free_bytes: int
    below: tuple[Medium, ...] = ()


class ReadRound(DocumentPart):
    """One round of plain reads.

    `resident_bytes` is how much of the files was still in memory before the round; null: unknown.
    `device_bytes` is the number of bytes that storage delivered during the round; null: unknown.
    """

    seconds: float
    bytes: int
    operations: int
    resident_bytes: int | None
    device_bytes: int | None


class Reads(DocumentPart):
    """Plain reads in one pattern: one thread, one read at a time, files evicted from memory first.

    `reason` is why `resident_bytes` of a round is unknown.
    """

    pattern: Literal["sequential", "random"]
    block_bytes: int
    random: bool
    reason: str | None = None
    rounds: tuple[ReadRound, ...]


class EpochReading(DocumentPart):
    """The page cache before an epoch of one rank, and what storage delivered during the epoch.

    `bytes` is what the data set's files need from storage if nothing is in memory.
    `share` is the part of the files' bytes that the epoch requests: whole batches, and only the
    images of its rank.
    `resident_before` is how many bytes of the files were in memory before the epoch; null: unknown.
    `resident_of` is the size of the files in bytes.
    `device_bytes` is what the rank's processes read from storage; null: unknown.
    `device_bytes_of_all` is what the device delivered to all processes; null: unknown.
    `held` is whether the epoch had the requested state, within 2 % of the bytes; null: unknown, or
    no state was requested.
    A cold epoch must read its share of the bytes from storage, and a warm epoch nothing.
    `reason` is why the state did not hold or is unknown.
    """

    page_cache: Literal["cold", "warm", "as-is"]
    bytes: int
    share: float = 1.0
    resident_before: int | None
    resident_of: int
    device_bytes: int | None
    device_bytes_of_all: int | None = None
    held: bool | None
    reason: str | None = None


class ReaderCheck(DocumentPart):
    """Differences (in levels of 0 to 255) between images of the framework's and worker's reader.

    `compared` is the number of images compared.
    `differing` is the number of images in which any pixel differs.
    `largest_difference` is the largest difference of any pixel.
    `mean_difference` is the mean difference of a pixel in the image that differs most.
    """

    compared: int
    differing: int
    largest_difference: int
    mean_difference: float
    labels_equal: bool


class Storage(DocumentPart):
    """The medium of a launch's data, plain reads of the data, and the page cache in each epoch.

    `epochs` are those of the first rank, then those of the next.
    `reader` compares the framework's own reader with the worker's; null: the worker read the data.
    """

    medium: Medium
    reads: tuple[Reads, ...] = ()
    epochs: tuple[EpochReading, ...] = ()
    reader: ReaderCheck | None = None


class Machine(DocumentPart):
    """The host's properties, without the names of the machine and its user."""

    hostname_hash: str
    cpu_model: str
    microarchitecture: str
    cores: int
    logical_cpus: int
    memory_bytes: int
    accelerators: tuple[str, ...]
    kernel_release: str
    governor: str | None
    cgroup_cpus: float | None
    cgroup_memory_bytes: int | None


class Competitor(DocumentPart):
    """Another process that used CPUs during the launch."""

    name: str
    cpus: float


class Conditions(DocumentPart):
    """What else happened on the machine during the launch.

    `seconds` is the duration of the launch from start to end.
    `other_cpus` is how many CPUs all other processes used together.
    `competing` are other processes that used a tenth of a CPU or more and still ran at the end.
    `accelerator_processes` are other processes that computed on an accelerator.
    """

    load_before: float
    load_after: float
    steal_seconds: float
    swap_bytes: int
    throttled_seconds: float | None = None
    thermal_throttles: int | None = None
    other_cpus: float | None = None
    competing: tuple[Competitor, ...] = ()
    accelerator_processes: tuple[str, ...] = ()
    handover_seconds: tuple[float, ...] = ()
    seconds: float | None = None


class Software(DocumentPart):
    """The code that measured, and the packages in the framework's environment."""

    xfbench_version: str
    git_commit: str | None
    git_dirty: bool | None
    worker_digest: str
    adapter_digest: str
    environment_digest: str
    packages: dict[str, str]


class Record(SealedDocument):
    """The complete record of one launch. `id` is the digest of all other fields."""

    schema_: Literal["xfbench.record/1"] = Field(default=SCHEMA, alias="schema")
    id: str = Digest
    cell: str | None = None
    created: str
    source: Source = "measured"
    citation: Citation | None = None
    figure: Figure | None = None
    status: Status
    reason: str | None = None
    request: Request | None
    protocol: Protocol | None = None
    workload: WorkloadFacts | None
    observed: Observed | None = None
    certificate: str | None = None
    canary: Canary | None = None
    measurement: Measurement | None = None
    learning: tuple[Epoch, ...] | None = None
    communication: Communication | None = None
    checkpoints: Checkpoints | None = None
    storage: Storage | None = None
    support: tuple[Support, ...] | None = None
    machine: Machine | None = None
    limit: Limit | None = None
    conditions: Conditions | None = None
    software: Software | None = None


def is_asynchronous(record: Record) -> bool:
    """Return whether the strategy was asynchronous: no rank waited for another."""
    return bool(record.measurement and record.measurement.rank_step_seconds)


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a record, generated from the model."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        **{
            name: value
            for name, value in Record.model_json_schema(by_alias=True).items()
            if name != "title"
        },
    }


if __name__ == "__main__":
    import json

    print(json.dumps(json_schema(), indent=1))
