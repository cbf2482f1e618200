"""Calls of a function again and again, while other code runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def call_repeatedly(function: Callable[[], None], waits_s: Iterable[float]) -> Iterator[None]:
    """While the `with` block runs, call `function` in a thread after each wait.

    - `waits_s`: the waits before the calls, in seconds.
    """
    stop = threading.Event()

    def call_until_stopped() -> None:
        for wait_s in waits_s:
            if stop.wait(wait_s):
                return
            function()

    thread = threading.Thread(target=call_until_stopped, name="repeated calls", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
