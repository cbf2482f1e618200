"""The environment variables that `module load` sets (Lmod or Environment Modules).

A shell unloads all modules, loads the requested modules and prints its variables. xfbench keeps the
variables that the shell changed. Module names are passed as shell arguments, never as shell code.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from xfbench.base import errors, process_variables, processes, tool_output
from xfbench.base.errors import UnavailableError
from xfbench.base.process_variables import Purpose
from xfbench.base.processes import CommandError

_TIMEOUT = 120.0
_NO_INIT = 77
# Modules and start-up files print to both streams, so the variables go to files. Nor does an exit
# status say whether a module was loaded: `_is_loaded` judges what each `module load` changed.
_LOAD = """
xfbench_env=$(type -P env)
xfbench_folder=$1
shift
source "$1"
type module >/dev/null 2>&1 || exit 77
module purge
shift
while [ "$1" != -- ]; do module use "$1" || exit 77; shift; done
shift
xfbench_number=0
"$xfbench_env" -0 >"$xfbench_folder/0"
for name in "$@"; do
    xfbench_number=$((xfbench_number + 1))
    module load "$name" 2>"$xfbench_folder/$xfbench_number.err"
    echo "$?" >"$xfbench_folder/$xfbench_number.status"
    "$xfbench_env" -0 >"$xfbench_folder/$xfbench_number"
done
exit 0
"""
_LIST = """
source "$1"
type module >/dev/null 2>&1 || exit 77
shift
for folder in "$@"; do module use "$folder" || exit 77; done
module -t avail 2>&1
"""
# Prefixes of variables that belong to the shell or to the module system itself.
_IGNORED_PREFIXES = (
    *("LMOD_", "__LMOD", "_ModuleTable", "_LMFILES", "__MODULES", "MODULE", "LOADEDMODULES"),
    *("BASH_FUNC", "SHLVL", "PWD", "OLDPWD", "_="),
)
_ERROR = re.compile(
    r"^\s*(\S*\bERROR:|.*Unable to locate a modulefile|Lmod has detected the following error)", re.M
)
_UNKNOWN_MODULE = re.compile(r"Unable to locate|unknown|not found|no such", re.IGNORECASE)


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
    with tempfile.TemporaryDirectory(prefix="xfbench-") as scratch:
        purged, loaded = _load_into_files(Path(scratch), init_file, module_folders, module_names)
    shell_variables = process_variables.select_variables(Purpose.MODULES)
    # A user who has loaded the same modules gives them with the values that they get again.
    return {
        name: value
        for name, value in loaded.items()
        if (shell_variables.get(name) != value or purged.get(name) != value)
        and not f"{name}=".startswith(_IGNORED_PREFIXES)
        and process_variables.may_come_from_modules(name)
    }


def _load_into_files(
    folder: Path, init_file: str, module_folders: tuple[str, ...], module_names: tuple[str, ...]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return all variables of a shell before and after it loaded the modules.

    The shell writes them to `folder`.
    """
    try:
        _run_bash(_LOAD, str(folder), init_file, *module_folders, "--", *module_names)
        purged = before = _read_variables(folder / "0")
        for number, name in enumerate(module_names, 1):
            after = _read_variables(folder / str(number))
            stderr = _read_text(folder / f"{number}.err")
            status = _read_text(folder / f"{number}.status")
            if not _is_loaded(name, before, after, status == "0" and not _ERROR.search(stderr)):
                raise UnavailableError(
                    _failed_module_message(init_file, module_folders, name, stderr)
                )
            before = after
        return purged, before
    except OSError as error:
        raise UnavailableError(
            f"{init_file} ended the shell before the modules were loaded"
        ) from error
    except CommandError as error:
        if error.status == _NO_INIT:
            raise UnavailableError(
                f"{init_file} or a folder in modules.path cannot be read"
            ) from error
        if error.status is not None:
            raise UnavailableError(
                _describe_ended_shell(folder, init_file, module_names, error)
            ) from error
        raise UnavailableError(f"cannot load modules {' '.join(module_names)}: {error}") from error


def _describe_ended_shell(
    folder: Path, init_file: str, module_names: tuple[str, ...], error: CommandError
) -> str:
    """Return which start-up file or module ended the shell that wrote to `folder`."""
    number = sum((folder / str(number)).exists() for number in range(len(module_names) + 1))
    name = f"module {module_names[number - 1]}" if number else init_file
    stderr = _read_text(folder / f"{number}.err") if number else ""
    printed = stderr or str(error).removeprefix("bash failed: ")
    return f"{name} ended the shell with exit status {error.status}" + (
        f"; it printed {tool_output.quote_output(printed)}" if printed else ""
    )


def _read_text(path: Path) -> str:
    return tool_output.remove_colours(path.read_text(errors="replace")).strip()


def _read_variables(path: Path) -> dict[str, str]:
    return tool_output.parse_variables(path.read_bytes().decode(errors="surrogateescape"))


def _is_loaded(
    name: str, before: dict[str, str], after: dict[str, str], reported_success: bool
) -> bool:
    """Return whether `module load` had an effect: a listed module, or changed variables.

    Changed variables count only if neither the exit status nor standard error reports a failure.
    """
    listed = after.get("LOADEDMODULES", "").split(":")
    if any(module == name or module.startswith(f"{name}/") for module in listed):
        return True
    return reported_success and _has_changed(before, after)


def _has_changed(before: dict[str, str], after: dict[str, str]) -> bool:
    """Return whether a variable differs that the shell itself does not change."""
    names = before.keys() | after.keys()
    return any(
        before.get(name) != after.get(name) for name in names - {"_", "SHLVL", "PWD", "OLDPWD"}
    )


def find_interpreter(variables: dict[str, str], python: str) -> Path:
    """Return the path of the program `python`, searched in the PATH in `variables`.

    Raises UnavailableError if there is no such program.
    """
    path = shutil.which(python, path=variables.get("PATH", os.environ.get("PATH", "")))
    if path is None:
        raise UnavailableError(f"these modules provide no {python}: add a module that does")
    return Path(path)


def _failed_module_message(init: str, folders: Sequence[str], name: str, stderr: str) -> str:
    printed = f"; it printed {tool_output.quote_output(stderr)}" if stderr else ""
    if stderr and not _UNKNOWN_MODULE.search(stderr):
        return f"module {name!r} was not loaded{printed}"
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
    return f"{errors.unknown_name_error('module', name, available)} (see `module spider`){printed}"


def _run_bash(script: str, *arguments: str) -> str:
    argv = ["bash", "--noprofile", "--norc", "-c", script, "xfbench", *arguments]
    return processes.output(argv, purpose=Purpose.MODULES, timeout=_TIMEOUT)
