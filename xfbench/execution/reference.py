"""Requests to the oracle: the `reference` adapter in xfbench's own interpreter."""

from __future__ import annotations

from xfbench.model import adapter
from xfbench.model.request import Request

TIME_LIMIT = 3600.0  # seconds


def build_reference_request(
    workload: str, batch_size: int, *, threads: int, data: str = "synthetic", seed: int = 0
) -> Request:
    """Return a request for one step of the oracle in float64."""
    framework_adapter = adapter.load("reference")
    return Request(
        framework=framework_adapter.name,
        environment="own",
        workload=workload,
        precision="float64",
        kernel=framework_adapter.default_kernel,
        threads=threads,
        global_batch_size=batch_size,
        batch_size_per_rank=batch_size,
        data=data,
        steps=1,
        seed=seed,
        launch=1,
    )
