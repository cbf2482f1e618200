"""Checks the dropout that is timed: a framework's own, whose masks nobody else can draw.

A wide layer of known values, dropout, and a probe: the probe's gradients give back what
dropout let through, and the wide layer's what it let through backward.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

import numpy as np

from xfbench.equality.cases import Case
from xfbench.worker.input import synthetic_batch
from xfbench.workloads import Pixels, Workload
from xfbench.workloads import layers as xl
from xfbench.workloads.initial import initial_parameters
from xfbench.workloads.solver import Solver

_UNITS = 4000
_CLASSES = 4
_TIMES = 2
_RELATIVE = 1e-4  # float32, through one division
_DEVIATIONS = 6.0  # of the binomial: one false alarm in five hundred million


def ratios(network: xl.Network) -> dict[float, str]:
    """Each dropout ratio in the network, and the first layer that has it."""
    found: dict[float, str] = {}
    for layer in network.layers:
        if isinstance(layer, xl.Dropout):
            found.setdefault(layer.ratio, layer.name)
    return found


def document(ratio: float, seed: int) -> dict[str, Any]:
    """The case, as a worker is told: gradients alone, twice over, with random masks."""
    return {
        **_case(ratio, seed).document("float32"),
        "options": {"precision": "float32", "dropout": "random", "seed": seed},
        "outputs": False,
        "full": _TIMES,
        "steps": [],
        "largest_move": None,
    }


def name(ratio: float) -> str:
    """The case's name."""
    return _case(ratio, 0).key("float32")


def defect(ratio: float, seed: int, found: Mapping[str, np.ndarray]) -> str | None:
    """What is wrong with the framework's dropout, in one line; None where nothing is."""
    workload = _workload(ratio)
    weights = {
        key: value.astype(np.float64)
        for key, value in initial_parameters(workload.network, seed).items()
    }
    images, _ = synthetic_batch(workload, 1, seed)
    pixel = float(images.ravel()[0])
    values = weights["wide/weight"][:, 0] * pixel + weights["wide/bias"]
    masks = []
    for time in range(_TIMES):
        of_scores = found[f"full{time}/probe/bias"].astype(np.float64)
        strongest = int(abs(of_scores).argmax())
        let_through = found[f"full{time}/probe/weight"][strongest] / of_scores[strongest]
        kept = let_through != 0
        if not np.allclose(let_through[kept], values[kept] / (1 - ratio), rtol=_RELATIVE, atol=0):
            factor = float(np.median(let_through[kept] / values[kept]))
            return f"what dropout keeps is multiplied by {factor:.4g}, not by {1 / (1 - ratio):.4g}"
        spread = sqrt(ratio * (1 - ratio) / _UNITS)
        dropped = 1 - float(kept.mean())
        if abs(dropped - ratio) > _DEVIATIONS * spread:
            return f"dropout drops {dropped:.1%}, not {ratio:.1%}"
        arriving = of_scores @ weights["probe/weight"] * kept / (1 - ratio)
        if not np.allclose(
            found[f"full{time}/wide/bias"],
            arriving,
            rtol=_RELATIVE,
            atol=1e-6 * abs(arriving).max(),
        ):
            return "dropout's backward pass does not use the mask of its forward pass"
        masks.append(kept)
    if all(np.array_equal(mask, masks[0]) for mask in masks[1:]):
        return "dropout draws the same mask each time"
    scores = weights["probe/weight"] @ values + weights["probe/bias"]
    if not np.allclose(found["test_scores"], scores, rtol=0, atol=_RELATIVE * abs(scores).max()):
        return "dropout is not the identity in test mode"
    return None


def _case(ratio: float, seed: int) -> Case:
    return Case(f"dropout/{ratio}", _workload(ratio), "own", 1, seed, origin="")


def _workload(ratio: float) -> Workload:
    probe = xl.Filler("gaussian", 1 / sqrt(_UNITS))
    some = xl.Filler("gaussian", 1.0)
    network = xl.Network(
        "dropout",
        (1, 1, 1),
        _CLASSES,
        (
            xl.InnerProduct("wide", ("data",), _UNITS, weight_filler=some, bias_filler=some),
            xl.Dropout("drop", ("wide",), ratio),
            xl.InnerProduct("probe", ("drop",), _CLASSES, weight_filler=probe),
            xl.SoftmaxLoss("loss", ("probe",)),
        ),
    )
    solver = Solver(base_lr=0.01)
    return Workload(network, solver, Pixels("gray", (0.0,), 1 / 256), 1, "synthetic", "xfbench")
