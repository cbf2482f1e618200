"""Parameter servers: processes that hold the variables and update them.

This uses TensorFlow's older between-graph replication: each rank has its own session and its own
graph of updates, and refers to the servers' variables by name. The newer ParameterServerStrategy
has one coordinator, which hands out the steps of all ranks; here each rank has its own loop.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf

from xfbench.adapters.tensorflow import update
from xfbench.worker import distributed
from xfbench.worker.protocol import Group
from xfbench.workloads.layers import Parameter
from xfbench.workloads.solver import Solver

v1 = tf.compat.v1
_PAUSE_SECONDS = 0.02


def serve(index: int, ranks: int, servers: int, host: str) -> None:
    """Run a parameter server until the process is ended."""
    _create_server("ps", index, ranks, servers, "meeting", host).join()


@lru_cache(maxsize=None)
def _create_server(
    job: str, index: int, ranks: int, servers: int, rendezvous_path: str, host: str
) -> Any:
    """Return this process's server for the other processes, created once."""
    names = [f"{rank}" for rank in range(ranks)] + [f"ps{server}" for server in range(servers)]
    task_name = names[index + (ranks if job == "ps" else 0)]
    addresses = distributed.exchange_addresses(rendezvous_path, task_name, names, host)
    cluster = tf.train.ClusterSpec({"worker": addresses[:ranks], "ps": addresses[ranks:]})
    # A rank connects only to the servers, because another rank may have ended.
    filters = ["/job:ps", f"/job:worker/task:{index}"] if job == "worker" else []
    config = v1.ConfigProto(device_filters=filters)
    return tf.distribute.Server(cluster, job_name=job, task_index=index, config=config)


class ParameterServer:
    """The servers' copies of `parameters`, updated with each rank's gradients on arrival.

    `shapes` are the shapes as stored. Parameters are assigned to the servers in turn.
    """

    instance_count = 0  # in this process: a name cannot be used again

    def __init__(
        self,
        group: Group,
        solver: Solver,
        parameters: dict[str, Parameter],
        shapes: dict[str, Any],
        dtype: Any,
    ) -> None:
        ParameterServer.instance_count += 1
        self.solver, self.first, self.sent = solver, group.rank == 0, 0
        servers, host = group.options["servers"], distributed.host_address(group.multi_node)
        server = _create_server(
            "worker", group.rank, group.size, servers, group.rendezvous_path, host
        )
        with tf.Graph().as_default() as graph:
            with tf.device("/job:ps/task:0"):
                number = self._variable("number", (), tf.int64)
            self.rate = v1.placeholder(dtype, ())
            self.values = [v1.placeholder(dtype, shape) for shape in shapes.values()]
            weights, starts = [], [number.initializer]
            for order, (name, parameter) in enumerate(parameters.items()):
                value = self.values[order]
                with tf.device(f"/job:ps/task:{order % servers}"):
                    weight = self._variable(f"{name}/weight", value.shape, dtype)
                    velocity = self._variable(f"{name}/velocity", value.shape, dtype)
                    starts += [weight.assign(value).op, velocity.initializer]
                    done = update.update_parameter(
                        solver, parameter, weight, velocity, self.rate, value
                    )
                    with tf.control_dependencies([done]):
                        weights.append(weight.read_value())
            with tf.device("/job:ps/task:0"):
                self.next = number.assign_add(1, read_value=True)
            self.start_all = tf.group(*starts)
            self.missing = v1.report_uninitialized_variables()
            self.updated = [*weights, self.next]
        self.session = v1.Session(server.target, graph=graph)

    @staticmethod
    def _variable(name: str, shape: Any, dtype: Any) -> Any:
        return v1.get_variable(
            f"{ParameterServer.instance_count}/{name}",
            shape=shape,
            dtype=dtype,
            initializer=v1.zeros_initializer(),
            use_resource=True,
        )

    def initialize_weights(self, weights: list[np.ndarray]) -> None:
        """Initialise the servers with the first rank's weights; the other ranks wait."""
        if self.first:
            self.session.run(self.start_all, dict(zip(self.values, weights)))
        while len(self.session.run(self.missing)):
            time.sleep(_PAUSE_SECONDS)
        self.number = self.session.run(self.next)

    def update(self, gradients: list[np.ndarray]) -> list[np.ndarray]:
        """Send this rank's gradients and return the current weights.

        Updates are numbered over all ranks; each number is used once and determines the rate.
        """
        fed = dict(zip(self.values, gradients))
        fed[self.rate] = self.solver.learning_rate(int(self.number) - 1)
        results: list[Any] = self.session.run(self.updated, fed)
        *weights, self.number = results
        self.sent += 1
        return weights

    def describe_update_counts(self) -> str:
        """Return the update counts of this rank and of all ranks at its last exchange."""
        return f"{self.sent} of {self.number - 1} updates were this rank's"
