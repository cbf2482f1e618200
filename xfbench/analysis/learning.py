"""Learning speed-up of more ranks, next to their parallel speed-up.

T(n, ℓ) is the training time in seconds that n ranks need to reach the test loss ℓ. The learning
speed-up is L(n, ℓ) = T(1, ℓ) / T(n, ℓ) at ℓ*, the best loss that every run reached. The parallel
speed-up S(n) is the ratio of images per second. This definition is xfbench's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from xfbench.model.record import Record
from xfbench.statistics import Launches


def seconds_to_test_loss(record: Record, target_loss: float) -> float | None:
    """Return seconds of training until an epoch's test loss is at most `loss`, else None.

    Evaluations and all work before the first epoch are not counted.
    """
    elapsed_seconds = 0.0
    for epoch in record.learning or ():
        elapsed_seconds += epoch.seconds
        if epoch.test_loss is not None and epoch.test_loss <= target_loss:
            return elapsed_seconds
    return None


def best_test_loss(record: Record) -> float | None:
    """Return the lowest test loss after an epoch, or None if no loss is a number."""
    losses = [epoch.test_loss for epoch in record.learning or () if epoch.test_loss is not None]
    return min(losses, default=None)


def best_common_test_loss(records: Sequence[Record]) -> float | None:
    """Return ℓ*, the best loss that every run reached, or None if a run reached none."""
    best_losses = [best_test_loss(record) for record in records]
    losses = [loss for loss in best_losses if loss is not None]
    return max(losses) if losses and len(losses) == len(best_losses) else None


def seconds_to_test_loss_by_launch(records: Sequence[Record], target_loss: float) -> Launches:
    """Return the seconds to `loss` of each run that reached it, by seed and launch."""
    seconds_by_launch: dict[tuple[int, int], float] = {}
    for record in records:
        seconds = seconds_to_test_loss(record, target_loss)
        if seconds and record.request:
            seconds_by_launch[1000 * record.request.seed + record.request.launch, 0] = seconds
    return seconds_by_launch
