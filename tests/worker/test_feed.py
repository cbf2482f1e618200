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


class PassThroughTrainer:
    """A trainer, as far as it is fed."""

    def load(self, images, labels):
        return images, labels


@dataclass(frozen=True)
class DamagedImages(InMemory):
    """Images of which one cannot be read."""

    damaged_index: int = -1

    def batch(self, chosen, draws=None, *, channels_last=False):
        if self.damaged_index in chosen:
            raise ValueError(f"image {self.damaged_index} is damaged")
        return super().batch(chosen, draws)


def make_numbered_data(damaged_index=-1, endless=False):
    images = np.arange(COUNT, dtype=np.float32).reshape(COUNT, 1, 1, 1)
    return DataSet(DamagedImages(images, np.arange(COUNT), damaged_index), None, endless)


def make_feed(data, threads, group=None, trainer=None):
    return feed.Feed(
        feed.batches_of_epoch_from_data_set(
            data, trainer or PassThroughTrainer(), group or Group(), BATCH, 5, threads
        )
    )


@pytest.mark.case("Orders of two seeds")
def test_epochs_of_neighbouring_seeds_have_orders_of_their_own():
    data, orders = make_numbered_data(), []
    for seed in range(5):
        batches = feed.batches_of_epoch_from_data_set(
            data, PassThroughTrainer(), Group(), BATCH, seed, 0
        )
        orders += [
            tuple(np.concatenate([labels for _, labels in batches(epoch)])) for epoch in range(10)
        ]
    assert len(set(orders)) == 50
    first_epoch = [labels for _, labels in data.epoch(BATCH, 4)]
    assert orders[40] == tuple(np.concatenate(first_epoch))


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_batch_order_depends_on_the_seed_not_on_threads(threads):
    source, data = make_feed(make_numbered_data(), threads), make_numbered_data()
    orders = []
    for seed in (feed.epoch_seed(5, number) for number in range(3)):
        orders.append([])
        for images, labels in data.epoch(BATCH, seed):
            loaded_images, loaded_labels = source.batch()
            assert np.array_equal(loaded_images, images)
            assert np.array_equal(loaded_labels, labels)
            orders[-1] += loaded_labels.tolist()
    source.close_current_epoch()
    assert len({tuple(order) for order in orders}) == 3


class LoadingTrainer(PassThroughTrainer):
    """One that says whether other threads may load, and remembers which did."""

    def __init__(self, thread_safe_load):
        self.thread_safe_load, self.threads = thread_safe_load, set()

    def load(self, images, labels):
        self.threads.add(threading.current_thread())
        return super().load(images, labels)


@pytest.mark.parametrize("is_thread_safe", [False, True])
def test_loader_thread_loads_only_for_a_thread_safe_trainer(is_thread_safe):
    trainer, data = LoadingTrainer(is_thread_safe), make_numbered_data()
    source = make_feed(data, 1, trainer=trainer)
    for images, labels in data.epoch(BATCH, 5):
        loaded_batch = source.batch()
        assert np.array_equal(loaded_batch[0], images) and np.array_equal(loaded_batch[1], labels)
    assert (threading.current_thread() in trainer.threads) is not is_thread_safe
    source.close_current_epoch()


def test_rank_gets_its_part_of_each_batch():
    group = Group(1, 3)
    source = make_feed(make_numbered_data(), 1, group)
    for images, _ in make_numbered_data().epoch(BATCH, 5, group.shard(BATCH)):
        assert np.array_equal(source.batch()[0], images)
    source.close_current_epoch()


def test_synthetic_input_is_loaded_once():
    data = DataSet(
        InMemory(np.zeros((BATCH, 1, 1, 1)), np.zeros(BATCH)), None, is_single_batch=True
    )
    source = make_feed(data, 1)
    assert source.batch() is source.batch()
    source.close_current_epoch()


@pytest.mark.parametrize("batch_count", [1, 3])
def test_feed_end_stops_the_loader_threads(batch_count):
    before = set(threading.enumerate())
    source = make_feed(make_numbered_data(), 2)
    for _ in range(batch_count):
        source.batch()
    assert source.threads
    source.close_current_epoch()
    assert set(threading.enumerate()) == before
    assert source.batch() is not None
    source.close_current_epoch()


def test_loader_error_is_raised_when_a_batch_is_requested():
    source = make_feed(make_numbered_data(damaged_index=4), 1)
    with pytest.raises(ValueError, match="image 4 is damaged"):
        for _ in range(3 * COUNT):
            source.batch()


def test_reader_without_a_full_batch_is_an_error():
    with pytest.raises(ValueError, match="no whole batch"):
        feed.Feed(lambda _: iter(())).batch()


class FixedReader:
    """A reader that gives these images."""

    def __init__(self, images, labels):
        self.crops = images, labels

    def center_crops(self):
        yield self.crops


class RandomAccessReader(FixedReader):
    """A reader that gives some of these images."""

    def center_crops_at(self, indices):
        for index in indices:
            yield tuple(array[[index]] for array in self.crops)


@pytest.mark.case("Images beyond the first 500")
@pytest.mark.parametrize(
    ("reader_class", "count"), [(FixedReader, 900), (RandomAccessReader, 9000)]
)
def test_compared_images_are_spread_over_the_set(reader_class, count):
    images, labels = np.zeros((count, 3, 32, 32), np.uint8), np.arange(count)
    split = OnDisk([Sample(str(n), n, image) for n, image in enumerate(images)], CONVNET)
    changed_images = images.copy()
    changed_images[count // 2 :] += np.uint8(1)
    comparison = feed.compare_reader_images(reader_class(changed_images, labels), split)
    assert (comparison["compared"], comparison["differing"]) == (500, 250)
    assert comparison["labels_equal"]


@pytest.mark.parametrize(
    ("pixel_change", "label_change", "expected"),
    [
        (0, False, (0, 0, 0.0, True)),
        (3, False, (1, 3, 3.0, True)),
        (100, True, (1, 100, 100.0, False)),
    ],
)
def test_reader_differences_are_measured(pixel_change, label_change, expected):
    pixels = np.random.RandomState(0).randint(0, 100, (5, 3, 32, 32)).astype(np.uint8)
    split = OnDisk([Sample(str(n), n, image) for n, image in enumerate(pixels)], CONVNET)
    images, labels = pixels.copy(), np.arange(5)
    images[2] += np.uint8(pixel_change)
    labels[4] += label_change
    differences = feed.compare_reader_images(FixedReader(images, labels), split)
    names = ("differing", "largest_difference", "mean_difference", "labels_equal")
    assert differences["compared"] == 5 and tuple(differences[name] for name in names) == expected
