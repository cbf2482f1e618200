"""The programs that XLA compiles: where JAX keeps them, and what it compiled or loaded.

JAX announces each compilation and each load as an event of `jax.monitoring`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import jax

_LOADED = "/jax/compilation_cache/cache_hits"
_COMPILED_OR_LOADED = "/jax/core/compile/backend_compile_duration"


def keep_programs(folder: Path) -> None:
    """Make JAX keep compiled programs in `folder`, and load those that it finds there.

    The results of autotuning are kept too, so that other programs with the same layers use the same
    algorithms. XLA's file of kernels is not kept: processes with it failed on a GPU.
    """
    options: dict[str, Any] = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
        "jax_persistent_cache_enable_xla_caches": "xla_gpu_per_fusion_autotune_cache_dir",
    }
    for name, value in options.items():
        with contextlib.suppress(AttributeError):  # earlier versions of JAX lack some options
            jax.config.update(name, value)


class _Events:
    """What JAX has announced in this process: the number of loads, and seconds of all programs."""

    def __init__(self) -> None:
        self.loads, self.seconds = 0, 0.0
        jax.monitoring.register_event_listener(self._count_load)
        jax.monitoring.register_event_duration_secs_listener(self._add_seconds)

    def _count_load(self, event: str, **_: Any) -> None:
        self.loads += event == _LOADED

    def _add_seconds(self, event: str, seconds: float, **_: Any) -> None:
        if event == _COMPILED_OR_LOADED:
            self.seconds += seconds


_events = _Events()


def compile_or_load(lowered: Any) -> tuple[Any, str, float]:
    """Return `lowered` as an executable program, "compiled" or "loaded", and the seconds of this.

    The seconds are those that JAX reports.
    """
    loads, seconds = _events.loads, _events.seconds
    executable = lowered.compile()
    origin = "loaded" if _events.loads > loads else "compiled"
    return executable, origin, _events.seconds - seconds
