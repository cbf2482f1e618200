"""The best setting of a search in forms that people use elsewhere: command, modulefile, TOML."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

from xfbench.environments import allocators
from xfbench.model import adapter, settings
from xfbench.model.request import Cell
from xfbench.store.tuning_results import Tuning

# Prefixes of variables that concern GPUs only.
_GPU_PREFIXES = ("CUDA_", "NVIDIA_", "XLA_PYTHON_CLIENT_")


def describe_for_reuse(tuning: Tuning) -> Iterator[str]:
    """Yield the lines that apply the best setting outside `xfbench run --tuned`."""
    cell = tuning.best
    values = _values_by_setting(cell)
    yield "# the command"
    yield build_run_command(cell)
    yield ""
    yield "# lines of a modulefile"
    for name, value in sorted(_environment_variables(cell).items()):
        verb = "prepend-path" if name == "LD_PRELOAD" else "setenv"
        yield f"{verb} {name} {_quote_for_tcl(value)}"
    yield ""
    yield "# a matrix of a study"
    yield "[[matrix]]"
    for name, value in values.items():
        setting = settings.BY_NAME[name]
        text = setting.format_stored(value)
        toml_value = json.dumps(value) if isinstance(value, int) else _quote_for_toml(text)
        yield f"{name} = [{toml_value}]" if setting.is_list else f"{name} = {toml_value}"


def build_run_command(cell: Cell) -> str:
    """Return the command that measures with the settings of the cell."""
    words = ["xfbench", "run"]
    for name, value in _values_by_setting(cell).items():
        setting = settings.BY_NAME[name]
        words += [setting.option, setting.format_stored(value)]
    return shlex.join(words)


def _values_by_setting(cell: Cell) -> dict[str, Any]:
    """Return the value of each setting that the cell chooses, as a record stores it."""
    values = {
        "framework": cell.framework,
        "workload": cell.workload,
        "batch_size": cell.global_batch_size,
        "kernel": cell.kernel,
        "threads": cell.threads,
        "pinning": cell.affinity,
    }
    if cell.device != "cpu":
        values["device"] = cell.device
    if cell.precision != "float32":
        values["precision"] = cell.precision
    if cell.allocator:
        values["allocator"] = cell.allocator
    if cell.ranks > 1:
        values |= {"ranks": cell.ranks, "scaling": cell.scaling, "strategy": cell.strategy}
    return {name: value for name, value in values.items() if value is not None}


def _quote_for_toml(value: str) -> str:
    """Return the value as a string of TOML, in ASCII."""
    quoted = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^ -~]", lambda match: f"\\U{ord(match[0]):08x}", quoted)


def _quote_for_tcl(value: str) -> str:
    """Return the value as one word of Tcl, the language of modulefiles."""
    if re.fullmatch(r"[\w./:,=+@%-]+", value, re.ASCII):
        return value
    escaped = re.sub(r"([\\\[\]$\"{};])", r"\\\1", value)
    return f'"{escaped}"'


def _environment_variables(cell: Cell) -> dict[str, str]:
    """Return the variables that select the number of threads, the kernel and the allocator."""
    described = adapter.load(cell.framework)
    variables = {
        "OMP_NUM_THREADS": str(cell.threads),
        **described.variables,
        **described.kernels[cell.kernel].variables,
    }
    variables = {
        name: value.replace("{threads}", str(cell.threads))
        for name, value in variables.items()
        if "{prefix}" not in value  # a folder of xfbench's own environment
        and not (cell.device == "cpu" and name.startswith(_GPU_PREFIXES))
    }
    if cell.allocator:
        variables |= allocators.preload_variables(cell.allocator, variables.get("LD_PRELOAD", ""))
    return variables
