"""Settings that a matrix may have. Written by `make settings` from settings.py: do not edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from xfbench.model.strategy import Value
from xfbench.planning.study_form import (
    Batches,
    Bytes,
    NonNegative,
    Positive,
    Positives,
    Share,
    as_list,
)


class MatrixSettings(BaseModel):
    """Lists of settings: see docs/reference/settings.md. None: the default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    framework: Annotated[Sequence[str], BeforeValidator(as_list)]
    workload: Annotated[Sequence[str], BeforeValidator(as_list)]
    device: Annotated[Sequence[str], BeforeValidator(as_list)] = ("cpu",)
    precision: Annotated[Sequence[str], BeforeValidator(as_list)] = ("float32",)
    kernel: Annotated[Sequence[str], BeforeValidator(as_list)] = ("default",)
    steps: Positive | None = None
    epochs: Positive | None = None
    warmup: NonNegative = 3
    min_time: float | None = None
    warmup_time: float | None = None
    launches: Positive | None = None
    until_precision: Share = 0.02
    until_ranked: bool = False
    seed: Annotated[Sequence[NonNegative], BeforeValidator(as_list)] = (0,)
    threads: Positives | Literal["powers"] | None = None
    ranks: Annotated[Sequence[Positive], BeforeValidator(as_list)] = (1,)
    nodes: Annotated[Sequence[Positive], BeforeValidator(as_list)] = (1,)
    ranks_per_node: Positive | None = None
    strategy: Annotated[Sequence[str], BeforeValidator(as_list)] = ("default",)
    strategy_options: dict[str, Value] = Field(default_factory=dict)
    scaling: Literal["strong", "weak", "per-node"] | None = None
    launcher: str | None = None
    pinning: Literal["cores", "sockets", "numa", "none"] | None = None
    site: str | None = None
    partition: str | None = None
    data: Annotated[Sequence[str], BeforeValidator(as_list)] | None = None
    page_cache: Annotated[Sequence[str], BeforeValidator(as_list)] | None = None
    loader: Annotated[Sequence[str], BeforeValidator(as_list)] | None = None
    loader_threads: NonNegative | None = None
    batch_size: Batches | None = None
    learning_rate: Annotated[Sequence[float], BeforeValidator(as_list)] | None = None
    lars: Annotated[Sequence[float], BeforeValidator(as_list)] | None = None
    lr_scaling: Annotated[Sequence[str], BeforeValidator(as_list)] | None = None
    lr_warmup: Annotated[Sequence[NonNegative], BeforeValidator(as_list)] | None = None
    allocator: Annotated[Sequence[str], BeforeValidator(as_list)] | None = None
    memory_limit: Bytes | None = None
    sync_every: Positive | None = None
    checkpoints: NonNegative = 0
    profile: bool = False
