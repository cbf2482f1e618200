"""What is asked for: a cell is one point of an experiment, a request one launch of it."""

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

from xfbench.model.strategy import Value, format_options

Positive = Field(ge=1)
# What a cell may choose about its network's solver (see `running/training.py`); None: as published.
SOLVER = ("lars", "learning_rate", "rate_scaling", "rate_warmup")


def _sorted_pairs(options: Any) -> Any:
    return tuple(sorted(options.items())) if isinstance(options, Mapping) else options


# A mapping in JSON; pairs in order here, where cells have to be hashable.
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
    """One of the choices of `SOLVER` in words; of None, as published."""
    if name == "lars":
        return f"LARS {float(value):g}" if value else "no LARS"
    if name == "rate_warmup":
        return f"warm-up {value} epoch{'' if value == 1 else 's'}" if value else "no warm-up"
    if name == "rate_scaling" and value in (None, "none"):
        return "rate not scaled"
    return "rate as published" if value is None else f"rate {value}"


class PreparedSet(BaseModel):
    """A data set on disk (see `xfbench.datasets`): which samples, and how they are kept.

    `shape` is (channels, height, width) where all images have one; `medium` what it lies on,
    "ext4 on nvme".
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
    def folder_key(self) -> str:
        """What its folder is known by, on this machine."""
        return f"{self.format} {self.digest} {self.medium}"


class Cell(BaseModel):
    """One point of an experiment, with nothing left open. Batch sizes are images per update.

    Exactly one of `steps` (timed steps, after a first one and `warmup` more at least) and
    `epochs` (of the data set, the first step and `warmup` more not timed) is set. The device
    is waited for after every `window` steps. With affinity "cores" each rank has cores of its
    own; with "none" it runs where the system lets it. `strategy_options` are those that are
    otherwise than the adapter has them. A prepared data set is read by the worker, the same in
    every framework, or by the framework's own reader (`input`), in so many threads or processes
    beside those that train. `checkpoints`, so many, are spread over the timed
    windows, or over the epochs. With `profile`, a few steps more are done under the framework's
    own profiler when all else is measured. About the solver `lars` (a trust coefficient, 0 for
    none), the base `learning_rate`, that it grows with the batch (`rate_scaling`) and over so many
    epochs at first (`rate_warmup`) may be chosen: see `running/training.py`. Each rank gets
    `memory_limit` bytes of private memory at most, from the `allocator` named (see
    `environments/allocators.py`) or, None, from the C library. A `probe` is no measurement: it
    tries what the framework takes from an HPC system, in one process, with reserved huge pages, out
    of a module, on several ranks, or on ranks that are told nothing but what their start command
    tells (native).
    """

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
    scaling: Literal["strong", "weak"] | None = None
    global_batch_size: int = Positive
    batch_size_per_rank: int = Positive
    data: str
    data_set: PreparedSet | None = None
    input: Literal["ours", "native"] | None = None
    input_threads: int | None = Field(default=None, ge=0)
    page_cache: Literal["cold", "warm"] | None = None
    steps: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    warmup: int = Field(default=0, ge=0)
    window: int = Field(default=1, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**32)
    affinity: Literal["cores", "none"] = "none"
    launcher: str = "local"
    site: str | None = None
    checkpoints: int = Field(default=0, ge=0)
    profile: bool = False
    lars: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    rate_scaling: Literal["linear"] | None = None
    rate_warmup: int | None = Field(default=None, ge=0)
    memory_limit: int | None = Field(default=None, ge=1)
    allocator: Literal["jemalloc", "tcmalloc"] | None = None
    probe: Literal["process", "huge_pages", "modules", "ranks", "native"] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("exactly one of steps and epochs is needed")
        if self.epochs is not None and self.data == "synthetic":
            raise ValueError("synthetic input has no epochs: give steps, or a data set")
        if self.steps is not None and self.steps % self.window:
            raise ValueError(f"steps ({self.steps}) is no multiple of the window ({self.window})")
        limit = self.epochs or (self.steps or 0) // self.window
        if self.checkpoints > limit:
            places = "epochs" if self.epochs else "waits in the timed steps"
            raise ValueError(f"{self.checkpoints} checkpoints have only {limit} {places} to follow")
        if self.page_cache and not (self.data_set and self.epochs and self.nodes == 1):
            raise ValueError("page_cache is for epochs of a prepared data set, on one node")
        if self.input and not self.data_set:
            raise ValueError("input ours or native is for prepared data sets (xfbench data)")
        if self.input == "native" and not (self.ranks == 1 and self.input_threads):
            raise ValueError("input native is for one rank, and one or more input threads")
        if self.ranks % self.nodes:
            raise ValueError(f"{self.ranks} ranks cannot be spread evenly over {self.nodes} nodes")
        if self.nodes > 1 and self.launcher == "local":
            raise ValueError("launcher local has one node: name another with --launcher")
        if self.global_batch_size != self.batch_size_per_rank * self.ranks:
            raise ValueError("global_batch_size is not batch_size_per_rank times ranks")
        return self

    @property
    def strategy_text(self) -> str:
        """The strategy and what was chosen about it, in words: "dist_sync servers=2"."""
        return f"{self.strategy} {format_options(self.strategy_options)}".rstrip()

    @property
    def solver(self) -> str:
        """What it chooses about the solver: "LARS 0.5, rate linear"; "" for nothing."""
        settings = [(name, getattr(self, name)) for name in SOLVER]
        return ", ".join(
            describe_solver_setting(name, value) for name, value in settings if value is not None
        )

    @property
    def fixed_batch_size(self) -> int:
        """The images that the law keeps: under weak scaling each rank's, else an update's."""
        return self.batch_size_per_rank if self.scaling == "weak" else self.global_batch_size

    def label(self) -> str:
        """A few words that tell this cell from its neighbours, for progress and errors."""
        node_text = f" on {self.nodes} nodes" if self.nodes > 1 else ""
        strategy_parts = (
            [f"{self.ranks} ranks{node_text} {self.strategy_text}"] if self.ranks > 1 else []
        )
        parts = [self.workload, self.solver, self.framework, self.kernel, *strategy_parts]
        parts += [f"{self.threads} threads", self.allocator or ""]
        parts += [f"probe {self.probe} by {self.launcher}"] if self.probe else []
        return " · ".join(filter(None, parts))

    def request(self, launch: int) -> Request:
        return Request(**self.model_dump(), launch=launch)


class Protocol(BaseModel):
    """How many launches a cell gets: between `least` and `most`.

    With a `precision` they end as soon as the half-width of throughput's 95 % interval,
    relative to it, is no more; without one, `most` it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    least: int = Field(default=5, ge=1)
    most: int = Field(default=20, ge=1)
    precision: float | None = Field(default=0.02, gt=0)

    @classmethod
    def fixed(cls, launches: int) -> Protocol:
        return cls(least=launches, most=launches, precision=None)


class Request(Cell):
    """A cell plus a launch number, counted from 1."""

    launch: int = Positive

    def cell(self) -> Cell:
        """What is launched, without the launch's number."""
        return Cell(**self.model_dump(exclude={"launch"}))

    def cell_fields(self) -> dict[str, Any]:
        """The request as JSON values without its launch number.

        What may be chosen and was not is left out, as in records from before it was there; so
        is `profile`: what is profiled comes after all that is measured.
        """
        choices = ("strategy_options", "data_set", "page_cache", "checkpoints", "memory_limit")
        unset_names = {name for name in choices if not getattr(self, name)}
        nullable_names = ("input", "input_threads", "allocator", "probe", *SOLVER)
        unset_names |= {name for name in nullable_names if getattr(self, name) is None}
        return self.model_dump(mode="json", exclude={"launch", "profile", *unset_names})
