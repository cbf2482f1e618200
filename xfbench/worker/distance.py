"""Decide from core-to-core latencies whether two cores were far apart."""

from __future__ import annotations

from collections.abc import Sequence

FAR_RATIO = 1.5  # times the nearest: most measurements of near cores differ by less
_RARE_SHARE = 0.1  # of all times, which may come from two threads of the same core


def nearest_seconds(handovers: Sequence[float]) -> float | None:
    """Return the latency of near cores in seconds, without rare smaller values."""
    return sorted(handovers)[int(_RARE_SHARE * len(handovers))] if handovers else None


def is_far_apart(handovers: Sequence[float], least: float | None = None) -> bool:
    """Return whether cores were farther apart at any of these times than when nearest.

    `least` is the latency in seconds when they are nearest; without it, the smallest of these is.
    """
    all_handovers = [*handovers, *([least] if least else [])]
    return bool(handovers) and max(handovers) > FAR_RATIO * min(all_handovers)
