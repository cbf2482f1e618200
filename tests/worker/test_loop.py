"""The training loop: what it times as a step, how it warms up, when it looks at the cores."""

import itertools
import math
import threading
import time

import pytest

from tests.fake_trainer import FakeTrainer
from xfbench.analysis import statistics
from xfbench.data import sources, writing
from xfbench.data.manifest import Preprocessing
from xfbench.records.record import Measurement
from xfbench.worker import loop
from xfbench.worker.input import open_data_set
from xfbench.workloads import workloads

STEPS, WARMUP = 4, 2
EPOCHS = {"steps": None, "data": "digits", "global_batch_size": 64, "batch_size_per_rank": 64}
TIMED = ["step", "wait"]


@pytest.fixture
def simulated(clock, train):
    """A function that trains with steps of these seconds, over and over: the reply."""

    def do(paces, **request):
        paces = itertools.cycle(paces)

        class Simulated(FakeTrainer):
            def step(self, batch):
                clock.now += next(paces)

        return train(Simulated(), **request)

    return do


def measured(reply):
    return Measurement.model_validate(reply["measurement"])


def test_steps_are_timed_individually_without_a_window(simulated):
    timed = measured(simulated([9, 8, 1, 2, 3], steps=3, warmup=1))
    assert timed.first_step_seconds == pytest.approx(9)
    assert timed.warmup_seconds == pytest.approx((8,))
    assert timed.step_seconds == pytest.approx((1, 2, 3))
    assert (timed.window, timed.images, len(timed.losses)) == (1, 12, 5)
    assert timed.wall_seconds == pytest.approx(23)


def test_window_is_timed_as_a_unit_and_gives_the_mean_step(simulated):
    paces = [9, *[8, 8, 8, 8], *[1, 2, 3, 4], *[5, 5, 5, 9]]
    timed = measured(simulated(paces, steps=8, warmup=3, window=4))
    assert timed.warmup_seconds == pytest.approx((8,))
    assert timed.step_seconds == pytest.approx((2.5, 6))
    assert (timed.window, timed.images, len(timed.losses)) == (4, 32, 4)


def test_epoch_end_closes_the_window(simulated):
    """An epoch is 22 batches of 64: after the first step 21, in windows of 5, 5, 5, 5 and 1."""
    reply = simulated([1], epochs=2, warmup=0, window=5, **EPOCHS)
    timed = measured(reply)
    assert len(timed.step_seconds) == 5 + 5
    assert timed.images == (2 * 22 - 1) * 64
    assert [epoch["seconds"] for epoch in reply["learning"]] == pytest.approx([22, 22])


@pytest.mark.deep
def test_an_epoch_reads_the_whole_batches_of_a_data_set(train, tmp_path):
    """Of 1437 digits, 22 batches of 64."""
    writing.make_data_set(sources.digits(), tmp_path / "set", "raw", Preprocessing(channels=1))
    request = {**EPOCHS, "data": "set", "epochs": 1}
    reply = train(FakeTrainer(), data_folder=str(tmp_path / "set"), **request)
    [epoch] = reply["storage"]["epochs"]
    assert epoch["share"] == 22 * 64 / 1437


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_reads_its_part_of_the_whole_batches(ranks):
    data = open_data_set("digits", workloads()["lenet"], 64, 0)
    sizes = {"global_batch_size": 64, "batch_size_per_rank": 64 // ranks}
    assert loop._epoch_share(data, sizes) == 22 * 64 / ranks / 1437


def test_warmup_continues_until_steps_are_steady(simulated, record):
    timed = measured(simulated([5] * 13 + [1] * 1000, steps=20, warmup=2))
    assert timed.step_seconds == pytest.approx((1,) * 20)
    assert len(timed.warmup_seconds) == 2 + 10
    assert statistics.is_steady(record(fields={"measurement": timed}))


def test_launch_that_never_becomes_steady_does_not_count(simulated, record):
    timed = measured(simulated([1.05**n for n in range(200)], steps=20, warmup=2))
    assert len(timed.step_seconds) == 20
    assert len(timed.losses) == 1 + 2 + 3 * 20
    launch = record(fields={"measurement": timed})
    assert not statistics.is_steady(launch)
    assert statistics.launch_speeds([launch]) == {}


def test_cpus_kept_busy_are_cpu_time_over_the_clocks_time(train, clock):
    class Busy(FakeTrainer):
        def step(self, batch):
            thread = threading.Thread(target=burn, args=(time.process_time() + 0.2,))
            thread.start()
            thread.join()
            clock.now += 0.1

    def burn(end):
        while time.process_time() < end:
            pass

    assert 2 <= train(Busy())["observed"]["cpus"] < 4


@pytest.mark.parametrize("apart", [0.0, math.inf])
def test_core_latency_is_never_measured_within_a_step(monkeypatch, train, apart):
    order = []

    class Ordered(FakeTrainer):
        def step(self, batch):
            order.append("step")

        def synchronize(self):
            order.append("wait")
            return 1.0

    class Cores:
        def seconds(self):
            order.append("look")
            return float(order.count("look"))

    monkeypatch.setattr(loop, "_LATENCY_INTERVAL_SECONDS", apart)
    reply = train(Ordered(), cores=Cores(), steps=STEPS, warmup=WARMUP)
    between = [] if apart else ["look"]
    untimed = [*TIMED, *between] * (1 + WARMUP)
    assert order == ["look", *untimed, "look", *([*TIMED, *between] * STEPS), "look"]
    # Only those around and between the timed steps are told.
    first = untimed.count("look") + 2
    seen = reply["observed"]["handover_seconds"]
    assert seen == [float(number) for number in range(first, order.count("look") + 1)]
    assert len(reply["measurement"]["step_seconds"]) == STEPS
