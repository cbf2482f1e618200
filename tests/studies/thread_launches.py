"""Launches on one thread and on two."""

FAST, SLOW = (0.1, 0.101, 0.099), (0.2, 0.202, 0.198)


def make_thread_launches(make_launches, one_thread=SLOW, two_threads=FAST, **request):
    """Return launches with these step times in seconds, on one thread and on two."""
    return [
        *make_launches(*one_thread, threads=1, **request),
        *make_launches(*two_threads, threads=2, **request),
    ]
