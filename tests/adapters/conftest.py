"""Fixtures that tests of a session share: framework processes, the reference and launches."""

import functools
import tempfile
from pathlib import Path

import pytest

from tests.adapters import data_sets
from tests.adapters.answers import Answers, collect_cases
from tests.adapters.reference import Reference
from xfbench.execution.launch import LaunchContext
from xfbench.model import adapter
from xfbench.planning import experiment
from xfbench.planning.scheduling import launch_order
from xfbench.session import Session
from xfbench.store.results_folder import Store


@pytest.fixture(scope="session")
def scratch():
    """A folder that is deleted after the session: oracles of large networks take gigabytes."""
    with tempfile.TemporaryDirectory(prefix="xfbench-adapters-") as name:
        yield Path(name)


@pytest.fixture(scope="session")
def reference(scratch):
    """The reference's results for every workload."""
    folder = scratch / "reference"
    folder.mkdir()
    return Reference(folder)


@pytest.fixture(scope="session")
def answers(request, scratch, reference):
    """A function from a case to its answer; only cases of collected tests run."""
    folder = scratch / "answers"
    folder.mkdir()
    return Answers(collect_cases(request.session.items), folder, reference)


@pytest.fixture
def launch_real(tmp_path):
    """A function that runs one launch with these settings and returns its record."""
    return functools.partial(run_launch, tmp_path / "results")


@pytest.fixture(scope="session")
def shared_real_launch(scratch):
    """A function from a framework to the record of a launch with all optional features.

    The launch trains LeNet on one thread, with evaluations, checkpoints and a profile. It uses the
    framework's own reader if there is one. The slow reference trains a few steps only.
    """

    @functools.cache
    def launch_everything(framework):
        settings = {"workload": ["lenet"], "threads": [1], "checkpoints": 2, "profile": True}
        if framework == "reference":
            settings |= {"batch_size": [4], "steps": 4}
        else:
            settings |= {"epochs": 8, "seed": 0}
        if readers := [*adapter.load(framework).readers]:
            digits = data_sets.write_data_set(f"{readers[0]} digits", scratch / "sets")
            settings |= {"data": [str(digits)], "loader": ["native"]}
        return run_launch(scratch / f"{framework} results", framework, **settings)

    return launch_everything


def run_launch(results, framework, **settings):
    """Run one launch with these settings; store its record in `results` and return it."""
    matrix = experiment.build_matrix(framework=[framework], launches=1, **settings)
    folders = experiment.data_folders_by_lookup_key([matrix])
    session = Session(LaunchContext(Store(results), data_folders=folders))
    session.prepare([framework])
    [record] = session.launch(launch_order(experiment.expand_matrices([matrix])))
    return record
