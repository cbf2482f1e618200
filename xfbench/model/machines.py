"""The kind of machine that a record comes from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from xfbench.model.record import Machine, Record

_GPU_SEPARATOR = " + "  # between the processor and the GPUs of a name


def machine_class(machine: Machine | None) -> str:
    """Return the name of the machine's kind, as headings show it: its processor and its GPUs."""
    return _name_kind(machine, machine.accelerators) if machine else "unknown machine"


def machine_class_of_record(record: Record) -> str:
    """Return the name of the kind of machine on which a launch ran.

    Launches on machines of the same kind share a table. Of the machine's GPUs, a launch on GPUs
    names only the models that it used.
    """
    machine, request = record.machine, record.request
    if machine is None or request is None or request.device == "cpu":
        return machine_class(machine)
    return _name_kind(machine, list_used_models(machine, list_gpu_names(record)))


def architecture_of_record(record: Record) -> str:
    """Return the name of the hardware on which a launch computed, as studies compare machines.

    For a launch on GPUs, this is the kind of machine. For a launch on CPUs, it is the processor
    without the machine's GPUs, which did not compute.
    """
    if record.machine and record.request and record.request.device == "cpu":
        return _name_kind(record.machine, ())
    return machine_class_of_record(record)


def is_part_of_architecture(text: str, architecture: str) -> bool:
    """Return whether `text` is a part of the name of the hardware that computes, or the whole name.

    - `architecture`: a name that `architecture_of_record` returned. With GPUs, only the GPUs count:
      "Xeon" is no part of a P100 in a machine with Xeon processors.

    Upper and lower case are equal, and "(R)", "(TM)" and "CPU" do not count: "Xeon Phi 7250" is a
    part of "Intel(R) Xeon Phi(TM) CPU 7250".
    """
    part, name = _normalize(text), _normalize(architecture)
    processor, *gpus = name.split(_GPU_SEPARATOR)
    return part == name or part in (_GPU_SEPARATOR.join(gpus) or processor)


def _normalize(name: str) -> str:
    return " ".join(re.sub(r"\((r|tm)\)|\bcpu\b", " ", name.lower()).split())


def list_gpu_names(record: Record) -> list[str]:
    """Return the names of the GPUs that the ranks computed on, as NVML reported them."""
    return [gpu.name or "" for gpu in record.observed.gpus] if record.observed else []


def list_used_models(machine: Machine, gpu_names: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the models of the GPUs that ranks use, without repetition.

    - `gpu_names`: the names of the ranks' GPUs according to NVML.

    If these are not models of the machine, the result has all its models. A MIG instance counts as
    its GPU.
    """
    models = tuple(dict.fromkeys(machine.accelerators))
    used = tuple(dict.fromkeys(name.partition(" MIG ")[0] for name in gpu_names))
    return used if used and set(used) <= set(models) else models


def _name_kind(machine: Machine, accelerators: Sequence[str]) -> str:
    processor = f"{machine.cores} cores {machine.cpu_model} ({machine.microarchitecture})"
    gpus = [
        f"{count} × {model}" if count > 1 else model
        for model, count in Counter(accelerators).items()
    ]
    return _GPU_SEPARATOR.join([processor, *gpus])
