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


# On GoogLeNet one unit that tips over moves float32 gradients by more than the reference's
# own rounding did (docs/equality.md); float64 is the sharp check there.
TIPPING = {("googlenet", "tensorflow"), ("googlenet", "torch")}
LONG_IN_FLOAT64 = {"caffenet", "alexnet", "resnet50"}


def pytest_collection_modifyitems(items):
    """What takes minutes, or float32 cannot decide, is left to `make test-all`."""
    for item in items:
        values = getattr(item, "callspec", None) and item.callspec.params
        if not values or not {"workload", "precision", "framework"} <= set(values):
            continue
        workload, double = values["workload"], values["precision"] == "float64"
        if (
            workload == "resnet101"
            or (double and workload in LONG_IN_FLOAT64)
            or (not double and (workload, values["framework"]) in TIPPING)
        ):
            item.add_marker(pytest.mark.long)
