"""Machine profiles from `architectures.toml`: the machine that a profile requires, and its cells.

The cells of a profile run only on a machine that matches the profile.
"""

from __future__ import annotations

import tomllib

from pydantic import BaseModel, ConfigDict

from xfbench.base import errors, paths
from xfbench.base.errors import UnavailableError
from xfbench.environments import environment
from xfbench.model import adapter
from xfbench.model.record import Machine
from xfbench.model.request import Cell
from xfbench.planning import experiment

WARMUP = 2


class Architecture(BaseModel):
    """A machine profile.

    - `title`: the processor or accelerator, as messages name it.
    - `microarchitecture`: archspec's name of the processor; "" matches any processor.
    - `accelerator`: part of the accelerator's model name; "" matches any machine.
    - `device`: device of the cells, "cpu" or "cuda".
    - `threads`: numbers of threads of the cells; None: the number of cores.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    microarchitecture: str = ""
    accelerator: str = ""
    device: str = "cpu"
    threads: tuple[int, ...] | None = None

    def mismatch_reason(self, machine: Machine) -> str | None:
        """Return one line that says why `machine` does not match, or None if it matches."""
        if self.microarchitecture and machine.microarchitecture != self.microarchitecture:
            return f"this machine is not {self.title}: its processor is {machine.microarchitecture}"
        if not any(self.accelerator in model for model in ("", *machine.accelerators)):
            accelerators = ", ".join(machine.accelerators) or "no accelerator"
            return f"this machine has no {self.title}: it has {accelerators}"
        return None


def list_machine_profile_names() -> list[str]:
    """Return the names of all profiles, in the order of `architectures.toml`."""
    return list(_load_architectures())


def load(name: str) -> Architecture:
    """Return the profile `name`. Raises UsageError if there is none."""
    architectures = _load_architectures()
    if name not in architectures:
        raise errors.unknown_name_error("architecture", name, architectures)
    return architectures[name]


def build_cells(
    architecture: Architecture, frameworks: list[str], workloads: list[str], steps: int
) -> list[Cell]:
    """Return the cells of a profile: all combinations of its settings, frameworks and workloads.

    - The input is synthetic. The warm-up has `WARMUP` steps.
    - `steps`: number of timed steps.

    Raises UsageError if a value is unknown or out of range.
    """
    matrix = experiment.build_matrix(
        framework=frameworks,
        workload=workloads,
        device=[architecture.device],
        threads=architecture.threads,
        steps=steps,
        warmup=WARMUP,
        launches=1,
    )
    return [cell for cell, _ in experiment.expand_matrices([matrix])]


def installed_frameworks() -> list[str]:
    """Return the names of the frameworks that are installed here. Nothing is installed."""
    return [name for name in adapter.list_names() if _is_installed(adapter.load(name))]


def _is_installed(framework_adapter: adapter.Adapter) -> bool:
    if framework_adapter.environment.kind == "own":
        return True
    try:
        return environment.find_environment(framework_adapter) is not None
    except UnavailableError:
        return False


def _load_architectures() -> dict[str, Architecture]:
    file = paths.package_folder(__package__) / "architectures.toml"
    return {
        name: Architecture.model_validate(table)
        for name, table in tomllib.loads(file.read_text(encoding="utf-8")).items()
    }
