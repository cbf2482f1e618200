"""The oracle: the true value of every number of a case, and the effect of rounding on it.

The truth is the result of the `reference` adapter in float64. Draws show the effect of rounding. A
draw is a run of the same adapter in the precision that is judged. If that is float64, the draws are
computed in float32, and the measured rounding is scaled to float64. Most draws change the values of
images and weights a little:

- Draw 0: unchanged.
- Draws 1 to DRAWS - 1: each value changes at random, by at most one unit in the last place.
- Further draws: each value changes at random, by at most SAFETY units in the last place. An input
  of a ReLU near zero may then change its sign, as it may in a correct framework.

Results are cached by the digests of the case, the adapter and the kind of machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO

import numpy as np

from xfbench.base import atomic_files, digests, locks, paths, processes
from xfbench.environments import environment
from xfbench.equality import jobs
from xfbench.equality.array_files import load_arrays
from xfbench.equality.cases import DRAWS, LARGEST_MOVE, STEPS, Case
from xfbench.equality.elapsed import say_elapsed_time
from xfbench.execution import reference
from xfbench.host import machine
from xfbench.model import adapter
from xfbench.worker.block_input import build_table

Arrays = dict[str, np.ndarray]

# Files of the worker that a result depends on, in addition to the adapter and the workloads.
_WORKER_FILES = ("block_input.py", "check.py", "input.py", "sketch.py")
_MAX_WORKERS = 4  # each worker holds three copies of a network's weights in float64
# The learning rate is lowered if a weight's rounding grows over the updates and, times SAFETY, ends
# above one percent.
_MOVE_DIVISORS = (1, 8)
_MAX_FINAL_ROUNDING = 1e-3
_MAX_GROWTH = 3.0
MAX_DRAWS = 40  # for deviations that the first draws do not explain: few draws switch a ReLU


@dataclass(frozen=True)
class Expected:
    """The expected results of a case.

    - `truth`: the float64 result of each quantity. Large arrays are summarized (see
      `xfbench/worker/sketch.py`).
    - `draws`: for each draw of rounding, the distance of each quantity from the truth
    - `precision`: the precision in which the draws were computed. This is the judged precision, or
      float32 if the judged precision is float64.
    """

    case: Case
    truth: Arrays
    draws: tuple[dict[str, float], ...]
    precision: str = "float32"

    def max_distance_over_draws(self, quantity: str) -> float:
        """Return the rounding of a quantity: its largest distance from the truth in any draw."""
        return max(draw[quantity] for draw in self.draws)


class Oracle:
    """The oracle. It runs the reference for results that are not cached.

    `say` is called with each progress message.
    """

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self.say = say
        self.adapter = adapter.load("reference")

    @cached_property
    def environment(self) -> environment.Environment:
        """The environment of the `reference` adapter."""
        return environment.ensure_environment(self.adapter)

    @cached_property
    def folder(self) -> Path:
        """The folder of cached results for this version of the code and this kind of machine."""
        package = Path(__file__).parent.parent / "worker"
        code = {name: (package / name).read_bytes() for name in _WORKER_FILES}
        code |= digests.read_files_below(self.adapter.folder)
        code |= digests.read_files_below(paths.package_folder("xfbench.workloads"))
        key = [digests.of_files(code), machine.describe_machine().microarchitecture]
        folder = paths.cache_folder("oracle", digests.of_json(key)[7:19])
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def compute_expected(
        self,
        cases: Sequence[Case],
        block_inputs: Path | None = None,
        draws: int = DRAWS,
        precision: str = "float32",
    ) -> list[Expected]:
        """Return the truth and the draws of each case, in order. Compute and cache missing ones.

        The returned cases have the learning rates that the oracle determined.

        - `block_inputs`: the file that `write_block_inputs` returned; None if no case is a block
        - `draws`: the number of draws
        - `precision`: the precision in which the framework's results are judged
        """
        draw_precision = "float32" if precision == "float64" else precision
        with locks.exclusive(self._lock_path(cases), "computes the expected values"):
            self._store_truths_at_stable_rates(
                [c for c in cases if not self._truth_path(c).is_file()], block_inputs
            )
            truths = [load_arrays(self._truth_path(case)) for case in cases]
            cases_with_rates = [
                replace(case, learning_rate=float(truth["rate"]))
                for case, truth in zip(cases, truths, strict=True)
            ]
            missing_draws = [
                (case, draw)
                for case in cases_with_rates
                for draw in range(draws)
                if not self._draw_path(case, draw, draw_precision).is_file()
            ]
            drawn_arrays = self._run_reference(
                [(c, draw_precision, n) for c, n in missing_draws], block_inputs
            )
            for (case, draw), arrays in zip(missing_draws, drawn_arrays, strict=True):
                distances = _distances_from_truth(load_arrays(self._truth_path(case)), arrays)
                atomic_files.write(
                    self._draw_path(case, draw, draw_precision), json.dumps(distances).encode()
                )
            return [
                Expected(
                    case,
                    truth,
                    tuple(
                        json.loads(
                            self._draw_path(case, n, draw_precision).read_text(encoding="utf-8")
                        )
                        for n in range(draws)
                    ),
                    draw_precision,
                )
                for case, truth in zip(cases_with_rates, truths, strict=True)
            ]

    def write_block_inputs(self, whole_networks: Iterable[Expected]) -> Path:
        """Write the tables from which the inputs of blocks are drawn, and return the file's path.

        The keys in the file are "<weights>/<layer>" (see `xfbench/worker/block_input.py`).
        """
        expected_networks = list(whole_networks)
        name = digests.of_json(
            [self._case_digest_without_rate(expected.case) for expected in expected_networks]
        )
        target = self.folder / f"{name[7:39]}-inputs.npz"
        if not target.is_file():
            tables = {}
            for expected in expected_networks:
                stored = load_arrays(self._tables_path(expected.case))
                tables.update({f"{expected.case.weights}/{k}": v for k, v in stored.items()})
            atomic_files.write(target, partial(_write_npz, tables))
        return target

    def _store_truths_at_stable_rates(self, cases: list[Case], block_inputs: Path | None) -> None:
        """Choose a learning rate for each case, and store the case's truth at this rate.

        The first rate is kept unless the rounding grows too much (see `_has_growing_rounding`).
        Then a lower rate is tried too, and the rate with less rounding is kept.
        """
        best: dict[str, tuple[float, Arrays, dict[str, float]]] = {}
        for divisor in _MOVE_DIVISORS:
            limited_cases = [replace(case, largest_move=LARGEST_MOVE / divisor) for case in cases]
            truths = self._run_reference(
                [(case, "float64", 0) for case in limited_cases], block_inputs
            )
            draw_runs = [
                (replace(case, learning_rate=float(truth["rate"])), "float32", 0)
                for case, truth in zip(cases, truths, strict=True)
            ]
            first_draws = self._run_reference(draw_runs, block_inputs)
            unsettled = []
            for case, truth, draw_arrays in zip(cases, truths, first_draws, strict=True):
                distances = _distances_from_truth(truth, draw_arrays)
                rounding = _median_weight_rounding(truth, distances)
                if case.name not in best or rounding < best[case.name][0]:
                    best[case.name] = rounding, truth, distances
                if divisor != _MOVE_DIVISORS[-1] and _has_growing_rounding(truth, distances):
                    unsettled.append(case)
                else:
                    self._store_case_results(case, *best[case.name][1:])
            cases = unsettled

    def _store_case_results(self, case: Case, truth: Arrays, distances: dict[str, float]) -> None:
        tables = {
            k.partition("/")[2]: build_table(v) for k, v in truth.items() if _is_activation(k)
        }
        values = {k: v for k, v in truth.items() if not _is_activation(k)}
        atomic_files.write(self._tables_path(case), partial(_write_npz, tables))
        atomic_files.write(self._draw_path(case, 0, "float32"), json.dumps(distances).encode())
        atomic_files.write(self._truth_path(case), partial(_write_npz, values))

    def _run_reference(
        self, runs: Sequence[tuple[Case, str, int]], block_inputs: Path | None
    ) -> list[Arrays]:
        """Return the reference's results of `runs` (case, precision, draw), in order.

        A whole network runs in a process of its own. Other cases run in batches.
        """
        workers = min(machine.usable_cores(), _MAX_WORKERS)
        large = [[run] for run in runs if run[0].is_whole_network]
        small = [run for run in runs if not run[0].is_whole_network]
        batches = large + [small[n::workers] for n in range(workers) if small[n::workers]]
        if batches:
            names = ", ".join(dict.fromkeys(f"{c.workload.name} {c.name}" for c, *_ in runs))
            self.say(f"oracle: {len(runs)} trainings in NumPy: {names[:60]}")
        activity = f"oracle: {len(runs)} trainings in NumPy"
        with say_elapsed_time(self.say, activity), processes.command_threads(workers) as pool:
            batch_arrays = list(
                pool.map(lambda batch: self._run_batch(batch, block_inputs), batches)
            )
        arrays_by_key = {key: arrays for batch in batch_arrays for key, arrays in batch.items()}
        return [arrays_by_key[case.key(precision, draw)] for case, precision, draw in runs]

    def _run_batch(
        self, batch: Sequence[tuple[Case, str, int]], block_inputs: Path | None
    ) -> dict[str, Arrays]:
        case = batch[0][0]
        documents = [case.document(precision, draw) for case, precision, draw in batch]
        return jobs.run_cases(
            documents,
            reference.build_reference_request(case.workload.name, case.batch_size, threads=1),
            case.workload,
            self.adapter,
            self.environment,
            block_inputs,
        ).arrays

    def _lock_path(self, cases: Sequence[Case]) -> Path:
        """Return the lock file for computing the results of `cases`.

        Cases from the same networks have the same lock, so no two processes compute them at once.
        """
        networks = {case.origin for case in cases}
        return self.folder / f"{digests.of_json(sorted(networks))[7:19]}.lock"

    def _case_digest_without_rate(self, case: Case) -> str:
        document = replace(case, learning_rate=None, largest_move=LARGEST_MOVE).document("float64")
        del document["nudge_units"]
        return digests.of_json({"origin": case.origin, **document})[7:39]

    def _truth_path(self, case: Case) -> Path:
        return self.folder / f"{self._case_digest_without_rate(case)}.npz"

    def _tables_path(self, case: Case) -> Path:
        return self.folder / f"{self._case_digest_without_rate(case)}-tables.npz"

    def _draw_path(self, case: Case, draw: int, precision: str) -> Path:
        return self.folder / f"{self._case_digest_without_rate(case)}-{precision}-draw{draw}.json"


def _is_activation(quantity: str) -> bool:
    return quantity.startswith("activation/")


def _distances_from_truth(truth: Arrays, arrays: Arrays) -> dict[str, float]:
    return {
        quantity: float(np.linalg.norm(arrays[quantity] - value))
        for quantity, value in truth.items()
        if quantity != "rate" and not _is_activation(quantity)
    }


def _has_growing_rounding(truth: Arrays, distances: dict[str, float]) -> bool:
    """Return whether the rounding of any weight grows over the updates and ends too high.

    - The rounding is relative: a distance from the truth, divided by how far the weight moved.
    - Growing means that the rounding after the last update is more than `_MAX_GROWTH` times the
      rounding after the first.
    - Too high means that SAFETY times the rounding is more than 1 %.
    """
    early = _relative_weight_distances(STEPS[0], truth, distances)
    late = _relative_weight_distances(STEPS[-1], truth, distances)
    return any(
        last > max(_MAX_FINAL_ROUNDING, _MAX_GROWTH * first)
        for first, last in zip(early, late, strict=True)
    )


def _median_weight_rounding(truth: Arrays, distances: dict[str, float]) -> float:
    """Return the median rounding over all weights and the updates in STEPS.

    The rounding is relative: a distance from the truth, divided by how far the weight moved.
    """
    roundings = [x for step in STEPS for x in _relative_weight_distances(step, truth, distances)]
    return float(np.median(roundings)) if roundings else 0.0  # 0: the case makes no update


def _relative_weight_distances(
    step: int, truth: Arrays, distances: dict[str, float]
) -> list[float]:
    names = [k for k in truth if k.startswith(f"step{step}/") and k.endswith("/weight")]
    return [distances[name] / (float(np.linalg.norm(truth[name])) or 1.0) for name in names]


def _write_npz(arrays: Arrays, file: IO[bytes]) -> None:
    np.savez(file, **arrays)  # type: ignore[arg-type]
