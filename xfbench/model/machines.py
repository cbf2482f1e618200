"""What kind of machine a record is from."""

from __future__ import annotations

from xfbench.model.record import Machine


def machine_class(machine: Machine | None) -> str:
    """Which kind of machine, in the words of a heading: hosts of one kind share a table."""
    if machine is None:
        return "unknown machine"
    parts = [f"{machine.cores} cores {machine.cpu_model} ({machine.microarchitecture})"]
    return " + ".join([*parts, *machine.accelerators])
