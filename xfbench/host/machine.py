"""Facts about this host.

The facts contain no host name or user name. A hash of the host name shows which records come from
the same host. `doctor.py` checks the host. `conditions.py` reads other activity during a launch.
"""

from __future__ import annotations

import itertools
import os
import platform
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import archspec.cpu
from archspec.cpu import detect

from xfbench.base import name_hashes, processes
from xfbench.model.record import Machine
from xfbench.worker import host, nvml

_MICROARCHITECTURE_FACTS = ("architecture", "vendor", "flags")
_DEVICE = re.compile(r"\+?\d+|(GPU|MIG)-.+")  # in CUDA_VISIBLE_DEVICES
_MAX_MODEL_LENGTH = 96  # NVML's longest name of a device
# nvidia-smi lists the models and fails if a power cable is missing, the infoROM of a device is
# corrupted, or a device is lost.
_STATUS_WITH_MODELS = (8, 14, 15)
# There may be devices, but nvidia-smi may not use them, or not with the loaded driver.
_STATUS_WITH_MESSAGE = (4, 10, 18, 255)


@cache
def describe_machine() -> Machine:
    """Return the facts of this host: processor, usable cores, memory, accelerators and limits."""
    facts = {**host.machine_facts(), "accelerators": tuple(list_accelerator_models())}
    hostname_hash = name_hashes.host_hash(platform.node())
    return _build_machine(facts, archspec.cpu.host().name, hostname_hash)


def machine_from_facts(facts: Mapping[str, Any]) -> Machine:
    """Return the host that a worker described with `facts`. Its hash of the host name is empty.

    Raises ValueError if the facts are invalid.
    """
    try:
        return _build_machine(facts, _find_microarchitecture(facts))
    except (KeyError, TypeError) as error:
        raise ValueError(f"the facts of the machine are invalid: {error}") from error


def _build_machine(
    facts: Mapping[str, Any], microarchitecture: str, hostname_hash: str = ""
) -> Machine:
    machine_facts = {
        name: value for name, value in facts.items() if name not in _MICROARCHITECTURE_FACTS
    }
    machine_facts["hostname_hash"] = hostname_hash  # workers of earlier revisions send another
    return Machine(microarchitecture=microarchitecture, **machine_facts)


def _find_microarchitecture(facts: Mapping[str, Any]) -> str:
    """Return the name of the most specific microarchitecture that fits the processor in `facts`.

    If the architecture is not x86_64, return the name of the architecture. Otherwise, apply the
    rules that archspec applies to its own host:

    1. The processor must have all instructions of the microarchitecture.
    2. Find the best generic microarchitecture, such as x86_64_v3, that satisfies rule 1. The result
       must extend this generic microarchitecture, or else the result is the generic one itself.

    Without rule 2, a virtual processor that hides its model could match an old model of its vendor,
    although it has more instructions.
    """
    if facts["architecture"] != "x86_64":
        return str(facts["architecture"])
    partial = detect.partial_uarch(vendor=facts["vendor"], features=set(facts["flags"]))
    compatible = detect.compatible_microarchitectures(partial)
    generic = max(
        (candidate for candidate in compatible if candidate.vendor == "generic"), key=_specificity
    )
    best = max(
        (candidate for candidate in compatible if candidate > generic),
        key=_specificity,
        default=generic,
    )
    return str(best.name)


def _specificity(microarchitecture: archspec.cpu.Microarchitecture) -> tuple[int, int]:
    return len(microarchitecture.ancestors), len(microarchitecture.features)


def usable_cores() -> int:
    """Return the number of physical cores that the affinity and the cgroup quota allow."""
    return host.count_usable_physical_cores()


@cache
def list_accelerator_models() -> list[str]:
    """Return the models of this host's NVIDIA devices. Without a driver, the list is empty."""
    return _query_accelerators()[0]


@cache
def list_accelerator_messages() -> list[str]:
    """Return the sentences that nvidia-smi prints instead of models, such as warnings.

    The sentence that there are no devices is left out.
    """
    lines = _query_accelerators()[1]
    return [line for line in lines if not line.lower().startswith("no devices")]


def _query_accelerators() -> tuple[list[str], list[str]]:
    """Return the models of devices and the messages that nvidia-smi prints."""
    has_models = True
    try:
        listing = processes.output(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], timeout=30
        )
    except processes.CommandError as error:
        has_models = error.status in _STATUS_WITH_MODELS
        listing = error.output if has_models or error.status in _STATUS_WITH_MESSAGE else ""
    lines = [line.strip() for line in listing.splitlines() if line.strip()]
    models = [line for line in lines if has_models and not _is_sentence(line)]
    return models, [line for line in lines if line not in models]


def _is_sentence(line: str) -> bool:
    """Return whether a line of nvidia-smi is a message, not the model of a device.

    nvidia-smi prints messages on standard output, in some versions with exit status 0. A message
    ends like a sentence, has a colon, or has words in lower case. "[Unknown Error]" is one too.
    """
    words = [word for word in line.split() if len(word) > 1 and word != "with"]
    return (
        line.endswith((".", "!"))
        or ":" in line
        or re.fullmatch(r"\[.*\]|N/A", line) is not None
        or any(word.isalpha() and word.islower() for word in words)
        or len(line) > _MAX_MODEL_LENGTH
    )


@cache
def list_first_rank_gpu_names() -> list[str]:
    """Return the name of the GPU that a launch of one rank uses, according to NVML.

    The list is empty if NVML is missing or finds no device.
    """
    device = nvml.find_rank_device(0)
    return [device.name] if device and device.name else []


def count_visible_gpus() -> int:
    """Return how many of this host's NVIDIA devices a framework sees here.

    If CUDA_VISIBLE_DEVICES is set, only the devices in it count.
    """
    count = len(list_accelerator_models())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return count
    # CUDA ignores all entries from the first that names no device, such as "-1" or "NoDevFiles".
    entries = itertools.takewhile(_DEVICE.fullmatch, (name.strip() for name in visible.split(",")))
    return min(count, sum(1 for _ in entries))


def list_accelerator_processes() -> list[str]:
    """Return the names of processes that compute on an NVIDIA device at present.

    If CUDA_VISIBLE_DEVICES is set, only the devices in it count, because other users may use the
    rest of the node. Without a driver, the list is empty.
    """
    if not list_accelerator_models():
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    device_options = [f"--id={visible}"] if visible else []
    command = ["nvidia-smi", "--query-compute-apps=process_name", "--format=csv,noheader"]
    try:
        listing = processes.output([*command, *device_options], timeout=30)
    except processes.CommandError:
        return []
    lines = [line.strip() for line in listing.splitlines()]
    return [Path(line).name for line in lines if line and not _is_process_message(line)]


def _is_process_message(line: str) -> bool:
    """Return whether a line is no process. Unlike a message, a process has a path or one word."""
    is_process = "/" in line or "\\" in line or " " not in line
    return line in ("[Not Supported]", "[N/A]") or not (is_process or line.startswith("["))


def list_blas_openmp_mpi_cuda_libraries() -> list[str]:
    """Return the BLAS, OpenMP, MPI and CUDA libraries that the dynamic linker knows."""
    try:
        listing = processes.output(["/sbin/ldconfig", "-p"], timeout=30)
    except processes.CommandError:
        return []
    names = {line.split()[0] for line in listing.splitlines() if "=>" in line}
    parts = ("blas", "mkl", "dnnl", "gomp", "iomp", "libmpi", "cudart", "cudnn")
    return sorted(name for name in names if any(part in name for part in parts))
