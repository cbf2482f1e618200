"""The number of ranks that JAX determines by itself from its start command."""

from __future__ import annotations

import jax


def detect_rank_count() -> int:
    """Return the number of ranks that it joins. Raises the framework's error if it finds none."""
    jax.distributed.initialize()
    return int(jax.process_count())
