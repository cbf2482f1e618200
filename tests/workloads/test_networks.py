"""The networks are the published ones: every shape, count and multiplier, row by row."""

import json
from math import prod
from pathlib import Path

import pytest

from xfbench.workloads import workload_from_json, workloads

FACTS = json.loads((Path(__file__).parent / "caffe_facts.json").read_text())["networks"]


def test_built_in_workloads_are_the_published_networks():
    assert set(workloads()) == set(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_totals_match_the_published_values(name):
    network, facts = workloads()[name].network, FACTS[name]
    # Caffe keeps a divisor beside each layer's mean and variance: one number more than ours.
    statistics = [p for p in network.parameters.values() if not p.learned]
    assert list(network.input_shape) == facts["input_shape"]
    assert network.learned_count == facts["parameters"]
    assert (
        sum(prod(p.shape) for p in statistics) + len(statistics) // 2
        == facts["batch_norm_statistics"]
    )
    assert network.forward_macs == facts["macs_forward_per_image"]
    assert network.train_macs == facts["macs_train_per_image"]


@pytest.mark.parametrize("name", FACTS)
def test_layers_match_the_published_shapes_and_multipliers(name):
    network = workloads()[name].network
    layers = {layer.name: layer for layer in network.layers}
    rows = [row for row in FACTS[name]["layers"] if row["type"] != "Scale"]
    assert [row["name"] for row in rows] == [layer.name for layer in network.layers]
    for row in rows:
        layer = layers[row["name"]]
        parameters = layer.parameters(network.input_shapes(layer))
        assert list(network.shapes[layer.name]) == row["output_shape"], row["name"]
        assert layer.macs(network.input_shapes(layer)) == row.get("macs", 0), row["name"]
        if row["type"] in ("Convolution", "InnerProduct"):
            layer_parameters = list(parameters.values())
            assert [list(p.shape) for p in layer_parameters] == row["param_shapes"], row["name"]
            assert [p.lr_mult for p in layer_parameters] == row["lr_mult"], row["name"]
            assert [p.decay_mult for p in layer_parameters] == row["decay_mult"], row["name"]
            if "weight_filler" in row:
                filler = row["weight_filler"]
                assert (layer_parameters[0].filler.type, layer_parameters[0].filler.value) == (
                    filler["type"],
                    filler.get("std", 0.0),
                )
                assert layer_parameters[1].filler.value == row["bias_filler"].get("value", 0)


@pytest.mark.parametrize("name", FACTS)
def test_solver_matches_the_published_values(name):
    workload, facts = workloads()[name], FACTS[name]["solver"]
    solver = workload.solver
    assert (solver.base_lr, solver.momentum, solver.weight_decay, solver.policy) == (
        facts["base_lr"],
        facts["momentum"],
        facts["weight_decay"],
        facts["lr_policy"],
    )
    assert workload.batch_size == facts["batch_size"]
    for key in ("gamma", "power"):
        assert getattr(solver, key) == facts.get(key, 0.0)
    if isinstance(facts.get("stepsize"), int):
        assert solver.stepsize == facts["stepsize"]


@pytest.mark.parametrize("name", FACTS)
def test_workload_survives_a_json_round_trip(name):
    workload = workloads()[name]
    assert workload_from_json(json.loads(json.dumps(workload.to_json()))) == workload


def test_caffenet_pools_before_lrn_and_alexnet_after():
    def layer_kinds(name):
        return [type(layer).__name__ for layer in workloads()[name].network.layers]

    assert layer_kinds("caffenet")[2:4] == ["Pooling", "LRN"]
    assert layer_kinds("alexnet")[2:4] == ["LRN", "Pooling"]
