"""A matrix: lists of settings from a file or the command line, combined into cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from xfbench.model.request import SOLVER
from xfbench.model.strategy import Value
from xfbench.planning.study_form import Batches, BatchSearch, Bytes, Positive, Size


def _as_list(setting: Any) -> Any:
    return [setting] if isinstance(setting, str | int | float) else setting


RateScaling = Literal["none", "linear"]


class Matrix(BaseModel):
    """Lists of settings. Every combination of their values is a cell.

    None stands for the default of the workload or of the host.

    - `size`: the sizes of the study that include this matrix; empty: all sizes.
    - `threads`: threads per rank. "powers" stands for the number of cores available to a rank, and
      for all powers of two below it.
    - `batch_size`: a list, or a search (`BatchSearch`). The cells of a search have its first batch
      size.
    - `ranks_per_node`: if given, it determines the number of nodes, and `nodes` is ignored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: Annotated[Sequence[Size], BeforeValidator(_as_list)] = ()
    framework: Sequence[str]
    workload: Sequence[str]
    device: Sequence[str] = ("cpu",)
    precision: Sequence[str] = ("float32",)
    kernel: Sequence[str] = ("default",)
    threads: Sequence[Positive] | Literal["powers"] | None = None
    batch_size: Batches | None = None
    ranks: Sequence[int] = (1,)
    strategy: Sequence[str] = ("default",)
    strategy_options: dict[str, Value] = Field(default_factory=dict)
    scaling: Literal["strong", "weak"] | None = None
    nodes: Sequence[Positive] = (1,)
    ranks_per_node: int | None = Field(default=None, ge=1)
    launcher: str | None = None
    site: str | None = None
    queue: str | None = None
    affinity: Literal["cores", "none"] | None = None
    data: Annotated[Sequence[str], BeforeValidator(_as_list)] | None = None
    page_cache: Sequence[str] | None = None
    input: Annotated[Sequence[str], BeforeValidator(_as_list)] | None = None
    input_threads: int | None = None
    steps: Positive | None = None
    epochs: Positive | None = None
    warmup: int = 3
    window: Positive | None = None
    checkpoints: int = 0
    profile: bool = False
    lars: Annotated[Sequence[float], BeforeValidator(_as_list)] | None = None
    learning_rate: Annotated[Sequence[float], BeforeValidator(_as_list)] | None = None
    rate_scaling: Annotated[Sequence[RateScaling], BeforeValidator(_as_list)] | None = None
    rate_warmup: Annotated[Sequence[int], BeforeValidator(_as_list)] | None = None
    memory_limit: Bytes | None = None
    allocator: Annotated[Sequence[str], BeforeValidator(_as_list)] | None = None
    probe: Annotated[Sequence[str], BeforeValidator(_as_list)] | None = None
    launches: int | None = None
    until_precision: float = Field(default=0.02, gt=0, lt=1)
    seed: Annotated[Sequence[int], BeforeValidator(_as_list)] = (0,)

    @property
    def solver_settings(self) -> dict[str, Sequence[Any] | None]:
        """Return the lists of solver settings by name.

        None in place of a list stands for the workload's own setting.
        """
        return {name: getattr(self, name) for name in SOLVER}

    @property
    def batch_sizes(self) -> Sequence[int] | None:
        """Return the batch sizes. If `batch_size` is a search, return only its first batch size."""
        return (
            [self.batch_size.start] if isinstance(self.batch_size, BatchSearch) else self.batch_size
        )
