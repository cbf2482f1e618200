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
    r"out[ _]of[ _]memory|bad_alloc|(can't|cannot|could not|unable to|failed to) allocate"
    r"|(?-i:\bOOM\b)|cudaErrorMemoryAllocation|resource_?exhausted|_ALLOC_FAILED"
    r"|host allocation of size \d+ failed|memory allocation (still )?failed|MemoryError",
    re.I,
)
# Messages that mean out of memory only if a limit is set. oneDNN's message gives no cause, and a
# thread cannot start without memory for its stack.
_MESSAGE_UNDER_A_LIMIT = re.compile(
    r"could not create a (primitive|memory)|thread creation failed|pthread_create"
    r"|resource temporarily unavailable|can't start new thread",
    re.I,
)


# Messages that often mean that a GPU's memory ran out: a library of CUDA could not allocate memory
# for itself, or no algorithm fits into what is left.
_MESSAGE_ON_A_GPU = re.compile(
    r"CU(BLAS|DNN|SOLVER)_STATUS_NOT_INITIALIZED|CUDNN_STATUS_INTERNAL_ERROR"
    r"|unable to find an engine to execute|no algorithm worked"
    r"|failed to (get|find any) \w*\s*convolution algorithm|DNN library initialization failed",
    re.I,
)
# TensorFlow's allocator says that it ran out of memory and that the caller goes on without.
_NO_FAILURE = "is not a failure"


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
        if line.lstrip().startswith('File "') or _NO_FAILURE in line:
            continue
        if _MESSAGE.search(line) or (limit_in_force and _MESSAGE_UNDER_A_LIMIT.search(line)):
            return " ".join(line.split())[:300]
    return None


def probable_out_of_memory_line(text: str) -> str | None:
    """Return the first line of `text` that often means that a GPU's memory ran out, or None."""
    lines = (line for line in text.splitlines() if _MESSAGE_ON_A_GPU.search(line))
    line = next(lines, None)
    return None if line is None else " ".join(line.split())[:300]


def out_of_memory_reason(error: BaseException, limit: int | None) -> str | None:
    """Return a description of `error` if it was raised for lack of memory, otherwise None.

    `limit` is the process's memory limit in bytes, or None. If the message often means a lack of
    memory, but may have another cause, the description says "probably".
    """
    name = type(error).__name__
    if isinstance(error, MemoryError):
        return (
            f"{PREFIX}: {name} was raised: {out_of_memory_line(str(error), limit) or 'by Python'}"
        )
    line = out_of_memory_line(f"{name}\n{error}", limit)
    if line is None:
        line = probable_out_of_memory_line(str(error))
        return line and f"{PREFIX}, probably: {name} was raised: {line}"
    return f"{PREFIX}: {name} was raised: {out_of_memory_line(str(error), limit) or line}"
