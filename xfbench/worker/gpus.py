"""What a rank's GPU must fulfil: it has the precision, and no other rank uses it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Tuple

from xfbench.worker import nvml
from xfbench.worker.protocol import Group, Unavailable, Unsupported

# The least compute capability with instructions for a precision.
_LEAST_CAPABILITY = {"tf32": (8, 0), "bfloat16": (8, 0), "float16": (5, 3)}


def require_precision(precision: str, capability: Tuple[int, int] | None, name: str = "") -> None:
    """Raise Unsupported if a GPU of this compute capability does not compute in `precision`.

    `capability` is None if it is unknown. `name` is the model of the GPU.
    """
    needed = _LEAST_CAPABILITY.get(precision)
    if needed and capability and capability < needed:
        has, needs = (".".join(map(str, version)) for version in (capability, needed))
        raise Unsupported(
            f"precision {precision} needs a GPU of compute capability {needs} or later, and "
            f"{name or 'this GPU'} has {has}"
        )


def require_own_gpu(group: Group, library_name: str = nvml.LIBRARY) -> None:
    """Raise Unavailable if another rank of this launch uses this rank's GPU.

    Each rank creates a file for its GPU, which all ranks see. Do nothing if the UUID is unknown.
    """
    visible = nvml.list_visible_devices(library_name)
    gpu = visible[group.rank % len(visible)].uuid if visible else None
    if group.size == 1 or not visible or gpu is None:
        return
    claim = Path(f"{group.rendezvous_path}.gpu.{socket.gethostname()}.{gpu.replace('/', '_')}")
    try:
        with claim.open("x", encoding="utf-8") as file:
            file.write(str(group.rank))
    except FileExistsError as error:
        raise Unavailable(
            f"another rank of this node uses the same GPU: start at most {len(visible)} ranks on a "
            "node, or set share_gpus in the site file"
        ) from error
