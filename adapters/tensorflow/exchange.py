"""Parameter servers of TensorFlow: processes that store the weights and update them.

Each rank has its own training loop. TensorFlow's newer ParameterServerStrategy does not allow this,
because one coordinator hands out the steps of all ranks. This module therefore uses the older
between-graph replication:

- Each rank has its own session and its own graph of updates.
- The graphs of all ranks contain the same variables, which are stored on the servers. A variable is
  identified by its name.
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
    """Run parameter server number `index` until the process is ended.

    - `ranks`: number of ranks.
    - `servers`: number of parameter servers.
    - `host`: address of this server's host.
    """
    _create_server("ps", index, ranks, servers, "meeting", host).join()


@lru_cache(maxsize=None)
def _create_server(
    job: str, index: int, ranks: int, servers: int, rendezvous_path: str, host: str
) -> Any:
    """Return the `tf.distribute.Server` of this process, created once.

    - `job`: "ps" for a parameter server, "worker" for a rank.
    - `index`: this process's number among the parameter servers or among the ranks.
    - `rendezvous_path`: prefix of the files in which the processes exchange their addresses.
    - `host`: address of this process's host.
    """
    names = [f"{rank}" for rank in range(ranks)] + [f"ps{server}" for server in range(servers)]
    task_name = names[index + (ranks if job == "ps" else 0)]
    addresses = distributed.exchange_addresses(rendezvous_path, task_name, names, host)
    cluster = tf.train.ClusterSpec({"worker": addresses[:ranks], "ps": addresses[ranks:]})
    # A rank connects only to the servers, because another rank may have ended.
    filters = ["/job:ps", f"/job:worker/task:{index}"] if job == "worker" else []
    # The exchange runs on CPUs. Without this, it would take the memory of all visible GPUs.
    config = v1.ConfigProto(device_filters=filters, device_count={"GPU": 0})
    return tf.distribute.Server(cluster, job_name=job, task_index=index, config=config)


def _server_device(number: int) -> str:
    return f"/job:ps/task:{number}/device:CPU:0"


class ParameterServer:
    """A rank's connection to the parameter servers, which store the weights and update them.

    The weights are on the servers' CPUs, whatever device the ranks train on.

    The servers update when a rank's gradients arrive, without waiting for other ranks. Parameter
    number n is stored on server number n modulo the number of servers. `shapes` has the shape of
    each parameter in TensorFlow's layout, by parameter name.
    """

    instance_count = 0  # in this process. The number makes the names of variables unique

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
            with tf.device(_server_device(0)):
                number = self._variable("number", (), tf.int64)
            self.rate = v1.placeholder(dtype, ())
            self.values = [v1.placeholder(dtype, shape) for shape in shapes.values()]
            weights, starts = [], [number.initializer]
            for order, (name, parameter) in enumerate(parameters.items()):
                value = self.values[order]
                with tf.device(_server_device(order % servers)):
                    weight = self._variable(f"{name}/weight", value.shape, dtype)
                    velocity = self._variable(f"{name}/velocity", value.shape, dtype)
                    starts += [weight.assign(value).op, velocity.initializer]
                    done = update.update_parameter(
                        solver, parameter, weight, velocity, self.rate, value
                    )
                    with tf.control_dependencies([done]):
                        weights.append(weight.read_value())
            with tf.device(_server_device(0)):
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
        """Send the first rank's `weights` to the servers.

        On any other rank, wait until the servers have the weights of the first rank.
        """
        if self.first:
            self.session.run(self.start_all, dict(zip(self.values, weights)))
        while len(self.session.run(self.missing)):
            time.sleep(_PAUSE_SECONDS)
        self.number = self.session.run(self.next)

    def update(self, gradients: list[np.ndarray]) -> list[np.ndarray]:
        """Send this rank's gradients to the servers and return the updated weights.

        The updates of all ranks are numbered in one sequence. The number of an update determines
        its learning rate.
        """
        fed = dict(zip(self.values, gradients))
        fed[self.rate] = self.solver.learning_rate(int(self.number) - 1)
        results: list[Any] = self.session.run(self.updated, fed)
        *weights, self.number = results
        self.sent += 1
        return weights

    def describe_rank_share_of_updates(self) -> str:
        """Return a sentence with the numbers of updates by this rank and by all ranks.

        Updates after this rank's last update are not counted.
        """
        return f"{self.sent} of {self.number - 1} updates were this rank's"
