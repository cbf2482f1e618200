"""The trainer of JAX: training steps compiled by XLA, channels last.

A step is one compiled program, or two programs if ranks exchange gradients by MPI. Each step
returns a new dictionary of parameters, which reuses the memory of the old one. LRN, batch norm and
mixed precision are implemented here, because JAX has none of them. Mixed precision keeps parameters
in float32.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xfbench.adapters.jax import checkpoint, device, pooling, profile, programs, update
from xfbench.worker import mixed, observe, scopes, xla_program
from xfbench.worker.channels_last import parameter_layouts
from xfbench.worker.mpi import AllReduce
from xfbench.worker.protocol import LOSS_SCALE, Group, Options, Profile, Unsupported
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

LARS = True
keep_programs = programs.keep_programs

_THROUGH_HOST = "MPI_Allreduce of one message, through the host"

Values = Dict[str, Any]
Window = Tuple[int, int, int, int]


def build(network: xl.Network, solver: Solver, options: Options, group: Group) -> JaxTrainer:
    """Return a trainer for `network`. The only kernel is "xla".

    Raises Unavailable if `options.device` is "cuda" and JAX finds no NVIDIA device. Raises
    Unsupported if the GPU does not compute in `options.precision`.
    """
    chosen = device.choose_device(options.device, group.rank)
    device.require_precision(chosen, options.precision)
    if options.precision == "float64":  # not reset later: float32 arrays have an explicit dtype
        jax.config.update("jax_enable_x64", True)
    return JaxTrainer(network, solver, options, group)


def _convolution(layer: xl.Convolution, x: Any, weight: Any) -> Any:
    return lax.conv_general_dilated(
        x,
        weight,
        (layer.stride, layer.stride),
        [(layer.pad, layer.pad)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=layer.groups,
    )


def _pooling(layer: xl.Pooling, x: Any) -> Any:
    kernel, stride, pad = layer.kernel, layer.stride, layer.pad
    sizes = x.shape[1:3]
    counts = [layer.output_size(size) for size in sizes]
    window_ends = [(count - 1) * stride + kernel - pad for count in counts]
    pads = tuple((pad, max(end - size, 0)) for end, size in zip(window_ends, sizes))
    if layer.method == "max":
        return pooling.maxima(x, kernel, stride, pads)
    # The divisor of an average counts the padding, but nothing beyond it.
    inside = [
        np.minimum(kernel, size + 2 * pad - np.arange(count) * stride)
        for size, count in zip(sizes, counts)
    ]
    area = np.outer(*inside)[:, :, np.newaxis]
    return pooling.sums(x, kernel, stride, pads) / jnp.asarray(area, x.dtype)


def _lrn(layer: xl.LRN, x: Any) -> Any:
    half = layer.size // 2
    if layer.region == "across":
        padding = [(0, 0), (0, 0), (0, 0), (half, half)]
        window: Window = (1, 1, 1, layer.size)
        squares = lax.reduce_window(x * x, 0.0, lax.add, window, (1, 1, 1, 1), padding) / layer.size
    else:
        sums = pooling.sums(x * x, layer.size, 1, ((half, half), (half, half)))
        squares = sums / layer.size**2
    scale = layer.k + layer.alpha * squares
    if layer.beta == 0.75:  # two roots are several times faster than a power
        return x * lax.rsqrt(scale * jnp.sqrt(scale))
    return x * scale**-layer.beta


def _batch_norm_and_averages(
    layer: xl.BatchNorm, x: Any, parts: Values, training: bool
) -> tuple[Any, Values]:
    """Return (normalised `x`, new running averages by parameter name).

    In test mode there are no new averages. `parts` has the layer's parameters by kind ("gamma",
    "beta", "mean", "variance").
    """
    mean, variance, averages = parts["mean"], parts["variance"], {}
    if training:
        old = mean, variance
        mean, variance = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
        count = x.size // x.shape[3]
        new = mean, variance * (count / (count - 1))
        momentum = layer.momentum
        averages = {
            f"{layer.name}/{kind}": momentum * before + (1 - momentum) * now
            for kind, before, now in zip(("mean", "variance"), old, new)
        }
    y = (x - mean) * (lax.rsqrt(variance + layer.eps) * parts["gamma"]) + parts["beta"]
    return y, averages


def _output(layer: xl.Layer, inputs: list[Any], parts: Values, key: Any) -> Any:
    """Return the output of `layer`, which is not a BatchNorm or SoftmaxLoss.

    `parts` has the layer's parameters by kind ("weight", "bias"). `key` is the random key of
    dropout. If it is None, dropout layers do nothing.
    """
    x = inputs[0]
    if isinstance(layer, xl.Convolution):
        y = _convolution(layer, x, parts["weight"])
        return y + parts["bias"] if layer.bias else y
    if isinstance(layer, xl.InnerProduct):
        y = x.reshape(x.shape[0], -1) @ parts["weight"]
        return y + parts["bias"] if layer.bias else y
    if isinstance(layer, xl.Pooling):
        return _pooling(layer, x)
    if isinstance(layer, xl.ReLU):
        return jax.nn.relu(x)
    if isinstance(layer, xl.LRN):
        return _lrn(layer, x)
    if isinstance(layer, xl.Dropout):
        if key is None:
            return x
        keep_mask = jax.random.bernoulli(key, 1 - layer.ratio, x.shape)
        return jnp.where(keep_mask, x / (1 - layer.ratio), 0)
    if isinstance(layer, xl.Concat):
        return jnp.concatenate(inputs, axis=-1)
    if isinstance(layer, xl.Eltwise):
        return sum(inputs[1:], inputs[0])
    raise TypeError(f"the JAX adapter does not translate {type(layer).__name__}")


class JaxTrainer:
    """See `xfbench.worker.protocol.Trainer`."""

    channels_last = True

    def __init__(self, network: xl.Network, solver: Solver, options: Options, group: Group) -> None:
        self.network, self.solver, self.options = network, solver, options
        self.joined: Any = AllReduce(group) if group.strategy == "mpi" else None
        self.through_host = group.strategy == "mpi" and options.device == "cuda"
        self.dtype = jnp.dtype("float64" if options.precision == "float64" else "float32")
        # The dtype of values between layers and of operands of products.
        short = options.precision in mixed.PRECISIONS
        self.passed = jnp.dtype(options.precision) if short else self.dtype
        self.loss_scale = LOSS_SCALE if options.precision == "float16" else None
        on_cpu = options.device == "cpu"  # CPU products have the full precision of their operands
        self.products = None if on_cpu else device.PRODUCTS.get(options.precision)
        self.layouts = parameter_layouts(network)
        self.places = scopes.layer_index_by_parameter(network)
        self.learned = [name for name, p in network.parameters.items() if p.learned]
        self.values: Values = {
            name: jnp.zeros(layout.stored, self.dtype) for name, layout in self.layouts.items()
        }
        self.velocities: Values = {name: jnp.zeros_like(self.values[name]) for name in self.learned}
        self.key = jax.random.key(options.seed)
        self.programs: Dict[Tuple[str, Any], Any] = {}
        # For each program: "compiled" or "loaded", and how many seconds this took.
        self.origins: list[tuple[str, float]] = []
        self.first_step_origins: list[tuple[str, float]] = []
        self.iteration = 0
        self.gradient_draws = 0  # so that each computation of gradients has another dropout mask
        self.last_loss = jnp.zeros((), self.dtype)

    def load(self, images: np.ndarray, labels: np.ndarray) -> tuple[Any, Any]:
        # A copy, because JAX may read the caller's memory later, when the step runs.
        return (
            jnp.array(np.ascontiguousarray(images.transpose(0, 2, 3, 1)), self.dtype, copy=True),
            jnp.array(labels, np.int32, copy=True),
        )

    def step(self, batch: tuple[Any, Any]) -> None:
        rate = np.asarray(self.solver.learning_rate(self.iteration), self.dtype)
        number = np.int32(self.iteration)
        earlier_programs = len(self.origins)
        if self.joined:
            self.last_loss, gradients, averages = self._loss_mean_gradients_and_averages(
                number, batch
            )
            self.values, self.velocities = self._run_compiled(
                self._update,
                self.values,
                self.velocities,
                rate,
                gradients,
                averages,
                donated=(0, 1),
            )
        else:
            self.last_loss, self.values, self.velocities = self._run_compiled(
                self._train, self.values, self.velocities, rate, number, *batch, donated=(0, 1)
            )
        if self.iteration == 0:
            self.first_step_origins = self.origins[earlier_programs:]
        self.iteration += 1

    def wait_for_loss(self) -> float:
        jax.block_until_ready((self.values, self.velocities))
        return float(self.last_loss)

    def test_loss(self, batch: tuple[Any, Any]) -> float:
        return float(self._run_compiled(self._test_loss_and_scores, self.values, *batch)[0])

    def test_scores(self, batch: tuple[Any, Any]) -> np.ndarray:
        return np.array(
            self._run_compiled(self._test_loss_and_scores, self.values, *batch)[1], self.dtype
        )

    def gradients(self, batch: tuple[Any, Any]) -> dict[str, np.ndarray]:
        draw = np.int32(self.gradient_draws)
        self.gradient_draws += 1
        _, gradients, _ = self._loss_mean_gradients_and_averages(draw, batch)
        return {name: self._canonical(name, value) for name, value in gradients.items()}

    def layer_outputs(self, batch: tuple[Any, Any]) -> dict[str, np.ndarray]:
        values = self._run_compiled(self._training_outputs_without_dropout, self.values, *batch)
        arrays = {name: np.array(value, self.dtype) for name, value in values.items()}
        return {n: v.transpose(0, 3, 1, 2) if v.ndim == 4 else v for n, v in arrays.items()}

    def parameters(self) -> dict[str, np.ndarray]:
        return {name: self._canonical(name, value) for name, value in self.values.items()}

    def assign(self, parameters: dict[str, np.ndarray]) -> None:
        self.values = {
            name: jnp.array(layout.to_framework_layout(parameters[name]), self.dtype, copy=True)
            for name, layout in self.layouts.items()
        }

    def peak_device_memory(self) -> Dict[str, int | None]:
        return {"peak_device_bytes": device.peak_memory_bytes(self.last_loss)}

    def disable_sync(self) -> None:
        self.joined = None

    def save(self, folder: Path) -> None:
        checkpoint.save(self, folder)

    def restore(self, folder: Path) -> None:
        checkpoint.restore(self, folder)

    def profile(
        self, batch: tuple[Any, Any], run_steps: Callable[[], float], clock: Callable[[], float]
    ) -> Profile:
        if self.options.device != "cpu":
            raise Unsupported("profiles of JAX on a GPU are not supported yet")
        self.step(batch)  # compiles the step again if `disable_sync` was called
        self.wait_for_loss()
        return profile.profile(
            [layer.name for layer in self.network.layers],
            run_steps,
            self._last_compiled_step_program().as_text,
        )

    def runtime_info(self) -> dict[str, Any]:
        return {
            "framework_version": jax.__version__,
            "layout": "NHWC",
            "precision": self._detect_precision(),
            "kernel": "xla",
            "kernel_evidence": self._describe_step_program(),
            "pools": {"XLA": observe.count_threads_named("tf_XLAEigen")},
            "loss_scale": self.loss_scale,
            "exchange": [_THROUGH_HOST] if self.through_host else [],
            **self._describe_origin_of_first_step(),
        }

    def _describe_origin_of_first_step(self) -> dict[str, Any]:
        if not self.first_step_origins:
            return {}
        origins, seconds = zip(*self.first_step_origins)
        is_compiled = "compiled" in origins
        return {
            "step_program": "compiled" if is_compiled else "loaded",
            "step_program_seconds": sum(seconds),
        }

    def _detect_precision(self) -> str:
        if self.passed != np.float32:
            return str(self.passed.name)
        with jax.default_matmul_precision(self.products):
            return device.measure_product_precision()

    def _describe_step_program(self) -> list[str]:
        """Return sentences about the kernels in XLA's optimised program of a step."""
        program = self._last_compiled_step_program()
        if program is None:
            return ["no step has run yet"]
        text = program.as_text()
        shown = xla_program.describe_kernels(text) if text else ["requested, not shown"]
        if version := observe.cudnn_version():
            shown.append(f"the version of cuDNN is {version}")
        return shown

    def _last_compiled_step_program(self) -> Any:
        """Return the latest compiled program of a training step; None before the first step.

        With MPI, this program computes the loss and the gradients, but not the update.
        """
        latest = {name: program for (name, _), program in self.programs.items()}
        return latest.get(self._train.__name__) or latest.get(
            self._loss_gradients_and_averages.__name__
        )

    def _loss_mean_gradients_and_averages(
        self, iteration: Any, batch: tuple[Any, Any]
    ) -> tuple[Any, Values, Values]:
        """Return (loss, gradients, new running averages).

        Gradients are means over all ranks. Loss and running averages are those of this rank.
        """
        loss, gradients, averages = self._run_compiled(
            self._loss_gradients_and_averages, self.values, iteration, *batch
        )
        if self.joined and self.through_host:
            flat = np.array(self._run_compiled(self._flatten, gradients))
            self.joined.average_in_place([flat])
            gradients = self._run_compiled(self._split, jnp.array(flat))
        elif self.joined:
            means = {name: np.array(gradients[name]) for name in self.learned}
            self.joined.average_in_place(list(means.values()))
            gradients = {name: jnp.array(mean) for name, mean in means.items()}
        return loss, gradients, averages

    def _flatten(self, gradients: Values) -> Any:
        """Return all gradients as one vector, so that one copy moves them to the host."""
        return jnp.concatenate([gradients[name].ravel() for name in self.learned])

    def _split(self, flat: Any) -> Values:
        """Return the gradients that `_flatten` has joined."""
        shapes = [self.layouts[name].stored for name in self.learned]
        ends = np.cumsum([np.prod(shape) for shape in shapes])
        parts = jnp.split(flat, ends[:-1])
        return {name: part.reshape(shape) for name, part, shape in zip(self.learned, parts, shapes)}

    def _canonical(self, name: str, value: Any) -> np.ndarray:
        return self.layouts[name].to_canonical_layout(np.asarray(value))

    def _run_compiled(
        self, function: Callable[..., Any], *arguments: Any, donated: Any = ()
    ) -> Any:
        """Compile `function` once for the shapes of `arguments`, and run the compiled program.

        `donated` has the positions of the arguments whose memory the program may reuse.
        """
        # Arrays in dictionaries have the network's shapes. Only batches differ in shape.
        shapes = tuple(x.shape for x in arguments if not isinstance(x, dict))
        key = function.__name__, shapes
        if key not in self.programs:
            with jax.default_matmul_precision(self.products):
                lowered = jax.jit(function, donate_argnums=donated).lower(*arguments)
                self.programs[key], origin, seconds = programs.compile_or_load(lowered)
            self.origins.append((origin, seconds))
        return self.programs[key](*arguments)

    def _loss_outputs_and_averages(
        self, values: Values, images: Any, labels: Any, training: bool, key: Any = None
    ) -> tuple[Any, Values, Values]:
        """Return (weighted loss, outputs by layer name, new running averages by parameter name).

        The outputs include "data" and exclude those of loss layers. `values` has the parameters.
        `key` is the random key of dropout; None means no dropout.
        """
        outputs: Values = {"data": images}
        loss: Any = 0.0
        averages: Values = {}
        for number, layer in enumerate(self.network.layers):
            inputs = [outputs[name] for name in layer.inputs]
            kinds = layer.parameters(self.network.input_shapes(layer))
            parts = {kind: values[f"{layer.name}/{kind}"] for kind in kinds}
            inputs, parts = self._cast_inputs(layer, inputs, parts)
            with jax.named_scope(scopes.layer_scope(number)):
                if isinstance(layer, xl.SoftmaxLoss):
                    likelihoods = jax.nn.log_softmax(inputs[0])
                    each = -jnp.take_along_axis(likelihoods, labels[:, None], axis=1)
                    loss = loss + layer.weight * jnp.mean(each)
                elif isinstance(layer, xl.BatchNorm):
                    outputs[layer.name], layer_averages = _batch_norm_and_averages(
                        layer, inputs[0], parts, training
                    )
                    averages |= layer_averages
                else:
                    layer_key = None if key is None else jax.random.fold_in(key, number)
                    outputs[layer.name] = _output(layer, inputs, parts, layer_key)
                if layer.name in outputs:
                    outputs[layer.name] = outputs[layer.name].astype(self.passed)
        return loss, outputs, averages

    def _cast_inputs(
        self, layer: xl.Layer, inputs: list[Any], parts: Values
    ) -> tuple[list[Any], Values]:
        """Return a layer's (inputs, parameters by kind), cast as mixed precision requires.

        Without mixed precision, return them unchanged.
        """
        if self.passed == self.dtype:
            return inputs, parts
        casts = [partial(lax.convert_element_type, new_dtype=t) for t in (self.passed, self.dtype)]
        return mixed.cast_inputs_and_parameters(layer, inputs, parts, *casts)

    def _loss_gradients_and_averages(
        self, values: Values, iteration: Any, images: Any, labels: Any
    ) -> Any:
        """Return (loss, gradients, new running averages) of this rank.

        Gradients and running averages are dictionaries by parameter name.
        """
        random = self.options.dropout == "random"
        key = jax.random.fold_in(self.key, iteration) if random else None
        averages = {name: value for name, value in values.items() if name not in self.learned}

        def scaled_loss_and_averages(learned: Values) -> tuple[Any, Values]:
            all_values = {**learned, **averages}
            loss_value, _, new_averages = self._loss_outputs_and_averages(
                all_values, images, labels, training=True, key=key
            )
            return loss_value * (self.loss_scale or 1), new_averages

        learned = {name: values[name] for name in self.learned}
        (loss_value, new_averages), gradients = jax.value_and_grad(
            scaled_loss_and_averages, has_aux=True
        )(learned)
        if self.loss_scale:
            loss_value = loss_value / self.loss_scale
            gradients = {name: gradient / self.loss_scale for name, gradient in gradients.items()}
        return loss_value, gradients, new_averages

    def _update(
        self, values: Values, velocities: Values, rate: Any, gradients: Values, averages: Values
    ) -> tuple[Values, Values]:
        values, velocities = {**values, **averages}, dict(velocities)
        for name, gradient in gradients.items():
            with jax.named_scope(scopes.update_scope(self.places[name])):
                values[name], velocities[name] = update.update_parameter(
                    self.solver,
                    self.network.parameters[name],
                    *(values[name], velocities[name], rate, gradient),
                )
        return values, velocities

    def _train(
        self,
        values: Values,
        velocities: Values,
        rate: Any,
        iteration: Any,
        images: Any,
        labels: Any,
    ) -> tuple[Any, Values, Values]:
        loss, gradients, averages = self._loss_gradients_and_averages(
            values, iteration, images, labels
        )
        return (loss, *self._update(values, velocities, rate, gradients, averages))

    def _test_loss_and_scores(self, values: Values, images: Any, labels: Any) -> tuple[Any, Any]:
        loss, outputs, _ = self._loss_outputs_and_averages(values, images, labels, training=False)
        return loss, outputs[self.network.scores_layer]

    def _training_outputs_without_dropout(self, values: Values, images: Any, labels: Any) -> Values:
        return self._loss_outputs_and_averages(values, images, labels, training=True)[1]
