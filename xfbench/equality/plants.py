"""Plant known discrepancies in real adapters and check that `verify` catches each of them.

A check that has never reported "different" proves nothing. Each mutation in `plants.toml` is a
small change to the source of an adapter. The changed adapter trains in its real framework.
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

from xfbench.base import errors, paths
from xfbench.environments import environment
from xfbench.equality.jobs import CheckError
from xfbench.equality.verify import Verdict, Verifier
from xfbench.model import adapter
from xfbench.planning import experiment

_ADAPTERS = "XFBENCH_ADAPTERS"


class Mutation(BaseModel):
    """A discrepancy that is planted in an adapter.

    - `layer`: the place where `verify` must locate the discrepancy: a layer's name, "data",
      "solver" or "ranks"
    - `ranks`: the number of ranks of the verified cell
    - `solver`: the solver settings that differ from the published ones
    - `file`: the adapter's file that is changed
    - `find`: the text to replace. It must occur exactly once in the file.
    - `replace`: the new text
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

    def mutated_source(self) -> str:
        """Return the text of the changed file.

        Raises UsageError unless `find` occurs exactly once in the adapter's file.
        """
        text = (adapter.load(self.framework).folder / self.file).read_text(encoding="utf-8")
        if text.count(self.find) != 1:
            raise errors.UsageError(
                f"mutation {self.name!r}: its search text occurs {text.count(self.find)} times in "
                f"{self.framework}/{self.file}, not once: update plants.toml"
            )
        return text.replace(self.find, self.replace)


def load_mutations() -> list[Mutation]:
    """Return all mutations in `plants.toml`."""
    file = paths.package_folder("xfbench.equality") / "plants.toml"
    return [
        Mutation(**mutation)
        for mutation in tomllib.loads(file.read_text(encoding="utf-8"))["plant"]
    ]


def select_mutations(name_parts: Sequence[str] | None) -> list[Mutation]:
    """Return the mutations whose name contains one of `name_parts`. None: all mutations.

    Raises UsageError if no mutation matches.
    """
    matches = [
        p
        for p in load_mutations()
        if name_parts is None or any(word in p.name for word in name_parts)
    ]
    if not matches:
        raise errors.UsageError(f"no mutation's name contains {', '.join(name_parts or ())}")
    return matches


def run_self_test(
    mutations: Sequence[Mutation],
    false_alarm_seed_count: int,
    say: Callable[[str], None],
    time_limit: float,
) -> dict[str, Any]:
    """Verify each mutated adapter, then each correct adapter. Return the outcome as JSON data.

    - `false_alarm_seed_count`: number of seeds with which each correct adapter is verified
    - `say`: is called with each progress message
    - `time_limit`: seconds for one launch
    """
    verifier = Verifier(say, time_limit)
    outcomes = []
    for mutation in mutations:
        with applied(mutation):
            try:
                verdict = _verify_mutation_cell(verifier, mutation, 0)
                caught, place = verdict.verdict == "different", verdict.place
            except CheckError as error:
                say(f"{mutation.name}: {error}")
                caught, place = False, None
        layer = place.layer if place else None
        outcomes.append(
            {
                "name": mutation.name,
                "framework": mutation.framework,
                "workload": mutation.workload,
                "caught": caught,
                "layer": mutation.layer,
                "first_layer": layer,
                "located": layer == mutation.layer,
                "likely_cause": place.cause if place else None,
            }
        )
        say(f"{mutation.name}: {'caught' if caught else 'MISSED'} at {layer}")
    trials = alarms = 0
    by_cell = {(p.framework, p.workload, p.ranks, *p.solver.items()): p for p in mutations}
    for mutation in by_cell.values():
        for seed in range(false_alarm_seed_count):
            trials += 1
            verdict = _verify_mutation_cell(verifier, mutation, seed)
            if verdict.verdict != "equal":
                alarms += 1
                say(
                    f"FALSE ALARM: {mutation.framework}, {mutation.workload}, "
                    f"seed {seed}: {verdict}"
                )
    return {"planted": outcomes, "false_alarms": {"trials": trials, "alarms": alarms}}


def _verify_mutation_cell(verifier: Verifier, mutation: Mutation, seed: int) -> Verdict:
    matrix = experiment.build_matrix(
        framework=[mutation.framework],
        workload=[mutation.workload],
        ranks=[mutation.ranks],
        scaling="weak" if mutation.ranks > 1 else None,
        **mutation.solver,
    )
    [(cell, _)] = experiment.expand_matrices([matrix])
    framework_environment = environment.ensure_environment(adapter.load(mutation.framework))
    return verifier.verify(cell.request(1), framework_environment, seed)


@contextmanager
def applied(mutation: Mutation) -> Iterator[None]:
    """Within the `with` block, replace the framework's adapter by a copy with the mutation."""
    previous_folders = os.environ.get(_ADAPTERS)
    with tempfile.TemporaryDirectory(prefix="xfbench-plant-") as root:
        source = mutation.mutated_source()
        folder = Path(root) / mutation.framework
        shutil.copytree(adapter.load(mutation.framework).folder, folder)
        (folder / mutation.file).write_text(source, encoding="utf-8")
        os.environ[_ADAPTERS] = f"{previous_folders}:{root}" if previous_folders else root
        try:
            yield
        finally:
            if previous_folders is None:
                del os.environ[_ADAPTERS]
            else:
                os.environ[_ADAPTERS] = previous_folders
