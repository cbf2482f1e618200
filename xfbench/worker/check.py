"""Equality cases: small trainings whose every number is to be compared with the oracle's.

A case says all: network, solver, precision, weights, input, steps. This module runs it and
writes down what came out; what it should be is the driver's to judge.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict

import numpy as np

from xfbench.worker.input import data_set, synthetic_batch
from xfbench.worker.protocol import Group, Options, Trainer, Unsupported
from xfbench.worker.sketch import sketch
from xfbench.workloads import Workload, workload_from_json
from xfbench.workloads.initial import initial_parameters

Arrays = Dict[str, np.ndarray]

_PIECE = 16  # images that are evaluated at once for the canary
_SUSPICIOUS_LOSS = 20.0  # below, hardly an image has so much that Caffe's floor matters


def check(
    cases: list[dict[str, Any]],
    options: Options,
    build: Callable[..., Trainer],
    group: Group,
    inputs: Path | None,
    output: Path,
) -> dict[str, Any]:
    """Run `cases` into `output` (.npz, keys "<case>:<quantity>"); what could not be done.

    Sketches: output/<layer> and output/data (training mode, where the trainer gives them),
    gradient/<parameter> (of the first batch, without decay), step<k>/<parameter> (how far it
    has moved after k updates), test_scores. Numbers: losses (of each update), test_loss and
    trained_test_loss, rate (the learning rate that was used). One of several ranks trains on
    its part of the batch, gives no outputs, and losses of its own. On request, whole:
    activation/<layer>, and full<n>/<parameter>, gradients computed `full` times over.
    A case that the framework cannot do is in `unsupported` with the reason; `observed` is what
    the first trainer in the launch's own precision says of the kernel that ran.
    """
    found: Arrays = {}
    unsupported: dict[str, str] = {}
    observed: dict[str, Any] = {}
    stored = np.load(str(inputs), allow_pickle=False) if inputs else {}
    for case in cases:
        run = _Case(case, replace(options, **case["options"]), build, group, stored)
        try:
            found.update({f"{case['name']}:{key}": value for key, value in run.results().items()})
            if not observed and run.options.precision == options.precision:
                observed = run.trainer.runtime_info()
        except Unsupported as error:
            unsupported[case["name"]] = str(error)
    with output.open("wb") as file:
        np.savez(file, **found)  # type: ignore[arg-type]
    return {"unsupported": unsupported, "observed": observed}


class _Case:
    """One case: the trainer it needs, at its initial weights, with its batch loaded."""

    def __init__(
        self,
        case: dict[str, Any],
        options: Options,
        build: Callable[..., Trainer],
        group: Group,
        stored: Any,
    ) -> None:
        self.case, self.options, self.build, self.group = case, options, build, group
        if group.size == 1 and case.get("ranks", 1) > 1:
            self.group = Group(0, case["ranks"], "parts")
        self.workload = workload_from_json(case["workload"])
        images, labels = synthetic_batch(self.workload, case["batch_size"], case["seed"])
        if case["input"]:
            shape = self.workload.network.input_shape
            images = stored[case["input"]].reshape(case["batch_size"], *shape)
        self.initial = initial_parameters(self.workload.network, case["seed"])
        if case["nudge"]:
            random, most = np.random.RandomState(case["nudge"]), case["nudge_units"]
            self.initial = {k: nudged(value, random, most) for k, value in self.initial.items()}
            images = nudged(images, random, most)
        self.arrays = images, labels

    def results(self) -> Arrays:
        found = self._before()
        if self.case["largest_move"]:
            gradients = {
                key.partition("/")[2]: value
                for key, value in found.items()
                if key.startswith("gradient/")
            }
            rate = _rate(self.workload, self.initial, gradients, self.case["largest_move"])
            solver = replace(self.workload.solver, base_lr=rate)
            self.workload = replace(self.workload, solver=solver)
        found["rate"] = np.asarray(self.workload.solver.base_lr)
        if self.case["steps"]:
            found.update(self._trained())
        return found

    def _before(self) -> Arrays:
        """What can be seen at the initial weights."""
        found: Arrays = {}
        self._start()
        # Of several ranks each has seen its part alone, and says nothing of the whole batch.
        if self.group.size == 1 and self.case["outputs"] and hasattr(self.trainer, "outputs"):
            values = self.trainer.outputs(self.batch)
            found.update({f"output/{name}": sketch(value) for name, value in values.items()})
            for name in self.case["activations"]:
                found[f"activation/{name}"] = np.asarray(values[name], np.float32)
            del values
            self.trainer.assign(self.initial)
        for name, gradient in self.trainer.gradients(self.batch).items():
            found[f"gradient/{name}"] = sketch(gradient)
        for time in range(self.case["full"]):
            for name, gradient in self.trainer.gradients(self.batch).items():
                found[f"full{time}/{name}"] = gradient
        self.trainer.assign(self.initial)
        found["test_loss"] = np.asarray([self.trainer.loss(self.everything)])
        found["test_scores"] = sketch(self.trainer.scores(self.everything))
        return found

    def _trained(self) -> Arrays:
        found: Arrays = {}
        if self.case["largest_move"]:  # the solver has changed
            self._start()
        losses = []
        for step in range(1, max(self.case["steps"]) + 1):
            self.trainer.step(self.batch)
            losses.append(self.trainer.synchronize())
            if step in self.case["steps"]:
                for name, value in self.trainer.parameters().items():
                    moved = np.subtract(value, self.initial[name], dtype=np.float64)
                    found[f"step{step}/{name}"] = sketch(moved)
        found["losses"] = np.asarray(losses)
        found["trained_test_loss"] = np.asarray([self.trainer.loss(self.everything)])
        return found

    def _start(self) -> None:
        self.trainer: Any = self.build(
            self.workload.network, self.workload.solver, self.options, self.group
        )
        self.trainer.assign(self.initial)
        images, labels = self.arrays
        part = self.group.shard(len(labels))
        self.batch = self.everything = self.trainer.load(images[part], labels[part])
        if len(labels) > part.stop - part.start:
            self.everything = self.trainer.load(images, labels)


def canary(
    workload: Workload,
    request: dict[str, Any],
    options: Options,
    build: Callable[..., Trainer],
    folder: str | None = None,
) -> dict[str, Any]:
    """What a launch's canary must be: in float64, as `options` rounds, and floored as Caffe does.

    In test mode no image has to do with another, so that a few are evaluated at a time.
    """
    batch_size, seed = request["batch_size_per_rank"], request["seed"]
    data = data_set(request["data"], workload, batch_size, seed, folder)
    images, labels = data.first(batch_size, seed)

    def mean(precision: str, piece: int, largest: float = float("inf")) -> float:
        chosen = replace(options, precision=precision)
        trainer = build(workload.network, workload.solver, chosen, Group())
        trainer.assign(initial_parameters(workload.network, seed))
        total = 0.0
        for start in range(0, batch_size, piece):
            part = slice(start, start + piece)
            loss = float(trainer.loss(trainer.load(images[part], labels[part])))
            total += min(loss, largest) * len(labels[part])
        return float(total / batch_size)

    loss = mean("float64", _PIECE)
    floored = loss
    if loss > _SUSPICIOUS_LOSS:
        floored = mean("float64", 1, -float(np.log(np.finfo(np.float32).tiny)))
    return {
        "canary": {"loss": loss, "rounded": mean(options.precision, _PIECE), "floored": floored}
    }


def _rate(workload: Workload, initial: Arrays, gradients: Arrays, largest: float) -> float:
    """The workload's base rate, or less: the first update is to be a small one; two digits.

    No tensor moves by more than `largest`, relative to its norm (what a bias starts from,
    often zero, is no measure of its moves), and the loss falls by about five times as much
    at most: else units tip over on the way, and rounding decides which.
    """
    network = workload.network
    rate, slope = workload.solver.base_lr, 0.0
    for name, gradient in gradients.items():
        parameter, size = network.parameters[name], float(np.linalg.norm(initial[name]))
        pull = float(np.linalg.norm(gradient)) * parameter.lr_mult
        slope += pull**2 / parameter.lr_mult if parameter.lr_mult else 0.0
        pull += size * workload.solver.weight_decay * parameter.decay_mult * parameter.lr_mult
        if pull and size and not name.endswith(("/bias", "/beta")):
            rate = min(rate, largest * size / pull)
    rate = min(rate, 5 * largest / slope) if slope else rate
    return float(f"{rate:.1e}")


def nudged(array: np.ndarray, random: np.random.RandomState, most: int) -> np.ndarray:
    """float32 values, each moved up or down by at most so many units in the last place."""
    moves = random.randint(-most, most + 1, array.shape).astype(np.float32)
    nudged: np.ndarray = array * (np.float32(1) + moves * np.float32(2.0**-23))
    return nudged
