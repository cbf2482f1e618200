"""The training loop, and the only place in the project that reads a clock around training.

A step's time runs from asking for its batch until the device is done. Evaluation and
set-up lie outside it. What a step's seconds mean in a table is `statistics.py`'s business.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, Callable, Iterator

import numpy as np

from xfbench.worker import observe
from xfbench.worker.input import Arrays, DataSet, data_set
from xfbench.worker.protocol import Group, Options, Trainer
from xfbench.workloads import Workload
from xfbench.workloads.initial import initial_parameters

Build = Callable[..., Trainer]


def train(
    workload: Workload, request: dict[str, Any], options: Options, build: Build
) -> dict[str, Any]:
    """One launch: build, train, measure; the reply's measurement, learning, observed and canary.

    Either `request["epochs"]` is set and whole epochs of a data set are trained, with an
    evaluation after each; or `steps` are, after a first step and `warmup` more.
    """
    batch_size, seed, warmup = request["batch_size_per_rank"], request["seed"], request["warmup"]
    data = data_set(request["data"], workload, batch_size, seed)

    start = perf_counter()
    trainer = build(workload.network, workload.solver, options, Group())
    trainer.assign(initial_parameters(workload.network, seed))
    build_seconds = perf_counter() - start

    epochs = request["epochs"]
    per_epoch = len(data.train[1]) // batch_size
    total = epochs * per_epoch if epochs else 1 + warmup + request["steps"]
    canary = trainer.loss(trainer.load(*data.first(batch_size, seed)))

    stream = _stream(data, batch_size, seed)
    seconds: list[float] = []
    input_seconds: list[float] = []
    losses: list[float] = []
    learning: list[dict[str, Any]] = []
    arrays: Arrays | None = None
    batch: Any = None
    ticks = observe.thread_ticks()
    began = perf_counter()
    for done in range(1, total + 1):
        step_start = perf_counter()
        upcoming = next(stream)
        if upcoming is not arrays:
            arrays, batch = upcoming, trainer.load(*upcoming)
        loaded = perf_counter()
        trainer.step(batch)
        losses.append(trainer.wait())
        step_end = perf_counter()
        seconds.append(step_end - step_start)
        input_seconds.append(loaded - step_start)
        if done == 1 + warmup:
            ticks = observe.thread_ticks()
        if epochs and done % per_epoch == 0:
            learning.append(
                {
                    "epoch": done // per_epoch,
                    "seconds": sum(seconds[-per_epoch:]),
                    "train_loss": _finite(float(np.mean(losses[-per_epoch:]))),
                    **evaluate(trainer, data.test, batch_size),
                }
            )
    wall_seconds = perf_counter() - began
    timed = seconds[1 + warmup :]
    return {
        "measurement": {
            "build_seconds": build_seconds,
            "first_step_seconds": seconds[0],
            "warmup_seconds": seconds[1 : 1 + warmup],
            "step_seconds": timed,
            "wall_seconds": wall_seconds,
            "images": len(timed) * batch_size,
            "peak_rss_bytes": observe.peak_rss_bytes(),
            "losses": [_finite(loss) for loss in losses],
            "energy_joules": None,
            "phases": {"input_seconds": sum(input_seconds[1 + warmup :])},
        },
        "learning": learning or None,
        "canary": {"loss": _finite(canary), "expected": None, "relative_error": None},
        "observed": {
            **trainer.observed(),
            "threads": observe.working_threads(ticks, observe.thread_ticks()),
            "affinity": observe.affinity(),
            "libraries": observe.libraries(),
        },
    }


def evaluate(trainer: Trainer, test: Arrays | None, batch_size: int) -> dict[str, float | None]:
    """Loss and accuracy of the last head over a test set: the same code for every framework.

    The last batch is filled up with the first images, which then do not count, so that
    frameworks with a fixed batch size can take part.
    """
    if test is None:
        return {"test_loss": None, "test_accuracy": None}
    images, labels = test
    log_likelihood, correct = 0.0, 0
    for start in range(0, len(labels), batch_size):
        index = np.arange(start, start + batch_size) % len(labels)
        counted = min(batch_size, len(labels) - start)
        scores = trainer.scores(trainer.load(images[index], labels[index]))[:counted]
        truth = labels[index][:counted]
        shifted = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
        log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        log_likelihood += float(log_softmax[np.arange(counted), truth].sum())
        correct += int((scores.argmax(axis=1) == truth).sum())
    return {
        "test_loss": _finite(-log_likelihood / len(labels)),
        "test_accuracy": correct / len(labels),
    }


def _finite(value: float) -> float | None:
    """JSON has no NaN and no infinity; null stands for both."""
    return value if np.isfinite(value) else None


def _stream(data: DataSet, batch_size: int, seed: int) -> Iterator[Arrays]:
    """Batches without end: synthetic input's one batch again and again, or epoch after epoch."""
    if data.test is None:
        while True:
            yield data.train
    epoch = 0
    while True:
        yield from data.epoch(batch_size, seed + epoch)
        epoch += 1
