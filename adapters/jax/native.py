"""How many ranks JAX finds by itself: told nothing but what their start command tells."""

from __future__ import annotations

import jax


def ranks() -> int:
    """As many as it joins. Raises what it raises where it finds none."""
    jax.distributed.initialize()
    return int(jax.process_count())
