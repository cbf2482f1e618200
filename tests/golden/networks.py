"""Golden values of workloads: their digests and those of their initial weights."""

import hashlib
from typing import Any

import numpy as np

from xfbench.model.facts import workload_facts
from xfbench.workloads import workloads
from xfbench.workloads.initial import initial_parameters

SEED = 0


def names() -> list[str]:
    """Return the names of the built-in workloads."""
    return list(workloads())


def digests(name: str) -> dict[str, Any]:
    """Return the digest of the workload, of all its initial weights, and of each parameter.

    The digest of all weights is that of the parameters' lines, in the order of the network.
    """
    workload = workloads()[name]
    lines_by_parameter = {}
    for parameter, value in initial_parameters(workload.network, SEED).items():
        content = hashlib.sha256(np.ascontiguousarray(value)).hexdigest()
        lines_by_parameter[parameter] = f"{value.dtype.str} {list(value.shape)} {content[:16]}"
    lines = "".join(f"{parameter} {line}\n" for parameter, line in lines_by_parameter.items())
    return {
        "facts": workload_facts(workload).model_dump(mode="json"),
        "initial_weights": f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}",
        "parameters": lines_by_parameter,
    }
