"""Rank detection by Caffe itself, without xfbench's help."""

from __future__ import annotations

import caffe


def join_and_count_ranks() -> int:
    """Return Caffe's solver count, which is 1 unless the process sets another one."""
    return int(caffe.solver_count())
