"""Networks and loops as MXNet's users write them, for `versus.py`: each a step that waits.

LRN is MXNet's own here, whose gradient is wrong under oneDNN (docs/findings.md).
"""

import os

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn

from xfbench.adapters.mxnet import exchange
from xfbench.workloads import layers as xl
from xfbench.workloads.initial import initial_parameters


def build_layer(layer):
    """What one would put for the layer into `__init__`; None where there is nothing to put."""
    if isinstance(layer, xl.Convolution):
        options = {"groups": layer.groups, "use_bias": layer.bias}
        return nn.Conv2D(layer.channels, layer.kernel, layer.stride, layer.pad, **options)
    if isinstance(layer, xl.InnerProduct):
        return nn.Dense(layer.channels)
    if isinstance(layer, xl.Pooling):
        kind = nn.MaxPool2D if layer.method == "max" else nn.AvgPool2D
        return kind(layer.kernel, layer.stride, layer.pad, ceil_mode=True)
    if isinstance(layer, xl.BatchNorm):
        return nn.BatchNorm(momentum=layer.momentum, epsilon=layer.eps)
    if isinstance(layer, xl.Dropout):
        return nn.Dropout(layer.ratio)
    return nn.Activation("relu") if isinstance(layer, xl.ReLU) else None


class Network(gluon.HybridBlock):
    """Its outputs are the scores of each head."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        with self.name_scope():
            for layer in network.layers:
                layer_block = build_layer(layer)
                if layer_block is not None:
                    setattr(self, f"layer_{layer.name}", layer_block)

    def hybrid_forward(self, F, x):
        values, heads = {"data": x}, []
        for layer in self.network.layers:
            inputs = [values[name] for name in layer.inputs]
            if isinstance(layer, xl.SoftmaxLoss):
                heads.append(inputs[0])
            elif isinstance(layer, xl.LRN):
                values[layer.name] = lrn(F, layer, inputs[0])
            elif isinstance(layer, xl.Concat):
                values[layer.name] = F.concat(*inputs, dim=1)
            elif isinstance(layer, xl.Eltwise):
                values[layer.name] = inputs[0] + inputs[1]
            else:
                values[layer.name] = getattr(self, f"layer_{layer.name}")(inputs[0])
        return heads


def lrn(F, layer, x):
    if layer.region == "across":
        return F.LRN(x, nsize=layer.size, alpha=layer.alpha, beta=layer.beta, knorm=layer.k)
    window = {"kernel": (layer.size,) * 2, "pad": (layer.size // 2,) * 2, "pool_type": "avg"}
    return x / (layer.k + layer.alpha * F.Pooling(F.square(x), **window)) ** layer.beta


def loops(workload, images, labels, threads, group):  # its environment has set the threads
    """Steps by name: Gluon, hybridized, and the symbolic Module; of several ranks, the latter.

    Its kvstore is the adapter's, since a process may ask for one once, and weights are updated by
    the ranks, since one that updates them would update the adapter's too. Gluon's trainer
    calls its gradients by numbers, which no kvstore takes beside the adapter's names.
    """
    images, labels = mx.nd.array(images), mx.nd.array(labels)
    if group.size > 1:
        os.environ["MXNET_UPDATE_ON_KVSTORE"] = "0"
        store = exchange._connect_to_server(group.strategy)
        return {f"Module, {group.strategy}": build_module_step(workload, images, labels, store)}
    return {
        "Gluon, hybridized": build_gluon_step(workload, images, labels),
        "Module": build_module_step(workload, images, labels),
    }


def solver_options(workload):
    solver = workload.solver
    return {
        "learning_rate": solver.base_lr,
        "momentum": solver.momentum,
        "wd": solver.weight_decay,
    }


def head_weights(workload):
    return [layer.weight for layer in workload.network.layers if isinstance(layer, xl.SoftmaxLoss)]


def initial_pairs(workload, model):
    """Each of the model's learned parameters, and what it starts from."""
    for name, value in initial_parameters(workload.network, 0).items():
        layer, _, kind = name.rpartition("/")
        if kind not in ("mean", "variance"):
            yield getattr(getattr(model, f"layer_{layer}"), kind), mx.nd.array(value)


def build_gluon_step(workload, images, labels):
    model, heads = Network(workload.network), head_weights(workload)
    model.initialize(mx.init.Xavier())
    for parameter, initial_value in initial_pairs(workload, model):
        parameter.set_data(initial_value)
    model.hybridize(static_alloc=True, static_shape=True)
    criterion = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(model.collect_params(), "sgd", solver_options(workload))

    def step():
        with autograd.record():
            losses = [
                w * criterion(scores, labels)
                for w, scores in zip(heads, model(images), strict=True)
            ]
            loss = sum(losses[1:], losses[0])
        loss.backward()
        trainer.step(len(labels))
        loss.mean().asscalar()
        mx.nd.waitall()

    return step


def build_module_step(workload, images, labels, store="local"):
    model = Network(workload.network)
    heads = model(mx.sym.var("data"))
    names = [f"label{number}" for number in range(len(heads))]
    outputs = [
        mx.sym.SoftmaxOutput(scores, mx.sym.var(name), grad_scale=weight, name=f"end_{name}")
        for name, scores, weight in zip(names, heads, head_weights(workload), strict=True)
    ]
    module = mx.mod.Module(mx.sym.Group(outputs), ("data",), names, context=mx.cpu())
    module.bind([("data", images.shape)], [(name, labels.shape) for name in names])
    initial_values = {parameter.name: value for parameter, value in initial_pairs(workload, model)}
    module.init_params(mx.init.Xavier(), initial_values, allow_missing=True)  # running averages
    module.init_optimizer(store, "sgd", solver_options(workload))
    batch = mx.io.DataBatch([images], [labels] * len(names))
    metric = mx.metric.create("acc")  # what `Module.fit` reads in each step where nothing is said

    def step():
        module.forward_backward(batch)
        module.update()
        module.update_metric(metric, batch.label)
        mx.nd.waitall()

    return step
