"""The interface between xfbench and a framework: what an adapter implements and receives.

An adapter's `train.py` has one entry point, `build`, which returns a `Trainer`. The module reads no
clock, no file except a checkpoint, and no environment variable that selects behaviour. The
adapter's `adapter.toml` defines how the process is started (threads, kernel switches). xfbench
applies these settings before it starts the interpreter.
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
    """The options of training, in terms that every adapter understands.

    - `kernel`: a kernel library named in the adapter's `adapter.toml`.
    - `threads`: the number of computing threads.
    - `precision`: "float32", "float64", "tf32", "bfloat16" or "float16".
    - `device`: "cpu" or "cuda".
    - `dropout`: "random" for timing (the framework's own dropout), or "identity" for exact
      comparisons.
    - `seed`: the seed of the framework's own random numbers.

    "tf32", "bfloat16" and "float16" round numbers but keep parameters in float32. `precision.py` of
    the reference adapter defines what is rounded.
    """

    kernel: str
    threads: int
    precision: str = "float32"
    device: str = "cpu"
    dropout: str = "random"
    seed: int = 0


@dataclass(frozen=True)
class Group:
    """The ranks that train together, and their strategy.

    - `rank`: the number of this rank, from 0.
    - `size`: the number of ranks.
    - `strategy`: a strategy named by the adapter, or "none" for a single rank. "parts": one process
      does the work of `size` ranks, as the oracle does.
    - `rendezvous_path`: a path that belongs to this launch and is visible to all ranks. No file has
      this path, so that ranks can create files there to find each other.
    - `multi_node`: whether ranks may be on other nodes.
    - `options`: the value of each option of the strategy in the adapter's `adapter.toml`.
    """

    rank: int = 0
    size: int = 1
    strategy: str = "none"
    rendezvous_path: str = ""
    multi_node: bool = False
    options: Dict[str, Any] = field(default_factory=dict, hash=False)

    def shard(self, count: int) -> slice:
        """Return this rank's slice of `count` images, which are divided evenly among the ranks.

        With the strategy "parts", the slice has all images.
        """
        if self.strategy == "parts":
            return slice(0, count)
        each = count // self.size
        return slice(self.rank * each, (self.rank + 1) * each)


@dataclass(frozen=True)
class TrainingFiles:
    """The training images of a prepared data set, for a framework's own reader.

    - `folder`: the data set's folder (see `xfbench.worker.prepared`).
    - `format`: the format of the files, one of `xfbench.worker.prepared.FORMATS`.
    - `image_count`: the number of training images.
    - `workload`: defines how images are cropped, mirrored and scaled.
    - `batch_size`: the number of images in a batch.
    - `threads`: the number of threads that prepare batches during training.
    """

    folder: Path
    format: str
    image_count: int
    workload: Workload
    batch_size: int
    threads: int


@dataclass(frozen=True)
class Profile:
    """The time that layers took in several steps. All times are seconds, summed over these steps.

    - `profiler`: the name of the profiler.
    - `forward`, `backward`: times of the layers, by name.
    - `update`: time of the parameter updates.
    - `unattributed`: time that belongs to no layer and no update.

    Operations that run at the same time all count, so the sum may exceed the elapsed time.
    """

    profiler: str
    forward: Dict[str, float]
    backward: Dict[str, float]
    update: float = 0.0
    unattributed: float = 0.0


class Reader(Protocol):
    """A framework's own reader of a data set.

    If an adapter's `adapter.toml` names `readers`, the adapter's `reader.py` has a function
    `open_reader(files, options)`, which returns the reader.
    """

    def epoch(self, seed: int) -> Iterator[Any]:
        """Yield the batches of one epoch, in the form that `Trainer.step` takes.

        - Every batch is whole. Images that do not fill a last batch are left out.
        - Each image occurs at most once. The reader chooses the order.
        - Images are cropped at random and mirrored as the workload defines.
        - When the generator ends or is closed early, no file stays open or mapped.
        """

    def center_crops(self) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        """Yield batches of all images in file order, decoded as in `epoch` and center-cropped.

        Each batch is (images, labels): uint8 (N, C, H, W) in RGB order, and int64 (N,). The last
        batch may be smaller.

        A reader with random access may have a method `center_crops_at(indices)`, too. It yields the
        same for the images with these positions, in this order.
        """


class Trainer(Protocol):
    """A network in a framework, ready to train. Parameters have canonical names and layouts."""

    def load(self, images: np.ndarray, labels: np.ndarray) -> Any:
        """Copy a batch to the training device. Return it in the form that `step` takes.

        - `images`: float32 (N, C, H, W). If the trainer's attribute `channels_last` is true, images
          from files lie in memory in the order (N, H, W, C).
        - `labels`: int64 (N,).

        If the trainer's attribute `thread_safe_load` is true, data-loading threads call this method
        while the trainer trains on earlier batches.
        """

    def step(self, batch: Any) -> None:
        """Do one training step. This method may return before the device is done."""

    def wait_for_loss(self) -> float:
        """Wait for the device. Return the total loss of the last step, before the step's update."""

    def test_loss(self, batch: Any) -> float:
        """Return the total loss in test mode: the sum of all heads' losses with their weights.

        Test mode uses running averages and no dropout.
        """

    def test_scores(self, batch: Any) -> np.ndarray:
        """Return class scores in test mode, (N, classes): the input of the network's last loss."""

    def layer_outputs(self, batch: Any) -> dict[str, np.ndarray]:
        """Return the outputs of layers in training mode, by name: (N, C, H, W) or (N, C).

        The outputs include "data", the network's input. Loss layers, and outputs that the framework
        overwrites, may be left out. Only checks call this method.
        """

    def gradients(self, batch: Any) -> dict[str, np.ndarray]:
        """Return the gradients of the loss in training mode, by parameter name.

        The gradients do not include weight decay. Parameters are not updated, but running averages
        may change. Therefore call `assign` before you continue to train.
        """

    def parameters(self) -> dict[str, np.ndarray]:
        """Return all parameters and running averages by name, as host arrays in their precision."""

    def assign(self, parameters: dict[str, np.ndarray]) -> None:
        """Set every parameter and running average by name.

        Velocities and the number of updates stay unchanged.
        """

    def save(self, folder: Path) -> None:
        """Write a checkpoint into the empty `folder`, in the framework's own format.

        The checkpoint has everything that training needs to continue: parameters, velocities and
        the number of updates. It excludes the state of random numbers, which only dropout uses and
        most frameworks do not expose. The caller flushes the files to disk. An adapter without
        `checkpoint` in its `adapter.toml` may leave out this method and `restore`.
        """

    def restore(self, folder: Path) -> None:
        """Restore the checkpoint in `folder`. Its content is read as numbers, never executed."""

    def runtime_info(self) -> dict[str, Any]:
        """Return facts about what actually ran, as fields of a record's `Observed`.

        - `framework_version`: the framework's version.
        - `layout`: the order of the axes of images, such as "NCHW".
        - `kernel`: the kernel library that ran, named as in `adapter.toml`.
        - `kernel_evidence`: lines of text that show which kernel library ran.

        Other fields that only the framework can observe, such as `precision`, may follow.
        """

    def device_uuid(self) -> str | None:
        """Return the UUID of the NVIDIA device that this trainer uses. None if it is unknown.

        The prefix "GPU-" or "MIG-" may be missing. An adapter whose framework never says the UUID
        leaves out this method.
        """

    def profile(
        self, batch: Any, run_steps: Callable[[], float], clock: Callable[[], float]
    ) -> Profile:
        """Call `run_steps` once under the framework's profiler. Return the times by layer.

        - `run_steps`: trains several steps on `batch`, waits for the device, and returns the
          seconds that this took.
        - `clock`: returns the time in seconds. A framework without a profiler times each layer
          with it.

        An adapter that cannot measure layers may leave out this method. Raises Unsupported if a
        kernel does not report times by layer.
        """

    def disable_sync(self) -> None:
        """Stop all communication with other ranks, so that later steps only compute.

        This cannot be undone. An adapter without strategies may leave out this method.
        """

    def end_compile_processes(self) -> None:
        """End the processes that compile the network. Otherwise they stay while steps are timed.

        A later compilation may start them again. An adapter without such processes may leave out
        this method.
        """

    def restart_peak_device_memory(self) -> None:
        """Forget the earlier peak of the GPU's memory, if the framework can do so.

        An adapter without GPUs may leave out this method and `peak_device_memory`.
        """

    def peak_device_memory(self) -> dict[str, int | None]:
        """Return fields of a record's `Measurement`: the peak of the GPU's memory, in bytes.

        A field is None or missing if the framework cannot tell it, and without a GPU.

        - `peak_device_bytes`: the memory of the framework's data.
        - `peak_device_reserved_bytes`: all memory that the framework held, also for later data.
        """
