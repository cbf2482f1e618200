"""Layers that sleep, forward and backward, and DistributedDataParallel that joins what they give.

A layer sleeps as long as its share of the multiply-accumulates is.
"""

import time
from math import prod

import torch
from torch import distributed, nn

from xfbench.worker.distributed import exchange_rank_addresses


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds, zeros, *parameters):
        ctx.seconds, ctx.zeros = seconds, zeros
        time.sleep(seconds[0])
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds[1])
        return (gradient, None, None, *ctx.zeros)


class _Layers(nn.Module):
    """`seconds` is what a step is to take."""

    def __init__(self, network):
        super().__init__()
        self.shares, self.zeros, self.seconds = [], [], 0.0
        self.parts = nn.ModuleList()
        for layer in network.layers:
            inputs = network.input_shapes(layer)
            share = layer.macs(inputs) / network.train_macs
            shapes = [p.shape for p in layer.parameters(inputs).values() if p.learned]
            layer_parameters = [nn.Parameter(torch.zeros(prod(shape))) for shape in shapes]
            self.shares.append((share, share * (1 if layer.inputs == ("data",) else 2)))
            self.parts.append(nn.ParameterList(layer_parameters))
            self.zeros.append([torch.zeros_like(parameter) for parameter in layer_parameters])

    def forward(self, x):
        for (forward_share, backward_share), layer_parameters, zeros in zip(
            self.shares, self.parts, self.zeros, strict=True
        ):
            x = _Sleep.apply(
                x,
                (forward_share * self.seconds, backward_share * self.seconds),
                zeros,
                *layer_parameters,
            )
        return x.sum()


class Layered:
    """A step is the layers' sleeps, and the exchange meanwhile."""

    def __init__(self, network, group):
        torch.set_num_threads(1)
        init_url = f"tcp://{exchange_rank_addresses(group)[0]}"
        distributed.init_process_group(
            "gloo", init_method=init_url, rank=group.rank, world_size=group.size
        )
        self.layers = _Layers(network)
        self.training = nn.parallel.DistributedDataParallel(self.layers)

    def step(self, seconds):
        self.layers.seconds = seconds
        for parameter in self.layers.parameters():
            parameter.grad = None
        self.training(torch.ones(1, requires_grad=True)).backward()

    def gradients(self):
        return [parameter.grad.numpy() for parameter in self.layers.parameters()]

    def disable_sync(self):
        self.training = self.layers
