"""Installation of Python packages with uv: exactly the packages of a lock.

uv does not read pip's settings. So xfbench passes pip's settings for package sources to uv.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from uv import find_uv_bin

from xfbench.base import processes, tool_output
from xfbench.base.errors import UnavailableError
from xfbench.base.process_variables import Purpose, select_variables
from xfbench.model.adapter import Adapter

# For each of these settings of pip, the environment variable with the same effect on uv.
_PASSED_ON = {
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "cert": "SSL_CERT_FILE",
}
_PIP_SETTING = rf"""[\w:-]+\.({"|".join(_PASSED_ON)})=('.*'|".*")"""  # of pip config list


def unpack_wheels(
    lock: Path, python_version: str, folder: Path, say: Callable[[str], None]
) -> None:
    """Unpack the wheels of `lock` below `folder`.

    - `python_version`: the version of Python that will import the packages, for example "3.11".
    - `say`: receives a progress line.

    Raises CommandError if uv fails.
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
    """Create a virtual environment in `folder` with the packages of `lock`.

    If the installation fails, it is tried again with the adapter's `fallback` options for uv.
    `say` receives a progress line. Raises UnavailableError if the adapter's version of Python is
    not found, and CommandError if uv fails for another reason.
    """
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
        if not reports_missing_python(error):
            raise
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


def reports_missing_python(error: processes.CommandError) -> bool:
    """Return whether uv failed because it found no interpreter, and not for another reason."""
    return bool(re.search("no interpreter found|invalid version request", str(error), re.I))


def _build_uv_variables() -> dict[str, str]:
    variables = {**select_variables(Purpose.PACKAGES), **_pip_settings_as_uv_variables()}
    # By default uv stops at the first index that has the package. Like pip, search all indexes.
    # That is safe, because the lock's hashes accept only the locked files.
    return {**variables, "UV_INDEX_STRATEGY": "unsafe-best-match"}


def _pip_settings_as_uv_variables() -> Mapping[str, str]:
    """Return pip's settings for package sources and certificates, by the variable for uv.

    Variables that are already set are left out.
    """
    try:
        listing = processes.output(
            [sys.executable, "-P", "-m", "pip", "config", "list"],
            purpose=Purpose.PACKAGES,
            timeout=60,
        )
    except processes.CommandError:  # an environment without pip
        listing = ""
    settings = {}
    for line in tool_output.find_matching_lines(listing, _PIP_SETTING):
        key, _, value = line.partition("=")
        settings[key.rpartition(".")[2]] = value[1:-1]
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
