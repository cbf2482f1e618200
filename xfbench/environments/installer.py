"""Installation of Python packages with uv: exactly the packages of a lock.

- Only wheels whose hashes the lock has are installed. A package without a wheel is refused, because
  its build would run code that no lock names.
- Package indexes are not mixed: a package comes from the first index that has it. If that index
  lacks the locked file, the default index is asked for all packages.
- uv does not read pip's settings. So xfbench passes pip's settings for package sources to uv.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
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
_EXTRA_INDEXES = ("UV_INDEX", "UV_EXTRA_INDEX_URL")
# On the command line, because there they override the settings of the user.
_ONLY_LOCKED_WHEELS = (
    *("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
    *("--index-strategy", "first-index"),
)


def unpack_wheels(
    lock: Path, python_version: str, folder: Path, say: Callable[[str], None]
) -> None:
    """Unpack the wheels of `lock` below `folder`.

    - `python_version`: the version of Python that will import the packages, for example "3.11".
    - `say`: receives a progress line.

    Raises CommandError if uv fails.
    """
    say(f"unpacking the wheels of {lock.name}")
    options = ["--python", sys.executable, "--python-version", python_version]
    _install_wheels(lock, [*options, "--target", str(folder)], _build_uv_variables())


def create_virtual_environment(
    adapter: Adapter, folder: Path, lock: Path, say: Callable[[str], None]
) -> None:
    """Create a virtual environment in `folder` with the packages of `lock`.

    If the installation fails, it is tried again with the adapter's `fallback` options for uv.
    `say` receives a progress line. Raises UnavailableError if the adapter's version of Python is
    not found, and CommandError if uv fails for another reason.
    """
    variables = _build_uv_variables()
    python_version = adapter.environment.python
    once = ", ".join(filter(None, ["once", adapter.environment.size]))
    say(f"{adapter.name}: installing {adapter.title} ({once})")
    try:
        run_uv(
            ["venv", "--quiet", "--no-project", "--python", python_version, str(folder)],
            variables,
            timeout=300,
        )
    except processes.CommandError as error:
        if not reports_missing_python(error):
            raise
        raise UnavailableError(
            f"{adapter.title} needs Python {python_version}, but none was found: install it, "
            f"or name an interpreter that has {adapter.title} with --python {adapter.name}=PATH"
        ) from error
    options = ["--python", str(folder / "bin" / "python")]
    _install_wheels(lock, options, variables, adapter.environment.fallback)


def _install_wheels(
    lock: Path,
    options: Sequence[str],
    variables: Mapping[str, str],
    fallback: Sequence[str] = (),
) -> None:
    """Install the wheels of `lock`, first with `options`, then with the `fallback` options too.

    Raises CommandError if all attempts fail, with the message of the last one.
    """
    command = ["pip", "install", *_ONLY_LOCKED_WHEELS, *options]
    command += ["--requirements", str(lock)]
    default_index_only = {k: v for k, v in variables.items() if k not in _EXTRA_INDEXES}
    environments = [variables]
    if default_index_only != variables:
        environments.append(default_index_only)
    attempts = [(command, environment) for environment in environments]
    if fallback:
        attempts += [([*command, *fallback], environment) for environment in environments]
    for number, (attempt, environment) in enumerate(attempts, start=1):
        try:
            run_uv(attempt, environment, timeout=3600)
            return
        except processes.CommandError:
            if number == len(attempts):
                raise


def run_uv(words: Sequence[str], variables: Mapping[str, str], *, timeout: float) -> None:
    """Run uv with these words and environment variables. Raises CommandError if it fails.

    uv reads settings, and takes virtual environments, of its working folder and of all folders
    above. These may belong to others, so it runs in the root folder.
    """
    command = [find_uv_bin(), *words]
    processes.output(command, environment=variables, cwd=Path("/"), timeout=timeout)


def reports_missing_python(error: processes.CommandError) -> bool:
    """Return whether uv failed because it found no interpreter, and not for another reason."""
    return bool(re.search("no interpreter found|invalid version request", str(error), re.I))


def _build_uv_variables() -> dict[str, str]:
    """Return the environment variables for uv. Paths are absolute, see `run_uv`."""
    variables = {**select_variables(Purpose.PACKAGES), **_pip_settings_as_uv_variables()}
    if locations := variables.get("UV_FIND_LINKS"):
        variables["UV_FIND_LINKS"] = ",".join(
            place if "://" in place else str(Path(place).absolute())
            for place in locations.split(",")
        )
    if certificates := variables.get("SSL_CERT_FILE"):
        variables["SSL_CERT_FILE"] = str(Path(certificates).absolute())
    return variables


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
        settings[key.rpartition(".")[2]] = ast.literal_eval(value)
    settings |= {
        name: os.environ[f"PIP_{name.upper().replace('-', '_')}"]
        for name in _PASSED_ON
        if f"PIP_{name.upper().replace('-', '_')}" in os.environ
    }
    if locations := settings.get("find-links"):  # pip separates them by spaces, uv by commas
        settings["find-links"] = ",".join(locations.split())
    return {
        variable: settings[name]
        for name, variable in _PASSED_ON.items()
        if settings.get(name) and variable not in os.environ
    }
