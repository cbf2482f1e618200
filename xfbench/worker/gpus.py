"""The GPUs that this process may use, in CUDA's order, known before a framework is loaded.

CUDA numbers the devices in CUDA_VISIBLE_DEVICES. The first entry that names no device ends the
list. CUDA_DEVICE_ORDER makes it number devices like NVML, in PCI bus order.
"""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path
from typing import Any, List, Tuple

from xfbench.worker import nvml
from xfbench.worker.protocol import Group, Unavailable, Unsupported

_UUID_BYTES = 96
# The least compute capability with instructions for a precision.
_LEAST_CAPABILITY = {"tf32": (8, 0), "bfloat16": (8, 0), "float16": (5, 3)}


def list_visible(library_name: str = nvml.LIBRARY) -> List[str] | None:
    """Return a name for each visible GPU: its UUID, or its number if NVML does not know the UUID.

    Returns None if NVML or the driver is missing.
    """
    library = nvml.load_library(library_name)
    count = ctypes.c_uint()
    if not library or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return None
    names = [_uuid(library, number) or str(number) for number in range(count.value)]
    entries = os.environ.get("CUDA_VISIBLE_DEVICES")
    if entries is None:
        return names
    visible: List[str] = []
    for entry in map(str.strip, entries.split(",")):
        if entry.isdigit():
            matches = names[int(entry) : int(entry) + 1]
        elif entry.startswith("MIG-"):
            matches = [entry]
        else:  # CUDA accepts the start of a UUID
            matches = [name for name in names if entry and name.startswith(entry)]
        if len(matches) != 1:
            break
        visible += matches
    return visible


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
    visible = list_visible(library_name)
    if group.size == 1 or not visible:
        return
    gpu = visible[group.rank % len(visible)]
    if gpu.isdigit():
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


def _uuid(library: Any, number: int) -> str | None:
    handle, answer = ctypes.c_void_p(), ctypes.create_string_buffer(_UUID_BYTES)
    function = getattr(library, "nvmlDeviceGetUUID", None)
    if library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)) or function is None:
        return None
    failed = function(handle, answer, ctypes.c_uint(_UUID_BYTES))
    return None if failed else answer.value.decode(errors="replace")
