"""Copies of batches to the training device.

On a GPU, a copy runs while the GPU still computes earlier steps:

- The batch is first copied to pinned memory. A copy from other memory waits for earlier steps.
- The copy to the GPU has a CUDA stream of its own, for which only the next step waits.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

_MAX_STEPS_AHEAD = 2  # queued steps, each of which keeps its batch on the GPU


class BatchCopier:
    """Copies batches to `device` in the precision `dtype` and the memory format `form`."""

    def __init__(self, device: torch.device, dtype: torch.dtype, form: torch.memory_format) -> None:
        self.device, self.dtype, self.form = device, dtype, form
        self.stream: Any = torch.cuda.Stream() if device.type == "cuda" else None
        self.steps: deque[Any] = deque()

    def copy(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the batch on the device. On a GPU, this method does not wait for the copy."""
        if self.stream is None:
            return self._copy_images(images, False), labels.to(self.device)
        with torch.cuda.stream(self.stream):
            batch = (
                self._copy_images(images.pin_memory(), True),
                labels.pin_memory().to(self.device, non_blocking=True),
            )
        training_stream = torch.cuda.current_stream()
        training_stream.wait_stream(self.stream)
        for tensor in batch:  # its memory is not used for another copy before the steps are done
            tensor.record_stream(training_stream)
        return batch

    def limit_steps_ahead(self) -> None:
        """Wait for the GPU if it is more than two steps behind. Call this before each step.

        Otherwise many batches would be on the GPU at once.
        """
        if self.stream is None:
            return
        self.steps.append(torch.cuda.current_stream().record_event())
        if len(self.steps) > _MAX_STEPS_AHEAD:
            self.steps.popleft().synchronize()

    def _copy_images(self, images: torch.Tensor, non_blocking: bool) -> torch.Tensor:
        on_device = images.to(self.device, self.dtype, non_blocking=non_blocking)
        return on_device.contiguous(memory_format=self.form)
