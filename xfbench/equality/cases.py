"""Build the cases: small trainings whose numbers are compared with the oracle's.

- The whole network in float64 tests the structure, with negligible rounding.
- The blocks in float32 test the kernels that are timed, without the noise of a deep network. Their
  inputs are drawn from the distribution of the oracle's activations.
- The whole network in float32 tests what users train.

Each case runs with two sets of weights: the workload's own, and weights that are scaled so that
every layer matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any

from xfbench.base import digests
from xfbench.equality.blocks import (
    NOISE,
    cut_into_distinct_overlapping_blocks,
    isolate_layer,
    structure_without_names,
)
from xfbench.equality.scaled import scale_weights
from xfbench.model import training
from xfbench.model.certificate import SAFETY
from xfbench.model.request import Request
from xfbench.workloads import Workload, workloads
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

STEPS = (1, 3, 10)
_MAX_IMAGES = 16  # different images of a timed batch
_MAX_COPIES = 32  # of an image, if possible: the sum of more rounds more than different images do
WARMUP = 4  # largest learning-rate warm-up of a case, in updates
DRAWS = 3  # draws of rounding for every case; further draws move values SAFETY times as far
WEIGHTS = ("own", "scaled")
_EPSILON = 2.0**-23
# With this learning rate, the first update of a timed batch is far larger than the weights. So the
# gradient can be read from the change of the weights without loss.
_RATE_OF_GRADIENTS = 2.0**40
# One unit in the last place of each precision, in units of float32.
_ULPS = {"float64": 1, "float32": 1, "tf32": 2**13, "float16": 2**13, "bfloat16": 2**16}
# Limit on how far the first update moves a tensor, relative to the tensor's norm. If moves are
# larger, rounding grows with each update until no verdict is possible.
LARGEST_MOVE = 0.02
# A changing learning rate shows how a framework stores its velocity.
_POLICIES: dict[str, dict[str, Any]] = {
    "own": {"policy": "step", "gamma": 0.5, "stepsize": 2},
    "scaled": {"policy": "inv", "gamma": 0.1, "power": 0.75},
    "block": {"policy": "poly", "power": 0.5, "max_iter": 20},
}


@dataclass(frozen=True)
class Case:
    """A small training whose numbers are compared with the oracle's.

    - `name`: unique within a workload
    - `weights`: the set of weights, "own" or "scaled"
    - `origin`: the digest of the complete workload, of which the case may train only a part
    - `reads`: the name of the activation that is the case's input; "" for synthetic input
    - `ranks`: the number of ranks that share the batch. Each rank computes the batch statistics of
      its own part of the batch.
    - `learning_rate`: the base learning rate that the oracle chose; None before the oracle has
      chosen one
    - `largest_move`: the limit on how far the first update moves a tensor, relative to the tensor's
      norm. The oracle lowers the learning rate to keep this limit. Biases may move farther.
    - `activations`: the names of the layers whose outputs blocks read
    - `is_gradient_only`: whether only gradients are computed
    - `timed_batch_size`: the size of a batch that repeats the case's images. Only gradients are
      compared then: they equal those of the case. None for an ordinary case
    """

    name: str
    workload: Workload
    weights: str
    batch_size: int
    seed: int
    origin: str
    reads: str = ""
    is_whole_network: bool = False
    ranks: int = 1
    learning_rate: float | None = None
    largest_move: float = LARGEST_MOVE
    activations: tuple[str, ...] = ()
    is_gradient_only: bool = False
    timed_batch_size: int | None = None

    def limit_of_sum(self, parameter: str) -> float:
        """Return how far summing a timed batch may move a gradient, relative to the gradient.

        It is 0 for an ordinary case. Each copy of an image has the same gradient, with the same
        rounding. Only their sum rounds anew. If a sum of n similar terms is formed one by one in
        float32, each addition rounds the sum so far by up to half a unit. The mean square of such a
        rounding is a twelfth of a square unit, so all together are about sqrt(n / 36) units. With
        many copies, equal terms are rounded alike, and more (seen in oneDNN).

        A weight's gradient may be three times as far. The sums for biases and batch norms nearly
        cancel, so they may be SAFETY times as far.
        """
        if self.timed_batch_size is None:
            return 0.0
        layer, _, kind = parameter.rpartition("/")
        positions = prod(self.workload.network.shapes[layer][1:])
        one_by_one = _EPSILON * sqrt(self.timed_batch_size * positions / 36)
        growth = max(1.0, sqrt(self.copies / _MAX_COPIES))
        return (3 if kind == "weight" else SAFETY) * one_by_one * growth

    @property
    def copies(self) -> int:
        """How often the timed batch has each image of the case. 1 for an ordinary case."""
        return 1 if self.timed_batch_size is None else self.timed_batch_size // self.batch_size

    def document(self, precision: str, draw: int = 0) -> dict[str, Any]:
        """Return the JSON document of this case for the worker.

        `draw` is the number of a draw of rounding. In the list, a unit is one unit in the last
        place of `precision`, or of float32 if `precision` is "float64":

        - Draw 0 leaves images and weights as they are.
        - Draws 1 to DRAWS - 1 move each image value and weight at random, by at most one unit.
        - Further draws move each of these values at random, by at most SAFETY units.
        """
        workload = self.workload
        if self.timed_batch_size is not None:
            solver = Solver(_RATE_OF_GRADIENTS, momentum=workload.solver.momentum)
            workload = replace(workload, solver=solver)
        elif self.learning_rate is not None:
            workload = replace(
                workload, solver=replace(workload.solver, base_lr=self.learning_rate)
            )
        document = {
            "name": self.key(precision, draw),
            "workload": workload.to_json(),
            "batch_size": self.batch_size,
            "seed": self.seed,
            "input": f"{self.weights}/{self.reads}" if self.reads else None,
            "nudge": draw,
            "nudge_units": _ULPS[precision] * (SAFETY if draw >= DRAWS else 1),
            "options": {"precision": precision, "dropout": "identity", "seed": self.seed},
            "outputs": True,
            "activations": list(self.activations),
            "full": 0,
            "steps": list(STEPS),
            "largest_move": self.largest_move if self.learning_rate is None else None,
            **({"ranks": self.ranks} if self.ranks > 1 else {}),
        }
        if self.timed_batch_size is not None:
            document |= {"copies": self.copies, "outputs": False, "activations": [], "steps": []}
            document |= {"test_mode": False, "gradients_of_update": True, "largest_move": None}
        elif self.is_gradient_only:
            document |= {"outputs": False, "steps": [], "test_mode": False}
        return document

    def key(self, precision: str, draw: int = 0) -> str:
        """Return the name of this case for a precision and a draw of rounding."""
        batch = "" if self.timed_batch_size is None else f"/batch {self.timed_batch_size}"
        return f"{self.name}{batch}:{precision}:{draw}"


def workload_with_case_rate_and_warmup(request: Request) -> Workload:
    """Return the request's workload with the learning rate and warm-up that cases use.

    - The base learning rate is the published one, even if the request has another. So requests with
      different rates use the same cached results of the oracle.
    - The oracle lowers this rate for each case as far as needed.
    - The warm-up is short enough to end within a case's few updates.
    """
    trained_workload, published_solver = (
        training.workload_with_solver_of_cell(request),
        workloads()[request.workload].solver,
    )
    warmup = min(trained_workload.solver.warmup, WARMUP)
    solver = replace(trained_workload.solver, base_lr=published_solver.base_lr, warmup=warmup)
    return replace(trained_workload, solver=solver)


def count_images_to_repeat(workload: Workload, batch_size: int) -> int:
    """Return how many different images a batch of this size has, each of them equally often.

    It is `case_batch_size_per_rank` if possible, because the truth of such cases is known, or more
    if the batch is large. With one image, a framework that mixes images up would not be noticed.
    """
    usual = case_batch_size_per_rank(workload)
    divisors = [n for n in range(1, _MAX_IMAGES + 1) if batch_size % n == 0]
    for images in divisors:
        if images >= usual and batch_size // images <= _MAX_COPIES:
            return images
    return divisors[-1]


def case_batch_size_per_rank(workload: Workload) -> int:
    """Return the number of images per rank in a case. A few images are enough to show an error."""
    return 2 if workload.network.input_shape[1] > 64 else 4


def own_and_scaled_whole_network_cases(
    workload: Workload, seed: int, ranks: int = 1, images: int | None = None
) -> list[Case]:
    """Return two cases of the whole network: with its own weights and with scaled weights.

    The batch grows with the number of ranks. `images` is the number of images per rank; None:
    `case_batch_size_per_rank`.
    """
    images = images or case_batch_size_per_rank(workload)
    reads = tuple(
        sorted(
            {
                block.reads
                for block in cut_into_distinct_overlapping_blocks(workload.network, workload.pixels)
            }
            - {"data"}
        )
    )
    return [
        Case(
            name=f"whole/{weights}" if ranks == 1 else f"{ranks} ranks/{weights}",
            workload=replace(
                workload,
                network=_network_with_weights(workload, weights),
                solver=_solver_with_case_policy(workload.solver, weights),
            ),
            weights=weights,
            batch_size=ranks * images,
            seed=seed,
            origin=_workload_digest(workload),
            is_whole_network=True,
            ranks=ranks,
            activations=reads if ranks == 1 else (),
        )
        for weights in WEIGHTS
    ]


def block_cases(
    workload: Workload,
    seed: int,
    weight_sets: Sequence[str] = WEIGHTS,
    images: int | None = None,
) -> list[Case]:
    """Return a case for each distinct block and each of `weight_sets`.

    A block at the network's input reads the synthetic input. The inputs of other blocks are drawn
    from the distribution of the oracle's activations.

    `images` is the number of images; None: `case_batch_size_per_rank`.
    """
    all_cases = []
    for weights in weight_sets:
        for number, block in enumerate(
            cut_into_distinct_overlapping_blocks(
                _network_with_weights(workload, weights), workload.pixels
            )
        ):
            reads = "" if block.reads == "data" else block.reads
            all_cases.append(
                _build_block_case(
                    workload, f"block{number}", block.network, weights, seed, reads, images
                )
            )
    return all_cases


def layer_case(
    workload: Workload, layer: str, weights: str, seed: int, images: int | None = None
) -> Case:
    """Return a case that tests one layer alone. `weights` is "own" or "scaled".

    `images` is the number of images; None: `case_batch_size_per_rank`.
    """
    block = isolate_layer(_network_with_weights(workload, weights), layer)
    return _build_block_case(workload, f"layer/{layer}", block.network, weights, seed, "", images)


def distinct_layer_cases(workload: Workload, seed: int, images: int) -> dict[str, Case]:
    """Return a case of the gradients of each layer alone, by the layer's name.

    Layers that differ only in names share the case of the first of them.
    """
    cases_by_structure: dict[object, Case] = {}
    layer_cases = {}
    for layer in workload.network.layers:
        case = layer_case(workload, layer.name, "scaled", seed, images)
        structure = structure_without_names(case.workload.network)
        shared = cases_by_structure.setdefault(structure, replace(case, is_gradient_only=True))
        layer_cases[layer.name] = shared
    return layer_cases


def _build_block_case(
    workload: Workload,
    name: str,
    network: xl.Network,
    weights: str,
    seed: int,
    input_activation: str,
    images: int | None,
) -> Case:
    pixels = workload.pixels
    if network.input_shape[0] != len(pixels.mean):  # reads drawn values or noise
        pixels = replace(NOISE, mean=NOISE.mean * network.input_shape[0])
    solver = _solver_with_case_policy(workload.solver, "block")
    return Case(
        name=f"{name}/{weights}",
        workload=replace(workload, network=network, solver=solver, pixels=pixels),
        weights=weights,
        batch_size=images or case_batch_size_per_rank(workload),
        seed=seed,
        origin=_workload_digest(workload),
        reads=input_activation,
    )


def _workload_digest(workload: Workload) -> str:
    return digests.of_json(workload.to_json())


def _network_with_weights(workload: Workload, weights: str) -> xl.Network:
    if weights == "own":
        return workload.network
    return scale_weights(workload.network, workload.pixels)


def _solver_with_case_policy(solver: Solver, case_kind: str) -> Solver:
    return replace(solver, **_POLICIES[case_kind])
