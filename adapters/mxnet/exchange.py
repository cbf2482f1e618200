"""The update of weights in MXNet, and the exchange of gradients between ranks.

A parameter server that updates weights loads this module while MXNet is still being imported.
Therefore code that runs on a server imports its names from MXNet's submodules.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import ndarray as nd
from mxnet.optimizer import Optimizer

from xfbench.worker.mpi import AllReduce
from xfbench.worker.protocol import Group
from xfbench.workloads.solver import Solver


def create_averaging_exchange(group: Group) -> Any:
    """Return the exchange, whose method `mean` averages gradients over the ranks.

    Return None if the strategy is neither "dist_sync" nor "mpi".
    """
    joins = {"dist_sync": _Server, "mpi": _AllReduce}
    return joins[group.strategy](group) if group.strategy in joins else None


@lru_cache(maxsize=None)
def _connect_to_server(strategy: str) -> Any:
    """Return the connection to the parameter servers, opened once.

    A process that opens a second connection blocks forever.
    """
    return mx.kvstore.create(strategy)


class _Server:
    """The exchange that averages gradients over the ranks through parameter servers."""

    instance_count = 0  # in this process. The number is part of the keys, so that no key is reused

    def __init__(self, group: Group) -> None:
        _Server.instance_count += 1
        self.size, self.prefix = group.size, f"{_Server.instance_count}/"
        self.store = _connect_to_server(group.strategy)
        self.overlap = group.options["overlap"] == "on"
        self.initialized_keys: set[str] = set()

    def mean(self, gradients: dict[str, Any]) -> None:
        """Replace each gradient by its mean over the ranks, in place."""
        if not self.overlap:
            nd.waitall()
        for order, name in enumerate(gradients):
            gradient, key = gradients[name], self.prefix + name
            if key not in self.initialized_keys:
                self.store.init(key, nd.zeros_like(gradient))
                self.initialized_keys.add(key)
            self.store.push(key, gradient, priority=-order)
            self.store.pull(key, out=gradient, priority=-order)
            gradient /= self.size


class _AllReduce:
    """The exchange that averages gradients over the ranks by MPI."""

    def __init__(self, group: Group) -> None:
        self.ranks = AllReduce(group)

    def mean(self, gradients: dict[str, Any]) -> None:
        """Replace each gradient by its mean over the ranks, in place."""
        arrays = [gradient.asnumpy() for gradient in gradients.values()]
        self.ranks.average_in_place(arrays)
        for gradient, mean in zip(gradients.values(), arrays):
            gradient[:] = mean


class SGD(Optimizer):  # type: ignore[misc]
    """MXNet's SGD with momentum, called for one parameter at a time.

    - `mx.optimizer.SGD` updates four parameters at a time with another kernel, which is several
      times slower.
    - The float64 update is implemented here, because MXNet's kernels take the learning rate in
      float32.
    - LARS is implemented here, because MXNet's own LARS excludes biases. With LARS, `update` adds
      the weight decay to the gradient, so MXNet's kernel must add none.
    """

    def __init__(self, solver: Solver) -> None:
        super().__init__(learning_rate=solver.base_lr, wd=solver.weight_decay)
        self.momentum, self.trust = solver.momentum, solver.lars

    def create_state(self, index: int, weight: Any) -> Any:
        return nd.zeros_like(weight)

    def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        lr, wd = self._get_lr(index), self._get_wd(index)
        if self.trust:
            grad, wd = _lars_gradient(self.trust, wd, weight, grad), 0.0
        if weight.dtype == np.float32:
            nd.sgd_mom_update(weight, grad, state, lr, self.momentum, wd, out=weight)
        else:
            state *= self.momentum
            state -= lr * (grad + wd * weight)
            weight += state


def _lars_gradient(trust: float, wd: float, weight: Any, grad: Any) -> Any:
    """Return the gradient plus weight decay `wd`, multiplied by the trust ratio of LARS."""
    size, slope = _norm(weight), _norm(grad)
    is_scaled = (size > 0) * (slope > 0)
    factor = trust * size / (slope + wd * size + (1 - is_scaled))
    return nd.broadcast_mul(grad + wd * weight, nd.where(is_scaled, factor, nd.ones_like(factor)))


def _norm(array: Any) -> Any:
    """Return the Euclidean norm, computed by BLAS.

    MXNet's own norm adds the elements one after another, so its fifth digit is wrong.
    """
    flat = array.reshape((-1,))
    return nd.sqrt(nd.dot(flat, flat))


class _AtServer(SGD):
    """SGD on a parameter server, which updates a parameter as soon as a rank sends its gradient.

    `tensors` has the parameters by their keys on the servers.
    """

    def __init__(self, solver: Solver, tensors: dict[int, Any]) -> None:
        super().__init__(solver)
        self.solver = solver
        self.lr_mult = {key: tensor.lr_mult for key, tensor in tensors.items()}
        self.wd_mult = {key: tensor.wd_mult for key, tensor in tensors.items()}

    def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        self._update_count(index)
        done = self._index_update_count[index] - 1
        self.set_learning_rate(self.solver.learning_rate(done))
        super().update(index, weight, grad, state)


class UpdatingServer:
    """A rank's connection to the parameter servers, which store the weights and update them.

    The servers update when a rank's gradients arrive, without waiting for other ranks.
    """

    key_count = 0  # keys used in this process. The servers accept a key only once

    def __init__(self, group: Group) -> None:
        self.store = _connect_to_server(group.strategy)
        self.overlap = group.options["overlap"] == "on"
        self.tensors: dict[int, Any] = {}

    def send_weights_and_do_first_update(self, tensors: list[Any], solver: Solver) -> None:
        """Send the first rank's weights and the optimiser to the servers, and update once.

        All ranks must call this method. If the update fails on a server, the server only prints a
        message and continues. Therefore this method raises RuntimeError if the update changed no
        weight.
        """
        self.tensors = dict(enumerate(tensors, UpdatingServer.key_count))
        UpdatingServer.key_count += len(tensors)
        if self.store.rank == 0:
            self.store.set_optimizer(_AtServer(solver, self.tensors))
        self.store.init(list(self.tensors), [tensor.data() for tensor in tensors])
        before = [tensor.data().copy() for tensor in tensors]
        self.update()
        if all((old == tensor.data()).min().asscalar() for old, tensor in zip(before, tensors)):
            raise RuntimeError("the parameter server does not update: see its output")

    def update(self) -> None:
        """Send this rank's gradients to the servers and read the updated weights."""
        if not self.overlap:
            nd.waitall()
        for key, tensor in self.tensors.items():
            self.store.push(key, tensor.grad(), priority=-key)
            self.store.pull(key, out=tensor.data(), priority=-key)
