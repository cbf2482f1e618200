"""Layer times of JAX, measured by its profiler, which times each operation of XLA's program."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Sequence

import jax

from xfbench.worker import scopes
from xfbench.worker.protocol import Profile

_NANOSECOND = 1e-9


def profile(
    layers: Sequence[str], run_steps: Callable[[], float], get_program_text: Callable[[], str]
) -> Profile:
    """Run `run_steps` under JAX's profiler and return the seconds of each layer.

    `layers` has the names of the network's layers in order. `get_program_text` returns the text of
    the program that XLA compiled for the steps.
    """
    options: Any = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with TemporaryDirectory(prefix="xfbench-profile-") as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            run_steps()
        [file] = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(file))
    of = scopes.scope_by_instruction(get_program_text())
    layer_seconds = scopes.ScopeSeconds(layers)
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                operation = dict(event.stats).get("hlo_op")
                if operation is not None:
                    layer_seconds.add(of.get(str(operation), ""), _NANOSECOND * event.duration_ns)
    return layer_seconds.profile(f"jax.profiler of JAX {jax.__version__}")
