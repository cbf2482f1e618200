"""Gradients that a case reads from the first update, the program that launches time."""

from dataclasses import replace

import numpy as np
import pytest

from xfbench.equality import cases
from xfbench.worker import check
from xfbench.worker.protocol import Group, Options
from xfbench.worker.sketch import sketch
from xfbench.workloads import workloads


class Trainer:
    """Updates weights with a gradient of 1.5 everywhere. Its other program has the gradient 0."""

    def __init__(self, network, solver, options, group):
        self.network, self.solver = network, solver

    def assign(self, parameters):
        self.values = dict(parameters)

    def load(self, images, labels):
        return images, labels

    def gradients(self, batch):
        return {name: np.zeros_like(value) for name, value in self.values.items()}

    def step(self, batch):
        rate = self.solver.learning_rate(0)
        for name, parameter in self.network.parameters.items():
            change = np.float32(rate * parameter.lr_mult * 1.5)
            self.values[name] = self.values[name] - change

    def wait_for_loss(self):
        return 2.3

    def parameters(self):
        return self.values

    def runtime_info(self):
        return {"kernel": "plain", "kernel_evidence": []}


@pytest.mark.parametrize("name", ["conv1/weight", "conv1/bias"])
def test_gradients_of_a_timed_batch_are_those_of_the_update(tmp_path, name):
    lenet = workloads()["lenet"]
    case = cases.own_and_scaled_whole_network_cases(lenet, 0)[0]
    document = replace(case, timed_batch_size=8).document("float32")
    output = tmp_path / "output.npz"
    options = Options("plain", 1, dropout="identity")
    check.run_cases([document], options, Trainer, Group(), None, output)
    with np.load(output) as arrays:
        gradient = arrays[f"{document['name']}:gradient/{name}"]
    truth = np.full(lenet.network.parameters[name].shape, 1.5)
    assert gradient == pytest.approx(sketch(truth), rel=1e-6)
