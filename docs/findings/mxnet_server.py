"""MXNet 1.9.1: a parameter server prints the error of an update that fails, and continues.

Run with MXNet's interpreter. Starts a scheduler, a server and a worker; every update fails. The
worker gets no error, and all processes end with status 0.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

from mxnet.optimizer import Optimizer

CODE = {"scheduler": "import mxnet", "server": "import mxnet"}
CODE["worker"] = "import mxnet_server; mxnet_server.train()"


class FailingOptimizer(Optimizer):
    """The optimizer that the worker sends to the server."""

    def update(self, index, weight, grad, state):
        raise ValueError("this update is wrong")


def train():
    """Push five updates; this runs in the worker."""
    import mxnet as mx

    store = mx.kvstore.create("dist_async")
    store.set_optimizer(FailingOptimizer())
    weight = mx.nd.ones(3)
    store.init(0, weight)
    for _ in range(5):
        store.push(0, mx.nd.ones(3))
        store.pull(0, out=weight)
    print("the worker, after 5 updates:", weight.asnumpy(), flush=True)


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port)}
    variables |= {"DMLC_NODE_HOST": "127.0.0.1", "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1"}
    variables["PYTHONPATH"] = str(Path(__file__).resolve().parent)
    processes = {
        role: subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, **variables, "DMLC_ROLE": role}
        )
        for role, code in CODE.items()
    }
    for role, process in processes.items():
        print(role, "ended with exit status", process.wait(timeout=60))
