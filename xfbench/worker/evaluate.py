"""Evaluate a trained network on a test set, with the same code for every framework."""

from __future__ import annotations

import numpy as np

from xfbench.worker.input import Split
from xfbench.worker.protocol import Trainer


def evaluate_on_test_set(
    trainer: Trainer, test_split: Split | None, batch_size: int
) -> dict[str, float | None]:
    """Return the loss and accuracy of the last head over the test set, in test mode.

    - `test_loss`: mean over the images; None if it is not finite
    - `test_accuracy`: share of images whose highest score is that of their label, from 0 to 1

    Both are None if `test_split` is None. The last batch is filled up with the first images,
    because some frameworks have a fixed batch size. These added images are not counted.
    """
    if test_split is None:
        return {"test_loss": None, "test_accuracy": None}
    log_likelihood, correct = 0.0, 0
    for start in range(0, len(test_split), batch_size):
        images, labels = test_split.batch(np.arange(start, start + batch_size) % len(test_split))
        counted = min(batch_size, len(test_split) - start)
        scores = trainer.test_scores(trainer.load(images, labels))[:counted]
        truth = labels[:counted]
        shifted = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
        log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        log_likelihood += float(log_softmax[np.arange(counted), truth].sum())
        correct += int((scores.argmax(axis=1) == truth).sum())
    return {
        "test_loss": finite_or_none(-log_likelihood / len(test_split)),
        "test_accuracy": correct / len(test_split),
    }


def finite_or_none(value: float) -> float | None:
    """Return the value, or None for NaN and infinity, which JSON cannot represent."""
    return value if np.isfinite(value) else None
