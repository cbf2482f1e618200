"""How long an exchange of gradients takes in theory: by algorithm, over a link, behind computing.

Latency and bandwidth make the cost of a message (Hockney, "The communication challenge for MPP",
1994); the algorithms' costs are those of Thakur, Rabenseifner and Gropp, "Optimization of
collective communication operations in MPICH", 2005. What a run shows of it is in
`analysis/communication.py`; what follows for more ranks in `analysis/prediction.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from xfbench.base.errors import UsageError
from xfbench.workloads import layers

Algorithm = Literal["ring", "halving", "server"]

_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_BANDWIDTH = re.compile(r"([\d.]+) ?([kKMGT]?)(bit|b|B)(/s|ps)?")
_LATENCY = re.compile(r"([\d.]+) ?(ns|us|µs|ms|s)")


@dataclass(frozen=True)
class Link:
    """What joins two nodes, in each direction: bytes per second, and seconds of a message."""

    bandwidth: float
    latency: float

    @classmethod
    def parse(cls, text: str) -> Link:
        """From "100Gbit,1us" or "12.5GB/s,1us". Raises UsageError."""
        parts = [part.strip() for part in text.split(",")]
        matched = _BANDWIDTH.fullmatch(parts[0]), _LATENCY.fullmatch(parts[-1])
        try:
            if len(parts) != 2 or matched[0] is None or matched[1] is None:
                raise ValueError
            number, scale, unit, _ = matched[0].groups()
            bandwidth = float(number) * _SCALE[scale] / (1 if unit == "B" else 8)
            latency = float(matched[1][1]) * _SECONDS[matched[1][2]]
            if not bandwidth:
                raise ValueError
        except ValueError as error:
            words = "bandwidth and latency are asked for, such as 100Gbit,1us or 12.5GB/s,1us"
            raise UsageError(f"--link {text}: {words}") from error
        return cls(bandwidth, latency)


def work(algorithm: Algorithm, ranks: int, servers: int = 1) -> tuple[float, float]:
    """How often all gradients pass the busiest link, there and back, and messages in a row.

    "ring": reduce-scatter and all-gather round a ring; "halving": by recursive halving and
    doubling, where ranks beyond a power of two first give all they have to another and are
    given the result; "server": everything to one of `servers` and back. (0, 0) on one rank.
    """
    if ranks == 1:
        return 0.0, 0.0
    if algorithm == "ring":
        return 2 * (ranks - 1) / ranks, 2.0 * (ranks - 1)
    if algorithm == "halving":
        power = 1 << (ranks.bit_length() - 1)
        besides = 0 if power == ranks else 2
        return 2 * (power - 1) / power + besides, 2.0 * (power.bit_length() - 1) + besides
    return 2.0 * ranks / servers, 2.0


def seconds(
    algorithm: Algorithm, ranks: int, payload: float, link: Link, servers: int = 1
) -> float:
    """Of one exchange of `payload` bytes that each rank has."""
    crossings, messages = work(algorithm, ranks, servers)
    return crossings * payload / link.bandwidth + messages * link.latency


@dataclass(frozen=True)
class Bucket:
    """Gradients exchanged together: their share of all, and what of computing is done by then."""

    share: float
    ready: float


AT_THE_END = (Bucket(1.0, 1.0),)  # all at once, when everything is computed


def buckets(network: layers.Network, first: float, others: float, width: int) -> tuple[Bucket, ...]:
    """Gradients in the order of the backward pass, in buckets of so many bytes that are filled up.

    As PyTorch's DistributedDataParallel has them once it has seen a step. `width` is the bytes of
    a value. A layer's share of computing is that of its multiply-accumulates; the backward pass
    comes after the forward one.
    """
    found: list[Bucket] = []
    held, limit = 0, first
    total, done = network.learned_count * width, network.forward_macs
    for layer in reversed(network.layers):
        inputs = network.input_shapes(layer)
        done += layer.macs(inputs) * (1 if layer.inputs == ("data",) else 2)
        own = [*layer.parameters(inputs).values()]
        if isinstance(layer, layers.InnerProduct):
            own.reverse()  # its bias is had before its weight, a convolution's after
        for size in (prod(parameter.shape) for parameter in own if parameter.learned):
            held += size * width
            if held >= limit:
                found.append(Bucket(held / total, done / network.train_macs))
                held, limit = 0, others
    return (*found, Bucket(held / total, 1.0)) if held else tuple(found)


def exposed(of: Sequence[Bucket], computing: float, costs: Sequence[float]) -> float:
    """Seconds that the exchange goes on when computing is done: buckets go one after another.

    `costs` are each bucket's seconds on the link, `computing` those of a step without exchange.
    """
    end = 0.0
    for bucket, cost in zip(of, costs, strict=True):
        end = max(end, bucket.ready * computing) + cost
    return max(0.0, end - computing)
