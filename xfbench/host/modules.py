"""The environment variables that `module load` sets (Lmod or Environment Modules).

A shell unloads all modules, loads the requested modules and prints its variables. xfbench keeps the
variables that differ from its own environment. Module names are passed as shell arguments, never as
shell code.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from xfbench.base import errors, processes
from xfbench.base.errors import UnavailableError
from xfbench.base.processes import CommandError

_TIMEOUT = 120.0
_NO_INIT, _MISSING = 77, 78
_LOAD = """
source "$1" || exit 77
module purge
shift
while [ "$1" != -- ]; do module use "$1" || exit 77; shift; done
shift
for name in "$@"; do
    module load "$name" || { printf '%s\\n' "$name" >&2; exit 78; }
done
exec env -0
"""
_LIST = """
source "$1" || exit 77
shift
for folder in "$@"; do module use "$folder" || exit 77; done
module -t avail 2>&1
"""
# Prefixes of variables that belong to the shell or to the module system itself.
_IGNORED_PREFIXES = (
    *("LMOD_", "__LMOD", "_ModuleTable", "_LMFILES", "__MODULES", "MODULE", "LOADEDMODULES"),
    *("BASH_FUNC", "SHLVL", "PWD", "OLDPWD", "_="),
)


@cache
def load_variables_changed_by_modules(
    init_file: str, module_folders: tuple[str, ...], module_names: tuple[str, ...]
) -> dict[str, str]:
    """Load modules in a shell. Return the environment variables that the modules set or change.

    - `init_file`: the module system's start-up file for bash.
    - `module_folders`: additional folders with modules.
    - `module_names`: the modules to load, in order.

    Raises UnavailableError if the modules cannot be loaded. If a module does not exist, the message
    names this module and a similar one.
    """
    if not Path(init_file).is_file():
        raise UnavailableError(
            f"no module system: {init_file} does not exist; set modules.init in a site file"
        )
    try:
        listing = _run_bash(_LOAD, init_file, *module_folders, "--", *module_names)
    except CommandError as error:
        if error.status == _MISSING:
            missing = str(error).splitlines()[-1].strip()
            raise UnavailableError(
                _missing_module_message(init_file, module_folders, missing)
            ) from error
        if error.status == _NO_INIT:
            raise UnavailableError(
                f"{init_file} or a folder in modules.path cannot be read"
            ) from error
        raise UnavailableError(f"cannot load modules {' '.join(module_names)}: {error}") from error
    variables = dict(line.split("=", 1) for line in listing.split("\0") if "=" in line)
    return {
        name: value
        for name, value in variables.items()
        if os.environ.get(name) != value and not f"{name}=".startswith(_IGNORED_PREFIXES)
    }


def find_interpreter(variables: dict[str, str], python: str) -> Path:
    """Return the path of the program `python`, searched in the PATH in `variables`.

    Raises UnavailableError if there is no such program.
    """
    path = shutil.which(python, path=variables.get("PATH", os.environ.get("PATH", "")))
    if path is None:
        raise UnavailableError(f"these modules provide no {python}: add a module that does")
    return Path(path)


def _missing_module_message(init: str, folders: Sequence[str], name: str) -> str:
    try:
        listing = _run_bash(_LIST, init, *folders)
    except CommandError:
        listing = ""
    available = [line.strip() for line in listing.splitlines()]
    available = [
        module
        for module in available
        if module and not module.endswith((":", "/")) and " " not in module
    ]
    return f"{errors.unknown_name_error('module', name, available)} (see `module spider`)"


def _run_bash(script: str, *arguments: str) -> str:
    argv = ["bash", "--noprofile", "--norc", "-c", script, "xfbench", *arguments]
    return processes.output(argv, environment=os.environ, timeout=_TIMEOUT)
