"""Check the framework's own dropout, which is part of the timed steps.

Only the framework knows its random masks. A small network shows them: a wide layer of known values,
dropout, and a probe. The probe's gradients show which values dropout let through in the forward
pass. The wide layer's gradients show which gradients dropout let through in the backward pass.
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
_REPEATS = 2
_RELATIVE_TOLERANCE = 1e-4  # enough for float32 after one division
_MAX_STANDARD_DEVIATIONS = 6.0  # of the binomial distribution: one false alarm in 500 million


def dropout_layer_by_ratio(network: xl.Network) -> dict[float, str]:
    """Return the name of the first dropout layer for each dropout ratio in the network."""
    layers: dict[float, str] = {}
    for layer in network.layers:
        if isinstance(layer, xl.Dropout):
            layers.setdefault(layer.ratio, layer.name)
    return layers


def build_case_document(ratio: float, seed: int) -> dict[str, Any]:
    """Return the worker's document of the case that checks dropout with this ratio.

    The worker computes all gradients twice, each time with a new random mask. It also computes the
    scores in test mode. It does no update.
    """
    return {
        **_build_case(ratio, seed).document("float32"),
        "options": {"precision": "float32", "dropout": "random", "seed": seed},
        "outputs": False,
        "full": _REPEATS,
        "steps": [],
        "largest_move": None,
    }


def case_name(ratio: float) -> str:
    """Return the name of the case that checks dropout with this ratio."""
    return _build_case(ratio, 0).key("float32")


def describe_dropout_defect(
    ratio: float, seed: int, arrays: Mapping[str, np.ndarray]
) -> str | None:
    """Return one line that says what is wrong with the framework's dropout. None if it is right.

    `arrays` has the results of the case that checks `ratio`, by quantity.
    """
    workload = _build_workload(ratio)
    weights = {
        key: value.astype(np.float64)
        for key, value in initial_parameters(workload.network, seed).items()
    }
    images, _ = synthetic_batch(workload, 1, seed)
    pixel = float(images.ravel()[0])
    values = weights["wide/weight"][:, 0] * pixel + weights["wide/bias"]
    masks = []
    for repeat in range(_REPEATS):
        score_gradients = arrays[f"full{repeat}/probe/bias"].astype(np.float64)
        strongest = int(abs(score_gradients).argmax())
        passed_values = arrays[f"full{repeat}/probe/weight"][strongest] / score_gradients[strongest]
        mask = passed_values != 0
        if not np.allclose(
            passed_values[mask], values[mask] / (1 - ratio), rtol=_RELATIVE_TOLERANCE, atol=0
        ):
            factor = float(np.median(passed_values[mask] / values[mask]))
            return f"dropout multiplies kept values by {factor:.4g}, not by {1 / (1 - ratio):.4g}"
        standard_deviation = sqrt(ratio * (1 - ratio) / _UNITS)
        dropped_share = 1 - float(mask.mean())
        if abs(dropped_share - ratio) > _MAX_STANDARD_DEVIATIONS * standard_deviation:
            return f"dropout drops {dropped_share:.1%}, not {ratio:.1%}"
        expected_gradients = score_gradients @ weights["probe/weight"] * mask / (1 - ratio)
        if not np.allclose(
            arrays[f"full{repeat}/wide/bias"],
            expected_gradients,
            rtol=_RELATIVE_TOLERANCE,
            atol=1e-6 * abs(expected_gradients).max(),
        ):
            return "dropout's backward pass does not use the mask of its forward pass"
        masks.append(mask)
    if all(np.array_equal(mask, masks[0]) for mask in masks[1:]):
        return "dropout draws the same mask each time"
    scores = weights["probe/weight"] @ values + weights["probe/bias"]
    if not np.allclose(
        arrays["test_scores"], scores, rtol=0, atol=_RELATIVE_TOLERANCE * abs(scores).max()
    ):
        return "dropout is not the identity in test mode"
    return None


def _build_case(ratio: float, seed: int) -> Case:
    return Case(f"dropout/{ratio}", _build_workload(ratio), "own", 1, seed, origin="")


def _build_workload(ratio: float) -> Workload:
    probe = xl.Filler("gaussian", 1 / sqrt(_UNITS))
    standard_normal = xl.Filler("gaussian", 1.0)
    network = xl.Network(
        "dropout",
        (1, 1, 1),
        _CLASSES,
        (
            xl.InnerProduct(
                "wide",
                ("data",),
                _UNITS,
                weight_filler=standard_normal,
                bias_filler=standard_normal,
            ),
            xl.Dropout("drop", ("wide",), ratio),
            xl.InnerProduct("probe", ("drop",), _CLASSES, weight_filler=probe),
            xl.SoftmaxLoss("loss", ("probe",)),
        ),
    )
    solver = Solver(base_lr=0.01)
    return Workload(network, solver, Pixels("gray", (0.0,), 1 / 256), 1, "synthetic", "xfbench")
