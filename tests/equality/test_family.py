"""Generated networks in every framework and kernel: what no chosen network would have shown."""

from dataclasses import replace

import pytest

from tests.equality.families import generated
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


def generated_for(framework, kernel, count):
    """Generated networks without what is known to be wrong in this kernel (docs/findings.md)."""
    family = generated(count)
    if (framework, kernel) == ("torch", "channels_last"):
        family = [workload for workload in family if not overruns_memory(workload.network)]
        assert len(family) >= count / 3
    return family


def overruns_memory(network):
    """Whether oneDNN writes outside its memory: strided 1x1 convolutions of few channels."""
    shapes = {"data": network.input_shape, **network.shapes}
    return any(
        layer.kernel == 1 and layer.stride > 1 and shapes[layer.inputs[0]][0] < 16
        for layer in network.layers
        if isinstance(layer, xl.Convolution)
    )


def expected_of(oracle, family, ranks=1):
    """What is expected of these networks, at weights that make every layer matter."""
    found = []
    for workload in family:
        [_, case] = cases.whole_network_cases(workload, 0, ranks)
        name = f"{workload.name} on {ranks}"
        found.append(replace(case, name=name, is_whole_network=False, activations=()))
    return oracle.expected(found)


def differing(framework, kernel, oracle, expected):
    """The networks that differ in this framework, as lines, the one with fewest layers first."""
    matrix = experiment.matrix(
        framework=[framework],
        workload=["lenet"],
        kernel=[kernel],
        ranks=[expected[0].case.ranks],
        scaling="weak",
    )
    [(cell, _)] = experiment.cells([matrix])
    described, one = adapter.load(framework), expected[0].case.workload
    wanted = [
        (each, precision)
        for precision in ("float32", "float64")
        if capabilities.refusal_reason(cell.request(1).model_copy(update={"precision": precision}))
        is None
        for each in expected
    ]
    documents = [each.case.document(precision) for each, precision in wanted]
    found = environment.ensure(described)
    results = jobs.run_cases(documents, cell.request(1), one, described, found)
    # MXNet's pooling cannot round an image's height up and its width down: one network in ten.
    left = {each.case.name for each, p in wanted if each.case.key(p) in results.unsupported}
    assert len(left) <= max(1, len(expected) / 10)
    wrong = {}
    for each, precision in wanted:
        if each.case.key(precision) in results.unsupported:
            continue
        deviations = verify.judge_cases(oracle, [(each, precision)], results.arrays)
        outside = [d for d in deviations if not d.is_within_tolerance]
        if outside:
            first = max(outside, key=lambda d: d.excess)
            what = f"{first.quantity} is off by {first.relative_error:.1e}"
            wrong[each.case.workload.network] = f"{precision}: {what} ({first.tolerance:.1e})"
    return [
        f"{text}: {network.input_shape} {network.layers}"
        for network, text in sorted(wrong.items(), key=lambda item: len(item[0].layers))
    ]


@pytest.fixture(scope="module")
def oracle():
    return Oracle()


@pytest.mark.deep
@pytest.mark.parametrize(("framework", "kernel"), KERNELS)
def test_generated_networks_are_equal(framework, kernel, oracle):
    count = 3 if kernel in ("xla", "inductor") else 8  # these compile each network anew
    family = generated_for(framework, kernel, count)
    assert differing(framework, kernel, oracle, expected_of(oracle, family)) == []


@pytest.mark.deep
@pytest.mark.parametrize("framework", ["mxnet", "tensorflow", "torch"])
def test_two_ranks_match_the_oracle_with_batch_norm_per_rank(framework, oracle):
    """Networks with batch norm: each rank normalises by its own part of the batch."""
    layers = [(w, [type(layer) for layer in w.network.layers]) for w in generated(60)]
    family = [workload for workload, kinds in layers if xl.BatchNorm in kinds][:5]
    assert len(family) == 5
    kernel = adapter.load(framework).default_kernel
    assert differing(framework, kernel, oracle, expected_of(oracle, family, ranks=2)) == []


@pytest.mark.long
@pytest.mark.parametrize(("framework", "kernel"), KERNELS)
def test_many_generated_networks_are_equal(framework, kernel, oracle):
    assert (
        differing(
            framework, kernel, oracle, expected_of(oracle, generated_for(framework, kernel, 300))
        )
        == []
    )


@pytest.mark.deep
def test_generated_networks_are_reproducible_and_use_all_layers():
    family = generated(30)
    assert [w.network for w in family] == [w.network for w in generated(60)]
    assert len({w.network.layers for w in family}) == 30
    kinds = {type(layer).__name__ for w in family for layer in w.network.layers}
    assert kinds >= {"Convolution", "Pooling", "LRN", "BatchNorm", "Concat", "Eltwise", "ReLU"}
