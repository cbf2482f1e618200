"""What many launches of real cells say about figures from few: `make intervals`. Not a test.

From a results folder whose cells have twenty launches or more each:

- coverage: how often the interval of five launches, drawn at random, contains the geometric
  mean of all; beside it the same of an interval over those launches' pooled steps;
- adaptive stopping, in the order in which the launches were done and in random orders: how
  many launches and how much machine time until the interval is ±2 %, and its coverage.

`xfbench run --launches 20 --results DIR`, then `python -m tests.measuring.launches DIR`;
what it found is in docs/intervals.md.
"""

import argparse
from pathlib import Path

import numpy as np
from tabulate import tabulate

from xfbench import statistics
from xfbench.model.request import Protocol
from xfbench.store.results_folder import Store

SMALL_SAMPLE = 5
DRAWS = 2000


def main() -> None:
    """Print a table of the cells, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    records_by_cell = read_cells(parser.parse_args().results)
    rng = np.random.default_rng(0)
    figures_by_cell = {
        name: summarise_cell(records, rng) for name, records in records_by_cell.items()
    }
    rows = [
        [
            name,
            figures["launches"],
            f"{figures['spread']:.1%}",
            f"{figures['coverage']:.1%}",
            f"{figures['pooled']:.1%}",
            figures["stopped_after"],
            f"±{figures['half_width']:.1%}",
            f"{figures['share']:.0%}",
            f"{figures['mean_share']:.0%}",
            f"{figures['stopped_coverage']:.1%}",
        ]
        for name, figures in figures_by_cell.items()
    ]
    headers = ["cell", "launches", "spread", "coverage of 5", "of pooled steps", "stopped after"]
    headers += ["at", "of all time", "any order", "coverage then"]
    print(tabulate(rows, headers, "github", disable_numparse=True))
    spent_s = sum(figures["spent"] for figures in figures_by_cell.values())
    total_s = sum(figures["total"] for figures in figures_by_cell.values())
    print(f"\nadaptive stopping: {spent_s:.0f} s of {total_s:.0f} s, {spent_s / total_s:.0%}")
    mean_share = np.mean([figures["mean_share"] for figures in figures_by_cell.values()])
    print(f"mean over cells and orders: {mean_share:.0%} of the launches")


def read_cells(results: Path) -> dict[str, list]:
    """The records that count, in the order of their launches, by cell."""
    records_by_cell: dict[str, list] = {}
    for record in Store(results).records():
        if record.request and record.status == "ok" and statistics.has_valid_steps(record):
            records_by_cell.setdefault(record.request.label(), []).append(record)
    for records in records_by_cell.values():
        records.sort(key=lambda record: record.request.launch)
    return dict(sorted(records_by_cell.items()))


def summarise_cell(records: list, rng: np.random.Generator) -> dict[str, float]:
    """The figures of one cell."""
    speeds = np.array([statistics.launch_throughput(record) for record in records])
    steps = [
        record.request.global_batch_size / np.array(record.measurement.step_seconds)
        for record in records
    ]
    seconds = np.array([record.conditions.seconds for record in records])
    truth = float(np.exp(np.log(speeds).mean()))
    hits = pooled = stopped_hits = 0
    shares = []
    for _ in range(DRAWS):
        order = rng.permutation(len(speeds))
        hits += is_within(statistics.geometric_interval(list(speeds[order[:SMALL_SAMPLE]])), truth)
        all_steps = np.concatenate([steps[n] for n in order[:SMALL_SAMPLE]])
        pooled += is_within(statistics.geometric_interval(list(all_steps)), truth)
        count = stopping_count(speeds[order])
        stopped_hits += is_within(statistics.geometric_interval(list(speeds[order[:count]])), truth)
        shares.append(count / len(speeds))
    count = stopping_count(speeds)
    interval = statistics.geometric_interval(list(speeds[:count]))
    return {
        "launches": len(speeds),
        "spread": float(np.log(speeds).std(ddof=1)),
        "coverage": hits / DRAWS,
        "pooled": pooled / DRAWS,
        "stopped_after": count,
        "half_width": interval.high / interval.value - 1,
        "share": float(seconds[:count].sum() / seconds.sum()),
        "spent": float(seconds[:count].sum()),
        "total": float(seconds.sum()),
        "mean_share": float(np.mean(shares)),
        "stopped_coverage": stopped_hits / DRAWS,
    }


def stopping_count(speeds: np.ndarray) -> int:
    """After how many launches the stop rule would have ended the cell."""
    rule = Protocol()
    max_launches = min(rule.most, len(speeds))
    launches = [(statistics.Block("", 0, n, 0), speed) for n, speed in enumerate(speeds)]
    for count in range(rule.least, max_launches):
        if statistics.is_precise(dict(launches[:count]), rule.precision):
            return count
    return max_launches


def is_within(interval: statistics.Interval, value: float) -> bool:
    """Whether the interval has the value in it."""
    return interval.low <= value <= interval.high


if __name__ == "__main__":
    main()
