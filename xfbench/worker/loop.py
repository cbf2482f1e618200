"""The training loop: the only module that reads a clock around training.

A window is the steps between two synchronizations with the device. If the device queues steps, a
window has several steps. If a step is done when it returns, a window has one step. The time of a
window runs from the request for its first batch until the device is done. Evaluation, set-up and
checkpoints are outside of windows. `xfbench/statistics.py` defines how tables summarize window
times.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from time import perf_counter
from typing import Any, Callable

import numpy as np

from xfbench.worker import (
    checkpoint,
    distributed,
    energy,
    feed,
    links,
    nvml,
    observe,
    page_cache,
    prepared,
    profile,
    utilization,
)
from xfbench.worker.core_latency import CoreLatencyProbe
from xfbench.worker.evaluate import evaluate_on_test_set, finite_or_none
from xfbench.worker.input import DataSet, OnDisk, open_data_set
from xfbench.worker.protocol import Group, Options, Reader, Trainer, TrainingFiles
from xfbench.worker.steady import count_warmup_values
from xfbench.workloads import Workload
from xfbench.workloads.initial import initial_parameters

Build = Callable[..., Trainer]
OpenReader = Callable[[TrainingFiles, Options], Reader]
# Limit on extending the warm-up: after the requested warm-up, a launch trains at most this many
# times as long as requested.
_MAX_WARMUP_FACTOR = 3
_MAX_COMPUTE_STEPS = 20  # steps that each rank does without synchronization, after the timed steps
_LATENCY_INTERVAL_SECONDS = 1.0  # minimal time between two latency measurements
_MIN_CPU_SECONDS = 0.2  # in less elapsed time, CPU time counted in ticks is too inaccurate


def train_and_measure(
    workload: Workload,
    request: dict[str, Any],
    options: Options,
    build: Build,
    group: Group,
    data_folder: str | None = None,
    checkpoint_folder: Path = Path("checkpoint"),
    open_reader: OpenReader | None = None,
    core_latency_probe: CoreLatencyProbe | None = None,
) -> dict[str, Any]:
    """Run one launch: build the trainer, train and measure. Return the fields of the reply.

    If `request["epochs"]` is set, the launch trains that many epochs of a data set and evaluates
    after each epoch. Otherwise it trains one first step, `request["warmup"]` more steps, and then
    `request["steps"]` timed steps. Both go on until they have taken `request["min_warmup_seconds"]`
    and `request["min_seconds"]`. A single rank extends the warm-up while steps become faster. If
    there are several ranks, each rank trains on its shard of every batch.

    - `build`: the adapter's function that builds a trainer
    - `data_folder`: the folder of a prepared data set; None for other data
    - `checkpoint_folder`: the folder for temporary checkpoints
    - `open_reader`: opens the data set with the framework's own reader; None: `input.py` reads it
    - `core_latency_probe`: measures core-to-core latency between windows; None: no measurement
    """
    startup_seconds = _seconds_since_start()
    batch_size, seed = request["batch_size_per_rank"], request["seed"]
    data = open_data_set(request["data"], workload, request["global_batch_size"], seed, data_folder)
    of_rank = data if data_folder else open_data_set(request["data"], workload, batch_size, seed)
    first = of_rank.first_batch(batch_size, seed)
    gpu = nvml.find_rank_device(group.rank) if options.device == "cuda" else None
    gpu_before = gpu and nvml.read_device_before_launch(gpu)

    start = perf_counter()
    trainer = build(workload.network, workload.solver, options, group)
    trainer.assign(initial_parameters(workload.network, seed))
    build_seconds = perf_counter() - start
    if options.device == "cuda" and hasattr(trainer, "device_uuid"):
        gpu, gpu_before = nvml.use_device_of_framework(
            gpu, gpu_before, group.rank, trainer.device_uuid()
        )
    batch = trainer.load(*first)
    canary = trainer.test_loss(batch)

    reader = None
    if open_reader and data_folder:
        reader = open_reader(
            feed.describe_training_files(Path(data_folder), data, workload, request), options
        )
    source = feed.build_feed(data, reader, trainer, group, request)
    series = _WindowSeries(
        trainer,
        source,
        batch,
        links.LinkMeter(options.device, gpu),
        energy.EnergyMeter(options.device, gpu, perf_counter),
        utilization.UtilizationMeter(gpu, perf_counter),
        core_latency_probe,
    )
    saved = _CheckpointSchedule(
        series, workload, group, checkpoint_folder, request.get("checkpoints", 0)
    )
    readings = page_cache.Readings(
        data.files,
        request.get("page_cache") or "as-is",
        _rank_share_of_data_set(data, request),
        group,
        run_untimed=series.run_untimed,
        meet=lambda: checkpoint.wait_for_all_ranks(trainer, series.batch),
    )
    getattr(trainer, "restart_peak_device_memory", lambda: None)()
    began = perf_counter()
    if request["epochs"]:
        warm, learning = _train_and_evaluate_epochs(series, request, data, group, saved, readings)
    else:
        warm, learning = _train_steps_and_count_warmup(series, request, group, saved), []
    wall_seconds = perf_counter() - began
    # Read now, because the following measurements use threads and CPU time.
    device_use = series.energy.read(warm)
    usage, phases = series.cpu_usage_and_input_seconds(warm)
    series.measure_latency()
    gpu_report = (
        gpu
        and gpu_before
        and _describe_gpu(gpu, gpu_before, device_use, series.utilization.read(warm))
    )
    device_memory: dict[str, int | None] = getattr(trainer, "peak_device_memory", dict)()
    timed, traffic = series.counts[warm:], series.link_traffic_per_step()
    losses, seconds = list(series.losses), list(series.seconds)
    communication = _measure_steps_without_sync(series, traffic, group, len(timed))
    series.feed.close_current_epoch()
    reply: dict[str, Any] = {
        "measurement": {
            "startup_seconds": startup_seconds,
            "build_seconds": build_seconds,
            "first_step_seconds": seconds[0],
            "warmup_seconds": seconds[1:warm],
            "step_seconds": seconds[warm:],
            "window": request["window"],
            "wall_seconds": wall_seconds,
            "images": sum(timed) * batch_size,
            "peak_rss_bytes": observe.peak_rss_bytes_with_descendants(),
            **device_memory,
            "losses": [finite_or_none(loss) for loss in losses],
            "energy_joules": device_use.joules,
            "energy_seconds": device_use.seconds,
            "phases": phases,
        },
        "checkpoints": saved.report(),
        "storage": {
            "epochs": readings.report,
            "reader": reader and feed.compare_reader_images(reader, data.train),
            "decoder": _compare_decoder(data_folder, data),
        },
        "communication": communication,
        "learning": learning or None,
        "canary": {"loss": finite_or_none(canary), "expected": None, "relative_error": None},
        "observed": {
            **trainer.runtime_info(),
            **usage,
            "affinity": observe.affinity(),
            "libraries": observe.mapped_math_library_names(),
            "allocator": observe.allocator_short_path(),
            "handover_seconds": series.core_latencies,
            "gpus": [gpu_report] if gpu_report else [],
        },
    }
    if request.get("profile"):  # last, because the loaded profiler slows everything down
        profiler, of_step = profile.profile_steps(trainer, series.batch, perf_counter)
        reply["observed"]["profiler"] = profiler
        reply["measurement"]["phases"] = {**phases, **of_step}
    return reply


def _describe_gpu(
    gpu: nvml.Device, before: dict[str, Any], use: energy.DeviceUse, busy_share: float | None
) -> dict[str, Any]:
    """Return the fields of a record's `Gpu`. Call this while the trainer still uses the device."""
    return {
        **nvml.describe_device_after_launch(before, gpu),
        "slowed_seconds": use.slowed_seconds,
        "slowed_of_seconds": use.slowed_of_seconds,
        "utilization": busy_share,
    }


class _WindowSeries:
    """A series of consecutive windows. These lists have one value per window:

    - `seconds`: seconds per step
    - `input_seconds`: total seconds of waiting for input
    - `counts`: number of steps
    - `losses`: loss of the last step
    """

    def __init__(
        self,
        trainer: Trainer,
        source: feed.Feed,
        batch: Any,
        meter: links.LinkMeter,
        energy_meter: energy.EnergyMeter,
        utilization_meter: utilization.UtilizationMeter,
        cores: CoreLatencyProbe | None,
    ) -> None:
        self.trainer, self.feed, self.batch, self.meter = trainer, source, batch, meter
        self.energy, self.utilization, self.cores = energy_meter, utilization_meter, cores
        self.seconds: list[float] = []
        self.input_seconds: list[float] = []
        self.counts: list[int] = []
        self.losses: list[float] = []
        self.restart_observation()

    def restart_observation(self) -> None:
        """Restart the observation of threads, CPU time, traffic, the device and core latency."""
        self.end_compile_processes()
        self.core_latencies: list[float] = []
        self.measure_latency()
        self.ticks = observe.thread_ticks()
        self.meter.restart()
        self.energy.restart(len(self.seconds))
        self.utilization.interrupt(len(self.seconds))
        self.steps = sum(self.counts)
        self.since, self.cpu_seconds = perf_counter(), observe.cpu_seconds()
        self.descendants_seconds = observe.descendants_cpu_seconds()

    def end_compile_processes(self) -> None:
        """End the processes that compile the network, if there are any."""
        getattr(self.trainer, "end_compile_processes", lambda: None)()

    def measure_latency(self) -> None:
        """Measure core-to-core latency and append it to `core_latencies`.

        Do not call this method while anything is timed.
        """
        if self.cores and (latency := self.cores.measure_round_trip_seconds()):
            self.core_latencies.append(latency)
        self.measured_at = perf_counter()

    def cpu_usage_and_input_seconds(
        self, first_timed_window: int
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """Return two dictionaries for the time since `restart_observation`: usage and phases.

        - Usage `threads`: number of threads that worked, without those that prepare input
        - Usage `cpus`: mean number of CPUs in use; None if the time is too short
        - Phase `input_seconds`: time of waiting for input in windows from `first_timed_window` on
        - Phase `cpu_seconds`: CPU time of this process and its descendants
        - Phase `input_cpu_seconds`: CPU time of threads and processes started for input, and of
          threads that have ended

        `cpu_seconds` and `input_cpu_seconds` are missing if no thread prepares input or the time is
        too short.
        """
        passed, used = perf_counter() - self.since, observe.cpu_seconds() - self.cpu_seconds
        descendants = observe.descendants_cpu_seconds() - self.descendants_seconds
        ticks = observe.thread_ticks()
        trainer_ticks = {
            thread: n for thread, n in ticks.items() if thread not in self.feed.threads
        }
        phases = {"input_seconds": sum(self.input_seconds[first_timed_window:])}
        if self.feed.threads and passed > _MIN_CPU_SECONDS:
            trained = observe.cpu_seconds_between(self.ticks, trainer_ticks)
            phases["cpu_seconds"] = used + descendants
            phases["input_cpu_seconds"] = max(0.0, used - trained) + descendants
        usage = {
            "threads": observe.count_working_threads(self.ticks, trainer_ticks),
            "cpus": used / passed if passed > _MIN_CPU_SECONDS else None,
        }
        return usage, phases

    def elapsed_seconds(self, first: int) -> float:
        """Return the total seconds of the windows from number `first` on."""
        windows = zip(self.seconds[first:], self.counts[first:])
        return sum(seconds * count for seconds, count in windows)

    def link_traffic_per_step(self) -> dict[str, Any]:
        """Return this node's link traffic per step since `restart_observation`.

        `links.LinkMeter.report` describes the result.
        """
        return self.meter.report(sum(self.counts) - self.steps)

    def run_untimed(self, work: Callable[[], None]) -> float:
        """Call `work` between windows, outside of all measurements of steps.

        Returns the seconds that `work` took.
        """
        ticks = observe.thread_ticks()
        self.meter.pause()
        self.energy.pause()
        begun, used = perf_counter(), observe.cpu_seconds()
        work()
        passed = perf_counter() - begun
        self.since, self.cpu_seconds = (
            self.since + passed,
            self.cpu_seconds + observe.cpu_seconds() - used,
        )
        _add_ticks_to_start_values(self.ticks, ticks, observe.thread_ticks())
        self.meter.resume()
        self.energy.resume()
        self.utilization.interrupt(len(self.seconds))
        return passed

    def run_window(self, steps: int) -> None:
        """Train `steps` steps, wait for the device, and add the window to the series."""
        waited = 0.0
        start = perf_counter()
        for _ in range(steps):
            asked_at = perf_counter()
            self.batch = self.feed.batch()
            waited += perf_counter() - asked_at
            self.trainer.step(self.batch)
        self.losses.append(self.trainer.wait_for_loss())
        self.seconds.append((perf_counter() - start) / steps)
        self.input_seconds.append(waited)
        self.counts.append(steps)
        self.energy.mark(len(self.seconds))
        self.utilization.mark(len(self.seconds))
        if len(self.seconds) == 1 and hasattr(self.trainer, "end_compile_processes"):
            self.run_untimed(self.end_compile_processes)  # the first step has compiled the network
        if perf_counter() - self.measured_at > _LATENCY_INTERVAL_SECONDS:
            self.run_untimed(self.measure_latency)


def _add_ticks_to_start_values(
    start_values: dict[Any, int], before: dict[Any, int], after: dict[Any, int]
) -> None:
    """Exclude the CPU time between `before` and `after` from a measurement that is under way.

    The arguments are results of `observe.thread_ticks`. The measurement began at `start_values`.
    This function adds the ticks of each thread between `before` and `after` to `start_values`.
    """
    for name, value in after.items():
        start_values[name] = start_values.get(name, 0) + value - before.get(name, 0)


class _CheckpointSchedule:
    """The `count` checkpoints of a launch. Each is saved, flushed, restored and compared.

    The first rank takes the checkpoints while the other ranks wait. The parameters of the other
    ranks stay unchanged.
    """

    def __init__(
        self, series: _WindowSeries, workload: Workload, group: Group, folder: Path, count: int
    ) -> None:
        self.series, self.workload, self.group = series, workload, group
        self.folder, self.count = folder, count
        self.save_seconds: list[float] = []
        self.load_seconds: list[float] = []
        self.differing: set[str] = set()
        self.bytes, self.file_system, self.wall_seconds = 0, "", 0.0

    def take_if_due(self, place: int, places: int) -> None:
        """Take a checkpoint if one is due after window or epoch number `place` of `places`.

        `place` counts from 1. Checkpoints are spread evenly over the `places` windows or epochs.
        """
        due = place * self.count // places > (place - 1) * self.count // places
        if due and place <= places:
            self.wall_seconds += self.series.run_untimed(self._checkpoint_on_first_rank)

    def report(self) -> dict[str, Any] | None:
        """Return the reply's `checkpoints`. None if this rank took no checkpoint."""
        if not self.save_seconds:
            return None
        return {
            "save_seconds": self.save_seconds,
            "load_seconds": self.load_seconds,
            "wall_seconds": self.wall_seconds,
            "bytes": self.bytes,
            "file_system": self.file_system,
            "equal": not self.differing,
            "differing": sorted(self.differing),
        }

    def _checkpoint_on_first_rank(self) -> None:
        if self.group.rank == 0:
            self._save_load_and_compare()
        if self.group.size > 1:
            checkpoint.wait_for_all_ranks(self.series.trainer, self.series.batch)

    def _save_load_and_compare(self) -> None:
        trainer = self.series.trainer
        parameters = trainer.parameters()
        before, zeros = (
            checkpoint.parameter_digests(parameters),
            checkpoint.zeros_like_parameters(parameters),
        )
        needed = max(checkpoint.min_checkpoint_bytes(self.workload, parameters), self.bytes)
        del parameters
        with checkpoint.temporary_checkpoint_folder(self.folder, needed) as folder:
            begun = perf_counter()
            trainer.save(folder)
            checkpoint.fsync_files_in_folder(folder)
            self.save_seconds.append(perf_counter() - begun)
            self.bytes, self.file_system = (
                checkpoint.folder_bytes(folder),
                checkpoint.file_system_type(folder),
            )
            checkpoint.evict_files_from_page_cache(folder)
            trainer.assign(zeros)  # so that later values are certain to come from the checkpoint
            begun = perf_counter()
            trainer.restore(folder)
            trainer.wait_for_loss()
            self.load_seconds.append(perf_counter() - begun)
        after = checkpoint.parameter_digests(trainer.parameters())
        self.differing |= {name for name, bits in before.items() if after.get(name) != bits}


def _measure_steps_without_sync(
    series: _WindowSeries, link_traffic: dict[str, Any], group: Group, timed_windows: int
) -> dict[str, Any] | None:
    """Measure this rank's steps without synchronization between the ranks.

    Call this function after training, because it makes the ranks' parameters diverge. It returns
    None for a single rank or a trainer without `disable_sync`. Otherwise the result has these
    fields:

    - `compute_seconds`: seconds of each step
    - `payload_bytes`: size of all gradients
    - fields of `link_traffic`: bytes per step of each link of this rank's whole node
    """
    if group.size == 1 or not hasattr(series.trainer, "disable_sync"):
        return None
    gradients = series.trainer.gradients(series.batch)
    series.trainer.disable_sync()
    series.run_window(1)
    first = len(series.seconds)
    for _ in range(min(timed_windows, _MAX_COMPUTE_STEPS)):
        series.run_window(1)
    return {
        "compute_seconds": series.seconds[first:],
        "payload_bytes": sum(gradient.nbytes for gradient in gradients.values()),
        **link_traffic,
    }


def _train_steps_and_count_warmup(
    series: _WindowSeries, request: dict[str, Any], group: Group, checkpoints: _CheckpointSchedule
) -> int:
    """Train the warm-up and the timed steps. Return the number of warm-up windows.

    - The first step is a window of its own and belongs to the warm-up.
    - A single rank extends the requested warm-up while steps become faster. Several ranks do not,
      because no rank can decide alone.
    - Checkpoints are spread evenly over the first N windows after the requested warm-up. N is the
      requested number of timed windows.
    """
    window, seconds = request["window"], request.get("min_seconds") or 0.0
    timed = request["steps"] // window
    series.run_window(1)
    for _ in range(math.ceil(request["warmup"] / window)):
        series.run_window(window)
    _train_until(series, 1, request.get("min_warmup_seconds") or 0.0, window, group, "warmup")
    first = warm = len(series.seconds)
    series.restart_observation()

    def train_from(start: int) -> None:
        while len(series.seconds) < start + timed:
            series.run_window(window)
            checkpoints.take_if_due(len(series.seconds) - first, timed)
        _train_until(series, start, seconds, window, group, "timed")

    train_from(warm)
    while group.size == 1 and (count := count_warmup_values(series.seconds[warm:])):
        warm += count
        if _is_extended_to_limit(series, first, timed, seconds):
            break
        train_from(warm)
    return warm


def _train_until(
    series: _WindowSeries, first: int, seconds: float, window: int, group: Group, name: str
) -> None:
    """Train until the windows from number `first` on have taken `seconds`.

    If there are several ranks, the first rank decides the number of windows, from the duration of
    those that it has done. `name` identifies the decision.
    """
    if not seconds:
        return
    if group.size == 1:
        while series.elapsed_seconds(first) < seconds:
            series.run_window(window)
        return
    if len(series.seconds) <= first:
        series.run_window(window)
    elapsed = series.elapsed_seconds(first)
    count = math.ceil((seconds - elapsed) / elapsed * (len(series.seconds) - first))
    shared: list[int] = []
    series.run_untimed(
        lambda: shared.append(distributed.share_number_of_first_rank(group, name, max(0, count)))
    )
    for _ in range(shared[0]):
        series.run_window(window)


def _is_extended_to_limit(series: _WindowSeries, first: int, timed: int, seconds: float) -> bool:
    """Return whether the windows from number `first` on have reached `_MAX_WARMUP_FACTOR`."""
    is_long = series.elapsed_seconds(first) >= _MAX_WARMUP_FACTOR * seconds
    return is_long and len(series.seconds) - first >= _MAX_WARMUP_FACTOR * timed


def _train_and_evaluate_epochs(
    series: _WindowSeries,
    request: dict[str, Any],
    data: DataSet,
    group: Group,
    checkpoints: _CheckpointSchedule,
    readings: page_cache.Readings,
) -> tuple[int, list[dict[str, Any]]]:
    """Train and evaluate whole epochs. Return the number of warm-up windows, and results by epoch.

    The number of steps is fixed, so an extended warm-up leaves fewer timed windows, but at least
    half of them. The warm-up is never extended if there are several ranks.
    """
    window, batch_size = request["window"], request["batch_size_per_rank"]
    steps = len(data.train) // request["global_batch_size"]
    learning = []
    warm = 0
    for epoch in range(1, request["epochs"] + 1):
        first, remaining = len(series.seconds), steps
        readings.begin_epoch()
        while remaining:
            series.run_window(min(remaining, window) if series.seconds else 1)
            remaining -= series.counts[-1]
            if not warm and sum(series.counts) > request["warmup"]:
                warm = len(series.seconds)
                series.restart_observation()
        series.feed.close_current_epoch()
        readings.append_rank_reading_of_epoch()
        seconds = zip(series.seconds[first:], series.counts[first:])
        result = {
            "epoch": epoch,
            "seconds": sum(each * count for each, count in seconds),
            "train_loss": finite_or_none(float(np.mean(series.losses[first:]))),
        }
        series.energy.pause()
        result.update(evaluate_on_test_set(series.trainer, data.test, batch_size))
        series.energy.resume()
        series.utilization.interrupt(len(series.seconds))
        learning.append(result)
        checkpoints.take_if_due(epoch, request["epochs"])
    warm = warm or len(series.seconds)
    if group.size == 1:
        warm += count_warmup_values(series.seconds[warm:])
    return warm, learning


def _rank_share_of_data_set(data: DataSet, request: dict[str, Any]) -> float:
    """Return the share of the training images that one rank trains on in an epoch, from 0 to 1."""
    steps = len(data.train) // request["global_batch_size"]
    return float(steps * request["batch_size_per_rank"] / len(data.train))


def _compare_decoder(data_folder: str | None, data: DataSet) -> dict[str, int] | None:
    """Compare images as this process decodes them with the data set's list; None without one."""
    if data_folder is None or not isinstance(data.train, OnDisk):
        return None
    return prepared.compare_first_images(Path(data_folder), data.train.samples)


def _seconds_since_start() -> float:
    """Return the seconds since this process was started.

    At the start of a launch, this is the time to load the interpreter and the framework.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) - observe.start_seconds_since_boot()
