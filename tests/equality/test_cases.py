"""Verification cases: blocks cover the network, and scaled weights make every layer matter."""

from dataclasses import replace

import numpy as np
import pytest

from xfbench.adapters.reference import graph
from xfbench.equality import cases
from xfbench.equality.blocks import cut_into_distinct_overlapping_blocks, isolate_layer
from xfbench.equality.scaled import estimate_mean_squares, scale_weights
from xfbench.worker.input import synthetic_batch
from xfbench.worker.sketch import WIDTH, sketch
from xfbench.workloads import layers as xl
from xfbench.workloads import workloads
from xfbench.workloads.initial import initial_parameters

for_every_workload = pytest.mark.parametrize("name", workloads())
for_small_workloads = pytest.mark.parametrize("name", ["lenet", "convnet", "convnet-quick"])


def kind_and_shape(network, layer):
    """Return a layer's type, settings and input shapes without layer names."""
    bare_layer = replace(layer, name="", inputs=())
    return type(layer), bare_layer, tuple(network.input_shapes(layer))


@for_every_workload
def test_every_layer_is_in_a_block_with_its_shapes(name):
    workload = workloads()[name]
    network = workload.network
    blocks = cut_into_distinct_overlapping_blocks(network, workload.pixels)
    covered_layers = {
        kind_and_shape(block.network, layer) for block in blocks for layer in block.network.layers
    }
    missing = [
        layer.name
        for layer in network.layers
        if kind_and_shape(network, layer) not in covered_layers
    ]
    assert missing == []
    assert len(blocks) > 1


@for_every_workload
def test_block_input_shape_matches_the_network(name):
    workload = workloads()[name]
    for block in cut_into_distinct_overlapping_blocks(workload.network, workload.pixels):
        shape = workload.network.shapes[block.reads]
        assert block.network.input_shape == (*shape, *(1,) * (3 - len(shape)))


@for_every_workload
def test_scaled_network_differs_only_in_its_initial_values(name):
    workload = workloads()[name]
    scaled = scale_weights(workload.network, workload.pixels)
    assert scaled.shapes == workload.network.shapes
    assert [*scaled.parameters] == [*workload.network.parameters]
    for original, scaled_parameter in zip(
        workload.network.parameters.values(), scaled.parameters.values(), strict=True
    ):
        assert replace(original, filler=scaled_parameter.filler) == scaled_parameter


@for_small_workloads
def test_activations_keep_their_size_in_a_scaled_network(name):
    workload = workloads()[name]
    network = scale_weights(workload.network, workload.pixels)
    expected = estimate_mean_squares(network, workload.pixels)
    images, labels = synthetic_batch(replace(workload, network=network), 4, 0)
    outputs = graph.forward(
        network, initial_parameters(network, 0), images, labels, training=True
    ).outputs
    for layer in network.layers:
        if not isinstance(layer, xl.SoftmaxLoss):
            ratio = float(np.mean(outputs[layer.name] ** 2)) / expected[layer.name]
            assert 0.1 < ratio < 10, layer.name


def test_scaled_weights_make_the_lrn_of_convnet_matter():
    workload = workloads()["convnet"]

    def relative_loss_change(network):
        """Return the relative change of the loss if the LRNs' alpha is off by 10 %."""
        changed_layers = tuple(
            replace(layer, alpha=1.1 * layer.alpha) if isinstance(layer, xl.LRN) else layer
            for layer in network.layers
        )
        values = initial_parameters(network, 0)
        images, labels = synthetic_batch(workload, 4, 0)
        original_loss, changed_loss = (
            graph.forward(
                net,
                {key: value.astype(np.float64) for key, value in values.items()},
                images.astype(np.float64),
                labels,
                training=True,
            ).loss
            for net in (network, replace(network, layers=changed_layers))
        )
        return abs(changed_loss - original_loss) / original_loss

    assert relative_loss_change(workload.network) < 1e-8
    assert relative_loss_change(scale_weights(workload.network, workload.pixels)) > 1e-5


def test_single_layer_block_keeps_the_layer_and_its_shapes():
    network = workloads()["googlenet"].network
    for name in ("conv2/norm2", "inception_3a/output", "loss1/loss", "pool3/3x3_s2"):
        layer = next(layer for layer in network.layers if layer.name == name)
        block = isolate_layer(network, name).network
        block_layer = next(candidate for candidate in block.layers if candidate.name == name)
        assert replace(block_layer, inputs=layer.inputs) == layer
        assert block.input_shapes(block_layer) == network.input_shapes(layer)


@for_every_workload
def test_case_names_are_unique_and_learning_rates_change(name):
    workload = workloads()[name]
    all_cases = [
        *cases.own_and_scaled_whole_network_cases(workload, 0),
        *cases.block_cases(workload, 0),
    ]
    assert len({case.name for case in all_cases}) == len(all_cases)
    for case in all_cases:
        solver = case.workload.solver
        rates = {solver.learning_rate(step) for step in range(max(cases.STEPS))}
        assert len(rates) > 3
        assert solver.momentum == workload.solver.momentum
        assert solver.weight_decay == workload.solver.weight_decay


def test_sketch_keeps_distances_and_small_tensors():
    generator = np.random.RandomState(0)
    a, b = generator.standard_normal((2, 64, 3, 37, 11))
    ratio = np.linalg.norm(sketch(a) - sketch(b)) / np.linalg.norm(a - b)
    assert ratio == pytest.approx(1, abs=0.2)
    small_array = generator.standard_normal((WIDTH, 1))
    assert np.array_equal(sketch(small_array), small_array.ravel())


def test_sketch_shows_a_single_wrong_element_in_full():
    a = np.random.RandomState(1).standard_normal(10**6).astype(np.float32)
    b = a.copy()
    b[123_456] += 0.5
    difference = np.linalg.norm(sketch(a) - sketch(b))
    assert difference == pytest.approx(abs(float(b[123_456]) - float(a[123_456])), rel=1e-6)


def test_sketch_shows_two_swapped_elements():
    a = np.arange(10**5, dtype=np.float64)
    b = a.copy()
    b[[7, 90]] = b[[90, 7]]
    assert np.linalg.norm(sketch(a) - sketch(b)) > 50
