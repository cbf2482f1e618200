"""Feeds a trainer: batches where they train, prepared beside training where they come from files.

Either by us (`input.py`), the same in every framework, or by the framework's own reader.
Time that is spent here is waiting for input.
"""

from __future__ import annotations

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

_COMPARED = 500  # images that a launch reads once more through a framework's own reader

Epoch = Callable[[int], Iterator[Any]]


class Feed:
    """Epoch after epoch, without end; `epoch` gives the batches of the one of that number, from 0.

    `threads` are those that were started to give input; the kernel's numbers for them.
    """

    def __init__(self, epoch: Epoch) -> None:
        self.epoch, self.number = epoch, 0
        self.current: Iterator[Any] = iter(())
        self.threads: Set[int] = set()

    def batch(self) -> Any:
        """The next one."""
        for batch in self.current:
            return batch
        before = set(observe.thread_ticks())
        self.current = self.epoch(self.number)
        self.number += 1
        try:
            return next(self.current)
        except StopIteration:
            raise ValueError("the reader gave no whole batch of the training images") from None
        finally:
            self.threads |= set(observe.thread_ticks()) - before

    def end(self) -> None:
        """The epoch is over: whatever was open for it is closed."""
        getattr(self.current, "close", lambda: None)()


def source(
    data: DataSet, reader: Reader | None, trainer: Trainer, group: Group, request: Dict[str, Any]
) -> Feed:
    """What the request asks for: the framework's own reader, where it is given, or us."""
    seed = request["seed"]
    if reader:
        return Feed(native(reader, seed))
    threads = request.get("input_threads") or 0
    return Feed(ours(data, trainer, group, request["global_batch_size"], seed, threads))


def files(
    folder: Path, data: DataSet, workload: Workload, request: Dict[str, Any]
) -> TrainingFiles:
    """What a framework's own reader is told."""
    return TrainingFiles(
        folder=folder,
        format=request["data_set"]["format"],
        image_count=len(data.train),
        workload=workload,
        batch_size=request["batch_size_per_rank"],
        threads=request["input_threads"],
    )


def ours(
    data: DataSet, trainer: Trainer, group: Group, batch_size: int, seed: int, threads: int
) -> Epoch:
    """This rank's part of batches of `batch_size`; prepared by so many threads, where any."""
    part = group.shard(batch_size)
    channels_last = getattr(trainer, "channels_last", False)
    beside = getattr(trainer, "thread_safe_load", False)
    if data.endless:
        [own] = data.epoch(batch_size, seed, part)
        loaded = trainer.load(*own)
        return lambda _: repeat(loaded)

    def prepared(chosen: np.ndarray, draws: np.ndarray | None) -> Any:
        arrays = data.train.batch(chosen, draws, channels_last=channels_last)
        return trainer.load(*arrays) if beside else arrays

    def epoch(number: int) -> Iterator[Any]:
        order = data.order(batch_size, seed + number, part)
        for batch in _beside(prepared, order, threads):
            yield batch if beside else trainer.load(*batch)

    return epoch


def native(reader: Reader, seed: int) -> Epoch:
    """What the framework's own reader gives."""
    return lambda number: reader.epoch(seed + number)


def _beside(
    prepared: Callable[[np.ndarray, np.ndarray | None], Any],
    order: Iterator[Tuple[np.ndarray, np.ndarray | None]],
    threads: int,
) -> Iterator[Any]:
    """Batches in order; each thread prepares one, while the ones before it are trained on."""
    if not threads:
        yield from (prepared(chosen, draws) for chosen, draws in order)
        return
    pool = ThreadPoolExecutor(threads)
    waiting: Deque[Future[Any]] = deque()
    try:
        for chosen, draws in islice(order, threads + 1):
            waiting.append(pool.submit(prepared, chosen, draws))
        while waiting:
            ready = waiting.popleft().result()
            for chosen, draws in islice(order, 1):
                waiting.append(pool.submit(prepared, chosen, draws))
            yield ready
    finally:
        for one in waiting:
            one.cancel()
        pool.shutdown()


def compared(reader: Reader, split: Split) -> Dict[str, Any]:
    """How the first images of the framework's own reader differ from ours, in levels of 0 to 255.

    The middles of up to 500 images; `labels_equal` is false where even one label is another.
    `mean_difference` is that of the image that is least like ours: of another image's, tens.
    """
    assert isinstance(split, OnDisk)
    count, differing, largest, mean, labels_equal = 0, 0, 0, 0.0, True
    for images, labels in reader.center_crops():
        for image, label in zip(images, labels):
            if count == min(len(split), _COMPARED):
                break
            own, own_label = split.cropped(count)
            apart = np.abs(image.astype(np.int16) - own)
            differing += bool(apart.any())
            largest, mean = max(largest, int(apart.max())), max(mean, float(apart.mean()))
            labels_equal &= int(label) == own_label
            count += 1
        if count == min(len(split), _COMPARED):
            break
    return {
        "compared": count,
        "differing": differing,
        "largest_difference": largest,
        "mean_difference": mean,
        "labels_equal": labels_equal,
    }
