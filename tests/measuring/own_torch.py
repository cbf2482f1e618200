"""Networks and loops as PyTorch's users write them, for `versus.py`: each a step that waits."""

import torch
from torch import nn

from xfbench.workloads import layers as xl
from xfbench.workloads.initial import initial_parameters


class WithinChannelLRN(nn.Module):
    """LRN over an image's own surroundings, which PyTorch has not."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.pool = layer, nn.AvgPool2d(layer.size, 1, layer.size // 2)

    def forward(self, x):
        return x / (self.layer.k + self.layer.alpha * self.pool(x * x)) ** self.layer.beta


def build_module(layer, shape):
    """What one would put for the layer into `__init__`; None where there is nothing to put."""
    if isinstance(layer, xl.Convolution):
        options = {"groups": layer.groups, "bias": layer.bias}
        return nn.Conv2d(
            *(shape[0], layer.channels, layer.kernel, layer.stride, layer.pad), **options
        )
    if isinstance(layer, xl.InnerProduct):
        return nn.Linear(torch.Size(shape).numel(), layer.channels)
    if isinstance(layer, xl.Pooling):
        kind = nn.MaxPool2d if layer.method == "max" else nn.AvgPool2d
        return kind(layer.kernel, layer.stride, layer.pad, ceil_mode=True)
    if isinstance(layer, xl.LRN):
        if layer.region == "within":
            return WithinChannelLRN(layer)
        return nn.LocalResponseNorm(layer.size, layer.alpha, layer.beta, layer.k)
    if isinstance(layer, xl.BatchNorm):
        return nn.BatchNorm2d(shape[0], layer.eps, 1 - layer.momentum)
    if isinstance(layer, xl.Dropout):
        return nn.Dropout(layer.ratio)
    return nn.ReLU() if isinstance(layer, xl.ReLU) else None


class Network(nn.Module):
    """A module whose `forward` is a line per layer, written out as one would by hand."""

    def __init__(self, network):
        super().__init__()
        lines, heads, names = ["def forward(self, x0):"], [], {"data": "x0"}
        for number, layer in enumerate(network.layers, 1):
            inputs = [names[name] for name in layer.inputs]
            if isinstance(layer, xl.SoftmaxLoss):
                heads.append(inputs[0])
                continue
            names[layer.name] = f"x{number}"
            layer_module = build_module(layer, network.input_shapes(layer)[0])
            if layer_module is not None:
                setattr(self, f"layer{number}", layer_module)
            expression = f"self.layer{number}({inputs[0]})"
            if isinstance(layer, xl.InnerProduct):
                expression = f"self.layer{number}({inputs[0]}.flatten(1))"
            if isinstance(layer, xl.Concat):
                expression = f"torch.cat([{', '.join(inputs)}], 1)"
            if isinstance(layer, xl.Eltwise):
                expression = " + ".join(inputs)
            lines.append(f"    x{number} = {expression}")
        lines.append(f"    return [{', '.join(heads)}]")
        namespace = {"torch": torch}
        exec("\n".join(lines), namespace)
        self.lines = namespace["forward"]

    def forward(self, images):
        """Scores of each head."""
        return self.lines(self, images)


def loops(workload, images, labels, threads, group):
    """Steps by name: the plain loop, with channels last, and compiled; of several ranks, DDP."""
    torch.set_num_threads(threads)
    images, labels = torch.from_numpy(images), torch.from_numpy(labels)
    if group.size > 1:  # the adapter's trainer has called init_process_group
        ddp_step = build_step(workload, images, labels, nn.parallel.DistributedDataParallel)
        return {"DistributedDataParallel": ddp_step}
    channels_last_images = images.to(memory_format=torch.channels_last)
    return {
        "plain loop": build_step(workload, images, labels, lambda model: model),
        "plain loop, channels_last": build_step(
            workload, channels_last_images, labels, _to_channels_last
        ),
        "torch.compile": build_step(workload, images, labels, torch.compile),
        "torch.compile, channels_last": build_step(
            workload,
            channels_last_images,
            labels,
            lambda model: torch.compile(_to_channels_last(model)),
        ),
    }


def _to_channels_last(model):
    return model.to(memory_format=torch.channels_last)


def head_weights(workload):
    """Return the weight of each head's loss."""
    layers = workload.network.layers
    return [layer.weight for layer in layers if isinstance(layer, xl.SoftmaxLoss)]


def build_network(workload):
    """Return the module with the weights that every framework starts from."""
    network = Network(workload.network).train()
    assert sum(p.numel() for p in network.parameters()) == workload.network.learned_count
    learned = {
        name
        for name, parameter_spec in workload.network.parameters.items()
        if parameter_spec.learned
    }
    initial = initial_parameters(workload.network, 0)
    with torch.no_grad():
        values = [value for name, value in initial.items() if name in learned]
        for parameter, value in zip(network.parameters(), values, strict=True):
            parameter.copy_(torch.from_numpy(value))
    return network


def build_step(workload, images, labels, prepare_model):
    """The loop of any tutorial: forward, backward, an SGD step, the loss read each time."""
    network = build_network(workload)
    model, solver = prepare_model(network), workload.solver
    weights, criterion = head_weights(workload), nn.CrossEntropyLoss()
    options = {"momentum": solver.momentum, "weight_decay": solver.weight_decay}
    optimizer = torch.optim.SGD(model.parameters(), solver.base_lr, **options)

    def step():
        optimizer.zero_grad()
        scores = model(images)
        loss = sum(
            weight * criterion(head_scores, labels)
            for weight, head_scores in zip(weights, scores, strict=True)
        )
        loss.backward()
        optimizer.step()
        loss.item()

    return step
