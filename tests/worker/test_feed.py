"""Batches are prepared beside training, in their order, and whatever was begun for them ends."""

import threading
from dataclasses import dataclass

import numpy as np
import pytest

from xfbench.worker import feed
from xfbench.worker.input import DataSet, InMemory, OnDisk
from xfbench.worker.protocol import Group
from xfbench.worker.samples import Sample
from xfbench.workloads import workloads

CONVNET = workloads()["convnet"]
COUNT, BATCH = 10, 3


class Kept:
    """A trainer, as far as it is fed."""

    def load(self, images, labels):
        return images, labels


@dataclass(frozen=True)
class Barred(InMemory):
    """Images of which one cannot be read."""

    bad: int = -1

    def batch(self, chosen, draws=None, *, channels_last=False):
        if self.bad in chosen:
            raise ValueError(f"image {self.bad} is damaged")
        return super().batch(chosen, draws)


def numbered(bad=-1, endless=False):
    images = np.arange(COUNT, dtype=np.float32).reshape(COUNT, 1, 1, 1)
    return DataSet(Barred(images, np.arange(COUNT), bad), None, endless)


def fed(data, threads, group=None, trainer=None):
    return feed.Feed(feed.ours(data, trainer or Kept(), group or Group(), BATCH, 5, threads))


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_batch_order_depends_on_the_seed_not_on_threads(threads):
    source, data = fed(numbered(), threads), numbered()
    for seed in (5, 6, 7):
        for images, labels in data.epoch(BATCH, seed):
            got = source.batch()
            assert np.array_equal(got[0], images) and np.array_equal(got[1], labels)
    source.end()


class Loading(Kept):
    """One that says whether other threads may load, and remembers which did."""

    def __init__(self, thread_safe_load):
        self.thread_safe_load, self.threads = thread_safe_load, set()

    def load(self, images, labels):
        self.threads.add(threading.current_thread())
        return super().load(images, labels)


@pytest.mark.parametrize("beside", [False, True])
def test_loader_thread_loads_only_for_a_thread_safe_trainer(beside):
    trainer, data = Loading(beside), numbered()
    source = fed(data, 1, trainer=trainer)
    for images, labels in data.epoch(BATCH, 5):
        got = source.batch()
        assert np.array_equal(got[0], images) and np.array_equal(got[1], labels)
    assert (threading.current_thread() in trainer.threads) is not beside
    source.end()


def test_rank_gets_its_part_of_each_batch():
    group = Group(1, 3)
    source = fed(numbered(), 1, group)
    for images, _ in numbered().epoch(BATCH, 5, group.shard(BATCH)):
        assert np.array_equal(source.batch()[0], images)
    source.end()


def test_synthetic_input_is_loaded_once():
    data = DataSet(InMemory(np.zeros((BATCH, 1, 1, 1)), np.zeros(BATCH)), None, endless=True)
    source = fed(data, 1)
    assert source.batch() is source.batch()
    source.end()


@pytest.mark.parametrize("taken", [1, 3])
def test_feed_end_stops_the_loader_threads(taken):
    before = set(threading.enumerate())
    source = fed(numbered(), 2)
    for _ in range(taken):
        source.batch()
    assert source.threads
    source.end()
    assert set(threading.enumerate()) == before
    assert source.batch() is not None
    source.end()


def test_loader_error_is_raised_when_a_batch_is_requested():
    source = fed(numbered(bad=4), 1)
    with pytest.raises(ValueError, match="image 4 is damaged"):
        for _ in range(3 * COUNT):
            source.batch()


def test_reader_without_a_full_batch_is_an_error():
    with pytest.raises(ValueError, match="no whole batch"):
        feed.Feed(lambda _: iter(())).batch()


class Own:
    """A reader that gives these images."""

    def __init__(self, images, labels):
        self.given = images, labels

    def center_crops(self):
        yield self.given


@pytest.mark.parametrize(
    ("change", "relabelled", "found"),
    [
        (0, False, (0, 0, 0.0, True)),
        (3, False, (1, 3, 3.0, True)),
        (100, True, (1, 100, 100.0, False)),
    ],
)
def test_reader_differences_are_measured(change, relabelled, found):
    pixels = np.random.RandomState(0).randint(0, 100, (5, 3, 32, 32)).astype(np.uint8)
    split = OnDisk([Sample(str(n), n, one) for n, one in enumerate(pixels)], CONVNET)
    images, labels = pixels.copy(), np.arange(5)
    images[2] += np.uint8(change)
    labels[4] += relabelled
    told = feed.compared(Own(images, labels), split)
    names = ("differing", "largest_difference", "mean_difference", "labels_equal")
    assert told["compared"] == 5 and tuple(told[name] for name in names) == found
