"""Progress lines while a step of the verification says nothing for minutes."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_FIRST_WAITS_S = (30.0, 30.0)
_WAIT_S = 60.0


@contextmanager
def say_elapsed_time(say: Callable[[str], None], activity: str) -> Iterator[None]:
    """While the `with` block runs, call `say` after 30 s, after one minute, and then each minute.

    - `activity`: what runs. The line has it and the elapsed time. `say` is called by a thread.
    """
    stop = threading.Event()
    started = time.monotonic()

    def say_until_stopped() -> None:
        for wait_s in itertools.chain(_FIRST_WAITS_S, itertools.repeat(_WAIT_S)):
            if stop.wait(wait_s):
                return
            seconds = time.monotonic() - started
            elapsed = f"{seconds:.0f} s" if seconds < 59 else f"{seconds / 60:.0f} min"
            say(f"{activity}: running for {elapsed}")

    thread = threading.Thread(target=say_until_stopped, name="elapsed", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
