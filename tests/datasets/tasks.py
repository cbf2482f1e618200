"""Tasks for the frameworks' interpreters: one process runs those of all collected tests.

A test names its task as the parameter of the fixture `answer`:

    READ = Task("caffe", "read_lmdb", ("lmdb/pixels",), (5,))

    @pytest.mark.parametrize("answer", [READ], indirect=True)

The task is a function of `interpreter/caffe_tasks.py`. It is given a folder of its own, the
folders of the data sets that it names (`sample_sets.py`), and its arguments.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests import interpreters
from xfbench.base import processes
from xfbench.environments import worker_archive

_INTERPRETER = Path(__file__).with_name("interpreter")


@dataclass(frozen=True)
class Task:
    """A function to call in a framework's interpreter; tasks of one `batch` share a process."""

    framework: str
    function: str
    sets: tuple = ()
    arguments: tuple = ()
    batch: str = ""

    def __str__(self):
        return self.framework


@dataclass(frozen=True)
class Answer:
    """The arrays that a task returned, and the folder with the files that it wrote."""

    arrays: dict
    folder: Path

    def __getitem__(self, name):
        return self.arrays[name]


class TaskError(Exception):
    """A task failed, or ended its process."""


class Answers:
    """Answers by task. The first question to a framework runs all its tasks of that batch.

    `find_set` is a function: the folder of a data set by its name.
    """

    def __init__(self, tasks, find_set, root):
        self.tasks = list(dict.fromkeys(tasks))
        self.find_set = find_set
        self.root = root
        self.outcomes = {}

    def __call__(self, task):
        if task not in self.outcomes:
            group = task.framework, task.batch
            self._run(
                *group,
                [
                    other_task
                    for other_task in self.tasks
                    if (other_task.framework, other_task.batch) == group
                ],
            )
        outcome = self.outcomes[task]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _run(self, framework, batch, tasks):
        folder = self.root / f"{framework}{batch}"
        calls = {}
        for number, task in enumerate(tasks):
            scratch = folder / str(number)
            scratch.mkdir(parents=True)
            try:
                sets = [str(self.find_set(name)) for name in task.sets]
            except Exception as error:
                self.outcomes[task] = error
            else:
                calls[number] = (task.function, [str(scratch), *sets, *task.arguments])
        while calls:
            words = _start(framework, folder, calls)
            ended = [number for number in calls if (folder / f"{number}.begun").exists()]
            # A process that ends before its first task leaves nothing to try again.
            for number in ended or list(calls):
                self.outcomes[tasks[number]] = _read(folder, number, words)
                del calls[number]


def _start(framework, folder, calls):
    """Run these calls in one process; what it says if it fails."""
    document = [(number, *call) for number, call in calls.items()]
    (folder / "tasks.json").write_text(json.dumps(document))
    archive = worker_archive.ensure_worker_archive(framework)
    driver = (_INTERPRETER / "driver.py").read_text()
    try:
        interpreters.run(
            *(framework, driver, _INTERPRETER, archive, framework, folder),
            folder=folder,
            limit=600,
        )
    except processes.CommandError as error:
        return str(error)
    return "the process ended without an answer"


def _read(folder, number, words):
    """The answer of a task, or the error that takes its place."""
    error, arrays = folder / f"{number}.error", folder / f"{number}.npz"
    if error.exists():
        return TaskError(error.read_text())
    if not arrays.exists():
        return TaskError(words)
    with np.load(arrays, allow_pickle=False) as content:
        return Answer(dict(content), folder / str(number))
