"""Rank detection by Caffe itself, without xfbench's help."""

from __future__ import annotations

import caffe


def detect_rank_count() -> int:
    """Return Caffe's number of ranks: 1, unless the process sets another solver count."""
    return int(caffe.solver_count())
