"""Whether two cores lay near to each other, by the seconds that a word took there and back."""

from __future__ import annotations

from collections.abc import Sequence

FAR_RATIO = 1.5  # times the nearest: measurements of two near cores differ by less, mostly
_RARE_SHARE = 0.1  # of all times: two cores that are, for once, the two threads of one, say


def nearest_seconds(handovers: Sequence[float]) -> float | None:
    """Seconds that the cores take where they are near, as they are not only now and then."""
    return sorted(handovers)[int(_RARE_SHARE * len(handovers))] if handovers else None


def is_far_apart(handovers: Sequence[float], least: float | None = None) -> bool:
    """Whether cores were, at one of these times, farther apart than they are at their nearest.

    That takes the `least` seconds, or the shortest of these where nothing else is known.
    """
    all_handovers = [*handovers, *([least] if least else [])]
    return bool(handovers) and max(handovers) > FAR_RATIO * min(all_handovers)
