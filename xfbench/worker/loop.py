"""The training loop, and the only place in the project that reads a clock around training.

A window is the steps between two waits for the device: one where steps are done when they
return, several where a device queues them. Its time runs from asking for its first batch
until the device is done. Evaluation, set-up and checkpoints lie outside it. What windows'
seconds mean in a table is `analysis/statistics.py`'s business.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from time import perf_counter
from typing import Any, Callable

import numpy as np

from xfbench.worker import checkpoint, energy, feed, links, nvml, observe, page_cache, profile
from xfbench.worker.evaluate import evaluate, finite
from xfbench.worker.handover import Cores
from xfbench.worker.input import DataSet, data_set
from xfbench.worker.protocol import Group, Options, Reader, Trainer, TrainingFiles
from xfbench.worker.steady import steady_from
from xfbench.workloads import Workload
from xfbench.workloads.initial import initial_parameters

Build = Callable[..., Trainer]
OpenReader = Callable[[TrainingFiles, Options], Reader]
# The warm-up may grow until a launch has taken so many times the timed steps it was asked for.
_MOST_TIMES = 3
_MOST_APART = 20  # steps that each rank does alone after the timed ones
_LOOKS_APART = 1.0  # seconds between two looks at the cores, or more
_COUNTABLE = 0.2  # seconds: in less, CPU time that is counted in ticks says nothing


def train(
    workload: Workload,
    request: dict[str, Any],
    options: Options,
    build: Build,
    group: Group,
    folder: str | None = None,
    saved_in: Path = Path("checkpoint"),
    open_reader: OpenReader | None = None,
    cores: Cores | None = None,
) -> dict[str, Any]:
    """One launch: build, train, measure; the reply's measurement, learning, observed and canary.

    Either `request["epochs"]` is set and whole epochs of a data set are trained, with an
    evaluation after each; or `steps` are, after a first step and `warmup` more. The warm-up goes
    on while times still change. Of several ranks each trains on its part of every batch. A
    prepared data set is in `folder`, and read by the framework's own reader where `open_reader` is
    given. Checkpoints lie in `saved_in`. How near `cores` are is looked at between windows.
    """
    startup_seconds = _since_start()
    batch_size, seed = request["batch_size_per_rank"], request["seed"]
    data = data_set(request["data"], workload, request["global_batch_size"], seed, folder)
    of_rank = data if folder else data_set(request["data"], workload, batch_size, seed)
    first = of_rank.first(batch_size, seed)
    gpu = nvml.read_before(group.rank) if options.device == "cuda" else None

    start = perf_counter()
    trainer = build(workload.network, workload.solver, options, group)
    trainer.assign(initial_parameters(workload.network, seed))
    build_seconds = perf_counter() - start
    batch = trainer.load(*first)
    canary = trainer.loss(batch)

    reader = None
    if open_reader and folder:
        reader = open_reader(feed.files(Path(folder), data, workload, request), options)
    source = feed.source(data, reader, trainer, group, request)
    series = _Series(trainer, source, batch, links.Meter(options.device), cores)
    saved = _Checkpoints(series, workload, group, saved_in, request.get("checkpoints", 0))
    readings = page_cache.Readings(
        data.files,
        request.get("page_cache") or "as-is",
        _share(data, request),
        group,
        aside=series.aside,
        meet=lambda: checkpoint.meet(trainer, series.batch),
    )
    counters = energy.read(options.device, group.rank)
    began = perf_counter()
    if request["epochs"]:
        warm, learning = _epochs(series, request, data, group, saved, readings)
    else:
        warm, learning = _steps(series, request, group, saved), []
    wall_seconds = perf_counter() - began
    worked, spent = series.worked(warm)  # before anything else works, the trainer's probes too
    series.look()
    used, gpu = energy.read(options.device, group.rank), gpu and nvml.since(gpu, group.rank)
    timed, moved = series.counts[warm:], series.moved()
    losses, seconds = list(series.losses), list(series.seconds)
    together = _communication(series, moved, group, len(timed))
    series.feed.end()
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
            "peak_rss_bytes": observe.peak_rss_bytes(),
            "losses": [finite(loss) for loss in losses],
            "energy_joules": energy.joules(counters, used),
            "phases": spent,
        },
        "checkpoints": saved.told(),
        "storage": {
            "epochs": readings.told,
            "reader": reader and feed.compared(reader, data.train),
        },
        "communication": together,
        "learning": learning or None,
        "canary": {"loss": finite(canary), "expected": None, "relative_error": None},
        "observed": {
            **trainer.runtime_info(),
            **worked,
            "affinity": observe.affinity(),
            "libraries": observe.libraries(),
            "allocator": observe.allocator(),
            "handover_seconds": series.handovers,
            "gpus": [gpu] if gpu else [],
        },
    }
    if request.get("profile"):  # after all else: a profiler is loaded, and slows down
        profiler, of_step = profile.phases(trainer, series.batch, perf_counter)
        reply["observed"]["profiler"] = profiler
        reply["measurement"]["phases"] = {**spent, **of_step}
    return reply


class _Series:
    """Windows one after another; per window the seconds of a step, and the last step's loss."""

    def __init__(
        self,
        trainer: Trainer,
        source: feed.Feed,
        batch: Any,
        meter: links.Meter,
        cores: Cores | None,
    ) -> None:
        self.trainer, self.feed, self.batch, self.meter = trainer, source, batch, meter
        self.cores = cores
        self.seconds: list[float] = []
        self.input_seconds: list[float] = []
        self.counts: list[int] = []
        self.losses: list[float] = []
        self.watch()

    def watch(self) -> None:
        """From here on threads are counted, and cores looked at."""
        self.handovers: list[float] = []
        self.look()
        self.ticks = observe.thread_ticks()
        self.meter.start()
        self.steps = sum(self.counts)
        self.since, self.used = perf_counter(), observe.cpu_seconds()
        self.others_used = observe.cpu_seconds_of_others()

    def look(self) -> None:
        """See how near the cores are: not within anything that is counted."""
        if self.cores and (seen := self.cores.seconds()):
            self.handovers.append(seen)
        self.looked = perf_counter()

    def worked(self, warm: int) -> tuple[dict[str, Any], dict[str, float]]:
        """How many threads have worked since, and how many CPUs they kept busy; and seconds.

        Waiting for input from window `warm` on; CPU time since, and what of it was input's: of
        threads and processes that were started for it, and of threads that have ended.
        """
        passed, used = perf_counter() - self.since, observe.cpu_seconds() - self.used
        others = observe.cpu_seconds_of_others() - self.others_used
        ticks = observe.thread_ticks()
        own = {thread: n for thread, n in ticks.items() if thread not in self.feed.threads}
        spent = {"input_seconds": sum(self.input_seconds[warm:])}
        if self.feed.threads and passed > _COUNTABLE:
            trained = observe.ticked_seconds(self.ticks, own)
            spent["cpu_seconds"] = used + others
            spent["input_cpu_seconds"] = max(0.0, used - trained) + others
        told = {
            "threads": observe.working_threads(self.ticks, own),
            "cpus": used / passed if passed > _COUNTABLE else None,
        }
        return told, spent

    def moved(self) -> dict[str, Any]:
        """What has gone over this node's links since, per step (`links.Meter.told`)."""
        return self.meter.told(sum(self.counts) - self.steps)

    def aside(self, work: Callable[[], None]) -> float:
        """Do `work` between windows, where nothing counts as the steps'; its seconds."""
        ticks = observe.thread_ticks()
        self.meter.pause()
        begun, used = perf_counter(), observe.cpu_seconds()
        work()
        passed = perf_counter() - begun
        self.since, self.used = self.since + passed, self.used + observe.cpu_seconds() - used
        _leave_out(self.ticks, ticks, observe.thread_ticks())
        self.meter.go_on()
        return passed

    def window(self, steps: int) -> None:
        """Do `steps` steps and wait for the device."""
        waited = 0.0
        start = perf_counter()
        for _ in range(steps):
            asked = perf_counter()
            self.batch = self.feed.batch()
            waited += perf_counter() - asked
            self.trainer.step(self.batch)
        self.losses.append(self.trainer.synchronize())
        self.seconds.append((perf_counter() - start) / steps)
        self.input_seconds.append(waited)
        self.counts.append(steps)
        if perf_counter() - self.looked > _LOOKS_APART:
            self.aside(self.look)


def _leave_out(counted: dict[Any, int], before: dict[Any, int], after: dict[Any, int]) -> None:
    """What came between two readings is as if it had been there when counting began."""
    for name, value in after.items():
        counted[name] = counted.get(name, 0) + value - before.get(name, 0)


class _Checkpoints:
    """`count` of them, each saved, flushed, read back into the trainer and compared.

    The first rank does it, and the others wait for it: what they hold stays as it was.
    """

    def __init__(
        self, series: _Series, workload: Workload, group: Group, folder: Path, count: int
    ) -> None:
        self.series, self.workload, self.group = series, workload, group
        self.folder, self.count = folder, count
        self.save_seconds: list[float] = []
        self.load_seconds: list[float] = []
        self.differing: set[str] = set()
        self.bytes, self.file_system, self.wall_seconds = 0, "", 0.0

    def after(self, place: int, places: int) -> None:
        """Take one where it is due, after this of so many places, over which they are spread."""
        due = place * self.count // places > (place - 1) * self.count // places
        if due and place <= places:
            self.wall_seconds += self.series.aside(self._take)

    def told(self) -> dict[str, Any] | None:
        """The reply's; None where there were none, or another rank took them."""
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

    def _take(self) -> None:
        if self.group.rank == 0:
            self._save_and_load()
        if self.group.size > 1:
            checkpoint.meet(self.series.trainer, self.series.batch)

    def _save_and_load(self) -> None:
        trainer = self.series.trainer
        parameters = trainer.parameters()
        before, zeros = checkpoint.fingerprint(parameters), checkpoint.zeros(parameters)
        needed = max(checkpoint.least_bytes(self.workload, parameters), self.bytes)
        del parameters
        with checkpoint.fresh(self.folder, needed) as folder:
            begun = perf_counter()
            trainer.save(folder)
            checkpoint.flush(folder)
            self.save_seconds.append(perf_counter() - begun)
            self.bytes, self.file_system = checkpoint.size(folder), checkpoint.file_system(folder)
            checkpoint.forget(folder)
            trainer.assign(zeros)  # what is there afterwards was read back
            begun = perf_counter()
            trainer.restore(folder)
            trainer.synchronize()
            self.load_seconds.append(perf_counter() - begun)
        after = checkpoint.fingerprint(trainer.parameters())
        self.differing |= {name for name, bits in before.items() if after.get(name) != bits}


def _communication(
    series: _Series, moved: dict[str, Any], group: Group, timed: int
) -> dict[str, Any] | None:
    """What joining the ranks is to be measured by: this rank's steps alone, and bytes.

    The steps are done after everything else, since ranks drift apart. `moved` has bytes per step
    and link, of this rank's whole node; `payload_bytes` is the size of all gradients.
    """
    if group.size == 1 or not hasattr(series.trainer, "disable_sync"):
        return None
    gradients = series.trainer.gradients(series.batch)
    series.trainer.disable_sync()
    series.window(1)
    first = len(series.seconds)
    for _ in range(min(timed, _MOST_APART)):
        series.window(1)
    return {
        "compute_seconds": series.seconds[first:],
        "payload_bytes": sum(gradient.nbytes for gradient in gradients.values()),
        **moved,
    }


def _steps(
    series: _Series, request: dict[str, Any], group: Group, checkpoints: _Checkpoints
) -> int:
    """Train `steps` timed steps; returns how many windows, the first step too, were warm-up.

    Several ranks do as many steps as they were told, all of them: none decides for itself.
    Checkpoints are spread over as many windows as were asked for, whether or not the warm-up
    then takes longer.
    """
    window = request["window"]
    timed = request["steps"] // window
    series.window(1)
    for _ in range(math.ceil(request["warmup"] / window)):
        series.window(window)
    warm = len(series.seconds)
    first, most = warm, warm + (_MOST_TIMES if group.size == 1 else 1) * timed
    series.watch()
    while len(series.seconds) < warm + timed:
        series.window(window)
        checkpoints.after(len(series.seconds) - first, timed)
        if len(series.seconds) == warm + timed <= most:
            warm += min(steady_from(series.seconds[warm:]), most - len(series.seconds))
    return warm


def _epochs(
    series: _Series,
    request: dict[str, Any],
    data: DataSet,
    group: Group,
    checkpoints: _Checkpoints,
    readings: page_cache.Readings,
) -> tuple[int, list[dict[str, Any]]]:
    """Train whole epochs, and evaluate after each; as `_steps`, and what was learned by epoch.

    How many steps there are is fixed, so the warm-up grows at the cost of the timed ones, to
    half of them at most.
    """
    window, batch_size = request["window"], request["batch_size_per_rank"]
    steps = len(data.train) // request["global_batch_size"]
    learning = []
    warm = 0
    for epoch in range(1, request["epochs"] + 1):
        first, left = len(series.seconds), steps
        readings.begin()
        while left:
            series.window(min(left, window) if series.seconds else 1)
            left -= series.counts[-1]
            if not warm and sum(series.counts) > request["warmup"]:
                warm = len(series.seconds)
                series.watch()
        series.feed.end()
        readings.end()
        seconds = zip(series.seconds[first:], series.counts[first:])
        learning.append(
            {
                "epoch": epoch,
                "seconds": sum(each * count for each, count in seconds),
                "train_loss": finite(float(np.mean(series.losses[first:]))),
                **evaluate(series.trainer, data.test, batch_size),
            }
        )
        checkpoints.after(epoch, request["epochs"])
    warm = warm or len(series.seconds)
    later = steady_from(series.seconds[warm:]) if group.size == 1 else 0
    return (warm + later if later <= (len(series.seconds) - warm) / 2 else warm), learning


def _share(data: DataSet, request: dict[str, Any]) -> float:
    """The part of a data set that a rank trains on in an epoch: whole batches."""
    steps = len(data.train) // request["global_batch_size"]
    return float(steps * request["batch_size_per_rank"] / len(data.train))


def _since_start() -> float:
    """Seconds since this process was started: the interpreter's and the framework's loading."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - observe.started_seconds()
