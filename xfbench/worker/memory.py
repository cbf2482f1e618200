"""Memory of this process: the most it may have, and whether that was what it died of.

The limit is on private writable memory (RLIMIT_DATA, setrlimit(2)): what an allocator gets is
counted, address space that is only reserved and libraries' code are not. Where no more is to be had
the framework is told so, as on a machine whose memory is at an end, and no other process is
touched. What it then says, or the signal that it dies of, is its own.
"""

from __future__ import annotations

import re
import resource

PREFIX = "out of memory"
# Allocators of the frameworks, of what they are built on, and of devices.
_MESSAGE = re.compile(
    r"out of memory|bad_alloc|(can't|cannot|could not|unable to|failed to) allocate|(?-i:\bOOM\b)"
    r"|resource_?exhausted|_ALLOC_FAILED|host allocation of size \d+ failed"
    r"|memory allocation (still )?failed|MemoryError",
    re.I,
)
# What may have other causes, where no limit was set: oneDNN names none, threads need a stack.
_MESSAGE_UNDER_A_LIMIT = re.compile(
    r"could not create a (primitive|memory)|thread creation failed|pthread_create"
    r"|resource temporarily unavailable|can't start new thread",
    re.I,
)


def set_memory_limit(limit: int | None) -> None:
    """From here on this process, and each that it starts, gets no more than so many bytes."""
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def out_of_memory_line(text: str, limit: int | None) -> str | None:
    """The first line of `text` that says there was no memory; None where none does.

    Of a traceback not the lines that name a place in the code.
    """
    for line in text.splitlines():
        if line.lstrip().startswith('File "'):
            continue
        if _MESSAGE.search(line) or (limit and _MESSAGE_UNDER_A_LIMIT.search(line)):
            return " ".join(line.split())[:300]
    return None


def out_of_memory_reason(error: BaseException, limit: int | None) -> str | None:
    """The reason, where that is why the framework raised `error`; None where it is not."""
    name = type(error).__name__
    if isinstance(error, MemoryError):
        return (
            f"{PREFIX}: {name} was raised: {out_of_memory_line(str(error), limit) or 'by Python'}"
        )
    line = out_of_memory_line(f"{name}\n{error}", limit)
    if line is None:
        return None
    return f"{PREFIX}: {name} was raised: {out_of_memory_line(str(error), limit) or line}"
