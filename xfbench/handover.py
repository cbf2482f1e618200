"""How near two cores are to each other: how long a word takes to the other one and back.

Threads that share a step's work hand each other small things hundreds of times a step. Where
the two cores lie decides what that takes, and a hypervisor moves virtual ones about, within
seconds, without a word in any counter (docs/findings.md#two-modes).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from xfbench import command, pingpong

APART = 1.5  # times the nearest: measurements of two near cores differ by less, mostly
_LIMIT = 2.0  # seconds; a hundred times what it takes


def seconds() -> float | None:
    """Between the first and the last CPU that this process may use, there and back, at the least.

    As two Python processes see it, so that a tenth of a microsecond of it is the interpreter's.
    None where there is but one CPU, where the system does not pin, or where cores are too busy.
    """
    try:
        first, *_, last = sorted(os.sched_getaffinity(0))
        asked = [sys.executable, "-I", "-S", pingpong.__file__, str(first), str(last)]
        return float(command.output(asked, timeout=_LIMIT))
    except (AttributeError, ValueError, command.CommandError):
        return None


def apart(handovers: Sequence[float], nearest: float | None = None) -> bool:
    """Whether cores were, at one of these times, farther apart than they are at their nearest.

    That is the shortest of them where nothing else is known.
    """
    known = [*handovers, *([nearest] if nearest else [])]
    return bool(handovers) and max(handovers) > APART * min(known)
