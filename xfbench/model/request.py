"""Cells and requests: a cell is one combination of settings, a request is one launch of a cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from xfbench.base import digests, revisions
from xfbench.base.wording import pluralize
from xfbench.model.stored_settings import StoredSettings
from xfbench.model.strategy import Value, format_options

Positive = Field(ge=1)
Scaling = Literal["strong", "weak", "per-node"]
# Settings of the solver that a cell may change (see `training.py`). None: the published value.
SOLVER = ("lars", "learning_rate", "rate_scaling", "rate_warmup")
# A name that the user gives to an interpreter, as a regular expression.
INTERPRETER_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
# Fields of a cell that are not in its key: those that the key begins with, those that say how long
# it is measured, and those that say where and by which interpreter.
_NOT_IN_KEY = {
    *("framework", "workload", "kernel", "device", "precision", "data", "threads"),
    *("global_batch_size", "batch_size_per_rank"),
    *("steps", "epochs", "warmup", "window", "min_seconds", "min_warmup_seconds"),
    *("seed", "profile", "probe", "environment", "python", "revision", "launcher", "site"),
}
# Fields of a request that say who launches it and when, not what is launched.
_SESSION_FIELDS = {"session", "position"}


def _sorted_pairs(options: Any) -> Any:
    return tuple(sorted(options.items())) if isinstance(options, Mapping) else options


# A mapping in JSON, but sorted pairs in Python, because cells must be hashable.
StrategyOptions = Annotated[
    tuple[tuple[str, Value], ...],
    BeforeValidator(_sorted_pairs),
    PlainSerializer(dict),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        }
    ),
]


def describe_solver_setting(name: str, value: Any) -> str:
    """Return words for the value of the solver setting `name`, such as "LARS 0.5"."""
    if name == "lars":
        return f"LARS {float(value):g}" if value else "no LARS"
    if name == "rate_warmup":
        return f"warm-up {value} epoch{'' if value == 1 else 's'}" if value else "no warm-up"
    if name == "rate_scaling" and value in (None, "none"):
        return "rate not scaled"
    return "rate as published" if value is None else f"rate {value}"


def count_ranks_sharing_a_batch(scaling: Scaling | None, ranks: int, nodes: int) -> int:
    """Return among how many ranks `--batch-size` images are divided.

    Strong scaling divides them among all ranks, per-node scaling among those of a node.
    """
    return {"weak": 1, "per-node": ranks // nodes}.get(scaling or "strong", ranks)


def describe_batch_share(scaling: str | None) -> str:
    """Return what each batch is for, such as " per rank"; "" if it is for all ranks."""
    return {"weak": " per rank", "per-node": " per node"}.get(scaling or "", "")


def environment_key(interpreter_key: str, revision: str | None) -> str:
    """Return the name of an environment in a session: see `Cell.environment_key`."""
    return f"{interpreter_key} at {revisions.shorten(revision)}" if revision else interpreter_key


class PreparedSet(BaseModel):
    """A data set on disk (see `xfbench.datasets`): its samples and their storage.

    `shape` is (channels, height, width); null: images have different shapes.
    `medium` is the file system and device that hold the data set, for example "ext4 on nvme". On
    Lustre, the stripes are added if `lfs` tells them: "lustre on network (4 stripes of 1 MiB)".
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    digest: str
    format: str
    channels: int
    classes: int
    shape: tuple[int, int, int] | None
    train_images: int
    test_images: int = 0
    medium: str

    @property
    def folder_lookup_key(self) -> str:
        """The key of the data set's folder in `Plan.data_folders`."""
        return f"{self.format} {self.digest} {self.medium}"


class _OwnFields(BaseModel):
    """Fields of a cell that are declared here, because they differ from the settings as typed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    framework: str
    environment: Literal["managed", "python", "modules", "debian", "own"]
    workload: str
    device: str = "cpu"
    precision: str = "float32"
    kernel: str
    threads: int = Positive
    ranks: int = Field(default=1, ge=1)
    nodes: int = Field(default=1, ge=1)
    strategy: str = "none"
    strategy_options: StrategyOptions = ()
    scaling: Scaling | None = None
    global_batch_size: int = Positive
    batch_size_per_rank: int = Positive
    data: str
    data_set: PreparedSet | None = None
    input: Literal["ours", "native"] | None = None
    input_threads: int | None = Field(default=None, ge=0)
    steps: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    warmup: int = Field(default=0, ge=0)
    window: int = Field(default=1, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**32)
    affinity: Literal["cores", "sockets", "numa", "none"] = "none"
    launcher: str = "local"
    site: str | None = None
    checkpoints: int = Field(default=0, ge=0)
    profile: bool = False
    lars: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    rate_scaling: Literal["linear"] | None = None
    rate_warmup: int | None = Field(default=None, ge=0)
    probe: Literal["process", "huge_pages", "modules", "ranks", "native"] | None = None
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40,64}$")
    python: str | None = Field(default=None, pattern=INTERPRETER_NAME)


class Cell(StoredSettings, _OwnFields):
    """One combination of settings, in which every setting is fixed. Batch sizes are in images.

    The last fields are those of `StoredSettings`.

    `steps` is the number of timed steps after the warm-up, or the minimum number if `min_seconds`
    is given; null if epochs are given.
    `epochs` is the number of passes over the data set, the warm-up included; null if steps are
    given.
    `warmup` is the minimum number of untimed steps after the first step, which is never timed.
    `window` is the number of steps between two times at which the worker waits for the device.
    `strategy_options` are the options that differ from the adapter's defaults.
    `input` is the reader of the prepared data set: "ours" is the worker's reader, "native" is the
    framework's own reader; null: no prepared data set.
    `affinity` is "cores" if each rank is pinned to its own cores, "sockets" or "numa" if each rank
    is pinned to all allowed CPUs of a socket or NUMA node, "none" if ranks are not pinned.
    `checkpoints` is the number of checkpoints, spread over the timed windows or the epochs.
    `profile` is whether a few more steps run under the framework's profiler after all measurements.
    `lars` is the trust coefficient of LARS, 0 for no LARS; null: the published value.
    `learning_rate` is the base learning rate; null: the published value.
    `rate_scaling` is "linear" if the learning rate grows with the batch; null: not scaled.
    `rate_warmup` is the length of the learning rate's warm-up in epochs; null: the published
    warm-up.
    `probe` is the test of HPC support that replaces the measurement; null: no test.
    `revision` is the full hash of the git commit whose worker and adapter run; null: those of the
    running xfbench.
    `python` is the user's name for the interpreter; null: it has none.

    `training.py` applies the settings of the solver. These are the values of `probe`:

    - "process": the test runs in one process.
    - "huge_pages": the test runs with reserved huge pages.
    - "modules": the test runs a framework from an environment module.
    - "ranks": the test runs on several ranks.
    - "native": the framework itself must find its ranks, from the launcher's information alone.
    """

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give exactly one of steps and epochs")
        if self.epochs is not None and self.data == "synthetic":
            raise ValueError("synthetic data has no epochs: give steps, or a data set")
        if self.epochs is not None and (self.min_seconds or self.min_warmup_seconds):
            raise ValueError("min_time and warmup_time are for steps: epochs have a length")
        if self.steps is not None and self.steps % self.window:
            raise ValueError(
                f"steps ({self.steps}) must be a multiple of sync_every ({self.window})"
            )
        limit = self.epochs or (self.steps or 0) // self.window
        if self.checkpoints > limit:
            places = "epochs" if self.epochs else "timed windows"
            raise ValueError(f"checkpoints ({self.checkpoints}) is more than the {limit} {places}")
        if self.page_cache and not (self.data_set and self.epochs and self.nodes == 1):
            raise ValueError("page_cache needs epochs of a prepared data set, on one node")
        if self.input and not self.data_set:
            raise ValueError(
                "loader xfbench or native needs a prepared data set (see xfbench data)"
            )
        if self.input == "native" and not (self.ranks == 1 and self.input_threads):
            raise ValueError("loader native needs one rank and at least one loader thread")
        if self.ranks % self.nodes:
            raise ValueError(f"{self.ranks} ranks cannot be spread evenly over {self.nodes} nodes")
        if self.nodes > 1 and self.launcher == "local":
            raise ValueError("launcher local runs on one node: choose another with --launcher")
        if self.global_batch_size != self.batch_size_per_rank * self.ranks:
            raise ValueError("global_batch_size must be batch_size_per_rank times ranks")
        return self

    @property
    def strategy_text(self) -> str:
        """The strategy and its changed options, such as "dist_sync servers=2"."""
        return f"{self.strategy} {format_options(self.strategy_options)}".rstrip()

    @property
    def changed_solver_text(self) -> str:
        """The changed solver settings, such as "LARS 0.5, rate linear"; "" if there are none."""
        settings = [(name, getattr(self, name)) for name in SOLVER]
        return ", ".join(
            describe_solver_setting(name, value) for name, value in settings if value is not None
        )

    @property
    def fixed_batch_size(self) -> int:
        """The batch size that stays constant when the number of ranks changes.

        With weak scaling, this is the batch size per rank, with per-node scaling that per node,
        otherwise the global batch size.
        """
        sharing = count_ranks_sharing_a_batch(self.scaling, self.ranks, self.nodes)
        return self.batch_size_per_rank * sharing

    @property
    def table_key(self) -> tuple[Any, ...]:
        """What the rows of one leaderboard have in common, except the machine.

        The values are: workload, data set, device, precision, scaling, batch size, solver.
        """
        # Names of prepared sets are not unique.
        digest = f" {self.data_set.digest[7:15]}" if self.data_set else ""
        return (
            self.workload,
            f"{self.data}{digest}",
            self.device,
            self.precision,
            self.scaling or "",
            self.fixed_batch_size,
            self.changed_solver_text,
        )

    @property
    def interpreter_key(self) -> str:
        """The key of the cell's interpreter in `Plan.pythons`, such as "torch" or "torch:old"."""
        return f"{self.framework}:{self.python}" if self.python else self.framework

    @property
    def environment_key(self) -> str:
        """The name of the cell's environment in a session, such as "torch" or "torch:old".

        If the cell has a revision, the revision's adapter decides the environment. Then the name is
        text such as "torch at 0a1b2c3d4e5f".
        """
        return environment_key(self.interpreter_key, self.revision)

    @property
    def key(self) -> str:
        """The settings that affect the throughput, by which tools find the cell's reference.

        Such as "torch lenet onednn cpu float32 digits threads=2 batch=64". Settings follow that
        differ from their defaults, such as "lars=0.5".
        """
        parts = [self.framework, self.workload, self.kernel, self.device, self.precision, self.data]
        parts += [f"threads={self.threads}", f"batch={self.global_batch_size}"]
        for name, field in Cell.model_fields.items():
            value = getattr(self, name)
            if name not in _NOT_IN_KEY and not field.is_required() and value != field.default:
                if isinstance(value, PreparedSet):
                    value = f"{value.format}:{value.digest.removeprefix('sha256:')[:8]}"
                elif isinstance(value, tuple):
                    value = format_options(value)
                parts.append(f"{name}={value}")
        return " ".join(parts)

    def label(self) -> str:
        """Return a short text that identifies the cell in progress lines and errors."""
        node_text = f" on {self.nodes} nodes" if self.nodes > 1 else ""
        strategy_parts = (
            [f"{self.ranks} ranks{node_text} {self.strategy_text}"] if self.ranks > 1 else []
        )
        parts = [
            self.workload,
            self.changed_solver_text,
            self.interpreter_key,
            self.kernel,
            *strategy_parts,
        ]
        parts += [pluralize(self.threads, "thread"), self.allocator or ""]
        parts += [f"probe {self.probe} by {self.launcher}"] if self.probe else []
        parts += [f"revision {revisions.shorten(self.revision)}"] if self.revision else []
        return " · ".join(filter(None, parts))

    def long_label(self) -> str:
        """Return `label` with the pinning, the data and the batch."""
        pinning = "" if self.affinity == "none" else f" · pinned to {self.affinity}"
        data_format = f" {self.data_set.format}" if self.data_set else ""
        data = f"{self.data}{data_format} · batch {self.global_batch_size}"
        return f"{self.label()}{pinning} · {data}"

    def request(self, launch: int) -> Request:
        """Return the request for launch number `launch` of this cell."""
        return Request(**self.model_dump(), launch=launch)


class Protocol(BaseModel):
    """The number of launches of a cell.

    `least` is the minimum number of launches.
    `most` is the maximum number of launches.
    `precision` is the relative half-width of the throughput's 95 % interval that is to be reached;
    null: always do `most` launches.
    `ranked` is whether the order of the cells is enough. The order is known if any two cells differ
    certainly, or by less than `precision`.

    If all cells of a leaderboard have `least` launches and have reached the precision (or their
    order is known, or it is not probable enough that `most` launches tell it), they get no further
    launch.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    least: int = Field(default=5, ge=1)
    most: int = Field(default=20, ge=1)
    precision: float | None = Field(default=0.02, gt=0)
    ranked: bool = False

    @classmethod
    def fixed(cls, launches: int) -> Protocol:
        """Return a protocol with exactly this number of launches."""
        return cls(least=launches, most=launches, precision=None)


class Request(Cell):
    """A cell with a launch number. The first launch has number 1.

    `session` is the id of the session that did the launch; null: not launched yet, or launched by
    an earlier version.
    `position` is the number of the launch in its session, from 1; null: there is no `session`.

    Requests are equal if they are for the same launch, whichever session does it.
    """

    launch: int = Positive
    session: str | None = Field(default=None, max_length=64)
    position: int | None = Field(default=None, ge=1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Request) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, ...]:
        # Faster than to iterate over the model, which matters for tables of many launches.
        fields = self.__dict__.items()
        return tuple([value for name, value in fields if name not in _SESSION_FIELDS])

    @property
    def digest(self) -> str:
        """The digest of all settings and the launch number. Equal requests have the same digest."""
        return digests.of_json(self.model_dump(mode="json", exclude=_SESSION_FIELDS))

    def cell(self) -> Cell:
        """Return the cell of this launch."""
        return Cell(**self.model_dump(exclude={"launch", *_SESSION_FIELDS}))

    def cell_digest_fields(self) -> dict[str, Any]:
        """Return the settings that identify the request's cell, as JSON values for a digest.

        - The launch number and the session are left out.
        - `profile` is left out, because it changes no measurement.
        - Optional settings that are not set are left out. Therefore a new optional setting does
          not change the digests of older records.
        """
        choices = ("strategy_options", "data_set", "checkpoints")
        unset_names = {name for name in choices if not getattr(self, name)}
        nullable_names = (
            *("input", "input_threads", "probe", "revision", "python", *SOLVER),
            *StoredSettings.model_fields,
        )
        unset_names |= {
            name
            for name in nullable_names
            if (value := getattr(self, name)) is None or value is False
        }
        return self.model_dump(
            mode="json", exclude={"launch", "profile", *_SESSION_FIELDS, *unset_names}
        )
