"""Methods of measuring, tried on recorded series of launches: `make replay`. Not a test.

The launches are those of the recorded series (`series.py`), and of simulations. The tables:

- Figures of a launch: how much launches differ, with the median step and with the sustained rate.
- Intervals of one cell: how often they contain the median of the 40 launches of the session.
- False verdicts: all launches are of one cell, so that no two cells differ.
- Power: how often a difference of 10 % is found at a spread of 3 %.
- Stop rules: launches and seconds until ±2 %, or until the order is known.
"""

import argparse
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tabulate import tabulate

from tests.measuring import comparison_methods, interval_methods
from tests.measuring import series as recorded
from xfbench import pairwise, statistics
from xfbench.statistics import Block, Launches

COUNTS = (5, 7, 10, 20)
DRAWS = 1000
VERDICT_DRAWS = 2000
MAX_LAUNCHES, MIN_LAUNCHES, MIN_LAUNCHES_FOR_ORDER = 20, 5, 3
PRECISION = 0.02
DECIDED = {"faster", "slower"}
FAR_OFF = 3.5  # robust standard deviations


@dataclass(frozen=True)
class Cell:
    """The launches of one cell in one session.

    - `logs`: logarithm of each launch's speed at its median step, in the order of the session.
    - `seconds`: duration of each launch.
    """

    name: str
    session: str
    logs: np.ndarray
    seconds: np.ndarray

    @property
    def has_outliers(self) -> bool:
        """Return whether a launch is far off the others."""
        return any(statistics.outliers([*np.exp(self.logs)]))


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=recorded.FOLDER)
    all_series = recorded.read_all(parser.parse_args().folder)
    cells = [cell for series in all_series for cell in read_cells(series)]
    if cells:
        print(f"{len(cells)} cells of {len(all_series)} recorded series\n")
        print(build_launch_table(all_series), "\n")
        for series in all_series:
            print(f"intervals, session {series.session}\n")
            print(build_interval_table([cell.logs for cell in read_cells(series)]), "\n")
        print("intervals, all sessions\n")
        print(build_interval_table([cell.logs for cell in cells]), "\n")
        print(build_verdict_table(all_series), "\n")
        print(build_stop_table(all_series))
    print("\nsimulated: launches until all cells are known to ±2 %\n")
    print(build_simulated_stop_table())
    for name, logs in simulate_cells().items():
        print(f"\nsimulated: {name}\n")
        print(build_interval_table(logs))


def read_cells(series: recorded.Series) -> list[Cell]:
    """Return the cells of a series."""
    return [
        Cell(
            name,
            series.session,
            log_speeds(launches, median_step_speed),
            np.array([launch.seconds for launch in launches]),
        )
        for name, launches in series.by_cell().items()
    ]


def median_step_speed(images: int, steps: np.ndarray) -> float:
    """Return images per second at the median step."""
    return float(images / np.median(steps))


def sustained_speed(images: int, steps: np.ndarray) -> float:
    """Return all images over all seconds."""
    return float(images * len(steps) / steps.sum())


def log_speeds(
    launches: Sequence[recorded.Launch],
    speed: Callable[[int, np.ndarray], float],
    warmup_s: float = 1.0,
    timed_s: float = np.inf,
) -> np.ndarray:
    """Return the logarithm of each launch's speed.

    Only the steps that begin at least `warmup_s` after the first step count, for `timed_s`.
    """
    logs = []
    for launch in launches:
        steps = np.array(launch.step_s)
        starts = np.cumsum(steps) - steps
        timed = steps[(starts >= warmup_s) & (starts < warmup_s + timed_s)]
        logs.append(np.log(speed(launch.images, timed if len(timed) else steps[-1:])))
    return np.array(logs)


def build_launch_table(all_series: Sequence[recorded.Series]) -> str:
    """Return a table of the spread between launches, by figure and by seconds of timed steps.

    - short: 20 steps after three steps of warm-up, as before minimum durations.
    - spread: median over the cells of the standard deviation of the logarithms.
    - robust spread: the same from the median absolute deviation.
    - per machine time: spread · √(seconds of a launch), relative to that of short launches.
    """
    figures = {"median step": median_step_speed, "sustained rate": sustained_speed}
    rows = []
    for series in all_series:
        cells = series.by_cell()
        reference = None
        for timed_s in (None, 1.0, 2.5, np.inf):
            for name, speed in figures.items():
                spreads, robust_spreads, costs = [], [], []
                for launches in cells.values():
                    if timed_s is None:
                        logs = np.array(
                            [
                                np.log(speed(launch.images, np.array(launch.step_s[3:23])))
                                for launch in launches
                            ]
                        )
                        timed = [sum(launch.step_s[:23]) for launch in launches]
                    else:
                        logs = log_speeds(launches, speed, timed_s=timed_s)
                        timed = [min(sum(launch.step_s), 1 + timed_s) for launch in launches]
                    rest = [launch.seconds - sum(launch.step_s) for launch in launches]
                    spreads.append(logs.std(ddof=1))
                    robust_spreads.append(1.4826 * np.median(np.abs(logs - np.median(logs))))
                    costs.append(logs.std(ddof=1) * np.sqrt(np.mean(timed) + np.mean(rest)))
                if reference is None:
                    reference = np.array(costs)
                rows.append(
                    [
                        series.session[:13],
                        "20 steps" if timed_s is None else f"{min(timed_s, 5):g} s",
                        name,
                        f"{np.median(spreads):.1%}",
                        f"{np.median(robust_spreads):.1%}",
                        f"{np.median(np.array(costs) / reference):.2f}",
                    ]
                )
    headers = ["session", "timed", "figure", "spread", "robust spread", "per machine time"]
    return tabulate(rows, headers, "github", disable_numparse=True)


def build_interval_table(cells: Sequence[np.ndarray]) -> str:
    """Return a table of the methods for intervals of one cell.

    - random: share of intervals that contain the median of all launches of the cell, of launches
      drawn without replacement.
    - consecutive: the same, of launches that follow one another.
    - width: median width of the intervals, relative to Student's t, in cells without outliers.
    """
    rows = []
    for count in COUNTS:
        figures = compare_interval_methods(cells, count)
        rows += [
            [count, name, f"{random:.1%}", f"{consecutive:.1%}", f"{width:.2f}"]
            for name, (random, consecutive, width) in figures.items()
        ]
    headers = ["launches", "method", "random", "consecutive", "width"]
    return tabulate(rows, headers, "github", disable_numparse=True)


def compare_interval_methods(
    cells: Sequence[np.ndarray], count: int
) -> Mapping[str, tuple[float, float, float]]:
    """Return (coverage of random draws, of consecutive launches, relative width) by method."""
    rng = np.random.default_rng(0)
    methods = interval_methods.METHODS
    quiet = [not any(statistics.outliers([*np.exp(cell)])) for cell in cells]
    hits: dict[str, list[np.ndarray]] = {name: [] for name in methods}
    consecutive_hits: dict[str, list[np.ndarray]] = {name: [] for name in methods}
    widths: dict[str, list[float]] = {name: [] for name in methods}
    for cell, is_quiet in zip(cells, quiet, strict=True):
        truth = float(np.median(cell))
        draws = rng.permuted(np.tile(cell, (DRAWS, 1)), axis=1)[:, :count]
        windows = np.lib.stride_tricks.sliding_window_view(cell, count)
        for name, method in methods.items():
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
        for name in methods
    }


def build_verdict_table(all_series: Sequence[recorded.Series]) -> str:
    """Return a table of the methods for comparisons.

    - false: share of draws in which any two cells differ, although all launches are of one cell:
      successive launches of it form a block, in a random order.
    - power: share of cells found slower than a cell that is 10 % faster. The deviations of each
      cell from its median are scaled to a spread of 3 %.
    """
    rows = []
    methods = comparison_methods.METHODS
    cells_of_series = [cell.logs for series in all_series for cell in read_cells(series)]
    tables = [centred_table(series) for series in all_series]
    for blocks, cells in ((5, 2), (5, 4), (5, 7), (10, 2), (10, 4)):
        rng = np.random.default_rng(1)
        equal = draw_equal_cells(cells_of_series, blocks, cells, VERDICT_DRAWS, rng)
        scaled = np.concatenate(
            [
                draw_blocks(
                    table / table.std(axis=0, ddof=1) * 0.03,
                    blocks,
                    cells,
                    VERDICT_DRAWS // len(tables),
                    rng,
                )
                for table in tables
            ]
        )
        scaled[:, :, 0] += np.log(1.1)
        for name, method in methods.items():
            centres, half_widths = method(equal)
            false = (np.abs(centres) > half_widths).any(axis=1)
            centres, half_widths = method(scaled)
            found = (centres > half_widths)[:, : cells - 1]
            rows.append([blocks, cells, name, f"{false.mean():.1%}", f"{found.mean():.0%}"])
    headers = ["blocks", "cells", "method", "false", "power"]
    return tabulate(rows, headers, "github", disable_numparse=True)


def draw_equal_cells(
    cells: Sequence[np.ndarray], blocks: int, count: int, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Return launches of one cell as if they were of `count` cells, (draws, blocks, count)."""
    drawn = []
    for _ in range(draws):
        logs = cells[rng.integers(len(cells))]
        start = rng.integers(len(logs) - blocks * count + 1)
        drawn.append(logs[start : start + blocks * count].reshape(blocks, count))
    return rng.permuted(np.array(drawn), axis=2)


def centred_table(series: recorded.Series) -> np.ndarray:
    """Return the logarithms (blocks, cells) of a series, less the median of each cell.

    Blocks in which a launch is missing are left out.
    """
    by_number = [
        dict(
            zip(
                (launch.number for launch in launches),
                log_speeds(launches, median_step_speed),
                strict=True,
            )
        )
        for launches in series.by_cell().values()
    ]
    numbers = sorted(set.intersection(*map(set, by_number)))
    table = np.array([[cell[number] for cell in by_number] for number in numbers])
    return np.asarray(table - np.median(table, axis=0))


def draw_blocks(
    table: np.ndarray, blocks: int, cells: int, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Return random blocks of random cells of a table, an array (draws, blocks, cells)."""
    block_order = rng.permuted(np.tile(np.arange(len(table)), (draws, 1)), axis=1)[:, :blocks]
    cell_order = rng.permuted(np.tile(np.arange(table.shape[1]), (draws, 1)), axis=1)[:, :cells]
    return np.asarray(table[block_order[:, :, None], cell_order[:, None, :]])


def build_stop_table(all_series: Sequence[recorded.Series], orders: int = 50) -> str:
    """Return a table of the stop rules, one row for each workload of a session.

    The blocks come in random orders, and once in the order in which they were launched.

    - launches to ±2 %: blocks until all cells are known to ±2 % (5 to 20).
    - coverage: share of intervals at the stop that contain the median of all launches.
    - launches to order: blocks until the order is known, or would stay unknown (3 to 20).
    - pairs left open: share of the pairs that 20 launches decide, but the launches at the stop do
      not.
    - contradictions: orders in which two cells differ certainly at the stop, and certainly the
      other way round after 20 launches.
    """
    rows = []
    rng = np.random.default_rng(2)
    for series in all_series:
        by_workload: dict[str, list[Cell]] = {}
        for cell in read_cells(series):
            by_workload.setdefault(cell.name.split(" · ")[0], []).append(cell)
        for workload, cells in by_workload.items():
            blocks = min(len(cell.logs) for cell in cells)
            precise, ordered, hits, decided, left_open, contradictions = [], [], [], 0, 0, 0
            for number in range(orders):
                order = rng.permutation(blocks) if number else np.arange(blocks)
                stop = blocks_until_precise([cell.logs[order] for cell in cells])
                precise.append(stop)
                hits += [
                    is_covered(cell.logs[order[:stop]], float(np.median(cell.logs)))
                    for cell in cells
                ]
                stop = blocks_until_ordered([cell.logs[order] for cell in cells])
                ordered.append(stop)
                verdicts = list_verdicts_at_stop_and_end([cell.logs[order] for cell in cells], stop)
                decided += sum(end in DECIDED for _, end in verdicts)
                left_open += sum(
                    end in DECIDED and at_stop not in DECIDED for at_stop, end in verdicts
                )
                contradictions += any(set(pair) == DECIDED for pair in verdicts)
            spreads = [cell.logs.std(ddof=1) for cell in cells]
            rows.append(
                [
                    series.session[:13],
                    workload,
                    f"{min(spreads):.1%}–{max(spreads):.1%}",
                    f"{precise[0]}; {np.mean(precise):.1f}",
                    f"{np.mean(hits):.0%}",
                    f"{ordered[0]}; {np.mean(ordered):.1f}",
                    f"{left_open / max(1, decided):.0%}",
                    f"{contradictions} of {orders}",
                ]
            )
    headers = ["session", "workload", "spreads", "launches to ±2 %", "coverage"]
    headers += ["launches to order", "pairs left open", "contradictions"]
    return tabulate(rows, headers, "github", disable_numparse=True)


def build_simulated_stop_table(comparisons: int = 300) -> str:
    """Return a table of the mean number of launches until all cells are known to ±2 % (5 to 20).

    The launches are normal and independent.
    """
    rng = np.random.default_rng(1)
    rows = []
    for spread in (0.008, 0.01, 0.011, 0.012, 0.0135, 0.015):
        row = [f"{spread:.2%}"]
        for cells in (1, 4):
            tables = rng.normal(0, spread, (comparisons, cells, MAX_LAUNCHES))
            row.append(f"{np.mean([blocks_until_precise([*table]) for table in tables]):.1f}")
        rows.append(row)
    return tabulate(rows, ["spread", "one cell", "four cells"], "github", disable_numparse=True)


def to_launches(logs: np.ndarray) -> Launches:
    """Return launches of one session with these logarithms of speeds."""
    return {Block("", 0, number, 0): float(np.exp(log)) for number, log in enumerate(logs)}


def blocks_until_precise(cells: Sequence[np.ndarray]) -> int:
    """Return after how many blocks all cells are known to ±2 %."""
    for count in range(MIN_LAUNCHES, MAX_LAUNCHES):
        if all(statistics.is_precise(to_launches(cell[:count]), PRECISION) for cell in cells):
            return count
    return MAX_LAUNCHES


def blocks_until_ordered(cells: Sequence[np.ndarray]) -> int:
    """Return after how many blocks the order of the cells is known, or would stay unknown."""
    looks = pairwise.list_looks(MIN_LAUNCHES_FOR_ORDER, MAX_LAUNCHES)
    for count in looks:
        launches = [to_launches(cell[:count]) for cell in cells]
        order = pairwise.judge_order(launches, PRECISION, most=MAX_LAUNCHES, looks=len(looks))
        if order != "open":
            return count
    return MAX_LAUNCHES


def is_covered(logs: np.ndarray, truth: float) -> bool:
    """Return whether the interval of these launches contains `truth`."""
    interval = statistics.interval_of_launches(to_launches(logs))
    assert interval.low is not None and interval.high is not None
    return bool(np.log(interval.low) <= truth <= np.log(interval.high))


def list_verdicts_at_stop_and_end(
    cells: Sequence[np.ndarray], stop: int
) -> list[tuple[str | None, str | None]]:
    """Return the verdicts on each pair of cells after `stop` launches and after 20."""
    early, late = (
        pairwise.compare_all(
            [*itertools.combinations([to_launches(cell[:count]) for cell in cells], 2)]
        )
        for count in (stop, MAX_LAUNCHES)
    )
    return [(a.verdict, b.verdict) for a, b in zip(early, late, strict=True)]


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


if __name__ == "__main__":
    main()
