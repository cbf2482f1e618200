"""A script that measures copies between the CPU's memory and each GPU, and between GPUs.

`python -m xfbench.adapters.torch.copies JOB` prints its result as JSON. `JOB` is a JSON object with
the parameters of `measure_copies`.
"""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

import torch


def measure_copies(size_bytes: int, rounds: int) -> dict[str, Any]:
    """Measure all copies, of `size_bytes` each, one after another.

    Return a dictionary:

    - `gpus`: the `uuid` of each GPU, None if PyTorch does not say it.
    - `copies`: for each pair, the numbers of the GPUs as `source` and `target` (None: pinned memory
      of the CPU), and the `seconds` of each round by CUDA's events.
    """
    count = torch.cuda.device_count()
    uuids = [getattr(torch.cuda.get_device_properties(gpu), "uuid", None) for gpu in range(count)]
    places: list[int | None] = [None, *range(count)]
    return {
        "gpus": [{"uuid": str(uuid) if uuid else None} for uuid in uuids],
        "copies": [
            {
                "source": source,
                "target": target,
                "seconds": _time_copies(source, target, size_bytes, rounds),
            }
            for source, target in itertools.permutations(places, 2)
        ],
    }


def _time_copies(
    source: int | None, target: int | None, size_bytes: int, rounds: int
) -> list[float]:
    source_tensor, target_tensor = (_allocate(place, size_bytes) for place in (source, target))
    seconds = []
    with torch.cuda.device(source if target is None else target):
        for _ in range(1 + rounds):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            target_tensor.copy_(source_tensor, non_blocking=True)
            end.record()
            end.synchronize()
            seconds.append(start.elapsed_time(end) / 1e3)
    return seconds[1:]  # the first copy may have to set up access between two GPUs


def _allocate(place: int | None, size_bytes: int) -> torch.Tensor:
    if place is None:
        return torch.ones(size_bytes, dtype=torch.uint8).pin_memory()
    return torch.ones(size_bytes, dtype=torch.uint8, device=f"cuda:{place}")


if __name__ == "__main__":
    print(json.dumps(measure_copies(**json.loads(sys.argv[1]))))
