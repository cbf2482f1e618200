"""Recorded durations as a timer: how steps measured elsewhere reach pytest-benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class Replay:
    """A timer that is read twice per round; the difference is the next of the durations.

    Every round starts at zero, so that differences are the very floats that were recorded.
    """

    __name__ = "recorded_step_seconds"  # what pytest-benchmark's JSON calls the timer

    def __init__(self) -> None:
        self._readings: Iterator[float] = iter(())

    def load(self, durations: Sequence[float]) -> None:
        """Take the durations, in seconds, of the rounds to come."""
        self._readings = iter([reading for end in durations for reading in (0.0, end)])

    def __call__(self) -> float:
        """The next reading. Raises RuntimeError when there is none left."""
        for reading in self._readings:
            return reading
        raise RuntimeError("the timer was read more often than there are recorded steps")
