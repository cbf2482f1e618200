"""The kind of machine that a record comes from."""

from __future__ import annotations

from xfbench.model.record import Machine


def machine_class(machine: Machine | None) -> str:
    """Return the name of the machine's kind, as headings show it.

    Machines of the same kind share a table.
    """
    if machine is None:
        return "unknown machine"
    parts = [f"{machine.cores} cores {machine.cpu_model} ({machine.microarchitecture})"]
    return " + ".join([*parts, *machine.accelerators])
