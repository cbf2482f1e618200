"""A profile of a few extra steps, made with the framework's own profiler.

The extra steps run after all measurements, because a profiler takes time and memory.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

from xfbench.worker.protocol import Unsupported

STEPS = 5


def profile_steps(
    trainer: Any, batch: Any, clock: Callable[[], float]
) -> Tuple[str, Dict[str, float]]:
    """Return the profiler's name, and the seconds per step by phase and layer.

    The seconds have these keys:

    - "profile/forward/<layer>" and "profile/backward/<layer>"
    - "profile/update": the update of the parameters
    - "profile/other": time that belongs to no layer and no update
    - "profile/step": the whole step, measured with `clock`

    If no profile is possible, the result is ("none: REASON", {}).
    """
    durations: List[float] = []

    def run_steps() -> float:
        begun = clock()
        for _ in range(STEPS):
            trainer.step(batch)
        trainer.wait_for_loss()
        durations.append(clock() - begun)
        return durations[-1]

    if not hasattr(trainer, "profile"):
        return "none: the adapter has no profiler", {}
    try:
        layer_profile = trainer.profile(batch, run_steps, clock)
    except Unsupported as error:
        return f"none: {error}", {}
    seconds = {
        "step": durations[-1],
        "update": layer_profile.update,
        "other": layer_profile.unattributed,
    }
    for phase, layers in (("forward", layer_profile.forward), ("backward", layer_profile.backward)):
        seconds.update({f"{phase}/{layer}": value for layer, value in layers.items()})
    return layer_profile.profiler, {
        f"profile/{name}": value / STEPS for name, value in seconds.items()
    }
