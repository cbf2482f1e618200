"""Networks and solvers in Caffe's text formats `NetParameter` and `SolverParameter`.

The adapter trains the same network that `xfbench workload export` prints. Geometry needs no
translation, because workloads use Caffe's conventions. This module imports no framework.
"""

from __future__ import annotations

import json
from textwrap import indent

from xfbench.workloads import Workload
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

_IN_PLACE = (xl.ReLU, xl.Dropout, xl.BatchNorm)


def train_val(workload: Workload, batch_size: int, dropout: str = "random") -> str:
    """Return the text of a file with the workload's network, for training and testing.

    - The first layer is an Input layer with the blobs "data" (pixels, already scaled) and "label".
    - A comment in the file contains a Data layer that can replace the Input layer.
    - `dropout`: "identity" omits the dropout layers.
    """
    stored = data_layer(workload, "LMDB", batch_size)
    return (
        f"# {workload.name}, after {workload.source}.\n"
        "# To train from a stored data set, replace the layer of type Input by this:\n"
        f"{indent(stored, '# ')}\n"
        f"{net_parameter(workload.network, batch_size, dropout)}"
    )


def data_layer(
    workload: Workload,
    source: str,
    batch_size: int,
    *,
    training: bool = True,
    encoded: bool = False,
) -> str:
    """Return a Data layer that reads the LMDB database `source` into the blobs "data" and "label".

    - `training`: crop, scale and mirror images as the workload defines. If false, only crop them.
    - `encoded`: decode the stored images, to the number of channels that the network reads.
    """
    pixels, channels = workload.pixels, workload.network.input_shape[0]
    transform = [f"crop_size: {workload.network.input_shape[1]}"]
    if encoded:
        transform.append("force_color: true" if channels == 3 else "force_gray: true")
    if training:
        transform += [f"mean_value: {mean}" for mean in pixels.mean if any(pixels.mean)]
        transform += [f"scale: {pixels.scale}"] if pixels.scale != 1 else []
        transform += ["mirror: true"] if pixels.mirror else []
    return _block(
        "layer",
        'name: "data"',
        'type: "Data"',
        'top: "data"',
        'top: "label"',
        _block("transform_param", *transform),
        _block(
            "data_param",
            f"source: {_quoted(source)}",
            "backend: LMDB",
            f"batch_size: {batch_size}",
        ),
    )


def solver(workload: Workload, net_path: str) -> str:
    """Return the text of a solver file for `caffe train`. `net_path` is the network's file."""
    return (
        f"# {workload.name}, after {workload.source}.\n"
        f"{solver_parameter(workload.solver, net_path)}"
        "display: 20\n"
        f"snapshot_prefix: {_quoted(workload.name)}\n"
    )


def net_parameter(network: xl.Network, batch_size: int, dropout: str = "random") -> str:
    """Return `network` as NetParameter text.

    If `dropout` is "identity", the dropout layers are omitted.
    """
    blobs = blob_name_by_layer(network, dropout)
    parts = [
        f"name: {_quoted(network.name)}",
        _block(
            "layer",
            'name: "data"',
            'type: "Input"',
            'top: "data"',
            'top: "label"',
            _block(
                "input_param",
                _shape_block(batch_size, *network.input_shape),
                _shape_block(batch_size),
            ),
        ),
    ]
    for layer in network.layers:
        if isinstance(layer, xl.Dropout) and dropout == "identity":
            continue
        parts += _layer_blocks(layer, [blobs[name] for name in layer.inputs], blobs[layer.name])
    return "\n".join(parts) + "\n"


def uses_lars_or_warmup(solver: Solver) -> bool:
    """Return whether `solver` uses LARS or warm-up. If so, the adapter applies the weight decay."""
    return bool(solver.lars or solver.warmup)


def solver_parameter(solver: Solver, net_path: str) -> str:
    """Return `solver` as SolverParameter text for the CPU. `net_path` is the network's file.

    The weight decay in the text is 0 if the adapter applies the decay (`uses_lars_or_warmup`).
    """
    lines = [
        f"net: {_quoted(net_path)}",
        'type: "SGD"',
        f"base_lr: {solver.base_lr}",
        f"lr_policy: {_quoted(solver.policy)}",
        f"momentum: {solver.momentum}",
        f"weight_decay: {0.0 if uses_lars_or_warmup(solver) else solver.weight_decay}",
        f"max_iter: {solver.max_iter}",
        "solver_mode: CPU",
    ]
    if solver.policy in {"step", "inv"}:
        lines.append(f"gamma: {solver.gamma}")
    if solver.policy in {"inv", "poly"}:
        lines.append(f"power: {solver.power}")
    if solver.policy == "step":
        lines.append(f"stepsize: {solver.stepsize}")
    return "\n".join(lines) + "\n"


def blob_name_by_layer(network: xl.Network, dropout: str = "random") -> dict[str, str]:
    """Return the name of each layer's output blob, by layer name. "data" is included.

    A ReLU, Dropout or BatchNorm layer overwrites its input blob if no other layer reads the blob.
    There are two exceptions, because the backward pass needs an unchanged output:

    - No layer overwrites the output of an LRN layer.
    - A BatchNorm layer does not overwrite the output of a ReLU, because it would change the signs.

    If `dropout` is "identity", the output of a dropout layer is its input blob.
    """
    readers: dict[str, list[str]] = {}
    for layer in network.layers:
        for name in layer.inputs:
            readers.setdefault(name, []).append(layer.name)
    preserved_blobs = {"data"} | {
        layer.name for layer in network.layers if isinstance(layer, xl.LRN)
    }
    blobs = {"data": "data"}
    relu_blobs = set()
    for layer in network.layers:
        source = layer.inputs[0]
        left_out = isinstance(layer, xl.Dropout) and dropout == "identity"
        over = (
            isinstance(layer, _IN_PLACE)
            and source not in preserved_blobs
            and len(readers[source]) == 1
            and not (isinstance(layer, xl.BatchNorm) and blobs[source] in relu_blobs)
        )
        blobs[layer.name] = blobs[source] if left_out or over else layer.name
        if isinstance(layer, xl.ReLU):
            relu_blobs.add(blobs[layer.name])
    return blobs


def scale_name(batch_norm: str) -> str:
    """Return the name of the Scale layer with the gamma and beta of the layer `batch_norm`.

    For example, the Scale layer of "bn2a" is "scale2a".
    """
    return f"scale{batch_norm[2:]}" if batch_norm.startswith("bn") else f"{batch_norm}/scale"


def _layer_blocks(layer: xl.Layer, bottoms: list[str], top: str) -> list[str]:
    if isinstance(layer, xl.Convolution):
        fields = [
            *_param_blocks(layer),
            _block(
                "convolution_param",
                f"num_output: {layer.channels}",
                f"kernel_size: {layer.kernel}",
                f"stride: {layer.stride}",
                f"pad: {layer.pad}",
                f"group: {layer.groups}",
                *_filler_fields(layer),
            ),
        ]
        return [_layer_block(layer.name, "Convolution", bottoms, top, *fields)]
    if isinstance(layer, xl.InnerProduct):
        product = _block(
            "inner_product_param", f"num_output: {layer.channels}", *_filler_fields(layer)
        )
        return [
            _layer_block(layer.name, "InnerProduct", bottoms, top, *_param_blocks(layer), product)
        ]
    if isinstance(layer, xl.Pooling):
        pooling = _block(
            "pooling_param",
            f"pool: {'MAX' if layer.method == 'max' else 'AVE'}",
            f"kernel_size: {layer.kernel}",
            f"stride: {layer.stride}",
            f"pad: {layer.pad}",
        )
        return [_layer_block(layer.name, "Pooling", bottoms, top, pooling)]
    if isinstance(layer, xl.LRN):
        lrn = _block(
            "lrn_param",
            f"norm_region: {'ACROSS_CHANNELS' if layer.region == 'across' else 'WITHIN_CHANNEL'}",
            f"local_size: {layer.size}",
            f"alpha: {layer.alpha}",
            f"beta: {layer.beta}",
            f"k: {layer.k}",
        )
        return [_layer_block(layer.name, "LRN", bottoms, top, lrn)]
    if isinstance(layer, xl.Dropout):
        ratio = _block("dropout_param", f"dropout_ratio: {layer.ratio}")
        return [_layer_block(layer.name, "Dropout", bottoms, top, ratio)]
    if isinstance(layer, xl.BatchNorm):
        averages = _block(
            "batch_norm_param",
            f"moving_average_fraction: {layer.momentum}",
            f"eps: {layer.eps}",
        )
        untrained = [_block("param", "lr_mult: 0", "decay_mult: 0")] * 3
        scale = _block("scale_param", "bias_term: true")
        return [
            _layer_block(layer.name, "BatchNorm", bottoms, top, *untrained, averages),
            _layer_block(scale_name(layer.name), "Scale", [top], top, scale),
        ]
    if isinstance(layer, xl.SoftmaxLoss):
        weight = f"loss_weight: {layer.weight}"
        return [_layer_block(layer.name, "SoftmaxWithLoss", [*bottoms, "label"], top, weight)]
    return [_layer_block(layer.name, type(layer).__name__, bottoms, top)]  # ReLU, Concat, Eltwise


def _param_blocks(layer: xl.Convolution | xl.InnerProduct) -> list[str]:
    count = 2 if layer.bias else 1
    return [
        _block("param", f"lr_mult: {rate}", f"decay_mult: {decay}")
        for rate, decay in zip(layer.lr_mult[:count], layer.decay_mult)
    ]


def _filler_fields(layer: xl.Convolution | xl.InnerProduct) -> list[str]:
    if not layer.bias:
        return ["bias_term: false", _filler_block("weight_filler", layer.weight_filler)]
    return [
        _filler_block("weight_filler", layer.weight_filler),
        _filler_block("bias_filler", layer.bias_filler),
    ]


def _filler_block(name: str, filler: xl.Filler) -> str:
    lines = [f'type: "{filler.type}"']
    if filler.type == "constant":
        lines.append(f"value: {filler.value}")
    if filler.type == "gaussian":
        lines.append(f"std: {filler.value}")
    return _block(name, *lines)


def _layer_block(name: str, kind: str, bottoms: list[str], top: str, *fields: str) -> str:
    return _block(
        "layer",
        f"name: {_quoted(name)}",
        f"type: {_quoted(kind)}",
        *(f"bottom: {_quoted(bottom)}" for bottom in bottoms),
        f"top: {_quoted(top)}",
        *fields,
    )


def _shape_block(*sizes: int) -> str:
    return f"shape {{ {' '.join(f'dim: {size}' for size in sizes)} }}"


def _block(name: str, *lines: str) -> str:
    return f"{name} {{\n" + indent("\n".join(lines), "  ") + "\n}"


def _quoted(text: str) -> str:
    return json.dumps(text)
