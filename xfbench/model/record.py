"""The record of one launch: the schema `xfbench.record/1`.

A record is written once and never changed. Times are in seconds, sizes in bytes. Figures derived
from measurements, such as the throughput, are not stored. They are computed when a record is read.
Later versions may add fields, but rename none.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from xfbench.model.external_record import Citation, Figure
from xfbench.model.features import Support
from xfbench.model.gpus import Gpu
from xfbench.model.request import Protocol, Request
from xfbench.model.sealed import DocumentPart, SealedDocument, Time
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
    """The threads and CPUs of one rank. Only launches with several ranks have these objects."""

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
    `affinity` has the CPUs on which the operating system lets the threads run.
    `laid_out` has the CPUs to which xfbench pinned the process; null: not pinned, or several ranks.
    `precision` is the precision of the values between layers.
    `allocator` is the library file that allocated the memory.
    `exchange` describes how the ranks' gradients are combined, according to the framework.
    `loss_scale` is the factor by which the loss is multiplied in float16, at the end of the launch.
    `gpus` are the GPUs that the ranks computed on.
    `gpu_copy_share` is the share of copies in the time of all that a GPU ran in one more step,
    averaged over the ranks; only PyTorch shows it; null: no GPU, or not seen.
    `step_program` says whether the first step compiled its program, or loaded one that an earlier
    process had compiled; null: the framework does not say.
    `step_program_seconds` is the time of this, a part of `first_step_seconds`.
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
    step_program: Literal["compiled", "loaded"] | None = None
    step_program_seconds: float | None = None
    profiler: str | None = None
    ranks: tuple[OfRank, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    gpu_copy_share: float | None = None
    handover_seconds: tuple[float, ...] = ()


class Canary(DocumentPart):
    """A check of the network in each launch: its loss on the first batch before training.

    The loss is computed in test mode, and compared with the loss that the oracle expects.
    """

    loss: float | None
    expected: float | None = None
    relative_error: float | None = None


class Measurement(DocumentPart):
    """Times, memory, energy and losses, as measured by the training loop.

    `startup_seconds` is the time from the start of the process until the framework was loaded.
    `window` is the number of steps in a window; the worker waits for the device, and reads the
    clock and the loss, only at the end of a window.
    `step_seconds` has the mean duration of a step in each timed window, averaged over the ranks;
    asynchronous ranks: harmonic mean, because their rates add up.
    `rank_step_seconds` has a list like `step_seconds` for each rank under an asynchronous strategy.
    `wall_seconds` is the duration of the training loop, evaluations and checkpoints included.
    `losses` has the training loss at the end of each window, untimed windows included; null: not
    finite.
    `peak_rss_bytes` is the sum of the peak memory of all processes.
    `peak_device_bytes` is the most memory that the framework's data took on a rank's GPU at once,
    from the first step to the last; JAX: from the start of the process; null: unknown, or no GPU.
    `peak_device_reserved_bytes` is the most memory that the framework held on a rank's GPU at once,
    unused memory of its allocator included; null: unknown, or no GPU.
    `energy_joules` is the energy that the training devices used in `energy_seconds`; null: unknown.
    `energy_seconds` is the duration to which `energy_joules` belongs: the timed steps,
    without the first quarter of a second of them if the warm-up was extended; null: the whole
    training loop, in records of earlier versions, compiling included. Such energies are not shown.
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
    peak_device_bytes: int | None = None
    peak_device_reserved_bytes: int | None = None
    losses: tuple[float | None, ...]
    energy_joules: float | None = None
    energy_seconds: float | None = None
    phases: dict[str, float] = Field(default_factory=dict)


class Epoch(DocumentPart):
    """One pass over the training data: the seconds of its steps, and the evaluation after it."""

    epoch: int
    seconds: float
    train_loss: float | None
    test_loss: float | None
    test_accuracy: float | None


class Limit(DocumentPart):
    """The peak performance of the hardware that a launch used: its cores or its accelerator.

    `matrix_product` is in floating-point operations per second, with the launch's precision and
    number of threads; it is the best of several tries, by CPU time where other work delayed it.
    Faster launches are invalid.
    `matrix_product_tries` has the median product of each try, in a process of its own; empty: a
    published peak, or a record of an earlier version.
    `memory_bandwidth` is in bytes per second, read and written.
    `source` is "measured", or the publication that states the peak.
    """

    threads: int
    precision: str
    matrix_product: float
    matrix_product_tries: tuple[float, ...] = ()
    memory_bandwidth: float
    source: str


class Link(DocumentPart):
    """The traffic of one link of a node in bytes per step, as the link's own counter reports it.

    The counter includes the traffic of all processes.
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
    """What the ranks exchanged per step, and how long the exchange took.

    After the timed steps, the ranks do some more steps without exchange, for comparison.
    `bytes_per_step` is the minimum number of bytes that all ranks together must send per step.
    `payload_bytes` is the size of one rank's gradients.
    `interface_bytes` has the bytes that each network interface sent per step, summed over the
    nodes; traffic in shared memory is not counted.
    `compute_seconds` has the duration of each step without exchange, averaged over the ranks.
    `waiting_seconds` has, for each step without exchange, the slowest rank's duration minus the
    average over the ranks.
    `exposed_seconds` has, for each timed step, its duration minus the slowest rank's median
    duration without exchange; noise may make it negative.
    `strategy_options` has the value of every option of the strategy, defaults included.
    `links` has the traffic of each link that has a counter, on all nodes.
    `uncounted` says why a kind of link has no counter, by kind.

    Under an asynchronous strategy, no rank waits for another. Then the average is the harmonic
    mean over the ranks, and this average also replaces the slowest rank's duration.
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

    `format` is the framework's own checkpoint format.
    `file_system` is the type of the file system.
    `bytes` is the size of one checkpoint.
    `save_seconds` has the time to save each checkpoint, fsync included.
    `load_seconds` has the time to read each checkpoint back into the trainer, after its eviction
    from the page cache (if possible).
    `equal` is whether every parameter came back bit for bit.
    `differing` are the parameters that did not come back bit for bit.
    `wall_seconds` is the total time of all checkpoints, comparing and deleting included; the
    training loop's duration includes this time, the step times do not.
    """

    format: str
    file_system: str
    bytes: int
    save_seconds: tuple[float, ...]
    load_seconds: tuple[float, ...]
    wall_seconds: float
    equal: bool
    differing: tuple[str, ...] = ()


class Striping(DocumentPart):
    """How Lustre distributes a file over its storage targets.

    `count` is the number of stripes; 0: the data are on the metadata server.
    `bytes` is the size of a stripe.
    """

    count: int
    bytes: int


class Medium(DocumentPart):
    """The medium of a data set. No field names a host, a user or a path.

    `device` is the kind of block device ("nvme", "virtio", "loop", …), or else "memory", "network",
    "host" (the host of this virtual machine), "overlay" or "unknown".
    `disks` are the kinds of the underlying disks.
    `options` has only those mount options that cannot contain a name.
    `source_hash` distinguishes network file systems of one type without naming their servers; null:
    other file systems, or a record of an earlier version. It has the salt of the host's hash and 20
    digits; without a salt, in records of earlier versions, it has 16.
    `striping` has the different stripings of up to 32 files on Lustre; empty: another file system,
    or unknown.
    `below` describes the visible file systems that store the files of this one; for an overlay,
    the writable layer is first.
    """

    file_system: str
    device: str
    disks: tuple[str, ...] = ()
    rotational: bool | None = None
    options: tuple[str, ...] = ()
    block_bytes: int
    total_bytes: int
    free_bytes: int
    source_hash: str | None = None
    striping: tuple[Striping, ...] = ()
    below: tuple[Medium, ...] = ()


class ReadRound(DocumentPart):
    """One round of plain reads, which are reads without a framework.

    `resident_bytes` is the number of the files' bytes in memory before the round; null: unknown.
    `device_bytes` is the number of bytes that storage delivered during the round; null: unknown.
    """

    seconds: float
    bytes: int
    operations: int
    resident_bytes: int | None
    device_bytes: int | None


class Reads(DocumentPart):
    """The rounds of plain reads (without a framework) in one access pattern.

    One thread does one read at a time. The files are evicted from memory before each round.
    `reason` is why the `resident_bytes` of the rounds are unknown; null: they are known.
    """

    pattern: Literal["sequential", "random"]
    block_bytes: int
    random: bool
    reason: str | None = None
    rounds: tuple[ReadRound, ...]


class EpochReading(DocumentPart):
    """For one epoch of one rank: the data set's bytes in memory before, and the bytes read.

    `bytes` is the number of bytes that storage delivers if all files are read and none is in
    memory.
    `share` is the part of the training images that the rank trains on in the epoch, from 0 to 1.
    `resident_before` is the number of the files' bytes in memory before the epoch; null: unknown.
    `resident_of` is the size of the files in bytes.
    `device_bytes` is the number of bytes that the rank's processes read from storage; null:
    unknown.
    `device_bytes_of_all` is the number of bytes that the device delivered to all processes; null:
    unknown.
    `held` is whether the bytes from storage match the requested state of the page cache; null:
    unknown, or no state was requested.
    `reason` is why `device_bytes` or `held` is unknown, or why the files could not be evicted;
    null: neither is true.

    A cold epoch must read at least `share` × `bytes` from storage, and a warm epoch nothing. The
    tolerance is 2 % of `bytes`. If there are several ranks, the sum over the ranks counts.
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
    """A comparison of the images that the framework's reader and the worker's reader return.

    The differences are in pixel levels, which go from 0 to 255.
    `compared` is the number of compared images.
    `differing` is the number of images in which at least one pixel differs.
    `largest_difference` is the largest difference of a pixel, in levels.
    `mean_difference` is the mean difference of all pixels of the image that differs most, in
    levels.
    """

    compared: int
    differing: int
    largest_difference: int
    mean_difference: float
    labels_equal: bool


class DecoderCheck(DocumentPart):
    """A comparison of the first images, as decoded in the launch, with the data set's list.

    `compared` is the number of compared images.
    `differing` is the number of images that the launch decoded to other pixels than listed.
    """

    compared: int
    differing: int


class Storage(DocumentPart):
    """The medium of a launch's data, plain reads of the data, and the page cache in each epoch.

    `epochs` has all epochs of the first rank, then all epochs of the second rank, and so on.
    `reader` compares the framework's own reader with the worker's; null: the worker read the data.
    `decoder` compares decoded images with those of `xfbench data prepare`; null: not compared.
    """

    medium: Medium
    reads: tuple[Reads, ...] = ()
    epochs: tuple[EpochReading, ...] = ()
    reader: ReaderCheck | None = None
    decoder: DecoderCheck | None = None


class Machine(DocumentPart):
    """The properties of the host. No field contains a host name or a user name."""

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
    """Another process that used CPUs during the launch.

    `name` is "another process"; records of earlier versions name its program.
    `pid` is null; in some records of earlier versions, it is the process id.
    """

    name: str
    cpus: float
    pid: int | None = None


class Conditions(DocumentPart):
    """What else happened on the machine during the launch.

    `seconds` is the duration of the launch from start to end.
    `other_cpus` is the number of CPUs that all other processes used together.
    `competing` has the other processes that used at least a tenth of a CPU and still ran at
    the end.
    `accelerator_processes` has "another process" for each other process that computed on an
    accelerator; records of earlier versions name the programs.
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
    created: Time
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
    batch_certificate: str | None = None
    batch_unproven_reason: str | None = None
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
    """Return whether the record's strategy is asynchronous, so that no rank waits for another."""
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
