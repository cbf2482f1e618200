"""Plant known discrepancies in real adapters and check that `verify` catches each of them.

A check that has never reported "different" proves nothing. Each planted bug in `plants.toml` is a
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
from xfbench.base.shared_files import write_file
from xfbench.environments import environment
from xfbench.equality import timed_batch
from xfbench.equality.jobs import CheckError
from xfbench.equality.verify import Verdict, Verifier
from xfbench.model import adapter
from xfbench.planning import experiment

_ADAPTERS = "XFBENCH_ADAPTERS"
_CHANGE = {"framework", "file", "find", "replace"}  # the fields that say what is changed


class PlantedBug(BaseModel):
    """A discrepancy that is planted in an adapter.

    - `layer`: the place where `verify` must locate the discrepancy: a layer's name, "data",
      "solver" or "ranks"
    - `ranks`: the number of ranks of the verified cell
    - `batch_size`: the size of the timed batch whose gradients differ; None: small batches differ
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
    batch_size: int | None = None
    solver: dict[str, float] = Field(default_factory=dict)
    file: str = "train.py"
    find: str
    replace: str

    def changed_source(self) -> str:
        """Return the text of the changed file.

        Raises UsageError unless `find` occurs exactly once in the adapter's file.
        """
        text = (adapter.load(self.framework).folder / self.file).read_text(encoding="utf-8")
        if text.count(self.find) != 1:
            raise errors.UsageError(
                f"planted bug {self.name!r}: its search text occurs {text.count(self.find)} times "
                f"in {self.framework}/{self.file}, not once: update plants.toml"
            )
        return text.replace(self.find, self.replace)


def load_planted_bugs() -> list[PlantedBug]:
    """Return all planted bugs in `plants.toml`.

    `same_change_as` in the file names a bug above, whose framework, file and texts are used.
    """
    file = paths.package_folder("xfbench.equality") / "plants.toml"
    bugs: dict[str, PlantedBug] = {}
    for fields in tomllib.loads(file.read_text(encoding="utf-8"))["plant"]:
        name = fields.pop("same_change_as", None)
        change = bugs[name].model_dump(include=_CHANGE) if name else {}
        bugs[fields["name"]] = PlantedBug(**change, **fields)
    return [*bugs.values()]


def select_planted_bugs(name_parts: Sequence[str] | None) -> list[PlantedBug]:
    """Return the planted bugs whose name contains one of `name_parts`. None: all of them.

    Raises UsageError if no name matches.
    """
    matches = [
        bug
        for bug in load_planted_bugs()
        if name_parts is None or any(word in bug.name for word in name_parts)
    ]
    if not matches:
        raise errors.UsageError(f"no planted bug's name contains {', '.join(name_parts or ())}")
    return matches


def run_self_test(
    planted_bugs: Sequence[PlantedBug],
    false_alarm_seed_count: int,
    say: Callable[[str], None],
    time_limit: float,
) -> dict[str, Any]:
    """Verify each changed adapter, then each correct adapter. Return the outcome as JSON data.

    - `false_alarm_seed_count`: number of seeds with which each correct adapter is verified
    - `say`: is called with each progress message
    - `time_limit`: seconds for one launch
    """
    verifier = Verifier(say, time_limit)
    outcomes = []
    for planted_bug in planted_bugs:
        with applied(planted_bug):
            try:
                verdict = _verify_planted_bug_cell(verifier, planted_bug, 0)
                caught, place = verdict.verdict == "different", verdict.place
            except CheckError as error:
                say(f"{planted_bug.name}: {error}")
                caught, place = False, None
        layer = place.layer if place else None
        outcomes.append(
            {
                "name": planted_bug.name,
                "framework": planted_bug.framework,
                "workload": planted_bug.workload,
                "caught": caught,
                "layer": planted_bug.layer,
                "first_layer": layer,
                "located": layer == planted_bug.layer,
                "likely_cause": place.cause if place else None,
            }
        )
        say(f"{planted_bug.name}: {'caught' if caught else 'MISSED'} at {layer}")
    trials = alarms = 0
    by_cell = {
        (bug.framework, bug.workload, bug.ranks, *bug.solver.items()): bug for bug in planted_bugs
    }
    for planted_bug in by_cell.values():
        for seed in range(false_alarm_seed_count):
            trials += 1
            verdict = _verify_planted_bug_cell(verifier, planted_bug, seed)
            if verdict.verdict != "equal":
                alarms += 1
                say(
                    f"FALSE ALARM: {planted_bug.framework}, {planted_bug.workload}, "
                    f"seed {seed}: {verdict}"
                )
    return {"planted": outcomes, "false_alarms": {"trials": trials, "alarms": alarms}}


def _verify_planted_bug_cell(verifier: Verifier, planted_bug: PlantedBug, seed: int) -> Verdict:
    matrix = experiment.build_matrix(
        framework=[planted_bug.framework],
        workload=[planted_bug.workload],
        ranks=[planted_bug.ranks],
        scaling="weak" if planted_bug.ranks > 1 else None,
        **planted_bug.solver,
    )
    [(cell, _)] = experiment.expand_matrices([matrix])
    framework_environment = environment.ensure_environment(adapter.load(planted_bug.framework))
    verdict = verifier.verify(cell.request(1), framework_environment, seed)
    batch_size = planted_bug.batch_size
    if batch_size is None or verdict.verdict != "equal":
        return verdict
    return timed_batch.verify_batch_sizes(
        verifier, cell.request(1), framework_environment, [batch_size], seed
    )[batch_size]


@contextmanager
def applied(planted_bug: PlantedBug) -> Iterator[None]:
    """Within the `with` block, replace the framework's adapter by a copy with the planted bug."""
    previous_folders = os.environ.get(_ADAPTERS)
    with tempfile.TemporaryDirectory(prefix="xfbench-plant-") as root:
        source = planted_bug.changed_source()
        folder = Path(root) / planted_bug.framework
        shutil.copytree(adapter.load(planted_bug.framework).folder, folder)
        write_file(folder / planted_bug.file, source)
        os.environ[_ADAPTERS] = f"{previous_folders}:{root}" if previous_folders else root
        try:
            yield
        finally:
            if previous_folders is None:
                del os.environ[_ADAPTERS]
            else:
                os.environ[_ADAPTERS] = previous_folders
