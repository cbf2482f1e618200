"""Traces of real frameworks, each made once a session: real training, cached environments."""

import functools

import numpy as np
import pytest

from xfbench import adapter, environment, experiment, tracing


@pytest.fixture(scope="session")
def trace(tmp_path_factory):
    """A function that traces one framework on one workload and gives the arrays by name.

    Batch 2, seed 0, one update, two threads, unless told otherwise.
    """
    folder = tmp_path_factory.mktemp("traces")
    ready = functools.cache(lambda name: environment.ensure(adapter.load(name)))

    @functools.lru_cache(maxsize=3)  # the reference twice, and what is compared with it
    def make(framework, workload, precision="float32", threads=2, again=0, steps=1, keep=None):
        matrix = experiment.matrix(
            framework=[framework],
            workload=[workload],
            precision=[precision],
            threads=[threads],
            batch_size=[2],
            steps=steps,
            data="synthetic",
        )
        [(cell, _)] = experiment.cells([matrix])
        output = folder / "trace.npz"
        tracing.trace_cell(cell, adapter.load(framework), ready(framework), output, 900, keep)
        with np.load(output, allow_pickle=False) as arrays:
            found = dict(arrays)
        output.unlink()
        return found

    return make


def distance(value, truth):
    """Relative distance in the norm; absolute where the truth is zero but for rounding."""
    value, truth = np.asarray(value, np.float64), np.asarray(truth, np.float64)
    size = np.linalg.norm(truth)
    difference = np.linalg.norm(value - truth)
    return difference / size if size > 1e-10 else difference


def pytest_collection_modifyitems(items):
    """What takes minutes and shows little that the other rows do not is left to `make test-all`."""
    for item in items:
        values = getattr(item, "callspec", None) and item.callspec.params
        if not values or not {"workload", "precision"} <= set(values):
            continue
        if values["workload"] == "resnet101" or (
            values["precision"] == "float64"
            and values["workload"] in ("caffenet", "alexnet", "googlenet", "resnet50")
        ):
            item.add_marker(pytest.mark.long)
