"""The state of each framework on this machine, found without installing or downloading."""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass
from typing import Any

from xfbench.base import processes, tool_output
from xfbench.base.errors import UnavailableError
from xfbench.base.process_variables import Purpose, select_variables
from xfbench.environments import environment, installer
from xfbench.model import adapter

# Devices without a certified launch in docs/ (a test compares both).
UNTESTED_DEVICES = {"mxnet": ("cuda",), "tensorflow": ("cuda",)}


@dataclass(frozen=True)
class Framework:
    """One framework and its state on this machine.

    - `state`: "installed", "available" (it can be installed) or "unavailable".
    - `reason`: why the framework is unavailable; None for other states.
    - `version`: version of the framework; None if it is not installed.
    - `untested_devices`: devices on which nobody has run the adapter yet.
    - `asynchronous`: names of the asynchronous strategies.
    - `strategy_options`: by strategy and option name, the option as its adapter declares it.
    - `checkpoint`: format of checkpoints; None if the adapter saves none.
    """

    name: str
    title: str
    state: str
    reason: str | None
    version: str | None
    kernels: tuple[str, ...]
    devices: tuple[str, ...]
    untested_devices: tuple[str, ...]
    precisions: tuple[str, ...]
    strategies: tuple[str, ...]
    asynchronous: tuple[str, ...]
    strategy_options: dict[str, dict[str, Any]]
    checkpoint: str | None


def list_framework_states() -> list[Framework]:
    """Return every framework with its state, in the order of names."""
    return [_find_framework_state(adapter.load(name)) for name in adapter.list_names()]


def _find_framework_state(described: adapter.Adapter) -> Framework:
    version = reason = None
    try:
        installed_environment = environment.find_environment(described)
        state = "installed" if installed_environment else "available"
        version = installed_environment.version if installed_environment else None
        if not installed_environment:
            reason = _find_creation_obstacle(described)
            state = "unavailable" if reason else state
    except UnavailableError as error:
        state, reason = "unavailable", str(error)
    return Framework(
        described.name,
        described.title,
        state,
        reason,
        version,
        tuple(described.kernels),
        described.devices,
        UNTESTED_DEVICES.get(described.name, ()),
        described.precisions,
        described.strategies,
        tuple(name for name, strategy in described.together.items() if strategy.asynchronous),
        {
            name: {option: of.model_dump(mode="json") for option, of in strategy.options.items()}
            for name, strategy in described.together.items()
        },
        described.checkpoint or None,
    )


def _find_creation_obstacle(described: adapter.Adapter) -> str | None:
    """Return why the framework's environment cannot be created, or None if no reason is known."""
    source = described.environment
    instead = f"name an interpreter that has the framework with --python {described.name}=PATH"
    if source.kind == "debian":
        missing = [tool for tool in ("apt-get", "dpkg") if not shutil.which(tool)]
        if missing:
            return f"{' and '.join(missing)} not found: {instead}"
        if platform.machine() != "x86_64":
            return f"its packages are for x86_64, this machine is {platform.machine()}: {instead}"
        return None
    try:
        installer.run_uv(
            ["python", "find", "--system", "--no-project", source.python],
            select_variables(Purpose.PACKAGES),
            timeout=60,
        )
    except processes.CommandError as error:
        if not installer.reports_missing_python(error):
            return f"{tool_output.quote_output(str(error))}: {instead}"
        return f"no Python {source.python} found: install it, or {instead}"
    return None
