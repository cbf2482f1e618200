"""The trainer of MXNet: one symbol graph, hybridized by Gluon, channels first.

Some parts are not MXNet's own:

- LRN is composed of other operations, because the gradient of MXNet's LRN is wrong under oneDNN.
- Running averages are computed outside the graph, because MXNet averages the biased variance.
- `exchange.SGD` implements the float64 update, because MXNet's takes the learning rate in float32.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any, Callable

import mxnet as mx
import numpy as np

from xfbench.adapters.mxnet import checkpoint, device, exchange, profile
from xfbench.worker import observe
from xfbench.worker.protocol import Group, Options, Profile, Unsupported
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

LARS = True

# False uses MXNet's own LRN, to show its defect under oneDNN: the backward pass combines the input
# in the plain layout with a convolution's gradient in oneDNN's layout, as if both were the same.
COMPOSE_LRN = True


_SINGLY = {"forward_bulk_size": 0, "backward_bulk_size": 0}  # run operations one by one


def build(network: xl.Network, solver: Solver, options: Options, group: Group) -> MXNetTrainer:
    """Return a trainer for `network`.

    Kernels:

    - "onednn", "native": on the CPU. An environment variable chooses between them.
    - "cudnn": on CUDA.

    Raises Unavailable if `options.device` is "cuda" and MXNet finds no NVIDIA device. Raises
    Unsupported if a pooling layer must round its height up and its width down, or the reverse.
    """
    mx.random.seed(options.seed)
    return MXNetTrainer(network, solver, options, group)


def _build_loss_and_outputs(network: xl.Network, options: Options) -> tuple[Any, dict[str, Any]]:
    """Return (weighted loss, outputs by layer name) as symbols over the input and the parameters.

    The outputs include "data" and exclude those of loss layers.
    """
    values = {"data": mx.sym.var("data", dtype=options.precision)}
    label = mx.sym.var("label", dtype="int32")
    losses = []
    for layer in network.layers:
        inputs = [values[name] for name in layer.inputs]
        with mx.name.Prefix(f"{layer.name}{profile.MARK}"):
            if isinstance(layer, xl.SoftmaxLoss):
                # A temperature disables oneDNN, whose logarithm is wrong in the sixth digit.
                likelihood = mx.sym.pick(mx.sym.log_softmax(inputs[0], temperature=1), label)
                losses.append(mx.sym.mean(likelihood) * -layer.weight)
            elif isinstance(layer, xl.Dropout) and options.dropout == "identity":
                values[layer.name] = inputs[0]
            else:
                shape = network.input_shapes(layer)[0]
                values[layer.name] = _layer_symbol(layer, inputs, shape, options.precision)
    return sum(losses[1:], losses[0]), values


def _layer_symbol(layer: xl.Layer, inputs: list[Any], input_shape: xl.Shape, lrn_dtype: str) -> Any:
    """Return the output of `layer` as a symbol over `inputs`.

    - `input_shape`: shape of the first input for one image, such as (C, H, W).
    - `lrn_dtype`: dtype of the constants of an LRN layer.
    """
    x = inputs[0]
    if isinstance(layer, xl.Convolution):
        return mx.sym.Convolution(
            x,
            *_variables(layer, "weight", "bias")[: 1 + layer.bias],
            kernel=(layer.kernel, layer.kernel),
            stride=(layer.stride, layer.stride),
            pad=(layer.pad, layer.pad),
            num_filter=layer.channels,
            num_group=layer.groups,
            no_bias=not layer.bias,
        )
    if isinstance(layer, xl.InnerProduct):
        return mx.sym.FullyConnected(
            x,
            *_variables(layer, "weight", "bias")[: 1 + layer.bias],
            num_hidden=layer.channels,
            no_bias=not layer.bias,
        )
    if isinstance(layer, xl.Pooling):
        return _pooling(layer, x, input_shape)
    if isinstance(layer, xl.ReLU):
        return mx.sym.Activation(x, act_type="relu")
    if isinstance(layer, xl.LRN):
        return _lrn(layer, x, input_shape, lrn_dtype)
    if isinstance(layer, xl.Dropout):
        return mx.sym.Dropout(x, p=layer.ratio)
    if isinstance(layer, xl.BatchNorm):
        # With momentum 0, the averages' arrays hold the batch's own mean and variance.
        return mx.sym.BatchNorm(
            x,
            *_variables(layer, "gamma", "beta", "mean", "variance"),
            eps=layer.eps,
            momentum=0,
            fix_gamma=False,
        )
    if isinstance(layer, xl.Concat):
        return mx.sym.concat(*inputs, dim=1)
    if isinstance(layer, xl.Eltwise):
        return sum(inputs[1:], x)
    raise Unsupported(f"the MXNet adapter does not translate {type(layer).__name__}")


def _variables(layer: xl.Layer, *kinds: str) -> list[Any]:
    return [mx.sym.var(f"{layer.name}/{kind}") for kind in kinds]


def _pooling(layer: xl.Pooling, x: Any, input_shape: xl.Shape) -> Any:
    """Return the output of a pooling layer as a symbol over `x`.

    MXNet's convention "full" rounds the output size up and keeps windows that start in the padding.
    The convention "valid" does neither. Raises Unsupported if height and width need different
    conventions.
    """
    kernel, stride, pad = layer.kernel, layer.stride, layer.pad
    counts = layer.output_shape([input_shape])[1:]
    spans = [size + 2 * pad - kernel for size in input_shape[1:]]
    exact = all(count == span // stride + 1 for count, span in zip(counts, spans))
    if not exact and any(count != -(-span // stride) + 1 for count, span in zip(counts, spans)):
        raise Unsupported(f"{layer.name}: MXNet cannot round height and width differently")
    windows = {
        "kernel": (kernel, kernel),
        "stride": (stride, stride),
        "pooling_convention": "valid" if exact else "full",
    }
    if layer.method == "max":
        return mx.sym.Pooling(x, pool_type="max", pad=(pad, pad), **windows)
    if exact or any((count + 2 * pad - kernel) % stride for count in counts):
        return mx.sym.Pooling(x, pool_type="avg", pad=(pad, pad), count_include_pad=True, **windows)
    # To check whether oneDNN supports the backward pass, MXNet uses the output's size instead of
    # the input's, which is wrong here. This code pools sums, for which MXNet never uses oneDNN.
    ones_image = mx.sym.ones_like(mx.sym.sum(x, axis=(0, 1), keepdims=True))
    border = (0, 0, 0, 0, pad, pad, pad, pad)
    padded = mx.sym.pad(ones_image, mode="constant", pad_width=border, constant_value=1)
    areas = mx.sym.Pooling(padded, pool_type="sum", **windows)
    total = mx.sym.Pooling(x, pool_type="sum", pad=(pad, pad), **windows)
    return mx.sym.broadcast_div(total, areas)


def _lrn(layer: xl.LRN, x: Any, input_shape: xl.Shape, precision: str) -> Any:
    if layer.region == "across" and not COMPOSE_LRN:
        return mx.sym.LRN(x, nsize=layer.size, alpha=layer.alpha, beta=layer.beta, knorm=layer.k)
    squares = mx.sym.square(x)
    if layer.region == "across":
        band, k = (
            _band(layer, input_shape[0], precision),
            mx.sym.full(input_shape[0], layer.k, precision),
        )
        scale = mx.sym.Convolution(squares, band, k, kernel=(1, 1), num_filter=input_shape[0])
    else:
        windows = xl.Pooling("", (), "average", layer.size, 1, layer.size // 2)
        scale = layer.k + layer.alpha * _pooling(windows, squares, input_shape)
    # A power would be slow: its gradient is another power, which MXNet computes value by value.
    return x * mx.sym.exp(-layer.beta * mx.sym.log(scale))


def _band(layer: xl.LRN, channels: int, precision: str) -> Any:
    """Return the weights of a 1x1 convolution for LRN across channels.

    For each channel, the convolution adds the inputs of the channel and of its neighbours. It
    multiplies the sum by alpha / size.
    """
    number = mx.sym.arange(channels, dtype=precision)
    rows, columns = (mx.sym.reshape(number, shape=shape) for shape in ((-1, 1), (1, -1)))
    near = mx.sym.abs(mx.sym.broadcast_sub(rows, columns)) <= layer.size // 2
    weights = mx.sym.BlockGrad(near) * (layer.alpha / layer.size)
    return mx.sym.reshape(weights, shape=(channels, channels, 1, 1))


class _Averages:
    """The running averages of all BatchNorm layers, as one vector outside the graph.

    The graph has arrays for the averages. A training step overwrites these arrays with the mean and
    the variance of the batch, which is biased except with cuDNN. Therefore the averages themselves
    are kept here.
    """

    def __init__(self, network: xl.Network, tensors: Any, precision: str) -> None:
        norms = [layer for layer in network.layers if isinstance(layer, xl.BatchNorm)]
        tracked = [(layer, kind) for layer in norms for kind in ("mean", "variance")]
        self.arrays = [tensors[f"{layer.name}/{kind}"] for layer, kind in tracked]
        self.gammas = [tensors[f"{layer.name}/gamma"] for layer in norms]
        self.sizes = [array.shape[0] for array in self.arrays]
        self.precision, self.place = precision, self.arrays[0].list_ctx()[0]
        self.momenta = np.array([layer.momentum for layer, _ in tracked])
        self.pixels = np.array([prod(network.shapes[layer.name][1:]) for layer, _ in tracked])
        self.biased = np.array(
            [
                kind == "variance"
                and not device.stores_unbiased_variance(self.place, precision, layer.eps)
                for layer, kind in tracked
            ]
        )
        self.keep = self._repeat_per_channel(self.momenta)
        self.take: dict[int, Any] = {}
        self.read_from_graph()

    def read_from_graph(self) -> None:
        """Copy the values of the graph's arrays for mean and variance to the averages."""
        self.values = mx.nd.concat(*(array.data() for array in self.arrays), dim=0)

    def write_to_graph(self) -> None:
        """Copy the averages to the graph's arrays for mean and variance.

        `MXNetTrainer.parameters` and the forward pass in test mode read these arrays.
        """
        part_ends = np.cumsum(self.sizes)
        for array, size, end in zip(self.arrays, self.sizes, part_ends):
            array.set_data(self.values[end - size : end])

    def add_last_batch(self, batch_size: int) -> None:
        """Update the averages: momentum * old + (1 - momentum) * batch.

        Here `batch` is the mean or the unbiased variance of the last batch. `batch_size` is its
        number of images.
        """
        if batch_size not in self.take:
            count = batch_size * self.pixels
            unbiased = np.where(self.biased, count / np.maximum(count - 1, 1), 1.0)
            self.take[batch_size] = self._repeat_per_channel((1 - self.momenta) * unbiased)
        # MXNet's engine does not know that a backward pass writes these arrays, and may read
        # them too early. Reading gamma's gradient in the same operation makes the engine wait.
        arrays = [array.data() for array in self.arrays] + [gamma.grad() for gamma in self.gammas]
        batch = mx.nd.concat(*arrays, dim=0)[: sum(self.sizes)]
        self.values = self.keep * self.values + self.take[batch_size] * batch

    def _repeat_per_channel(self, values: np.ndarray) -> Any:
        return mx.nd.array(np.repeat(values, self.sizes), self.place, self.precision)


class MXNetTrainer:
    """See `xfbench.worker.protocol.Trainer`."""

    def __init__(self, network: xl.Network, solver: Solver, options: Options, group: Group) -> None:
        self.solver, self.options = solver, options
        self.place = device.context(options.device, group.rank)
        self.joined = exchange.create_averaging_exchange(group)
        self.server = exchange.UpdatingServer(group) if group.strategy == "dist_async" else None
        self.tensors = mx.gluon.ParameterDict()
        for name, parameter in network.parameters.items():
            self.tensors.get(
                name,
                shape=parameter.shape,
                dtype=options.precision,
                init="zeros",
                grad_req="write" if parameter.learned else "null",
                lr_mult=parameter.lr_mult,
                wd_mult=parameter.decay_mult,
            )
        self.tensors.initialize(ctx=self.place)
        self.learned = [name for name, p in network.parameters.items() if p.learned]
        self.averages = None
        if len(self.learned) < len(network.parameters):
            self.averages = _Averages(network, self.tensors, options.precision)
        self.graph, self.values = _build_loss_and_outputs(network, options)
        self.training = self._build_block(self.graph)
        self.testing = self._build_block([self.graph, self.values[network.scores_layer]])
        self.trainer = mx.gluon.Trainer(
            [self.tensors[name] for name in self.learned],
            exchange.SGD(solver),
            kvstore=None,
        )
        self.iteration = 0
        self.last_loss = mx.nd.zeros(1, self.place)

    def load(self, images: np.ndarray, labels: np.ndarray) -> tuple[Any, Any]:
        return (
            mx.nd.array(images, self.place, self.options.precision),
            mx.nd.array(labels, self.place, "int32"),
        )

    def step(self, batch: tuple[Any, Any]) -> None:
        self.last_loss = self._forward_backward_and_average_gradients(batch)
        if self.server and not self.iteration:
            self.server.send_weights_and_do_first_update(
                [self.tensors[name] for name in self.learned], self.solver
            )
        elif self.server:
            self.server.update()
        else:
            self.trainer.set_learning_rate(self.solver.learning_rate(self.iteration))
            self.trainer.step(1)
        if self.averages:
            self.averages.add_last_batch(len(batch[1]))
        self.iteration += 1

    def wait_for_loss(self) -> float:
        mx.nd.waitall()
        return float(self.last_loss.asscalar())

    def test_loss(self, batch: tuple[Any, Any]) -> float:
        return float(self._test_loss_and_scores(batch)[0].asscalar())

    def test_scores(self, batch: tuple[Any, Any]) -> np.ndarray:
        scores: np.ndarray = self._test_loss_and_scores(batch)[1].asnumpy()
        return scores

    def layer_outputs(self, batch: tuple[Any, Any]) -> dict[str, np.ndarray]:
        block = self._build_block(list(self.values.values()), "data")
        with mx.autograd.train_mode():
            block_outputs = block(batch[0])
        return {name: value.asnumpy() for name, value in zip(self.values, block_outputs)}

    def gradients(self, batch: tuple[Any, Any]) -> dict[str, np.ndarray]:
        self._forward_backward_and_average_gradients(batch)
        return {name: self.tensors[name].grad().asnumpy() for name in self.learned}

    def parameters(self) -> dict[str, np.ndarray]:
        if self.averages:
            self.averages.write_to_graph()
        return {name: tensor.data().asnumpy() for name, tensor in self.tensors.items()}

    def assign(self, parameters: dict[str, np.ndarray]) -> None:
        if self.server and self.iteration:
            raise Unsupported("MXNet's parameter server cannot replace weights that it updates")
        for name, tensor in self.tensors.items():
            tensor.set_data(mx.nd.array(parameters[name], dtype=self.options.precision))
        if self.averages:
            self.averages.read_from_graph()

    def disable_sync(self) -> None:
        self.joined = self.server = None

    def save(self, folder: Path) -> None:
        checkpoint.save(self, folder)

    def restore(self, folder: Path) -> None:
        checkpoint.restore(self, folder)

    def profile(
        self, batch: tuple[Any, Any], run_steps: Callable[[], float], clock: Callable[[], float]
    ) -> Profile:
        if self.options.device != "cpu":
            raise Unsupported("profiles of MXNet on a GPU are not supported yet")
        usual = self.training
        # With static allocation, MXNet frees operations' names before the profiler reads them.
        self.training = self._build_block(self.graph, static=False)

        def run_first_step() -> None:
            self.step(batch)
            self.wait_for_loss()

        layer_profile = profile.profile(self.training, run_first_step, run_steps)
        self.training = usual
        return layer_profile

    def runtime_info(self) -> dict[str, Any]:
        kernel, evidence = self._detect_kernel_and_evidence()
        precision = np.dtype(self.last_loss.dtype).name
        return {
            "framework_version": mx.__version__,
            "layout": "NCHW",
            "precision": device.measure_product_precision(self.place)
            if precision == "float32"
            else precision,
            "kernel": kernel,
            "kernel_evidence": evidence,
            "pools": observe.thread_pool_sizes("libgomp", "mxnet/"),
        }

    def _detect_kernel_and_evidence(self) -> tuple[str, list[str]]:
        """Return (name of the kernel, lines of evidence for it)."""
        if self.options.device == "cuda":
            enabled = mx.runtime.Features().is_enabled("CUDNN")
            evidence = ["requested, not shown", f"MXNet was built with cuDNN: {enabled}"]
            return "cudnn" if enabled else "native", evidence
        # An array in oneDNN's layout cannot be exported. If oneDNN computes a convolution, its
        # output is such an array.
        images, weights = mx.nd.ones((1, 16, 8, 8)), mx.nd.ones((16, 16, 3, 3))
        output = mx.nd.Convolution(images, weights, kernel=(3, 3), num_filter=16, no_bias=True)
        try:
            output.to_dlpack_for_read()
            kernel, evidence = "native", ["a float32 convolution's output has the plain layout"]
        except mx.MXNetError:
            kernel, evidence = "onednn", ["a float32 convolution's output has oneDNN's layout"]
            if self.options.precision != "float32":
                evidence += [f"oneDNN has no {self.options.precision}: MXNet's kernels ran"]
        return kernel, evidence

    def _build_block(self, outputs: Any, *input_names: str, static: bool = True) -> Any:
        dtypes = {"data": self.options.precision, "label": "int32"}
        inputs = [mx.sym.var(name, dtype=dtypes[name]) for name in input_names or dtypes]
        block = mx.gluon.SymbolBlock(outputs, inputs, params=self.tensors)
        block.hybridize(static_alloc=static, static_shape=static, **({} if static else _SINGLY))
        return block

    def _forward_backward_and_average_gradients(self, batch: tuple[Any, Any]) -> Any:
        with mx.autograd.record():
            loss = self.training(*batch)
        loss.backward()
        if self.joined:
            self.joined.mean({name: self.tensors[name].grad() for name in self.learned})
        return loss

    def _test_loss_and_scores(self, batch: tuple[Any, Any]) -> Any:
        if self.averages:
            self.averages.write_to_graph()
        return self.testing(*batch)
