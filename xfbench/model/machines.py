"""The kind of machine that a record comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from xfbench.model.record import Machine, Record


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
    return " + ".join([processor, *gpus])
