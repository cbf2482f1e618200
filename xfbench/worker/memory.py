"""The memory limit of this process, and the error messages that mean out of memory.

The limit applies to private writable memory (RLIMIT_DATA, setrlimit(2)). Allocated memory counts,
but reserved address space and library code do not. If this process reaches the limit, its
allocations fail as on a full machine. Other processes are not affected.
"""

from __future__ import annotations

import re
import resource

PREFIX = "out of memory"
# Messages of the allocators in frameworks, libraries and device drivers.
_MESSAGE = re.compile(
    r"out of memory|bad_alloc|(can't|cannot|could not|unable to|failed to) allocate|(?-i:\bOOM\b)"
    r"|resource_?exhausted|_ALLOC_FAILED|host allocation of size \d+ failed"
    r"|memory allocation (still )?failed|MemoryError",
    re.I,
)
# Messages that mean out of memory only if a limit is set. oneDNN's message gives no cause, and a
# thread cannot start without memory for its stack.
_MESSAGE_UNDER_A_LIMIT = re.compile(
    r"could not create a (primitive|memory)|thread creation failed|pthread_create"
    r"|resource temporarily unavailable|can't start new thread",
    re.I,
)


def set_memory_limit(limit_bytes: int | None) -> None:
    """Limit this process, and each process that it starts, to `limit_bytes` bytes of memory.

    If `limit_bytes` is None or 0, this function does nothing.
    """
    if limit_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))


def out_of_memory_line(text: str, limit_in_force: int | None) -> str | None:
    """Return the first line of `text` that reports out of memory, or None if no line does.

    `limit_in_force` is the process's memory limit in bytes, or None. With a limit, messages that
    may have other causes count too. Traceback lines that name a place in the code are skipped.
    """
    for line in text.splitlines():
        if line.lstrip().startswith('File "'):
            continue
        if _MESSAGE.search(line) or (limit_in_force and _MESSAGE_UNDER_A_LIMIT.search(line)):
            return " ".join(line.split())[:300]
    return None


def out_of_memory_reason(error: BaseException, limit: int | None) -> str | None:
    """Return a description of `error` if it was raised for lack of memory, otherwise None.

    `limit` is the process's memory limit in bytes, or None.
    """
    name = type(error).__name__
    if isinstance(error, MemoryError):
        return (
            f"{PREFIX}: {name} was raised: {out_of_memory_line(str(error), limit) or 'by Python'}"
        )
    line = out_of_memory_line(f"{name}\n{error}", limit)
    if line is None:
        return None
    return f"{PREFIX}: {name} was raised: {out_of_memory_line(str(error), limit) or line}"
