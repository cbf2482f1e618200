"""Machine profiles from `architectures.toml`: which cells are worth measuring on which machine.

The cells of a profile run only on matching machines. `mismatch` says why a machine does not match.
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

    Without `threads`, the number of cores is used. An empty string matches any machine.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    microarchitecture: str = ""
    accelerator: str = ""
    device: str = "cpu"
    threads: tuple[int, ...] | None = None

    def mismatch_reason(self, machine: Machine) -> str | None:
        """Return in one line why `machine` does not match the profile, or None if it does."""
        if self.microarchitecture and machine.microarchitecture != self.microarchitecture:
            return f"this machine is not {self.title}: its processor is {machine.microarchitecture}"
        if not any(self.accelerator in model for model in ("", *machine.accelerators)):
            accelerators = ", ".join(machine.accelerators) or "no accelerator"
            return f"this machine has no {self.title}: it has {accelerators}"
        return None


def list_names() -> list[str]:
    """Return the names of all profiles, in the order of the file."""
    return list(_load_architectures())


def load(name: str) -> Architecture:
    """Return the profile with this name. Raises UsageError if there is none."""
    architectures = _load_architectures()
    if name not in architectures:
        raise errors.unknown_name_error("architecture", name, architectures)
    return architectures[name]


def build_cells(
    architecture: Architecture, frameworks: list[str], workloads: list[str], steps: int
) -> list[Cell]:
    """Return the profile's cells on synthetic input, one launch each. Raises UsageError."""
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
    """Return the installed frameworks, without installing or starting any."""
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
