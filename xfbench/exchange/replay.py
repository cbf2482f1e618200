"""A timer that replays recorded durations, to pass measured steps to pytest-benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class ReplayTimer:
    """A timer that pytest-benchmark reads twice per round: at its start and at its end.

    The difference between the two readings is the next recorded duration. Every round starts at
    zero, so that the difference is exactly the recorded float.
    """

    __name__ = "recorded_step_seconds"  # the timer's name in pytest-benchmark's JSON

    def __init__(self) -> None:
        self._readings: Iterator[float] = iter(())

    def set_next_durations(self, durations: Sequence[float]) -> None:
        """Set the durations of the next rounds, in seconds."""
        self._readings = iter([reading for end in durations for reading in (0.0, end)])

    def __call__(self) -> float:
        """Return the next reading in seconds. Raises RuntimeError if no reading is left."""
        for reading in self._readings:
            return reading
        raise RuntimeError("the timer was read more often than there are recorded steps")
