"""Feed batches to a trainer. Batches from files are prepared during training.

Batches come from `input.py`, which is the same for every framework, or from the framework's own
reader. Time spent in `Feed.batch` counts as waiting for input.
"""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice, repeat
from pathlib import Path
from typing import Any, Callable, Deque, Dict, Iterator, Set, Tuple

import numpy as np

from xfbench.worker import observe
from xfbench.worker.input import DataSet, OnDisk, Split
from xfbench.worker.protocol import Group, Reader, Trainer, TrainingFiles
from xfbench.workloads import Workload

_MAX_COMPARED = 500  # images that a launch reads again through a framework's own reader
_MAX_READ_IN_ORDER = 5000  # images that a reader passes over to compare some of them

BatchesOfEpoch = Callable[[int], Iterator[Any]]


class Feed:
    """An endless series of epochs, each a series of batches.

    - `epoch`: the function that returns the batches of the epoch with a given number, from 0 on
    - `number`: the number of the next epoch
    - `current`: the remaining batches of the current epoch
    - `threads`: the system's ids of the threads that were started to prepare input
    """

    def __init__(self, epoch: BatchesOfEpoch) -> None:
        self.epoch, self.number = epoch, 0
        self.current: Iterator[Any] = iter(())
        self.threads: Set[int] = set()

    def batch(self) -> Any:
        """Return the next batch. Start the next epoch if the current one has no more batches.

        Raises ValueError if an epoch has no batch.
        """
        for batch in self.current:
            return batch
        before = set(observe.thread_ticks())
        self.current = self.epoch(self.number)
        self.number += 1
        try:
            return next(self.current)
        except StopIteration:
            raise ValueError("the reader returned no whole batch of training images") from None
        finally:
            self.threads |= set(observe.thread_ticks()) - before

    def close_current_epoch(self) -> None:
        """End the current epoch and close its files."""
        getattr(self.current, "close", lambda: None)()


def build_feed(
    data: DataSet, reader: Reader | None, trainer: Trainer, group: Group, request: Dict[str, Any]
) -> Feed:
    """Return a feed of batches from `reader`, or from `data` if `reader` is None.

    `reader` is the framework's own reader. `input.py` reads `data`.
    """
    seed = request["seed"]
    if reader:
        return Feed(batches_of_epoch_from_reader(reader, seed))
    threads = request.get("input_threads") or 0
    return Feed(
        batches_of_epoch_from_data_set(
            data, trainer, group, request["global_batch_size"], seed, threads
        )
    )


def describe_training_files(
    folder: Path, data: DataSet, workload: Workload, request: Dict[str, Any]
) -> TrainingFiles:
    """Return the description of the training images for a framework's own reader.

    `data` is the opened data set in `folder`.
    """
    return TrainingFiles(
        folder=folder,
        format=request["data_set"]["format"],
        image_count=len(data.train),
        workload=workload,
        batch_size=request["batch_size_per_rank"],
        threads=request["input_threads"],
    )


def epoch_seed(seed: int, epoch_number: int) -> int:
    """Return the seed of an epoch's order. Epoch 0 has `seed` itself.

    Later epochs have a hash of 31 bits, so that the epochs of two neighbouring seeds differ.
    """
    if not epoch_number:
        return seed
    digest = hashlib.sha256(f"{seed}:{epoch_number}".encode()).digest()
    return int.from_bytes(digest[:4], "little") >> 1


def batches_of_epoch_from_data_set(
    data: DataSet, trainer: Trainer, group: Group, batch_size: int, seed: int, threads: int
) -> BatchesOfEpoch:
    """Return a function that yields the batches of the epoch with a given number.

    Each batch is this rank's shard of a global batch of `batch_size` images. The order depends on
    `seed` and the epoch's number. `threads` threads prepare the batches. If `threads` is 0, the
    calling thread prepares them.
    """
    part = group.shard(batch_size)
    channels_last = getattr(trainer, "channels_last", False)
    is_thread_safe = getattr(trainer, "thread_safe_load", False)
    if data.is_single_batch:
        [batch] = data.epoch(batch_size, seed, part)
        loaded = trainer.load(*batch)
        return lambda _: repeat(loaded)

    def prepare_batch(image_indices: np.ndarray, draws: np.ndarray | None) -> Any:
        arrays = data.train.batch(image_indices, draws, channels_last=channels_last)
        return trainer.load(*arrays) if is_thread_safe else arrays

    def iterate_batches(epoch_number: int) -> Iterator[Any]:
        order = data.order(batch_size, epoch_seed(seed, epoch_number), part)
        for batch in _prefetch_batches_in_order(prepare_batch, order, threads):
            yield batch if is_thread_safe else trainer.load(*batch)

    return iterate_batches


def batches_of_epoch_from_reader(reader: Reader, seed: int) -> BatchesOfEpoch:
    """Return a function that yields the batches of the epoch with a given number from `reader`."""
    return lambda number: reader.epoch(epoch_seed(seed, number))


def _prefetch_batches_in_order(
    prepare_batch: Callable[[np.ndarray, np.ndarray | None], Any],
    order: Iterator[Tuple[np.ndarray, np.ndarray | None]],
    threads: int,
) -> Iterator[Any]:
    """Yield the batches in order, while `threads` threads prepare the following batches.

    If `threads` is 0, each batch is prepared when it is requested. `order` has the arguments of
    `prepare_batch` for each batch.
    """
    if not threads:
        yield from (prepare_batch(chosen, draws) for chosen, draws in order)
        return
    pool = ThreadPoolExecutor(threads)
    waiting: Deque[Future[Any]] = deque()
    try:
        for chosen, draws in islice(order, threads + 1):
            waiting.append(pool.submit(prepare_batch, chosen, draws))
        while waiting:
            ready = waiting.popleft().result()
            for chosen, draws in islice(order, 1):
                waiting.append(pool.submit(prepare_batch, chosen, draws))
            yield ready
    finally:
        for future in waiting:
            future.cancel()
        pool.shutdown()


def compare_reader_images(reader: Reader, split: Split) -> Dict[str, Any]:
    """Compare center crops from the framework's own reader with those from `input.py`.

    At most 500 images are compared, spread over the data set. The result has these fields:

    - `compared`: number of compared images
    - `differing`: number of images with a different pixel
    - `largest_difference`: largest difference of a pixel, in levels from 0 to 255
    - `mean_difference`: mean over the pixels of the image that differs most, in levels; an
      unrelated image gives tens of levels
    - `labels_equal`: false if any label differs
    """
    assert isinstance(split, OnDisk)
    count, differing, largest, mean, labels_equal = 0, 0, 0, 0.0, True
    for index, image, label in _spread_center_crops(reader, len(split)):
        expected, expected_label = split.crop(index)
        difference = np.abs(image.astype(np.int16) - expected)
        differing += bool(difference.any())
        largest, mean = max(largest, int(difference.max())), max(mean, float(difference.mean()))
        labels_equal &= int(label) == expected_label
        count += 1
    return {
        "compared": count,
        "differing": differing,
        "largest_difference": largest,
        "mean_difference": mean,
        "labels_equal": labels_equal,
    }


def _spread_center_crops(
    reader: Reader, image_count: int
) -> Iterator[Tuple[int, np.ndarray, np.ndarray]]:
    """Yield (index, center crop, label) of images that are spread evenly over the data set.

    A reader that has no `center_crops_at` returns all images in order. It passes over
    _MAX_READ_IN_ORDER images at most, and the images are spread over these.
    """
    read_at = getattr(reader, "center_crops_at", None)
    reachable = image_count if read_at else min(image_count, _MAX_READ_IN_ORDER)
    count = min(reachable, _MAX_COMPARED)
    indices = [number * reachable // count for number in range(count)]
    batches = read_at(indices) if read_at else reader.center_crops()
    crops = ((image, label) for images, labels in batches for image, label in zip(images, labels))
    if read_at:
        for index, (image, label) in zip(indices, crops):
            yield index, image, label
        return
    chosen = set(indices)
    for index, (image, label) in enumerate(crops):
        if index in chosen:
            yield index, image, label
        if index >= indices[-1]:
            return
