"""Generated networks match the oracle in every framework and kernel."""

from dataclasses import replace

import pytest

from tests.equality.families import generate_workloads
from xfbench.environments import environment
from xfbench.equality import cases, jobs, verify
from xfbench.equality.oracle import Oracle
from xfbench.model import adapter, capabilities
from xfbench.planning import experiment
from xfbench.workloads import layers as xl

KERNELS = [
    (framework, kernel)
    for framework in ("caffe", "jax", "mxnet", "tensorflow", "torch")
    for kernel in adapter.load(framework).kernels_on("cpu")
]


def generate_for_kernel(framework, kernel, count):
    """Return generated networks that avoid the kernel's known defects (docs/findings.md)."""
    family = generate_workloads(count)
    if framework == "torch" and kernel in ("channels_last", "inductor"):  # both channels last
        family = [workload for workload in family if not overruns_memory(workload.network)]
        assert len(family) >= count / 3
    return family


def overruns_memory(network):
    """Return whether oneDNN overruns its memory, in strided 1x1 convolutions of few channels."""
    shapes = {"data": network.input_shape, **network.shapes}
    return any(
        layer.kernel == 1 and layer.stride > 1 and shapes[layer.inputs[0]][0] < 16
        for layer in network.layers
        if isinstance(layer, xl.Convolution)
    )


def build_expected(oracle, family, ranks=1):
    """Return the oracle's results for these networks, at weights that make every layer matter."""
    family_cases = []
    for workload in family:
        [_, case] = cases.own_and_scaled_whole_network_cases(workload, 0, ranks)
        name = f"{workload.name} on {ranks}"
        family_cases.append(replace(case, name=name, is_whole_network=False, activations=()))
    return oracle.compute_expected(family_cases)


def list_differences(framework, kernel, oracle, expected):
    """Return a line for each network that differs in this framework, fewest layers first."""
    matrix = experiment.build_matrix(
        framework=[framework],
        workload=["lenet"],
        kernel=[kernel],
        ranks=[expected[0].case.ranks],
        scaling="weak",
    )
    [(cell, _)] = experiment.expand_matrices([matrix])
    description, workload = adapter.load(framework), expected[0].case.workload
    checks = [
        (expected_case, precision)
        for precision in ("float32", "float64")
        if capabilities.refusal_reason(cell.request(1).model_copy(update={"precision": precision}))
        is None
        for expected_case in expected
    ]
    documents = [expected_case.case.document(precision) for expected_case, precision in checks]
    framework_environment = environment.ensure_environment(description)
    results = jobs.run_cases(
        documents, cell.request(1), workload, description, framework_environment
    )
    # MXNet's pooling cannot round the height up and the width down (one network in ten).
    unsupported_names = {
        expected_case.case.name
        for expected_case, precision in checks
        if expected_case.case.key(precision) in results.unsupported
    }
    assert len(unsupported_names) <= max(1, len(expected) / 10)
    differences = {}
    for expected_case, precision in checks:
        if expected_case.case.key(precision) in results.unsupported:
            continue
        deviations = verify.judge_cases(oracle, [(expected_case, precision)], results.arrays)
        outside = [deviation for deviation in deviations if not deviation.is_within_tolerance]
        if outside:
            worst = max(outside, key=lambda deviation: deviation.excess)
            message = f"{worst.quantity} is off by {worst.relative_error:.1e}"
            differences[expected_case.case.workload.network] = (
                f"{precision}: {message} ({worst.tolerance:.1e})"
            )
    return [
        f"{text}: {network.input_shape} {network.layers}"
        for network, text in sorted(
            differences.items(), key=lambda difference: len(difference[0].layers)
        )
    ]


@pytest.fixture(scope="module")
def oracle():
    return Oracle()


@pytest.mark.deep
@pytest.mark.parametrize(("framework", "kernel"), KERNELS)
def test_generated_networks_are_equal(framework, kernel, oracle):
    count = 3 if kernel in ("xla", "inductor") else 8  # these compile each network anew
    family = generate_for_kernel(framework, kernel, count)
    assert list_differences(framework, kernel, oracle, build_expected(oracle, family)) == []


@pytest.mark.deep
@pytest.mark.parametrize("framework", ["mxnet", "tensorflow", "torch"])
def test_two_ranks_match_the_oracle_with_batch_norm_per_rank(framework, oracle):
    """Each rank normalizes by its own part of the batch."""
    workload_layers = [
        (workload, [type(layer) for layer in workload.network.layers])
        for workload in generate_workloads(60)
    ]
    family = [workload for workload, kinds in workload_layers if xl.BatchNorm in kinds][:5]
    assert len(family) == 5
    kernel = adapter.load(framework).default_kernel
    assert (
        list_differences(framework, kernel, oracle, build_expected(oracle, family, ranks=2)) == []
    )


@pytest.mark.long
@pytest.mark.parametrize(("framework", "kernel"), KERNELS)
def test_many_generated_networks_are_equal(framework, kernel, oracle):
    assert (
        list_differences(
            framework,
            kernel,
            oracle,
            build_expected(oracle, generate_for_kernel(framework, kernel, 300)),
        )
        == []
    )


@pytest.mark.deep
def test_generated_networks_are_reproducible_and_use_all_layers():
    family = generate_workloads(30)
    assert family == generate_workloads(60)[:30]
    assert len({workload.network.layers for workload in family}) == 30
    kinds = {type(layer).__name__ for workload in family for layer in workload.network.layers}
    assert kinds >= {"Convolution", "Pooling", "LRN", "BatchNorm", "Concat", "Eltwise", "ReLU"}
