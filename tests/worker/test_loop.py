"""The training loop: what it times as a step, how it warms up, when it looks at the cores."""

import itertools
import math
import threading
import time

import pytest

from tests.fake_trainer import FakeTrainer
from xfbench import statistics
from xfbench.datasets import sources, writing
from xfbench.datasets.manifest import Preprocessing
from xfbench.model.record import Measurement
from xfbench.worker import energy, loop
from xfbench.worker.input import open_data_set
from xfbench.worker.protocol import Group
from xfbench.workloads import workloads

STEPS, WARMUP = 4, 2
EPOCHS = {"steps": None, "data": "digits", "global_batch_size": 64, "batch_size_per_rank": 64}
TIMED = ["step", "wait"]


@pytest.fixture
def train_simulated(clock, train):
    """A function that trains with steps of these seconds, over and over: the reply."""

    def train_with_step_times(step_seconds, **request):
        step_seconds = itertools.cycle(step_seconds)

        class SimulatedTrainer(FakeTrainer):
            def step(self, batch):
                clock.now += next(step_seconds)

        return train(SimulatedTrainer(), **request)

    return train_with_step_times


def parse_measurement(reply):
    return Measurement.model_validate(reply["measurement"])


def test_steps_are_timed_individually_without_a_window(train_simulated):
    measurement = parse_measurement(train_simulated([9, 8, 1, 2, 3], steps=3, warmup=1))
    assert measurement.first_step_seconds == pytest.approx(9)
    assert measurement.warmup_seconds == pytest.approx((8,))
    assert measurement.step_seconds == pytest.approx((1, 2, 3))
    assert (measurement.window, measurement.images, len(measurement.losses)) == (1, 12, 5)
    assert measurement.wall_seconds == pytest.approx(23)


def test_window_is_timed_as_a_unit_and_gives_the_mean_step(train_simulated):
    step_seconds = [9, *[8, 8, 8, 8], *[1, 2, 3, 4], *[5, 5, 5, 9]]
    measurement = parse_measurement(train_simulated(step_seconds, steps=8, warmup=3, window=4))
    assert measurement.warmup_seconds == pytest.approx((8,))
    assert measurement.step_seconds == pytest.approx((2.5, 6))
    assert (measurement.window, measurement.images, len(measurement.losses)) == (4, 32, 4)


def test_epoch_end_closes_the_window(train_simulated):
    """An epoch is 22 batches of 64: after the first step 21, in windows of 5, 5, 5, 5 and 1."""
    reply = train_simulated([1], epochs=2, warmup=0, window=5, **EPOCHS)
    measurement = parse_measurement(reply)
    assert len(measurement.step_seconds) == 5 + 5
    assert measurement.images == (2 * 22 - 1) * 64
    assert [epoch["seconds"] for epoch in reply["learning"]] == pytest.approx([22, 22])


@pytest.mark.deep
def test_an_epoch_reads_the_whole_batches_of_a_data_set(train, tmp_path):
    """Of 1437 digits, 22 batches of 64."""
    writing.make_data_set(
        sources.open_bundled_digits(), tmp_path / "set", "raw", Preprocessing(channels=1)
    )
    request = {**EPOCHS, "data": "set", "epochs": 1}
    reply = train(FakeTrainer(), data_folder=str(tmp_path / "set"), **request)
    [epoch] = reply["storage"]["epochs"]
    assert epoch["share"] == 22 * 64 / 1437


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_reads_its_part_of_the_whole_batches(ranks):
    data = open_data_set("digits", workloads()["lenet"], 64, 0)
    sizes = {"global_batch_size": 64, "batch_size_per_rank": 64 // ranks}
    assert loop._rank_share_of_data_set(data, sizes) == 22 * 64 / ranks / 1437


def test_warmup_continues_while_steps_become_faster(train_simulated, record):
    measurement = parse_measurement(train_simulated([5] * 13 + [1] * 1000, steps=20, warmup=2))
    assert measurement.step_seconds == pytest.approx((1,) * 20)
    assert len(measurement.warmup_seconds) == 2 + 10
    assert not statistics.is_level_changed(record(fields={"measurement": measurement}))


def test_energy_leaves_out_an_extended_warmup(train_simulated, clock, monkeypatch):
    """A watt is used all the time: the joules are the seconds of the timed steps."""
    monkeypatch.setattr(energy, "read_counters", lambda *_: {"package-0": (clock.now, None)})
    measurement = parse_measurement(train_simulated([5] * 13 + [1] * 1000, steps=20, warmup=2))
    assert len(measurement.warmup_seconds) > 2
    assert measurement.energy_joules == pytest.approx(sum(measurement.step_seconds))
    assert measurement.energy_seconds == pytest.approx(sum(measurement.step_seconds))


@pytest.mark.parametrize("settings", [{"steps": 2, "warmup": 2}, {"epochs": 1, **EPOCHS}])
def test_compile_processes_end_with_the_first_step(train, clock, settings):
    """They also end before the timed steps, if the warm-up has started them again."""
    events = []

    class CompilingTrainer(FakeTrainer):
        def step(self, batch):
            clock.now += 1
            events.append("step")

        def end_compile_processes(self):
            clock.now += 100
            events.append("end")

    measurement = parse_measurement(train(CompilingTrainer(), **settings))
    first = events.index("step")
    assert events[first : first + 2] == ["step", "end"]
    timed = sum(name == "step" for name in events) - 1 - len(measurement.warmup_seconds)
    assert timed > 0 and events[-timed - 1 :] == ["end", *["step"] * timed]
    for seconds in (measurement.first_step_seconds, *measurement.step_seconds):
        assert seconds == pytest.approx(1)


def test_gpu_memory_is_the_peak_from_the_first_step_to_the_last(train):
    """Building takes 9 bytes, each step one more than the last, and later work 99."""

    class GpuTrainer(FakeTrainer):
        peak = 9

        def restart_peak_device_memory(self):
            self.peak = 0

        def step(self, batch):
            self.steps += 1
            self.peak = max(self.peak, self.steps)

        def peak_device_memory(self):
            return {"peak_device_bytes": self.peak, "peak_device_reserved_bytes": 2 * self.peak}

        def runtime_info(self):
            self.peak = 99
            return super().runtime_info()

    measurement = parse_measurement(train(GpuTrainer(), steps=4, warmup=1))
    steps = len(measurement.losses)
    assert measurement.peak_device_bytes == steps < 9
    assert measurement.peak_device_reserved_bytes == 2 * steps


def test_gpu_memory_is_unknown_to_an_adapter_without_gpus(train):
    measurement = parse_measurement(train(FakeTrainer(), steps=4, warmup=1))
    assert measurement.peak_device_bytes is None
    assert measurement.peak_device_reserved_bytes is None


def test_faster_steps_at_the_start_are_timed(train_simulated, record):
    measurement = parse_measurement(train_simulated([1] * 13 + [5] * 1000, steps=20, warmup=2))
    assert measurement.step_seconds == pytest.approx((1,) * 10 + (5,) * 10)
    assert statistics.is_level_changed(record(fields={"measurement": measurement}))


def test_warmup_that_never_ends_is_limited_and_the_launch_counts(train_simulated, record):
    measurement = parse_measurement(
        train_simulated([1.05**-n for n in range(200)], steps=20, warmup=2)
    )
    assert len(measurement.losses) <= 1 + 2 + 3 * 20 + 20
    assert len(measurement.step_seconds) >= 10
    launch = record(fields={"measurement": measurement})
    assert statistics.is_level_changed(launch)
    assert len(statistics.counted_speeds_by_block([launch])) == 1


def test_steps_and_warmup_last_at_least_the_minimum_durations(train_simulated):
    measurement = parse_measurement(
        train_simulated([9, *[0.25] * 1000], steps=4, warmup=2, min_seconds=3, min_warmup_seconds=1)
    )
    assert measurement.warmup_seconds == pytest.approx((0.25,) * 4)
    assert measurement.step_seconds == pytest.approx((0.25,) * 12)


def test_slow_steps_exceed_the_minimum_durations(train_simulated):
    measurement = parse_measurement(
        train_simulated([2], steps=4, warmup=2, min_seconds=3, min_warmup_seconds=1)
    )
    assert (len(measurement.warmup_seconds), len(measurement.step_seconds)) == (2, 4)


def test_minimum_duration_counts_from_the_end_of_the_warmup(train_simulated):
    step_seconds = [1, *[0.5] * 6, *[0.1] * 1000]
    measurement = parse_measurement(
        train_simulated(step_seconds, steps=20, warmup=0, min_seconds=2.95)
    )
    assert measurement.warmup_seconds == pytest.approx((0.5,) * 6)
    assert measurement.step_seconds == pytest.approx((0.1,) * 30)


def test_first_rank_decides_how_long_all_ranks_train(train_simulated, tmp_path):
    """The ranks have other clocks; each trains as many steps as the first rank needs for 3 s."""
    request = {"steps": 4, "warmup": 2, "min_seconds": 3, "min_warmup_seconds": 1}
    replies = [
        train_simulated(
            [seconds],
            group=Group(rank=rank, size=2, rendezvous_path=str(tmp_path / "meeting")),
            **request,
        )
        for rank, seconds in enumerate((0.25, 0.2))
    ]
    for reply in replies:
        measurement = parse_measurement(reply)
        assert (len(measurement.warmup_seconds), len(measurement.step_seconds)) == (4, 12)


def test_cpus_kept_busy_are_cpu_time_over_the_clocks_time(train, clock):
    class BusyTrainer(FakeTrainer):
        def step(self, batch):
            thread = threading.Thread(target=use_cpu_until, args=(time.process_time() + 0.2,))
            thread.start()
            thread.join()
            clock.now += 0.1

    def use_cpu_until(end_s):
        while time.process_time() < end_s:
            pass

    assert 2 <= train(BusyTrainer())["observed"]["cpus"] < 4


@pytest.mark.parametrize("interval_s", [0.0, math.inf])
def test_core_latency_is_never_measured_within_a_step(monkeypatch, train, interval_s):
    events = []

    class EventLoggingTrainer(FakeTrainer):
        def step(self, batch):
            events.append("step")

        def wait_for_loss(self):
            events.append("wait")
            return 1.0

    class FakeLatencyMeter:
        def measure_round_trip_seconds(self):
            events.append("look")
            return float(events.count("look"))

    monkeypatch.setattr(loop, "_LATENCY_INTERVAL_SECONDS", interval_s)
    reply = train(
        EventLoggingTrainer(), core_latency_probe=FakeLatencyMeter(), steps=STEPS, warmup=WARMUP
    )
    events_between_steps = [] if interval_s else ["look"]
    warmup_events = [*TIMED, *events_between_steps] * (1 + WARMUP)
    assert events == [
        "look",
        *warmup_events,
        "look",
        *([*TIMED, *events_between_steps] * STEPS),
        "look",
    ]
    # Only those around and between the timed steps are told.
    first = warmup_events.count("look") + 2
    latencies = reply["observed"]["handover_seconds"]
    assert latencies == [float(number) for number in range(first, events.count("look") + 1)]
    assert len(reply["measurement"]["step_seconds"]) == STEPS
