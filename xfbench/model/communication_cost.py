"""A model of gradient exchange: its duration by algorithm and link, and its overlap with computing.

A message costs its latency plus its size over the bandwidth (Hockney, "The communication challenge
for MPP", 1994). The costs of the algorithms are those of Thakur, Rabenseifner and Gropp,
"Optimization of collective communication operations in MPICH", 2005. `analysis/communication.py`
reports what a run measured, and `analysis/prediction.py` predicts runs with more ranks.
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

_SI_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_TIME_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_BANDWIDTH_PATTERN = re.compile(r"([\d.]+) ?([kKMGT]?)(bit|b|B)(/s|ps)?")
_LATENCY_PATTERN = re.compile(r"([\d.]+) ?(ns|us|µs|ms|s)")


@dataclass(frozen=True)
class Link:
    """A link between two nodes.

    - `bandwidth`: bytes per second in each direction.
    - `latency`: seconds.
    """

    bandwidth: float
    latency: float

    @classmethod
    def parse(cls, bandwidth_and_latency: str) -> Link:
        """Parse text such as "100Gbit,1us" or "12.5GB/s,1us". Raises UsageError if invalid."""
        parts = [part.strip() for part in bandwidth_and_latency.split(",")]
        matches = _BANDWIDTH_PATTERN.fullmatch(parts[0]), _LATENCY_PATTERN.fullmatch(parts[-1])
        try:
            if len(parts) != 2 or matches[0] is None or matches[1] is None:
                raise ValueError
            amount, prefix, unit, _ = matches[0].groups()
            bandwidth = float(amount) * _SI_PREFIXES[prefix] / (1 if unit == "B" else 8)
            latency = float(matches[1][1]) * _TIME_UNITS[matches[1][2]]
            if not bandwidth:
                raise ValueError
        except ValueError as error:
            usage = "give bandwidth and latency, for example 100Gbit,1us or 12.5GB/s,1us"
            raise UsageError(f"--link {bandwidth_and_latency}: {usage}") from error
        return cls(bandwidth, latency)


def crossings_and_messages(
    algorithm: Algorithm, ranks: int, servers: int = 1
) -> tuple[float, float]:
    """Return (traffic of the busiest link, number of messages in sequence) for one exchange.

    The unit of the traffic is the size of one rank's gradients. For one rank, both numbers are 0.

    These are the algorithms:

    - "ring": a reduce-scatter and an all-gather on a ring.
    - "halving": recursive halving and doubling. The number of ranks in it is the largest power of
      two. Each other rank first sends its gradients to one of these ranks, and finally receives the
      result.
    - "server": every rank sends its gradients to the servers, and receives the result. Each of
      `servers` servers has an equal part of the gradients.
    """
    if ranks == 1:
        return 0.0, 0.0
    if algorithm == "ring":
        return 2 * (ranks - 1) / ranks, 2.0 * (ranks - 1)
    if algorithm == "halving":
        power_of_two = 1 << (ranks.bit_length() - 1)
        extra = 0 if power_of_two == ranks else 2
        return 2 * (power_of_two - 1) / power_of_two + extra, 2.0 * (
            power_of_two.bit_length() - 1
        ) + extra
    return 2.0 * ranks / servers, 2.0


def exchange_seconds(
    algorithm: Algorithm, ranks: int, payload_bytes: float, link: Link, servers: int = 1
) -> float:
    """Return the seconds of one exchange in which each rank has `payload_bytes` of gradients."""
    crossings, messages = crossings_and_messages(algorithm, ranks, servers)
    return crossings * payload_bytes / link.bandwidth + messages * link.latency


@dataclass(frozen=True)
class Bucket:
    """Gradients that are exchanged together.

    - `share`: the bucket's share of all gradients.
    - `ready_share`: the share of the step's computing that is done when the bucket is ready.
    """

    share: float
    ready_share: float


SINGLE_BUCKET = (Bucket(1.0, 1.0),)  # all gradients, exchanged after the backward pass


def gradient_buckets(
    network: layers.Network, first_bytes: float, other_bytes: float, value_bytes: int
) -> tuple[Bucket, ...]:
    """Return the buckets of a network's gradients, in the order of the backward pass.

    - `first_bytes`: size in bytes at which the first bucket is full.
    - `other_bytes`: size in bytes at which each other bucket is full.
    - `value_bytes`: size in bytes of one value.

    The buckets are those of PyTorch's DistributedDataParallel after its first step. A layer's share
    of the computing time is estimated as its share of the multiply-accumulates.
    """
    filled: list[Bucket] = []
    pending_bytes, limit_bytes = 0, first_bytes
    total_bytes, done_macs = network.learned_count * value_bytes, network.forward_macs
    for layer in reversed(network.layers):
        input_shapes = network.input_shapes(layer)
        done_macs += layer.macs(input_shapes) * (1 if layer.inputs == ("data",) else 2)
        parameters = [*layer.parameters(input_shapes).values()]
        if isinstance(layer, layers.InnerProduct):
            parameters.reverse()  # its bias is ready first; in a convolution, the weight is
        for value_count in (prod(parameter.shape) for parameter in parameters if parameter.learned):
            pending_bytes += value_count * value_bytes
            if pending_bytes >= limit_bytes:
                filled.append(Bucket(pending_bytes / total_bytes, done_macs / network.train_macs))
                pending_bytes, limit_bytes = 0, other_bytes
    return (*filled, Bucket(pending_bytes / total_bytes, 1.0)) if pending_bytes else tuple(filled)


def exposed_seconds(
    buckets: Sequence[Bucket], computing_s: float, costs_s: Sequence[float]
) -> float:
    """Return how many seconds the exchange goes on after the end of computing.

    - `computing_s`: seconds of a step without exchange.
    - `costs_s`: seconds that the exchange of each bucket takes.

    Buckets are exchanged one after another. The exchange of a bucket starts when its gradients are
    ready and the previous bucket has been exchanged.
    """
    end_s = 0.0
    for bucket, cost_s in zip(buckets, costs_s, strict=True):
        end_s = max(end_s, bucket.ready_share * computing_s) + cost_s
    return max(0.0, end_s - computing_s)
