"""The memory limit of this process, and whether a failure was out of memory.

The limit is on private writable memory (RLIMIT_DATA, setrlimit(2)). It counts allocated memory,
but not reserved address space or library code. At the limit, allocation fails for the
framework as on a full machine, and no other process is affected.
"""

from __future__ import annotations

import re
import resource

PREFIX = "out of memory"
# Messages of the allocators of frameworks, of their libraries, and of devices.
_MESSAGE = re.compile(
    r"out of memory|bad_alloc|(can't|cannot|could not|unable to|failed to) allocate|(?-i:\bOOM\b)"
    r"|resource_?exhausted|_ALLOC_FAILED|host allocation of size \d+ failed"
    r"|memory allocation (still )?failed|MemoryError",
    re.I,
)
# Messages that may have other causes if no limit is set: oneDNN's message gives no cause, and
# threads need a stack.
_MESSAGE_UNDER_A_LIMIT = re.compile(
    r"could not create a (primitive|memory)|thread creation failed|pthread_create"
    r"|resource temporarily unavailable|can't start new thread",
    re.I,
)


def set_memory_limit(limit_bytes: int | None) -> None:
    """Limit the memory of this process, and of each process it starts, to `limit` bytes."""
    if limit_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))


def out_of_memory_line(text: str, limit: int | None) -> str | None:
    """Return the first line of `text` that reports out of memory. None if no line does.

    Lines of a traceback that name a place in the code are skipped.
    """
    for line in text.splitlines():
        if line.lstrip().startswith('File "'):
            continue
        if _MESSAGE.search(line) or (limit and _MESSAGE_UNDER_A_LIMIT.search(line)):
            return " ".join(line.split())[:300]
    return None


def out_of_memory_reason(error: BaseException, limit: int | None) -> str | None:
    """Return the reason if `error` was raised for lack of memory, otherwise None."""
    name = type(error).__name__
    if isinstance(error, MemoryError):
        return (
            f"{PREFIX}: {name} was raised: {out_of_memory_line(str(error), limit) or 'by Python'}"
        )
    line = out_of_memory_line(f"{name}\n{error}", limit)
    if line is None:
        return None
    return f"{PREFIX}: {name} was raised: {out_of_memory_line(str(error), limit) or line}"
