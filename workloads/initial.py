"""The initial weights: the same bytes for every framework.

They come from NumPy's `RandomState`, whose stream is frozen for good, parameter by
parameter in the network's order, in float32.
"""

from __future__ import annotations

from math import prod

import numpy as np

from xfbench.workloads.layers import Network, Parameter


def initial_parameters(network: Network, seed: int) -> dict[str, np.ndarray]:
    """Canonical name to float32 array, in the canonical layout. Raises ValueError on an unknown filler."""
    random = np.random.RandomState(seed)
    return {name: _filled(parameter, random) for name, parameter in network.parameters.items()}


def _filled(parameter: Parameter, random: np.random.RandomState) -> np.ndarray:
    filler, shape = parameter.filler, parameter.shape
    fan_in = prod(shape[1:])
    if filler.type == "constant":
        return np.full(shape, filler.value, np.float32)
    if filler.type == "gaussian":
        return (random.standard_normal(shape) * filler.value).astype(np.float32)
    if filler.type == "msra":
        return (random.standard_normal(shape) * np.sqrt(2.0 / fan_in)).astype(np.float32)
    if filler.type == "xavier":
        bound = np.sqrt(3.0 / fan_in)
        return random.uniform(-bound, bound, shape).astype(np.float32)
    raise ValueError(f"unknown filler {filler.type!r}")
