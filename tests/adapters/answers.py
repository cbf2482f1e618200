"""Run the cases of a session in the frameworks' interpreters, in as few processes as possible."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.adapters import data_sets
from tests.adapters.cases import WORKLOADS, Case
from xfbench.base import processes
from xfbench.environments import environment, worker_archive
from xfbench.model import adapter

INSIDE = Path(__file__).parent / "inside.py"
TIME_LIMIT = 1000  # seconds; less than the time limit of a test


@dataclass(frozen=True)
class Answer:
    """The answer to a case: facts by name, and the file of its arrays."""

    facts: dict
    path: Path

    @property
    def arrays(self):
        """The arrays by name, read from the file at each access."""
        with np.load(self.path, allow_pickle=False) as arrays:
            return dict(arrays)


class Answers:
    """A function from a case to its answer.

    The first case of a process runs all cases of that process.
    """

    def __init__(self, cases, folder, reference):
        self.cases, self.folder, self.reference = cases, folder, reference
        self.outcomes = {}

    def __call__(self, case):
        if case not in self.outcomes:
            process_cases = [
                candidate for candidate in self.cases if candidate.process == case.process
            ]
            self._run(list(dict.fromkeys([*process_cases, case])))
        outcome = self.outcomes[case]
        if isinstance(outcome, str):
            pytest.fail(outcome, pytrace=False)
        return outcome

    def _run(self, cases):
        # JAX cannot switch float64 off again, so these cases come last.
        cases = sorted(cases, key=lambda case: case.precision == "float64")
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()
        documents = [self._document(case, folder / str(n)) for n, case in enumerate(cases)]
        (folder / "job.json").write_text(json.dumps(documents))
        # If the test is interrupted now, no other test starts the process again.
        self.outcomes |= dict.fromkeys(cases, "the test that started its process was interrupted")
        process_end = _run_process(cases[0], folder)
        unfinished = None
        for number, case in enumerate(cases):
            path = folder / str(number) / "answer.json"
            if path.exists():
                facts = json.loads(path.read_text())
                error = facts.pop("error")
                self.outcomes[case] = error or Answer(facts, path.with_suffix(".npz"))
            elif unfinished is None:
                unfinished = case
                self.outcomes[case] = f"its process ended while {case} was running: {process_end}"
            else:
                self.outcomes[case] = f"it did not run: {self.outcomes[unfinished]}"

    def _document(self, case, folder):
        """Return what `inside.py` reads of a case."""
        document = {
            **asdict(case),
            "workload": WORKLOADS[case.workload].to_json(),
            "answer": str(folder),
        }
        if case.action == "train":
            document["truth"] = str(self.reference.truth(case.workload))
        if case.action == "read":
            document["format"] = case.data.split()[0]
            document["folder"] = str(
                data_sets.write_data_set(case.data, self.folder.parent / "sets")
            )
        return document


def collect_cases(items):
    """Return the cases that are parameters of tests."""
    parameters = [item.callspec.params for item in items if hasattr(item, "callspec")]
    values = [value for parameter_set in parameters for value in parameter_set.values()]
    return [value for value in values if isinstance(value, Case)]


def _run_process(case, folder):
    """Run the job in `folder` in the process that `case` needs; return why it ended early."""
    framework_adapter = adapter.load(case.framework)
    framework_environment = environment.ensure_environment(framework_adapter)
    variables = framework_environment.variables(framework_adapter, case.kernel, case.threads)
    worker = str(worker_archive.ensure_worker_archive(case.framework))
    path = [worker, *filter(None, [variables.get("PYTHONPATH")])]
    try:
        processes.output(
            [str(framework_environment.interpreter), str(INSIDE), "job.json"],
            environment={**variables, "PYTHONPATH": ":".join(path)},
            cwd=folder,
            timeout=TIME_LIMIT,
        )
    except processes.CommandError as error:
        return str(error)
    return "it reported no error"
