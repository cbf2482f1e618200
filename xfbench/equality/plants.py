"""Plants known discrepancies in real adapters and sees whether `verify` catches each one.

A check that never said "different" has proven nothing. Each plant is a small change to the
source of an adapter (`plants.toml`), which then trains in its real framework.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from xfbench import adapter, experiment
from xfbench.base import errors, paths
from xfbench.environments import environment
from xfbench.equality.jobs import CheckError
from xfbench.equality.verify import Verdict, Verifier

_ADAPTERS = "XFBENCH_ADAPTERS"


class Plant(BaseModel):
    """One discrepancy: in `file` of the adapter, `find` (once) becomes `replace`.

    `solver` is what a matrix has about it otherwise than published.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    framework: str
    workload: str
    layer: str
    ranks: int = 1
    solver: dict[str, float] = Field(default_factory=dict)
    file: str = "train.py"
    find: str
    replace: str

    def source(self) -> str:
        """The changed file. Raises UsageError if what is to be changed is not there once."""
        text = (adapter.load(self.framework).folder / self.file).read_text(encoding="utf-8")
        if text.count(self.find) != 1:
            raise errors.UsageError(
                f"plant {self.name!r}: {self.framework}/{self.file} has {text.count(self.find)} "
                f"times what it changes: mend plants.toml"
            )
        return text.replace(self.find, self.replace)


def plants() -> list[Plant]:
    """All of them."""
    file = paths.package_folder("xfbench.equality") / "plants.toml"
    return [Plant(**plant) for plant in tomllib.loads(file.read_text(encoding="utf-8"))["plant"]]


def chosen(names: Sequence[str] | None) -> list[Plant]:
    """Those whose name contains one of the words, all if there is none. Raises UsageError."""
    found = [p for p in plants() if names is None or any(word in p.name for word in names)]
    if not found:
        raise errors.UsageError(f"no plant is called {', '.join(names or ())}")
    return found


def self_test(
    wanted: Sequence[Plant], seeds: int, say: Callable[[str], None], time_limit: float
) -> dict[str, Any]:
    """Verify with each plant, and each right adapter with `seeds` seeds; as `--json` prints it."""
    verifier = Verifier(say, time_limit)
    planted = []
    for plant in wanted:
        with standing(plant):
            try:
                verdict = _verdict(verifier, plant, 0)
                caught, place = verdict.verdict == "different", verdict.place
            except CheckError as error:
                say(f"{plant.name}: {error}")
                caught, place = False, None
        layer = place.layer if place else None
        planted.append(
            {
                "name": plant.name,
                "framework": plant.framework,
                "workload": plant.workload,
                "caught": caught,
                "layer": plant.layer,
                "first_layer": layer,
                "located": layer == plant.layer,
                "likely_cause": place.cause if place else None,
            }
        )
        say(f"{plant.name}: {'caught' if caught else 'MISSED'} at {layer}")
    trials = alarms = 0
    kinds = {(p.framework, p.workload, p.ranks, *p.solver.items()): p for p in wanted}
    for plant in kinds.values():
        for seed in range(seeds):
            trials += 1
            verdict = _verdict(verifier, plant, seed)
            if verdict.verdict != "equal":
                alarms += 1
                say(f"FALSE ALARM: {plant.framework}, {plant.workload}, seed {seed}: {verdict}")
    return {"planted": planted, "false_alarms": {"trials": trials, "alarms": alarms}}


def _verdict(verifier: Verifier, plant: Plant, seed: int) -> Verdict:
    matrix = experiment.matrix(
        framework=[plant.framework],
        workload=[plant.workload],
        ranks=[plant.ranks],
        scaling="weak" if plant.ranks > 1 else None,
        **plant.solver,
    )
    [(cell, _)] = experiment.cells([matrix])
    found = environment.ensure(adapter.load(plant.framework))
    return verifier.verify(cell.request(1), found, seed)


@contextmanager
def standing(plant: Plant) -> Iterator[None]:
    """While inside, the framework's adapter is a copy with the discrepancy in it."""
    before = os.environ.get(_ADAPTERS)
    with tempfile.TemporaryDirectory(prefix="xfbench-plant-") as root:
        source = plant.source()
        folder = Path(root) / plant.framework
        shutil.copytree(adapter.load(plant.framework).folder, folder)
        (folder / plant.file).write_text(source, encoding="utf-8")
        os.environ[_ADAPTERS] = f"{before}:{root}" if before else root
        try:
            yield
        finally:
            if before is None:
                del os.environ[_ADAPTERS]
            else:
                os.environ[_ADAPTERS] = before
