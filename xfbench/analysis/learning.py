"""Training time until a test loss is reached, for the learning speed-up of more ranks.

T(n, ℓ) is the training time, in seconds, that n ranks need to reach the test loss ℓ. The learning
speed-up of n ranks is T(1, ℓ*) / T(n, ℓ*), where ℓ* is the lowest test loss that every run reached.
This definition is xfbench's own. The parallel speed-up compares images per second instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from xfbench.model.record import Record
from xfbench.statistics import Block, Launches, next_block


def seconds_to_test_loss(record: Record, target_loss: float) -> float | None:
    """Return the seconds of training until the test loss after an epoch is at most `target_loss`.

    Evaluations and work before the first epoch are not counted. Returns None if no epoch reached
    the loss.
    """
    elapsed_seconds = 0.0
    for epoch in record.learning or ():
        elapsed_seconds += epoch.seconds
        if epoch.test_loss is not None and epoch.test_loss <= target_loss:
            return elapsed_seconds
    return None


def best_test_loss(record: Record) -> float | None:
    """Return the lowest test loss after any epoch, or None if no test loss is known."""
    losses = [epoch.test_loss for epoch in record.learning or () if epoch.test_loss is not None]
    return min(losses, default=None)


def best_common_test_loss(records: Sequence[Record]) -> float | None:
    """Return the lowest test loss that every run reached, or None if a run has no test loss."""
    best_losses = [best_test_loss(record) for record in records]
    losses = [loss for loss in best_losses if loss is not None]
    return max(losses) if losses and len(losses) == len(best_losses) else None


def seconds_to_test_loss_by_block(records: Sequence[Record], target_loss: float) -> Launches:
    """Return `seconds_to_test_loss` for each record that reached `target_loss`, by block."""
    seconds_by_block: dict[Block, float] = {}
    for record in records:
        seconds = seconds_to_test_loss(record, target_loss)
        if seconds and record.request:
            seconds_by_block[next_block(record, seconds_by_block)] = seconds
    return seconds_by_block
