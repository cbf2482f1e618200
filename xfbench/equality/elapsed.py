"""Progress lines while a step of the verification says nothing for minutes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from xfbench.base.repeated_calls import call_repeatedly

_FIRST_WAITS_S = (30.0, 30.0)
_WAIT_S = 60.0


@contextmanager
def say_elapsed_time(say: Callable[[str], None], activity: str) -> Iterator[None]:
    """While the `with` block runs, call `say` after 30 s, after one minute, and then each minute.

    - `activity`: what runs. The line has it and the elapsed time. `say` is called by a thread.
    """
    started = time.monotonic()

    def say_elapsed() -> None:
        seconds = time.monotonic() - started
        elapsed = f"{seconds:.0f} s" if seconds < 59 else f"{seconds / 60:.0f} min"
        say(f"{activity}: running for {elapsed}")

    waits_s = itertools.chain(_FIRST_WAITS_S, itertools.repeat(_WAIT_S))
    with call_repeatedly(say_elapsed, waits_s):
        yield
