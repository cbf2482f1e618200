"""The check of each framework's own dropout, which the cases of whole networks leave out."""

import numpy as np
import pytest

from xfbench.environments import environment
from xfbench.equality import dropout, jobs
from xfbench.model import adapter
from xfbench.planning import experiment

FRAMEWORKS = ("reference", "caffe", "mxnet", "tensorflow", "torch", "ipex", "jax")
RATIOS = (0.4, 0.5)


@pytest.fixture
def run_cases(framework):
    """Return a function that runs the cases of all ratios, and returns the results by name."""

    def run(seed):
        matrix = experiment.build_matrix(framework=framework, workload="lenet", threads=1, steps=1)
        [(cell, _)] = experiment.expand_matrices([matrix])
        documents = [dropout.build_case_document(ratio, seed) for ratio in RATIOS]
        framework_adapter = adapter.load(framework)
        results = jobs.run_cases(
            documents,
            cell.request(1),
            dropout._build_workload(RATIOS[0]),
            framework_adapter,
            environment.ensure_environment(framework_adapter),
            None,
        )
        assert not results.unsupported
        return results.arrays

    return run


@pytest.mark.deep
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_dropout_of_each_framework_is_right(framework, run_cases):
    arrays = run_cases(3)
    for ratio in RATIOS:
        found = arrays[dropout.case_name(ratio)]
        assert dropout.describe_dropout_defect(ratio, 3, found) is None
        same_mask = {**found, **{k: found[k.replace("full1", "full0")] for k in found}}
        defect = dropout.describe_dropout_defect(ratio, 3, same_mask)
        assert defect == "dropout draws the same mask each time"
        doubled = {
            k: v * np.float32(1.01) if k == "full0/probe/weight" else v for k, v in found.items()
        }
        assert "not by" in dropout.describe_dropout_defect(ratio, 3, doubled)
