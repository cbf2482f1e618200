"""Equality cases: small trainings whose numbers are compared with the oracle's.

A case defines everything: network, solver, precision, weights, input and steps. This module runs
cases and writes their numbers. The driver judges these numbers.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import numpy as np

from xfbench.worker.block_input import draw_input
from xfbench.worker.input import open_data_set, synthetic_batch
from xfbench.worker.protocol import Group, Options, Trainer, Unsupported
from xfbench.worker.sketch import sketch
from xfbench.workloads import Workload, workload_from_json
from xfbench.workloads.initial import initial_parameters

Arrays = Dict[str, np.ndarray]

_IMAGES_AT_ONCE = 16  # images that are evaluated together for the canary
_EXACT_IMAGES = 32  # images of the canary that are always evaluated in float64
_NEGLIGIBLE_ERROR = 1e-6  # relative to the mean loss: a tenth of the least tolerance of the canary
_SUSPICIOUS_LOSS = 20.0  # below this mean, hardly any image's loss reaches Caffe's upper limit


def run_cases(
    cases: list[dict[str, Any]],
    options: Options,
    build: Callable[..., Trainer],
    group: Group,
    inputs_npz: Path | None,
    output_npz: Path,
) -> dict[str, Any]:
    """Run `cases` and write their results to `output_npz`, with keys "<case>:<quantity>".

    `inputs_npz` contains tables from which the inputs of cases are drawn (see `block_input`). None
    if no case needs them.

    Sketches of these quantities are written (see `sketch`):

    - output/<layer>, output/data: outputs in training mode, if the trainer provides them
    - gradient/<parameter>: gradient of the first batch, without weight decay
    - step<k>/<parameter>: change of the parameter after k updates
    - test_scores: scores in test mode at the initial weights

    These quantities are written as numbers:

    - losses: the loss of each update
    - test_loss, trained_test_loss: the loss in test mode before and after the updates
    - rate: the base learning rate that was used

    These quantities are written as complete arrays, if the case requests them:

    - activation/<layer>: the layer's output
    - full<n>/<parameter>: the gradient of the first batch, computed again. The case's `full` is the
      number of repetitions, and n counts them from 0.

    A case may have these keys too:

    - `copies`: how often the batch has each image of the case. The mean gradient stays the same.
      The quantity `images` then says how many images the batch had.
    - `gradients_of_update`: whether the gradients are those of the first update, which is computed
      by the program that launches time. The solver must have neither weight decay nor LARS.
    - `test_mode`: whether losses and scores in test mode are measured

    If there are several ranks, each rank trains on its shard of the batch. Each rank writes the
    losses of its shard, and no outputs.

    Returns a dictionary with three keys:

    - `unsupported`: the reasons by case name, for cases that the framework cannot do
    - `observed`: the runtime facts of the first trainer that ran in the precision of `options`
    - `kernels`: for each number of images, `kernel` and `kernel_evidence` of the first such trainer
      with a batch of this size, because libraries choose their algorithms by the size
    """
    arrays: Arrays = {}
    unsupported: dict[str, str] = {}
    observed: dict[str, Any] = {}
    kernels: dict[str, Any] = {}
    stored = np.load(str(inputs_npz), allow_pickle=False) if inputs_npz else {}
    for case in cases:
        run = _Case(case, replace(options, **case["options"]), build, group, stored)
        try:
            arrays.update({f"{case['name']}:{key}": value for key, value in run.measure().items()})
            images = str(len(run.arrays[1]))
            if images not in kernels and run.options.precision == options.precision:
                facts = run.trainer.runtime_info()
                observed = observed or facts
                kernels[images] = {key: facts[key] for key in ("kernel", "kernel_evidence")}
        except Unsupported as error:
            unsupported[case["name"]] = str(error)
    with output_npz.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return {"unsupported": unsupported, "observed": observed, "kernels": kernels}


class _Case:
    """One case: its workload, initial weights and input. `measure` builds its trainer."""

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
            images = draw_input(stored[case["input"]], (case["batch_size"], *shape), case["seed"])
        self.initial = initial_parameters(self.workload.network, case["seed"])
        if case["nudge"]:
            random, most = np.random.RandomState(case["nudge"]), case["nudge_units"]
            self.initial = {k: perturb(value, random, most) for k, value in self.initial.items()}
            images = perturb(images, random, most)
        self.has_test_mode = case.get("test_mode", True)
        self.arrays = _repeat_images(images, labels, case.get("copies", 1), case["seed"])

    def measure(self) -> Arrays:
        """Run the case and return its results by quantity."""
        arrays = self._measure_at_initial_weights()
        if self.case["largest_move"]:
            gradients = {
                key.partition("/")[2]: value
                for key, value in arrays.items()
                if key.startswith("gradient/")
            }
            rate = _limited_learning_rate(
                self.workload, self.initial, gradients, self.case["largest_move"]
            )
            solver = replace(self.workload.solver, base_lr=rate)
            self.workload = replace(self.workload, solver=solver)
        arrays["rate"] = np.asarray(self.workload.solver.base_lr)
        if self.case["steps"]:
            arrays.update(self._train_and_measure_changes())
        return arrays

    def _measure_at_initial_weights(self) -> Arrays:
        """Return the quantities that are measured at the initial weights."""
        arrays: Arrays = {}
        self._build_trainer_and_load_batch()
        # With several ranks, each rank computes outputs of its part of the batch only.
        if self.group.size == 1 and self.case["outputs"] and hasattr(self.trainer, "layer_outputs"):
            values = self.trainer.layer_outputs(self.batch)
            arrays.update({f"output/{name}": sketch(value) for name, value in values.items()})
            for name in self.case["activations"]:
                arrays[f"activation/{name}"] = np.asarray(values[name], np.float32)
            del values
            self.trainer.assign(self.initial)
        of_update = self.case.get("gradients_of_update", False)
        gradients = self._read_update() if of_update else self.trainer.gradients(self.batch)
        for name, gradient in gradients.items():
            arrays[f"gradient/{name}"] = sketch(gradient)
        for time in range(self.case["full"]):
            for name, gradient in self.trainer.gradients(self.batch).items():
                arrays[f"full{time}/{name}"] = gradient
        self.trainer.assign(self.initial)
        if "copies" in self.case:
            arrays["images"] = np.asarray(len(self.arrays[1]))
        if self.has_test_mode:
            arrays["test_loss"] = np.asarray([self.trainer.test_loss(self.full_batch)])
            arrays["test_scores"] = sketch(self.trainer.test_scores(self.full_batch))
        return arrays

    def _read_update(self) -> Arrays:
        """Make the first update, and return the gradients that it shows, by parameter."""
        self.trainer.step(self.batch)
        self.trainer.wait_for_loss()
        rate = self.workload.solver.learning_rate(0)
        parameters = self.workload.network.parameters
        return {
            name: np.subtract(self.initial[name], value, dtype=np.float64)
            / (rate * parameters[name].lr_mult)
            for name, value in self.trainer.parameters().items()
            if parameters[name].learned and parameters[name].lr_mult
        }

    def _train_and_measure_changes(self) -> Arrays:
        arrays: Arrays = {}
        if self.case["largest_move"]:  # the learning rate was limited
            self._build_trainer_and_load_batch()
        losses = []
        for step in range(1, max(self.case["steps"]) + 1):
            self.trainer.step(self.batch)
            losses.append(self.trainer.wait_for_loss())
            if step in self.case["steps"]:
                for name, value in self.trainer.parameters().items():
                    change = np.subtract(value, self.initial[name], dtype=np.float64)
                    arrays[f"step{step}/{name}"] = sketch(change)
        arrays["losses"] = np.asarray(losses)
        if self.has_test_mode:
            arrays["trained_test_loss"] = np.asarray([self.trainer.test_loss(self.full_batch)])
        return arrays

    def _build_trainer_and_load_batch(self) -> None:
        self.trainer: Any = self.build(
            self.workload.network, self.workload.solver, self.options, self.group
        )
        self.trainer.assign(self.initial)
        images, labels = self.arrays
        part = self.group.shard(len(labels))
        self.batch = self.full_batch = self.trainer.load(images[part], labels[part])
        if len(labels) > part.stop - part.start:
            self.full_batch = self.trainer.load(images, labels)


def _repeat_images(
    images: np.ndarray, labels: np.ndarray, copies: int, seed: int
) -> Tuple[np.ndarray, np.ndarray]:
    """Return a batch that has each image `copies` times, in random order."""
    if copies == 1:
        return images, labels
    count = len(labels)
    order = np.random.RandomState(seed).permutation(copies * count) % count
    return images[order], labels[order]


def compute_canary_losses_before_training(
    workload: Workload,
    request: dict[str, Any],
    options: Options,
    build: Callable[..., Trainer],
    folder: str | None = None,
) -> dict[str, Any]:
    """Compute the canary that a launch should have.

    The canary is the test-mode loss of the first batch at the initial weights, averaged over the
    images. The result is `{"canary": variants}`. `variants` has the canary computed in three ways:

    - `loss`: in float64
    - `rounded`: in the precision of `options`
    - `floored`: as `loss`, with Caffe's upper limit on the loss of each image

    Rounding is measured on the first `_EXACT_IMAGES` images. If it is negligible in float32 there,
    the other images are evaluated in float32 instead of float64.

    `folder` is the folder of a prepared data set; None for other data. Images do not depend on each
    other in test mode, so they are evaluated a few at a time.
    """
    batch_size, seed = request["batch_size_per_rank"], request["seed"]
    data = open_data_set(request["data"], workload, batch_size, seed, folder)
    images, labels = data.first_batch(batch_size, seed)
    initial = initial_parameters(workload.network, seed)

    def test_losses(precision: str, first: int, end: int, images_at_once: int) -> np.ndarray:
        """Return the loss of each image: the mean of those that are evaluated together."""
        trainer = build(
            workload.network, workload.solver, replace(options, precision=precision), Group()
        )
        trainer.assign(initial)
        losses: list[float] = []
        for start in range(first, end, images_at_once):
            part = slice(start, min(start + images_at_once, end))
            loss = float(trainer.test_loss(trainer.load(images[part], labels[part])))
            losses += [loss] * len(labels[part])
        return np.asarray(losses)

    count = min(batch_size, _EXACT_IMAGES)
    losses = test_losses("float64", 0, count, _IMAGES_AT_ONCE)
    has_large_losses = losses.mean() > _SUSPICIOUS_LOSS
    at_once = 1 if has_large_losses else _IMAGES_AT_ONCE
    if has_large_losses:
        losses = test_losses("float64", 0, count, at_once)
    loss_of_part = losses.mean()
    rounded_of_part = test_losses(options.precision, 0, count, at_once)
    if batch_size > count:
        in_float32 = (
            rounded_of_part
            if options.precision == "float32"
            else test_losses("float32", 0, count, at_once)
        )
        is_negligible = np.abs(in_float32 - losses) <= _NEGLIGIBLE_ERROR * loss_of_part
        precision = "float32" if is_negligible.all() else "float64"
        losses = np.append(losses, test_losses(precision, count, batch_size, at_once))
    loss = float(losses.mean())
    loss_cap = -float(np.log(np.finfo(np.float32).tiny)) if has_large_losses else float("inf")
    return {
        "canary": {
            "loss": loss,
            "rounded": float(loss * (rounded_of_part.mean() / loss_of_part)),
            "floored": float(np.minimum(losses, loss_cap).mean()),
        }
    }


def _limited_learning_rate(
    workload: Workload, initial: Arrays, gradients: Arrays, largest_move: float
) -> float:
    """Return the base learning rate, lowered if needed to keep the first update small.

    The first update is small if both conditions are true:

    - No tensor moves by more than `largest_move`, relative to the tensor's norm. Biases are
      excluded, because their initial values are often zero.
    - The loss falls by at most about 5 * `largest_move`.

    With larger updates, ReLUs switch during training, and rounding decides which ones.

    The returned rate is rounded to two significant digits. `gradients` may contain sketches of the
    gradients (see `xfbench.worker.sketch`), because only norms are used.
    """
    network = workload.network
    rate, slope = workload.solver.base_lr, 0.0
    for name, gradient in gradients.items():
        parameter, size = network.parameters[name], float(np.linalg.norm(initial[name]))
        pull = float(np.linalg.norm(gradient)) * parameter.lr_mult
        slope += pull**2 / parameter.lr_mult if parameter.lr_mult else 0.0
        pull += size * workload.solver.weight_decay * parameter.decay_mult * parameter.lr_mult
        if pull and size and not name.endswith(("/bias", "/beta")):
            rate = min(rate, largest_move * size / pull)
    rate = min(rate, 5 * largest_move / slope) if slope else rate
    return float(f"{rate:.1e}")


def perturb(array: np.ndarray, random: np.random.RandomState, max_ulps: int) -> np.ndarray:
    """Return float32 `array` with each value changed at random by at most `max_ulps` units.

    A unit is 2**-23 of the value, about one unit in the last place.
    """
    moves = random.randint(-max_ulps, max_ulps + 1, array.shape).astype(np.float32)
    nudged: np.ndarray = array * (np.float32(1) + moves * np.float32(2.0**-23))
    return nudged
