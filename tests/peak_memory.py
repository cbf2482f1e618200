"""The memory that Python allocates in a part of a test."""

import contextlib
import tracemalloc


@contextlib.contextmanager
def expect_less_than(max_bytes):
    """Assert that the `with` block never has `max_bytes` or more of new memory at once."""
    tracemalloc.start()
    try:
        yield
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < max_bytes
