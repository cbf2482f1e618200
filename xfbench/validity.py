"""What makes a launch invalid: figures that cannot be, or a state that is not what was asked for.

A launch that is invalid is kept and shown with its reason, and never dropped or ranked.
"""

from __future__ import annotations

from xfbench.canary import Expected
from xfbench.record import Measurement, Observed
from xfbench.request import Request


def defect(
    request: Request,
    measurement: Measurement,
    observed: Observed,
    loss: float | None,
    expected: Expected | None,
) -> str | None:
    """The first thing that cannot be, in one line; None where all holds.

    `loss` is the canary's: test mode, first batch, initial weights; `expected` what it must be.
    """
    steps = [
        measurement.first_step_seconds,
        *measurement.warmup_seconds,
        *measurement.step_seconds,
    ]
    if not measurement.step_seconds:
        return "no timed step: ask for more steps, or fewer warm-up steps"
    if min(steps) <= 0:
        return f"a step took {min(steps):g} s: the clock went backwards or stood still"
    if sum(steps) > measurement.wall_seconds * (1 + 1e-6):
        return (
            f"the steps add up to {sum(steps):.6g} s, more than "
            f"the {measurement.wall_seconds:.6g} s that passed"
        )
    for number, of_update in enumerate(measurement.losses):
        if of_update is None:
            return f"the loss of update {number + 1} is not finite"
    if observed.kernel != request.kernel:
        return (
            f"kernel {request.kernel} was asked for and {observed.kernel} observed: "
            f"{'; '.join(observed.kernel_evidence)}"
        )
    if loss is None:
        return "the test-mode loss at the initial weights is not finite"
    if expected and not expected.relative_error(loss) <= expected.tolerance:
        return (
            f"the test-mode loss at the initial weights is {loss:.7g}, not {expected.loss:.7g}: "
            "another network, other weights or another input (see xfbench verify)"
        )
    return None
