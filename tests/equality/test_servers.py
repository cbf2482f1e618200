"""Parameter servers that update the weights follow the solver exactly with a single rank.

Nothing can be proven for several ranks. A single rank covers every policy's learning rates,
momentum, decay and multipliers.
"""

import pytest

from xfbench.environments import environment
from xfbench.equality import cases, jobs
from xfbench.equality.oracle import Oracle
from xfbench.equality.verify import judge_cases
from xfbench.model import adapter
from xfbench.planning import experiment
from xfbench.workloads import workloads


@pytest.mark.deep
@pytest.mark.parametrize(
    ("framework", "strategy"), [("mxnet", "dist_async"), ("tensorflow", "parameter_server")]
)
def test_servers_update_single_rank_weights_like_the_oracle(framework, strategy):
    [(cell, _)] = experiment.expand_matrices(
        [experiment.build_matrix(framework=[framework], workload=["lenet"])]
    )
    server_settings = {"strategy": strategy, "strategy_options": (("servers", 2),)}
    request = cell.request(1).model_copy(update=server_settings)
    workload, oracle, description = workloads()["lenet"], Oracle(print), adapter.load(framework)
    expected = oracle.compute_expected(
        cases.own_and_scaled_whole_network_cases(workload, 0), precision="float32"
    )
    assert {expected_case.case.workload.solver.policy for expected_case in expected} == {
        "step",
        "inv",
    }
    results = jobs.run_cases(
        [expected_case.case.document("float32") for expected_case in expected],
        request,
        workload,
        description,
        environment.ensure_environment(description),
    )
    deviations = judge_cases(
        oracle, [(expected_case, "float32") for expected_case in expected], results.arrays
    )
    step_10_deviations = [
        deviation for deviation in deviations if deviation.quantity.startswith("step10/")
    ]
    assert len(step_10_deviations) == 2 * len(workload.network.parameters)
    assert [deviation for deviation in deviations if not deviation.is_within_tolerance] == []
