"""How many ranks Caffe finds by itself: told nothing but what their start command tells."""

from __future__ import annotations

import caffe


def ranks() -> int:
    """As many as it would join, which is set by hand or else one."""
    return int(caffe.solver_count())
