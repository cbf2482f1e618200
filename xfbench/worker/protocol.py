"""What an adapter implements and what it is given: the surface between xfbench and a framework.

An adapter's `train.py` has one entrance, `build`, which returns a `Trainer`. It reads no
clock, no file but a checkpoint and no environment variable that selects behaviour: how it
was started (threads, kernel switches) is data in its `adapter.toml`, set before the
interpreter is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Protocol, Tuple

import numpy as np

from xfbench.workloads import Workload

# What the loss is multiplied by, in float16, so that fewer gradients become 0 on their way back.
LOSS_SCALE = 2.0**10


class Unsupported(Exception):
    """A framework cannot do what was asked; the message says what and why, in one line."""


class Unavailable(Exception):
    """What a framework needs for what was asked is not on this node; the message says what."""


@dataclass(frozen=True)
class Options:
    """How to train, in words that every adapter understands.

    `kernel` is one of the adapter's own names (its `adapter.toml`); `precision` "float32",
    "float64", or one that rounds: "tf32", "bfloat16", "float16" (what is rounded is written
    in the reference's `precision.py`; parameters stay in float32); `device` "cpu" or "cuda";
    `dropout` "random" (the framework's own, for timing) or "identity" (for comparisons, which
    must be exact); `seed` what the framework's own random numbers start from.
    """

    kernel: str
    threads: int
    precision: str = "float32"
    device: str = "cpu"
    dropout: str = "random"
    seed: int = 0


@dataclass(frozen=True)
class Group:
    """The ranks that train together: this one's number, how many there are, and how they do it.

    `strategy` is one of the adapter's names for it, "none" for a single rank, and "parts" where
    one process does what `size` ranks must, as the oracle does. `rendezvous_path` is a file
    of this launch alone, which all ranks see and none has made: where they may find one
    another. Where they may be on other nodes, `multi_node` is true. `options` has a value for each
    that the strategy has in the adapter's `adapter.toml`.
    """

    rank: int = 0
    size: int = 1
    strategy: str = "none"
    rendezvous_path: str = ""
    multi_node: bool = False
    options: Dict[str, Any] = field(default_factory=dict, hash=False)

    def shard(self, count: int) -> slice:
        """This rank's part of so many images, which the ranks share evenly."""
        if self.strategy == "parts":
            return slice(0, count)
        each = count // self.size
        return slice(self.rank * each, (self.rank + 1) * each)


@dataclass(frozen=True)
class TrainingFiles:
    """The training images of a prepared data set, for a framework's own reader.

    `folder` has them in `format` (see `xfbench.worker.prepared`), `image_count` of them; the
    workload says how they are cropped, mirrored and scaled. `threads` prepare batches of
    `batch_size` beside training.
    """

    folder: Path
    format: str
    image_count: int
    workload: Workload
    batch_size: int
    threads: int


@dataclass(frozen=True)
class Profile:
    """Where the time of some steps went, in seconds of all of them, by layer.

    `profiler` is what told so; `other` belongs to no layer and no update. Work that is done at
    the same time is counted each by itself, so that all of it may be more than what passed.
    """

    profiler: str
    forward: Dict[str, float]
    backward: Dict[str, float]
    update: float = 0.0
    unattributed: float = 0.0


class Reader(Protocol):
    """A framework's own way from files to batches: `open_reader(files, options)` of an adapter's
    `reader.py`, where its `adapter.toml` names `readers`.
    """

    def epoch(self, seed: int) -> Iterator[Any]:
        """Whole batches as `Trainer.step` takes them, of each image once, or left out at the end.

        Cropped at random and mirrored as the workload has it, in an order of the reader's own.
        A generator: where it is closed early or has ended, no file is open or mapped any more.
        """

    def center_crops(self) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        """Every image in the order of the files, decoded as in `epoch`, and nothing but cropped.

        The middle of each, uint8 (N, C, H, W), red before blue, and labels, int64 (N,); the last
        batch may be smaller.
        """


class Trainer(Protocol):
    """A network in a framework, ready to train. Parameters carry canonical names and layouts."""

    def load(self, images: np.ndarray, labels: np.ndarray) -> Any:
        """Put a batch where it trains: float32 (N, C, H, W) and int64 (N,), in any layout.

        Where the trainer has `channels_last` and it is true, images from files lie in memory as
        (N, H, W, C) already; where `thread_safe_load` is, it is called by the threads that prepare
        batches, while the ones before are trained on.
        """

    def step(self, batch: Any) -> None:
        """One training step; may return before the device is done."""

    def synchronize(self) -> float:
        """Return when the device is done: the last step's total loss, before its update."""

    def loss(self, batch: Any) -> float:
        """Total loss in test mode (running averages, no dropout, every head with its weight)."""

    def scores(self, batch: Any) -> np.ndarray:
        """Test-mode class scores, (N, classes): what the network's last loss reads."""

    def outputs(self, batch: Any) -> dict[str, np.ndarray]:
        """Of "data" and of layers by name, in training mode, canonical (N, C, H, W) or (N, C).

        For checks only; loss layers, and what a framework overwrites, may be left out.
        """

    def gradients(self, batch: Any) -> dict[str, np.ndarray]:
        """Gradients of the training-mode loss, without decay; no update.

        Running averages may have moved afterwards: whoever goes on assigns again.
        """

    def parameters(self) -> dict[str, np.ndarray]:
        """Every parameter, running averages included, as host arrays of its own precision."""

    def assign(self, parameters: dict[str, np.ndarray]) -> None:
        """Set every parameter. Velocities and the count of updates stay as they are."""

    def save(self, folder: Path) -> None:
        """Write a checkpoint into the empty `folder`, in the framework's own format.

        All that training goes on from: parameters, velocities, the count of updates; not the
        state of random numbers, which dropout takes and most frameworks keep to themselves.
        Whoever calls flushes the files. An adapter whose `adapter.toml` names no `checkpoint`
        may leave this and `restore` out.
        """

    def restore(self, folder: Path) -> None:
        """Go on from the checkpoint in `folder`; what it holds is read as numbers, never run."""

    def runtime_info(self) -> dict[str, Any]:
        """What really ran: `framework_version`, `layout`, `kernel`, `kernel_evidence` (lines)."""

    def profile(
        self, batch: Any, steps: Callable[[], float], clock: Callable[[], float]
    ) -> Profile:
        """Call `steps` once under the framework's own profiler, which trains on `batch`.

        It returns the seconds that all of its steps took, the device being done with them. A
        framework without a profiler times layer by layer with `clock`. An adapter without
        either may leave it out; raises Unsupported where a kernel tells nothing of layers.
        """

    def disable_sync(self) -> None:
        """From now on steps join nothing with other ranks: what computing alone takes.

        For good; an adapter without strategies may leave it out.
        """
