"""How often intervals of few launches contain the median of many: `make replay`. Not a test.

The launches are those of the recorded series (`series.py`) and of simulations. For each method of
`interval_methods.py` and each number of launches:

- random: launches are drawn without replacement from the 40 of a cell. The truth is their median.
- consecutive: the same, of launches that follow one another.
- width: median width of the intervals, relative to Student's t, in cells without outliers.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tabulate import tabulate

from tests.measuring import series as recorded
from tests.measuring.interval_methods import METHODS
from xfbench import statistics

COUNTS = (5, 7, 10, 20)
DRAWS = 1000


def main() -> None:
    """Print a table for the recorded series, and one for each simulation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=recorded.FOLDER)
    all_series = recorded.read_all(parser.parse_args().folder)
    cells = [
        log_speeds(launches) for series in all_series for launches in series.by_cell().values()
    ]
    if cells:
        print(f"{len(cells)} cells of {len(all_series)} recorded series\n")
        print(build_table(cells))
    for name, simulated in simulate_cells().items():
        print(f"\nsimulated: {name}\n")
        print(build_table(simulated))


def log_speeds(launches: Sequence[recorded.Launch]) -> np.ndarray:
    """Return the logarithm of each launch's speed at its median step."""
    return np.array([np.log(launch.images / np.median(launch.step_s)) for launch in launches])


def simulate_cells(cells: int = 20, launches: int = 40) -> dict[str, list[np.ndarray]]:
    """Return simulated cells by name. Launches vary by 1 %."""
    rng = np.random.default_rng(0)
    normal = rng.normal(0, 0.01, (4, cells, launches))
    far_off = (rng.random((cells, launches)) < 0.1) * rng.exponential(0.3, (cells, launches))
    two_modes = 0.05 * (rng.random((cells, launches)) < 0.4)
    correlated = normal[3]
    for n in range(1, launches):
        correlated[:, n] = 0.4 * correlated[:, n - 1] + np.sqrt(1 - 0.4**2) * correlated[:, n]
    return {
        "normal": [*normal[0]],
        "one launch in ten far off": [*(normal[1] - far_off)],
        "two modes": [*(normal[2] + two_modes)],
        "neighbours correlated by 0.4": [*correlated],
    }


def build_table(cells: Sequence[np.ndarray]) -> str:
    """Return a table of the methods' figures."""
    rows = []
    for count in COUNTS:
        figures = compare_methods(cells, count)
        rows += [
            [count, name, f"{random:.1%}", f"{consecutive:.1%}", f"{width:.2f}"]
            for name, (random, consecutive, width) in figures.items()
        ]
    headers = ["launches", "method", "random", "consecutive", "width"]
    return tabulate(rows, headers, "github", disable_numparse=True)


def compare_methods(
    cells: Sequence[np.ndarray], count: int
) -> Mapping[str, tuple[float, float, float]]:
    """Return (coverage of random draws, of consecutive launches, relative width) by method."""
    rng = np.random.default_rng(0)
    quiet = [not any(statistics.outliers(list(np.exp(cell)))) for cell in cells]
    hits: dict[str, list[np.ndarray]] = {name: [] for name in METHODS}
    consecutive_hits: dict[str, list[np.ndarray]] = {name: [] for name in METHODS}
    widths: dict[str, list[float]] = {name: [] for name in METHODS}
    for cell, is_quiet in zip(cells, quiet, strict=True):
        truth = float(np.median(cell))
        draws = rng.permuted(np.tile(cell, (DRAWS, 1)), axis=1)[:, :count]
        windows = np.lib.stride_tricks.sliding_window_view(cell, count)
        for name, method in METHODS.items():
            low, high = method(draws)
            hits[name].append((low <= truth) & (truth <= high))
            if is_quiet or not any(quiet):
                widths[name].append(float(np.median(high - low)))
            low, high = method(windows)
            consecutive_hits[name].append((low <= truth) & (truth <= high))
    reference = np.array(widths["Student's t"])
    return {
        name: (
            float(np.concatenate(hits[name]).mean()),
            float(np.concatenate(consecutive_hits[name]).mean()),
            float(np.median(np.array(widths[name]) / reference)),
        )
        for name in METHODS
    }


if __name__ == "__main__":
    main()
