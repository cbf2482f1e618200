"""Managed environments: uv builds a virtual environment with exactly the packages of a lock.

uv does not read pip's settings, so pip's settings for package sources are passed to uv. On a host
without an NVIDIA driver, the locks allow only CPU builds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from uv import find_uv_bin

from xfbench.base import processes
from xfbench.base.errors import UnavailableError
from xfbench.model.adapter import Adapter

# Names of pip's settings, with the variable for the same setting of uv or TLS.
_PASSED_ON = {
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "cert": "SSL_CERT_FILE",
}


def unpack_wheels(
    lock: Path, python_version: str, folder: Path, say: Callable[[str], None]
) -> None:
    """Unpack below `folder` the wheels that `lock` pins for this version of Python.

    Raises CommandError.
    """
    say(f"unpacking the wheels of {lock.name}")
    options = ("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:")
    processes.output(
        [
            *(find_uv_bin(), "pip", "install", *options, "--python", sys.executable),
            *(
                "--python-version",
                python_version,
                "--target",
                str(folder),
                "--requirements",
                str(lock),
            ),
        ],
        environment=_build_uv_variables(),
        timeout=3600,
    )


def create_virtual_environment(
    adapter: Adapter, folder: Path, lock: Path, say: Callable[[str], None]
) -> None:
    """Build the environment in `folder`. Raises UnavailableError or CommandError."""
    uv, variables = find_uv_bin(), _build_uv_variables()
    python_version = adapter.environment.python
    once = ", ".join(filter(None, ["once", adapter.environment.size]))
    say(f"{adapter.name}: installing {adapter.title} ({once})")
    try:
        processes.output(
            [uv, "venv", "--quiet", "--no-project", "--python", python_version, str(folder)],
            environment=variables,
            timeout=300,
        )
    except processes.CommandError as error:
        raise UnavailableError(
            f"{adapter.title} needs Python {python_version}, but none was found: install it, "
            f"or name an interpreter that has {adapter.title} with --python {adapter.name}=PATH"
        ) from error
    install = [
        *(uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes"),
        *("--python", str(folder / "bin" / "python"), "--requirements", str(lock)),
    ]
    try:
        processes.output(install, environment=variables, timeout=3600)
    except processes.CommandError:
        if not adapter.environment.fallback:
            raise
        processes.output(
            [*install, *adapter.environment.fallback], environment=variables, timeout=3600
        )


def _build_uv_variables() -> dict[str, str]:
    variables = {**os.environ, **_pip_settings_as_uv_variables()}
    variables.pop("VIRTUAL_ENV", None)
    # pip searches all indexes, but uv by default stops at the first index that has the package.
    # Searching all is safe, because the lock's hashes accept only the locked files.
    return {**variables, "UV_INDEX_STRATEGY": "unsafe-best-match"}


def _pip_settings_as_uv_variables() -> Mapping[str, str]:
    """Return pip's settings for indexes, links and certificates, by the name of uv's variable."""
    try:
        listing = processes.output([sys.executable, "-m", "pip", "config", "list"], timeout=60)
    except processes.CommandError:  # an environment without pip
        listing = ""
    settings = {}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        settings[key.rpartition(".")[2]] = value.strip("'\"")
    settings |= {
        name: os.environ[f"PIP_{name.upper().replace('-', '_')}"]
        for name in _PASSED_ON
        if f"PIP_{name.upper().replace('-', '_')}" in os.environ
    }
    return {
        variable: settings[name]
        for name, variable in _PASSED_ON.items()
        if settings.get(name) and variable not in os.environ
    }
