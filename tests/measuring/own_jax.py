"""A training step as JAX's users write it: one jitted function of plain arrays, images NHWC."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from xfbench.workloads import layers as xl
from xfbench.workloads.initial import initial_parameters

PRODUCTS = {"float32": "highest", "tf32": "tensorfloat32"}


def _pool(x, layer, initial, combine):
    """Reduce windows whose number is rounded up, as in Caffe."""
    pads = []
    for size in x.shape[1:3]:
        count = -(-(size + 2 * layer.pad - layer.kernel) // layer.stride) + 1
        count -= bool(layer.pad) and (count - 1) * layer.stride >= size + layer.pad
        end = (count - 1) * layer.stride + layer.kernel - size - layer.pad
        pads.append((layer.pad, max(end, 0)))
    window, strides = (layer.kernel,) * 2, (layer.stride,) * 2
    return lax.reduce_window(
        x, initial, combine, (1, *window, 1), (1, *strides, 1), ((0, 0), *pads, (0, 0))
    )


def _normalize_locally(x, layer):
    window = (1, 1, 1, layer.size)
    area = layer.size
    if layer.region == "within":
        window, area = (1, layer.size, layer.size, 1), layer.size**2
    squares = lax.reduce_window(x * x, 0.0, lax.add, window, (1, 1, 1, 1), "SAME")
    return x * (layer.k + layer.alpha / area * squares) ** -layer.beta


def _apply(layer, inputs, parameters, averages, key):
    """Return the output of a layer, and the new running averages of a batch norm."""
    x = inputs[0]
    if isinstance(layer, xl.Convolution):
        x = lax.conv_general_dilated(
            x,
            parameters[f"{layer.name}/weight"],
            (layer.stride,) * 2,
            [(layer.pad, layer.pad)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=layer.groups,
        )
        return x + parameters[f"{layer.name}/bias"] if layer.bias else x
    if isinstance(layer, xl.InnerProduct):
        x = x.reshape(x.shape[0], -1) @ parameters[f"{layer.name}/weight"]
        return x + parameters[f"{layer.name}/bias"]
    if isinstance(layer, xl.Pooling):
        if layer.method == "max":
            return _pool(x, layer, -jnp.inf, lax.max)
        return _pool(x, layer, 0.0, lax.add) / layer.kernel**2
    if isinstance(layer, xl.LRN):
        return _normalize_locally(x, layer)
    if isinstance(layer, xl.BatchNorm):
        of_batch = x.astype(jnp.float32)
        mean, variance = of_batch.mean((0, 1, 2)), of_batch.var((0, 1, 2))
        for kind, value in (("mean", mean), ("variance", variance)):
            old = averages[f"{layer.name}/{kind}"]
            averages[f"{layer.name}/{kind}"] = old * layer.momentum + (1 - layer.momentum) * value
        scale = parameters[f"{layer.name}/gamma"] * lax.rsqrt(variance + layer.eps)
        return (x - mean) * scale.astype(x.dtype) + parameters[f"{layer.name}/beta"]
    if isinstance(layer, xl.Dropout):
        share = 1 - layer.ratio
        return jnp.where(jax.random.bernoulli(key, share, x.shape), x / share, 0)
    if isinstance(layer, xl.ReLU):
        return jax.nn.relu(x)
    if isinstance(layer, xl.Concat):
        return jnp.concatenate(inputs, -1)
    if isinstance(layer, xl.Eltwise):
        return sum(inputs[1:], x)
    raise TypeError(f"no plain JAX for {type(layer).__name__}")


def _loss(learned, averages, images, labels, key, network, dtype):
    """Return the loss, and the new running averages."""
    parameters = {name: value.astype(dtype) for name, value in learned.items()}
    values, averages, loss = {"data": images.astype(dtype)}, dict(averages), 0.0
    for number, layer in enumerate(network.layers):
        inputs = [values[name] for name in layer.inputs]
        if isinstance(layer, xl.SoftmaxLoss):
            scores = jax.nn.log_softmax(inputs[0].astype(jnp.float32))
            loss -= layer.weight * jnp.take_along_axis(scores, labels[:, None], 1).mean()
            continue
        of_layer = jax.random.fold_in(key, number)
        output = _apply(layer, inputs, parameters, averages, of_layer)
        values[layer.name] = output.astype(dtype)
    return loss, averages


def build_step(workload, images, labels, precision):
    """Return a function that does a step, and a function that waits for the last loss."""
    network, solver = workload.network, workload.solver
    if precision in PRODUCTS:
        jax.config.update("jax_default_matmul_precision", PRODUCTS[precision])
    dtype = jnp.dtype(precision if precision in ("bfloat16", "float16") else "float32")
    learned, averages = {}, {}
    for name, value in initial_parameters(network, 0).items():
        order = {4: (2, 3, 1, 0), 2: (1, 0)}.get(value.ndim)
        of_kind = learned if network.parameters[name].learned else averages
        of_kind[name] = jnp.array(value.transpose(order) if order else value)
    velocities = {name: jnp.zeros_like(value) for name, value in learned.items()}
    images = jnp.array(images.transpose(0, 2, 3, 1))
    labels, key = jnp.array(labels), jax.random.key(0)

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def train(learned, velocities, averages, number, images, labels):
        of_step = jax.random.fold_in(key, number)
        gradient = jax.value_and_grad(_loss, has_aux=True)
        (loss, averages), gradients = gradient(
            learned, averages, images, labels, of_step, network=network, dtype=dtype
        )
        for name, value in gradients.items():
            pull = value + solver.weight_decay * learned[name]
            velocities[name] = solver.momentum * velocities[name] + pull
            learned[name] = learned[name] - solver.base_lr * velocities[name]
        return learned, velocities, averages, loss

    state = [learned, velocities, averages, jnp.zeros(())]
    count = 0

    def step():
        nonlocal count
        state[:] = train(*state[:3], count, images, labels)
        count += 1

    def wait():
        jax.block_until_ready(state)
        return float(state[3])

    return step, wait
