"""What every number of a case should be, and what rounding alone may do to it.

The truth is the `reference` adapter in float64. What float32 rounding does is measured: the
same adapter in float32, once as it is and then with images and weights moved by at most one
unit in the last place, each such draw as likely as any other. Both are kept in the cache by
digest of the case, of the adapter and of the kind of machine.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

import filelock
import numpy as np

from xfbench import adapter, digest, environment, machine, paths, worker_archive
from xfbench.equality import jobs
from xfbench.equality.cases import STEPS, Case
from xfbench.request import Request

Arrays = dict[str, np.ndarray]

DRAWS = 3  # of rounding, for every case
MOST_DRAWS = 40  # for one that these do not explain: units that tip over tip in few draws


@dataclass(frozen=True)
class Expected:
    """A case's truth: sketches by quantity; and per draw the distances of float32 from them."""

    case: Case
    truth: Arrays
    draws: tuple[dict[str, float], ...]

    def rounding(self, quantity: str) -> float:
        """The largest distance among the draws: absolute, of the sketches."""
        return max(draw[quantity] for draw in self.draws)


class Oracle:
    """Runs the reference where the cache has no answer; `say` hears what is being computed."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self.say = say
        self.described = adapter.load("reference")

    @cached_property
    def environment(self) -> environment.Environment:
        return environment.ensure(self.described)

    @cached_property
    def folder(self) -> Path:
        here = machine.describe()
        code = [worker_archive.worker_digest("reference"), here.microarchitecture]
        folder = paths.cache() / "oracle" / digest.of_json(code)[7:19]
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def expected(
        self, cases: Sequence[Case], activations: Path | None = None, draws: int = DRAWS
    ) -> list[Expected]:
        """Truth and draws of each case, in order; the cases come back with their rates set."""
        with filelock.FileLock(self.folder / "lock"):
            missing = [case for case in cases if not self._truth(case).is_file()]
            self._compute([(case, "float64", 0) for case in missing], activations)
            truths = [self._read(self._truth(case)) for case in cases]
            rated = [
                replace(case, rate=float(truth["rate"]))
                for case, truth in zip(cases, truths, strict=True)
            ]
            wanted = [
                (case, "float32", draw)
                for case in rated
                for draw in range(draws)
                if not self._draw(case, draw).is_file()
            ]
            self._compute(wanted, activations)
            return [
                Expected(
                    case,
                    truth,
                    tuple(
                        json.loads(self._draw(case, n).read_text(encoding="utf-8"))
                        for n in range(draws)
                    ),
                )
                for case, truth in zip(rated, truths, strict=True)
            ]

    def activations(self, wholes: Iterable[Expected]) -> Path:
        """One file with the activations of whole networks, keys "<weights>/<layer>"."""
        found = list(wholes)
        name = digest.of_json([self._key(expected.case) for expected in found])
        target = self.folder / f"{name[7:39]}-activations.npz"
        if not target.is_file():
            arrays = {}
            for expected in found:
                with np.load(self._kept(expected.case), allow_pickle=False) as kept:
                    arrays.update({f"{expected.case.weights}/{k}": v for k, v in kept.items()})
            _write(target, partial(_save, arrays))
        return target

    def _compute(self, wanted: list[tuple[Case, str, int]], activations: Path | None) -> None:
        """Run the reference and keep its answers: large cases one by one, small together."""
        large = [[one] for one in wanted if one[0].whole]
        small = [one for one in wanted if not one[0].whole]
        for batch in [*large, *([small] if small else [])]:
            case, precision, draw = batch[0]
            what = f"{case.name}, {precision}" if case.whole else f"{len(batch)} small cases"
            self.say(f"oracle: {case.workload.name if case.whole else ''} {what}")
            results = jobs.check(
                [case.document(precision, draw) for case, precision, draw in batch],
                self._request(case),
                case.workload,
                self.described,
                self.environment,
                activations,
            )
            for case, precision, draw in batch:
                self._keep(case, precision, draw, results.arrays[case.key(precision, draw)])

    def _keep(self, case: Case, precision: str, draw: int, arrays: Arrays) -> None:
        kept = {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith("activation/")}
        values = {k: v for k, v in arrays.items() if not k.startswith("activation/")}
        if precision == "float64":
            _write(self._kept(case), partial(_save, kept))
            _write(self._truth(case), partial(_save, values))
            return
        truth = self._read(self._truth(case))
        distances = {
            quantity: float(np.linalg.norm(values[quantity] - value))
            for quantity, value in truth.items()
            if quantity != "rate"
        }
        _write(self._draw(case, draw), lambda file: file.write(json.dumps(distances).encode()))

    def _request(self, case: Case) -> Request:
        return Request(
            framework=self.described.name,
            environment="own",
            workload=case.workload.name,
            precision="float64",
            kernel=self.described.default_kernel,
            threads=machine.describe().cores,
            global_batch_size=case.batch_size,
            batch_size_per_rank=case.batch_size,
            data="synthetic",
            steps=max(STEPS),
            launch=1,
        )

    def _key(self, case: Case) -> str:
        document = replace(case, rate=None).document("float64")
        return digest.of_json({"origin": case.origin, **document})[7:39]

    def _truth(self, case: Case) -> Path:
        return self.folder / f"{self._key(case)}.npz"

    def _kept(self, case: Case) -> Path:
        return self.folder / f"{self._key(case)}-kept.npz"

    def _draw(self, case: Case, draw: int) -> Path:
        return self.folder / f"{self._key(case)}-draw{draw}.json"

    @staticmethod
    def _read(path: Path) -> Arrays:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)


def _save(arrays: Arrays, file: IO[bytes]) -> None:
    np.savez(file, **arrays)  # type: ignore[arg-type]


def _write(target: Path, content: Callable[[IO[bytes]], Any]) -> None:
    """Write a file whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=target.parent, suffix=".partial")
    with os.fdopen(handle, "wb") as file:
        content(file)
    Path(temporary).replace(target)
