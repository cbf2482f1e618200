"""Golden values of workloads: their digests and those of their initial weights."""

import hashlib
from typing import Any

from xfbench.records.facts import facts
from xfbench.workloads import workloads
from xfbench.workloads.initial import initial_parameters

SEED = 0


def names() -> list[str]:
    """Return the names of the built-in workloads."""
    return list(workloads())


def digests(name: str) -> dict[str, Any]:
    """Return the digest of the workload, of all its initial weights, and of each parameter.

    The digest of all weights is that of every parameter's name, shape, type and bytes in order.
    """
    workload = workloads()[name]
    every = hashlib.sha256()
    each = {}
    for parameter, value in initial_parameters(workload.network, SEED).items():
        head = f"{parameter} {list(value.shape)} {value.dtype.str}"
        content = value.tobytes()
        every.update(head.encode() + content)
        each[parameter] = f"{list(value.shape)} {hashlib.sha256(content).hexdigest()[:16]}"
    return {
        "facts": facts(workload).model_dump(mode="json"),
        "initial_weights": f"sha256:{every.hexdigest()}",
        "parameters": each,
        "parameters_in_order": hashlib.sha256(" ".join(each).encode()).hexdigest()[:16],
    }
