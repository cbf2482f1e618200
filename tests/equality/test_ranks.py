"""Data parallelism on real frameworks: ranks train like a single process."""

import pytest

from xfbench.environments import environment
from xfbench.equality import certify
from xfbench.equality.jobs import _mean_first_or_most_different
from xfbench.equality.verify import Verdict, Verifier
from xfbench.model import adapter
from xfbench.planning import experiment


@pytest.fixture
def verify():
    def build_verdict(framework, workload, ranks, seed=0, **settings):
        matrix = experiment.build_matrix(
            framework=[framework], workload=[workload], ranks=[ranks], scaling="weak", **settings
        )
        [(cell, _)] = experiment.expand_matrices([matrix])
        framework_environment = environment.ensure_environment(adapter.load(framework))
        return Verifier(print).verify(cell.request(1), framework_environment, seed)

    return build_verdict


@pytest.mark.deep
@pytest.mark.parametrize(
    ("framework", "strategy", "ranks"),
    [
        ("mxnet", "dist_sync", 2),
        ("tensorflow", "mirrored", 2),
        ("torch", "ddp", 2),
        pytest.param("torch", "ddp", 4, marks=pytest.mark.long),  # two cores, four ranks
        ("mxnet", "mpi", 2),
        ("tensorflow", "mpi", 2),
        ("torch", "mpi", 2),
        ("jax", "mpi", 2),
        ("caffe", "mpi", 2),
        pytest.param("caffe", "mpi", 4, marks=pytest.mark.long),
    ],
)
def test_weights_after_each_update_match_a_single_process(verify, framework, strategy, ranks):
    verdict = verify(framework, "lenet", ranks, strategy=[strategy])
    assert verdict.verdict == "equal", verdict.worst
    violation_precisions = {deviation.kind: deviation.precision for deviation in verdict.violations}
    assert violation_precisions == {}
    check_kinds = {check.kind for check in verdict.checks}
    assert "whole network, float32, own weights" in check_kinds
    # MXNet's server adds in float32, and Caffe supports only float32.
    if (framework, strategy) != ("mxnet", "dist_sync") and framework != "caffe":
        assert "whole network, float64, scaled weights" in check_kinds


@pytest.mark.deep
@pytest.mark.parametrize("strategy", ["ddp", pytest.param("mpi", marks=pytest.mark.long)])
def test_compiled_ranks_match_a_single_process(verify, strategy):
    verdict = verify("torch", "lenet", 2, strategy=[strategy], kernel=["inductor"])
    assert verdict.verdict == "equal", verdict.worst
    assert verdict.violations == ()


def test_different_network_on_a_rank_decides_for_all_ranks(monkeypatch, tmp_path):
    """The verdict for a single rank decides; no rank is trained."""
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path))
    matrix = experiment.build_matrix(
        framework=["reference"], workload=["lenet"], ranks=[2], scaling="weak"
    )
    [(cell, _)] = experiment.expand_matrices([matrix])
    request, description = cell.request(1), adapter.load("reference")
    framework_environment = environment.ensure_environment(description)
    monkeypatch.setattr(certify.capabilities, "refusal_reason", lambda request: None)
    single_rank_request = request.model_copy(update={"ranks": 1, "strategy": "none"})
    single_rank_verdict = Verdict(single_rank_request, "different", "it is another network")
    assert (
        certify.store_verdict_unless_unsupported(
            single_rank_verdict, framework_environment, 0
        ).verdict
        == "different"
    )

    class FailingVerifier:
        def verify(self, *_):
            raise AssertionError("the test expects no training")

    verdict = certify.verify_after_single_rank(FailingVerifier(), request, framework_environment, 0)
    assert verdict.verdict == "different"
    assert verdict.reason.startswith("on one rank: ") and "another network" in verdict.reason


def test_framework_without_a_strategy_is_unsupported(verify):
    verdict = verify("reference", "lenet", 2)
    assert verdict.verdict == "unsupported"
    assert "more than one rank" in verdict.reason


def test_joined_result_takes_the_weights_of_a_deviating_rank():
    import numpy as np

    agreeing, deviating = np.array([1.0, 2.0]), np.array([1.0, 2.5])
    assert (
        _mean_first_or_most_different(
            "2 ranks/own:float32:0:step3/conv1/weight", [agreeing, deviating]
        )
        is deviating
    )
    assert (
        _mean_first_or_most_different("2 ranks/own:float32:0:step3/bn1/mean", [agreeing, deviating])
        is agreeing
    )
    losses = _mean_first_or_most_different("2 ranks/own:float32:0:losses", [agreeing, deviating])
    assert losses.tolist() == [1.0, 2.25]


def test_an_unpinned_request_is_verified_for_all_pinnings(cell):
    requests = [cell(affinity=pinning).request(1) for pinning in ("cores", "none", "numa")]
    [chosen] = certify.choose_verified(requests)
    assert chosen.affinity == "none"
    assert certify.choose_verified([*requests[::2]]) == requests[:1]
