"""Where a step's time goes: a few steps more, under the framework's own profiler.

They come when all else is measured, since a profiler takes time and memory of its own.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

from xfbench.worker.protocol import Unsupported

STEPS = 5


def phases(trainer: Any, batch: Any, clock: Callable[[], float]) -> Tuple[str, Dict[str, float]]:
    """What profiles, and the seconds of a step that it tells of, by phase and layer.

    "profile/forward/<layer>" and "…/backward/<layer>"; "…/update"; "…/other", of no layer; and
    "profile/step", by `clock`, all of it. Where nothing profiles, why not, and no seconds.
    """
    taken: List[float] = []

    def steps() -> float:
        begun = clock()
        for _ in range(STEPS):
            trainer.step(batch)
        trainer.synchronize()
        taken.append(clock() - begun)
        return taken[-1]

    if not hasattr(trainer, "profile"):
        return "none: the adapter has no profiler", {}
    try:
        found = trainer.profile(batch, steps, clock)
    except Unsupported as error:
        return f"none: {error}", {}
    seconds = {"step": taken[-1], "update": found.update, "other": found.unattributed}
    for phase, layers in (("forward", found.forward), ("backward", found.backward)):
        seconds.update({f"{phase}/{layer}": value for layer, value in layers.items()})
    return found.profiler, {f"profile/{name}": value / STEPS for name, value in seconds.items()}
