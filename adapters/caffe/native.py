"""Rank detection by Caffe itself, without xfbench's help."""

from __future__ import annotations

import caffe


def join_and_count_ranks() -> int:
    """Return Caffe's number of ranks: 1, unless the process sets another solver count."""
    return int(caffe.solver_count())
