"""What one launch gave: the schema `xfbench.record/1`.

Written once, never changed. Times are seconds, sizes bytes, rates images per second.
Derived figures are not here: they are computed from records whenever somebody looks.
Names are fixed; a field may be added, none renamed.
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
    """Which network was trained, and its size and work per image."""

    name: str
    digest: str = Digest
    input_shape: tuple[int, int, int]
    classes: int
    parameters: int
    forward_macs_per_image: int
    train_macs_per_image: int


class OfRank(DocumentPart):
    """What was seen in one of several ranks."""

    rank: int
    threads: int
    cpus: float | None
    affinity: tuple[int, ...]
    laid_out: tuple[int, ...] | None = None


class Observed(DocumentPart):
    """What really ran, as seen in the worker: never what was asked for.

    `threads` worked while steps were timed and kept `cpus` CPUs busy; `pools` are the framework's
    own thread pools, with their sizes; `affinity` the CPUs that its threads may run on, `laid_out`
    those that it was given, null where it was left free. `precision` is that of the values between
    layers. `exchange`: how it joins ranks, as it says. `allocator`: the file that gave memory.
    `gpus`: those that ranks computed on. `loss_scale`: the loss's factor in float16, at the end.
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
    """Test-mode loss of the first batch at the initial weights, and what it should be."""

    loss: float | None
    expected: float | None = None
    relative_error: float | None = None


class Measurement(DocumentPart):
    """What the loop measured.

    A device that queues its steps is waited for once in `window` of them, and only then the clock
    is read and the loss known: each of `step_seconds` is the mean over a window, and `losses` has
    one per window, of untimed ones too; null: not finite. `startup_seconds`: from the process's
    start until the framework was loaded. `peak_rss_bytes`: each process's own peak, added up.
    `energy_joules`: of the training devices, during `wall_seconds`, which have evaluations and
    checkpoints in them. Under an asynchronous strategy `rank_step_seconds` has each rank's own
    timed steps, and a step's seconds are the harmonic mean of the ranks': what it takes where
    their rates add up.
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
    """One pass over the training data: its steps' seconds, and the evaluation after it."""

    epoch: int
    seconds: float
    train_loss: float | None
    test_loss: float | None
    test_accuracy: float | None


class Limit(DocumentPart):
    """What the cores of a launch can do at most, measured in the same session before it.

    `matrix_product` in floating-point operations per second, in the launch's precision on as
    many threads as it had; `memory_bandwidth` in bytes per second, read and written.
    `source` says how it is known: "measured", or the publication.
    """

    threads: int
    precision: str
    matrix_product: float
    memory_bandwidth: float
    source: str


class Link(DocumentPart):
    """What went over one link of a node per step, whoever sent it, by its own counters.

    `kind` is loopback, network, infiniband, nvlink (all of a device's) or pcie; of devices "sent"
    is out of the device. `bits_per_second` is what it carries at most each way, if that is known.
    """

    node: int
    kind: str
    name: str
    sent_bytes: float
    received_bytes: float
    bits_per_second: float | None = None


class Communication(DocumentPart):
    """What ranks exchanged, and what it cost.

    `bytes_per_step` is what the strategy has to send at the least, all ranks together, when each
    has `payload_bytes` of gradients; `interface_bytes` what the nodes' network interfaces counted
    per step, whoever sent it (shared memory passes them by). Seconds: of some steps that each rank
    did alone, after the timed ones, `compute_seconds` is the ranks' mean, and `waiting_seconds`
    how much longer the slowest took; of each timed step, `exposed_seconds` is what it took beyond
    the slowest's median. Rounding and noise may make that negative. Under an asynchronous strategy
    nobody waits, and all of them are of the ranks' rates together. `strategy_options` has every
    option of the strategy, chosen or not. `links` are all that have a counter, of each node, and
    `uncounted` says by kind of link why there is none.
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
    """Checkpoints that were taken between steps, each saved, read back and compared.

    `save_seconds` until all of it was on the medium (fsync), `load_seconds` until the trainer
    had it back, with nothing of it in the page cache where the file system lets it go; `bytes`
    of one, in the framework's own `format`, on a file system of the type `file_system`. `equal`:
    every parameter came back bit for bit; else those that did not are `differing`. All of it
    together, with comparing and deleting, took `wall_seconds`, which the measurement's have in
    them and its steps have not.
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
    """What a data set lies on: nothing in it names a host, a user or a place.

    `device`: the kind of block device ("nvme", "virtio", "loop", …), or "memory", "network",
    "host" (of a virtual machine), "overlay", "unknown"; `disks` the kinds of those at the bottom.
    `options`: of the mount, those that can name nothing. `below`: file systems that this one is
    kept in, of an overlay the writable one first, as far as they can be seen.
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
    """One round of plain reads. Before it `resident_bytes` of the files were in memory still;

    storage was seen to give `device_bytes` during it. None: unknown.
    """

    seconds: float
    bytes: int
    operations: int
    resident_bytes: int | None
    device_bytes: int | None


class Reads(DocumentPart):
    """Plain reads of one pattern: one thread, one read after another, files evicted before.

    `reason` says why it is not known what was in memory.
    """

    pattern: Literal["sequential", "random"]
    block_bytes: int
    random: bool
    reason: str | None = None
    rounds: tuple[ReadRound, ...]


class EpochReading(DocumentPart):
    """The page cache before an epoch of one rank, and what storage gave in it.

    `bytes` is what its files take from storage if nothing is in memory, `share` the part of them
    that the epoch asked for: whole batches, or its rank's images. Before it,
    `resident_before` of the files' `resident_of` bytes were. `device_bytes` is what the rank's
    processes read from storage, `device_bytes_of_all` what the device gave, whoever read it.
    `held`: whether a cold epoch took that from storage, a warm one none, within 2 % of the
    bytes. None: unknown, and `reason` says why, or nothing was promised.
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
    """How images of a framework's own reader differ from ours, in levels of 0 to 255.

    Of `compared` images `differing` differ in any pixel, by `largest_difference` at most; of the
    one that is least like ours a pixel is off by `mean_difference`.
    """

    compared: int
    differing: int
    largest_difference: int
    mean_difference: float
    labels_equal: bool


class Storage(DocumentPart):
    """The medium of a launch's data, plain reads of it in the same session, and its epochs.

    `epochs`: those of the first rank, then of the next. `reader`: null where the worker read.
    """

    medium: Medium
    reads: tuple[Reads, ...] = ()
    epochs: tuple[EpochReading, ...] = ()
    reader: ReaderCheck | None = None


class Machine(DocumentPart):
    """The host: nothing in it names the machine or its user."""

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
    """Another process that worked while the launch ran, and how many cores' time it had."""

    name: str
    cpus: float


class Conditions(DocumentPart):
    """What else went on while the launch ran, which took `seconds` from start to end.

    `other_cpus`: how many cores' time all other processes had together; `competing`: those of them
    that had a tenth of one or more and were still there at the end. Others that computed on an
    accelerator are `accelerator_processes`. `thermal_throttles`: null where processors do not say.
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
    """The code that measured, and what the framework's environment held."""

    xfbench_version: str
    git_commit: str | None
    git_dirty: bool | None
    worker_digest: str
    adapter_digest: str
    environment_digest: str
    packages: dict[str, str]


class Record(SealedDocument):
    """One launch, whole. `id` is the digest of everything else."""

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
    """Whether its ranks did not wait for one another."""
    return bool(record.measurement and record.measurement.rank_step_seconds)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a record, generated from the model."""
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
