"""Which frameworks could be used here: installed, available, or unavailable and why.

Nothing is installed or downloaded to find out.
"""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass
from typing import Any

from uv import find_uv_bin

from xfbench.base import processes
from xfbench.base.errors import UnavailableError
from xfbench.environments import environment
from xfbench.model import adapter


@dataclass(frozen=True)
class Framework:
    """One framework's state: "installed", "available" or "unavailable" (with the reason).

    Of its strategies, which are `asynchronous`, and per strategy what may be chosen about it.
    `checkpoint`: the format of its checkpoints; None where it saves none.
    """

    name: str
    title: str
    state: str
    reason: str | None
    version: str | None
    kernels: tuple[str, ...]
    devices: tuple[str, ...]
    precisions: tuple[str, ...]
    strategies: tuple[str, ...]
    asynchronous: tuple[str, ...]
    strategy_options: dict[str, dict[str, Any]]
    checkpoint: str | None


def frameworks() -> list[Framework]:
    """Every adapter, by name."""
    return [_look(adapter.load(name)) for name in adapter.list_names()]


def _look(described: adapter.Adapter) -> Framework:
    version = reason = None
    try:
        installed_environment = environment.find(described)
        state = "installed" if installed_environment else "available"
        version = installed_environment.version if installed_environment else None
        if not installed_environment:
            reason = _obstacle(described)
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
        described.precisions,
        described.strategies,
        tuple(name for name, strategy in described.together.items() if strategy.asynchronous),
        {
            name: {option: of.model_dump(mode="json") for option, of in strategy.options.items()}
            for name, strategy in described.together.items()
        },
        described.checkpoint or None,
    )


def _obstacle(described: adapter.Adapter) -> str | None:
    """What would keep an environment from being made, as far as this can be seen from here."""
    source = described.environment
    instead = f"name an interpreter that has it with --python {described.name}=PATH"
    if source.kind == "debian":
        missing = [tool for tool in ("apt-get", "dpkg") if not shutil.which(tool)]
        if missing:
            return f"{' and '.join(missing)} not found: {instead}"
        if platform.machine() != "x86_64":
            return f"its packages are for x86_64, this is {platform.machine()}: {instead}"
        return None
    try:
        processes.output([find_uv_bin(), "python", "find", source.python], timeout=60)
    except processes.CommandError:
        return f"no Python {source.python} found: install it, or {instead}"
    return None
