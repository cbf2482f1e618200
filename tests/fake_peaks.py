"""Peaks of the machine that no launch exceeds, so that tests need not measure them."""

from xfbench.host import machine

RANK_PEAKS = {
    **{"float32": 1e15, "float64": 1e15, "bandwidth": 1e12},
    **{"float32_tries": [1e15], "float64_tries": [1e15]},
}


def build_peaks():
    """Return fake peaks by number of threads, up to the usable cores."""
    return dict.fromkeys(range(1, machine.usable_cores() + 1), RANK_PEAKS)
