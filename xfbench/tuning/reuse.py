"""The best setting of a search in forms that people use elsewhere: command, modulefile, TOML."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from xfbench.environments import allocators
from xfbench.model import adapter, settings
from xfbench.model.request import Cell
from xfbench.store.tuning_results import Tuning

_ALWAYS = ("framework", "workload", "batch_size", "kernel", "threads", "pinning")
_IF_CHOSEN = ("device", "precision", "allocator", "ranks", "scaling", "strategy")


def describe_for_reuse(tuning: Tuning) -> Iterator[str]:
    """Yield the lines that apply the best setting outside `xfbench run --tuned`."""
    cell = tuning.best
    values = _values_by_setting(cell)
    words = ["xfbench", "run"]
    for name, value in values.items():
        setting = settings.BY_NAME[name]
        words += [setting.option, setting.format_stored(value)]
    yield "# the command"
    yield shlex.join(words)
    yield ""
    yield "# lines of a modulefile"
    for name, value in sorted(_environment_variables(cell).items()):
        verb = "prepend-path" if name == "LD_PRELOAD" else "setenv"
        yield f"{verb} {name} {{{value}}}" if " " in value else f"{verb} {name} {value}"
    yield ""
    yield "# a matrix of a study"
    yield "[[matrix]]"
    for name, value in values.items():
        setting = settings.BY_NAME[name]
        text = setting.format_stored(value)
        toml_value = json.dumps(value if isinstance(value, int) else text)
        yield f"{name} = [{toml_value}]" if setting.is_list else f"{name} = {toml_value}"


def _values_by_setting(cell: Cell) -> dict[str, Any]:
    """Return the value of each setting that the cell chooses, as a record stores it."""
    stored = {
        "batch_size": cell.global_batch_size,
        "pinning": cell.affinity,
        **{
            name: getattr(cell, settings.BY_NAME[name].cell_field)
            for name in (*_ALWAYS, *_IF_CHOSEN)
            if name not in ("batch_size", "pinning")
        },
    }
    defaults = {"device": "cpu", "precision": "float32", "allocator": None, "ranks": 1}
    chosen = {name: stored[name] for name in _ALWAYS}
    for name in _IF_CHOSEN:
        needs_ranks = name in ("scaling", "strategy")
        if stored[name] != defaults.get(name) and not (needs_ranks and cell.ranks == 1):
            chosen[name] = stored[name]
    return chosen


def _environment_variables(cell: Cell) -> dict[str, str]:
    """Return the variables that select the number of threads, the kernel and the allocator."""
    described = adapter.load(cell.framework)
    variables = {
        "OMP_NUM_THREADS": str(cell.threads),
        **described.variables,
        **described.kernels[cell.kernel].variables,
    }
    if cell.allocator:
        variables |= allocators.preload_variables(cell.allocator)
    return {
        name: value.replace("{threads}", str(cell.threads)) for name, value in variables.items()
    }
