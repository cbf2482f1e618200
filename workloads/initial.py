"""The initial parameters, with the same bytes for every framework.

NumPy's `RandomState` draws them parameter by parameter, in the network's order. They are then
rounded to float32. NumPy guarantees that the random numbers of a seed never change.
"""

from __future__ import annotations

from math import prod

import numpy as np

from xfbench.workloads.layers import Network, Parameter


def initial_parameters(network: Network, seed: int) -> dict[str, np.ndarray]:
    """Return the initial parameters for `seed`: float32 arrays by canonical name.

    Raises ValueError for an unknown filler.
    """
    generator = np.random.RandomState(seed)
    return {
        name: _initial_value(parameter, generator) for name, parameter in network.parameters.items()
    }


def _initial_value(parameter: Parameter, generator: np.random.RandomState) -> np.ndarray:
    filler, shape = parameter.filler, parameter.shape
    fan_in = prod(shape[1:])
    if filler.type == "constant":
        return np.full(shape, filler.value, np.float32)
    if filler.type == "gaussian":
        values = generator.standard_normal(shape) * filler.value
    elif filler.type == "msra":
        values = generator.standard_normal(shape) * np.sqrt(2.0 / fan_in)
    elif filler.type == "xavier":
        bound = np.sqrt(3.0 / fan_in)
        values = generator.uniform(-bound, bound, shape)
    else:
        raise ValueError(f"unknown filler {filler.type!r}")
    return np.asarray(values, np.float32)
