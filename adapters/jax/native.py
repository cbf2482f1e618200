"""Rank detection by JAX itself, without xfbench's help."""

from __future__ import annotations

import jax


def join_and_count_ranks() -> int:
    """Join the group of ranks that JAX finds, and return its number of ranks.

    Raises JAX's error if JAX finds no group.
    """
    jax.distributed.initialize()
    return int(jax.process_count())
