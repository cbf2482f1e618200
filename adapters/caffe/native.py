"""The number of ranks that Caffe determines by itself from its start command."""

from __future__ import annotations

import caffe


def detect_rank_count() -> int:
    """Return the number of ranks that it would join: the value set by hand, else one."""
    return int(caffe.solver_count())
