"""The interface between xfbench and a framework: what an adapter implements and receives.

An adapter's `train.py` has one entry point, `build`, which returns a `Trainer`. It reads no
clock, no file except a checkpoint, and no environment variable that selects behaviour. How
the process is started (threads, kernel switches) is data in `adapter.toml`. xfbench sets it
before it starts the interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Protocol, Tuple

import numpy as np

from xfbench.workloads import Workload

# The factor of the loss in float16, so that fewer gradients underflow to 0.
LOSS_SCALE = 2.0**10


class Unsupported(Exception):
    """The framework cannot do what was requested. The message says what and why, in one line."""


class Unavailable(Exception):
    """Something that the framework needs is missing on this node. The message says what."""


@dataclass(frozen=True)
class Options:
    """How to train, in terms that every adapter understands.

    `kernel` is a kernel library named in the adapter's `adapter.toml`. `precision` is "float32",
    "float64", or one that rounds: "tf32", "bfloat16", "float16". The reference's `precision.py`
    defines what is rounded; parameters stay in float32. `device` is "cpu" or "cuda". `dropout` is
    "random" (the framework's own, for timing) or "identity" (for exact comparisons). `seed`
    initializes the framework's own random numbers.
    """

    kernel: str
    threads: int
    precision: str = "float32"
    device: str = "cpu"
    dropout: str = "random"
    seed: int = 0


@dataclass(frozen=True)
class Group:
    """The ranks that train together: this rank's number, their count, and the strategy.

    `strategy` is a strategy named by the adapter, or "none" for a single rank. It is "parts" if
    one process does the work of `size` ranks, as the oracle does. `rendezvous_path` is a file
    path that belongs to this launch. All ranks see it and none has created it, so ranks can use
    it to find each other. `multi_node` is true if ranks may be on other nodes. `options` has a
    value for each option of the strategy in the adapter's `adapter.toml`.
    """

    rank: int = 0
    size: int = 1
    strategy: str = "none"
    rendezvous_path: str = ""
    multi_node: bool = False
    options: Dict[str, Any] = field(default_factory=dict, hash=False)

    def shard(self, count: int) -> slice:
        """Return this rank's slice of `count` images, which the ranks share evenly."""
        if self.strategy == "parts":
            return slice(0, count)
        each = count // self.size
        return slice(self.rank * each, (self.rank + 1) * each)


@dataclass(frozen=True)
class TrainingFiles:
    """The training images of a prepared data set, for a framework's own reader.

    `folder` holds `image_count` images in `format` (see `xfbench.worker.prepared`). The workload
    defines how they are cropped, mirrored and scaled. `threads` data-loading threads prepare
    batches of `batch_size` during training.
    """

    folder: Path
    format: str
    image_count: int
    workload: Workload
    batch_size: int
    threads: int


@dataclass(frozen=True)
class Profile:
    """The time of several steps by layer, in seconds summed over all of these steps.

    `profiler` names the profiler. `unattributed` is time that belongs to no layer and no update.
    Concurrent work is counted separately, so the sum may exceed the elapsed time.
    """

    profiler: str
    forward: Dict[str, float]
    backward: Dict[str, float]
    update: float = 0.0
    unattributed: float = 0.0


class Reader(Protocol):
    """A framework's own reader of data sets.

    The adapter's `reader.py` returns it from `open_reader(files, options)` if its `adapter.toml`
    names `readers`.
    """

    def epoch(self, seed: int) -> Iterator[Any]:
        """Yield whole batches, in the form that `Trainer.step` takes.

        Each image occurs at most once; images that do not fill a last batch are left out. Images
        are cropped at random and mirrored as the workload defines, in an order that the
        reader chooses. When the generator ends or is closed early, no file is open
        or mapped any more.
        """

    def center_crops(self) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        """Yield every image in file order, decoded as in `epoch`, with a center crop.

        Each batch has images, uint8 (N, C, H, W) in RGB order, and labels, int64 (N,). The last
        batch may be smaller.
        """


class Trainer(Protocol):
    """A network in a framework, ready to train. Parameters have canonical names and layouts."""

    def load(self, images: np.ndarray, labels: np.ndarray) -> Any:
        """Copy a batch, float32 (N, C, H, W) and int64 (N,), to the training device.

        If the trainer's attribute `channels_last` is true, images from files already lie in memory
        as (N, H, W, C). If `thread_safe_load` is true, data-loading threads call this method while
        earlier batches are trained on.
        """

    def step(self, batch: Any) -> None:
        """Do one training step, possibly returning before the device is done."""

    def wait_for_loss(self) -> float:
        """Wait for the device. Return the last step's total loss before its update."""

    def test_loss(self, batch: Any) -> float:
        """Return the total loss in test mode.

        It uses running averages, no dropout, and every head with its weight.
        """

    def test_scores(self, batch: Any) -> np.ndarray:
        """Return test-mode class scores, (N, classes): the input of the network's last loss."""

    def layer_outputs(self, batch: Any) -> dict[str, np.ndarray]:
        """Return training-mode outputs of layers by name, (N, C, H, W) or (N, C).

        "data" is included.

        This is for checks only. Loss layers, and outputs that a framework overwrites, may be left
        out.
        """

    def gradients(self, batch: Any) -> dict[str, np.ndarray]:
        """Return gradients of the training-mode loss, without weight decay or update.

        Running averages may change. A caller that continues training must call `assign` again.
        """

    def parameters(self) -> dict[str, np.ndarray]:
        """Return all parameters and running averages as host arrays in their precision."""

    def assign(self, parameters: dict[str, np.ndarray]) -> None:
        """Set every parameter. Velocities and the number of updates stay as they are."""

    def save(self, folder: Path) -> None:
        """Write a checkpoint into the empty `folder`, in the framework's own format.

        It holds everything that training needs to continue: parameters, velocities, the number of
        updates. It excludes the state of random numbers, which only dropout uses and most
        frameworks do not expose. The caller flushes the files. An adapter without `checkpoint` in
        its `adapter.toml` may leave out this method and `restore`.
        """

    def restore(self, folder: Path) -> None:
        """Continue from the checkpoint in `folder`. It is read as numbers, never executed."""

    def runtime_info(self) -> dict[str, Any]:
        """Return what actually ran.

        Keys: `framework_version`, `layout`, `kernel`, `kernel_evidence` (lines).
        """

    def profile(
        self, batch: Any, run_steps: Callable[[], float], clock: Callable[[], float]
    ) -> Profile:
        """Call `run_steps` once under the framework's profiler. Return times by layer.

        `run_steps` trains on `batch` and returns the seconds of its steps, the device included. A
        framework without a profiler times each layer with `clock`. An adapter with neither may
        leave out this method. Raises Unsupported if a kernel does not report times by layer.
        """

    def disable_sync(self) -> None:
        """Stop all exchange with other ranks, so that steps take computing time only.

        This cannot be undone. An adapter without strategies may leave it out.
        """
