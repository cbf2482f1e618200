"""The number of ranks that Caffe finds by itself, from its start command alone."""

from __future__ import annotations

import caffe


def ranks() -> int:
    """Return the number of ranks that it would join: set by hand, else one."""
    return int(caffe.solver_count())
