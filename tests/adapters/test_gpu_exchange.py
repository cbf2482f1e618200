"""The exchange of strategy mpi on GPUs, shown on CPUs: one message, and the same means."""

import json

import pytest

from tests.adapters.cases import NORMED
from tests.adapters.snippets import run_snippet

pytestmark = pytest.mark.deep
RANKS = """
import numpy as np

class Ranks:
    '''Ranks of which the others have gradients of 0.'''

    messages = 0

    def average_in_place(self, arrays):
        Ranks.messages += len(arrays)
        for array in arrays:
            array /= 2
"""
TORCH = """
import torch
from xfbench.adapters.torch.exchange import MpiExchange

gradients = [torch.rand(4, 3, 2, 2).contiguous(memory_format=torch.channels_last), torch.rand(7)]
expected = [gradient / 2 for gradient in gradients]
exchange = MpiExchange(Ranks())
exchange.average_flattened(gradients)
equal = [torch.equal(a, b) for a, b in zip(gradients, expected)]
again = [gradient.clone() for gradient in gradients]
exchange.average(gradients)
exchange.average_flattened(again)
equal += [torch.equal(a, b) for a, b in zip(gradients, again)]
print(Ranks.messages, all(equal))
"""
JAX = """
import json
from xfbench.adapters.jax import train
from xfbench.worker.input import synthetic_batch
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import workload_from_json
from xfbench.workloads.initial import initial_parameters

workload = workload_from_json(json.load(open("workload.json")))
trainer = train.build(
    workload.network, workload.solver, Options("xla", 1, dropout="identity"), Group()
)
trainer.assign(initial_parameters(workload.network, 0))
batch = trainer.load(*synthetic_batch(workload, 4, 0))
plain = trainer.gradients(batch)
trainer.joined, trainer.through_host = Ranks(), True
halved = trainer.gradients(batch)
equal = [np.array_equal(halved[name], plain[name] / 2) for name in plain]
print(Ranks.messages, all(equal) and set(halved) == set(plain))
"""


def test_pytorch_exchanges_gradients_of_a_gpu_in_one_message(tmp_path):
    # One message for each exchange through the host, two for the exchange on the CPU.
    assert run_snippet("torch", RANKS + TORCH, tmp_path) == ["4", "True"]


def test_jax_exchanges_gradients_of_a_gpu_in_one_message(tmp_path):
    (tmp_path / "workload.json").write_text(json.dumps(NORMED.to_json()))
    assert run_snippet("jax", RANKS + JAX, tmp_path) == ["1", "True"]


LAYOUTS = """
import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef
from xfbench.adapters.tensorflow import graph

def node(op, **attributes):
    made = NodeDef(op=op)
    for name, value in attributes.items():
        made.attr[name].s = value
    return made

nodes = [
    node("Conv2D", data_format=b"NCHW"),
    node("Conv2DBackpropFilter", data_format=b"NCHW"),
    node("MaxPool", data_format=b"NHWC"),
    node("MatMul"),
]
print(*graph.find_convolution_layouts(nodes))
"""


def test_tensorflow_says_in_which_layout_convolutions_ran(tmp_path):
    assert run_snippet("tensorflow", LAYOUTS, tmp_path) == ["NCHW"]
