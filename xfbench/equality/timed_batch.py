"""Verify the gradients of a batch as large as the one that is timed.

Libraries choose their algorithms by the shape of the batch. The other cases have 2 or 4 images, so
their kernels may differ from those of a batch of 256. Therefore the gradients and the first update
of the timed batch size are compared too: on the cell's device, in its precision, with its kernel
and its threads.

The batch repeats the images of a case in random order. Its mean gradient equals the gradient of the
case, and so do the statistics of batch norm. So the float64 truth and the rounding of the case are
valid for any batch size, and the reference never computes a large batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from xfbench.environments.environment import Environment
from xfbench.equality import cases, judge
from xfbench.equality.jobs import Arrays, CheckError
from xfbench.equality.judge import Deviation
from xfbench.equality.locate import Place
from xfbench.equality.oracle import Expected
from xfbench.equality.verify import (
    Verdict,
    Verifier,
    judge_cases,
    summarize_by_scope_precision_weights,
)
from xfbench.model.request import Request
from xfbench.workloads import Workload
from xfbench.workloads import layers as xl

# Rounding a value to TF32 changes it by 2e-4 (root mean square). If the limit of a layer's weight
# gradient is below a third of that, it cannot hide TF32 in that layer.
_SHARP = 2.0**-14
# With these weights, every layer matters. They are enough for the blocks.
_BLOCK_WEIGHTS = ("scaled",)
_CAUSE = "right at small batches: the library uses another algorithm for this batch"


def unverifiable_batch_reason(request: Request) -> str | None:
    """Return why the request's batch cannot be verified. None if it can be verified."""
    if request.precision == "float16":
        return "in float16, rounding depends on the batch size, because gradients are divided by it"
    return None


def verify_batch_sizes(
    verifier: Verifier,
    request: Request,
    environment: Environment,
    batch_sizes: Sequence[int],
    seed: int = 0,
) -> dict[int, Verdict]:
    """Return the verdict on the gradients of each batch size. The request has one rank.

    `batch_sizes` are numbers of images on one rank. Sizes that repeat the same images are computed
    in one process. Raises CheckError if the framework gives no results.
    """
    if reason := unverifiable_batch_reason(request):
        return {size: Verdict(request, "unsupported", reason) for size in batch_sizes}
    workload = cases.workload_with_case_rate_and_warmup(request)
    sizes_by_images: dict[int, list[int]] = {}
    for batch_size in batch_sizes:
        images = cases.count_images_to_repeat(workload, batch_size)
        sizes_by_images.setdefault(images, []).append(batch_size)
    verdicts: dict[int, Verdict] = {}
    for images, sizes in sizes_by_images.items():
        batches = _Batches(verifier, request, environment, workload, images, seed)
        verdicts |= batches.verify(sizes)
    return verdicts


class _Batches:
    """Batches of one cell that repeat the same images.

    - `images`: the number of different images
    """

    def __init__(
        self,
        verifier: Verifier,
        request: Request,
        environment: Environment,
        workload: Workload,
        images: int,
        seed: int,
    ) -> None:
        self.verifier, self.request, self.environment = verifier, request, environment
        self.workload, self.images, self.seed = workload, images, seed
        self.precision = request.precision
        self.block_inputs: Path | None = None
        networks = cases.own_and_scaled_whole_network_cases(workload, seed, images=images)
        self.networks = verifier.oracle.compute_expected(networks, precision=self.precision)

    def verify(self, batch_sizes: Sequence[int]) -> dict[int, Verdict]:
        """Return the verdict on each batch size."""
        request, verifier = self.request, self.verifier
        expected_by_size = {size: self._compute_expected(size) for size in batch_sizes}
        sizes_text = ", ".join(map(str, batch_sizes))
        verifier.say(
            f"{request.framework} {request.kernel}: {self.workload.name}, batch {sizes_text}"
        )
        documents: list[dict[str, Any]] = [
            expected.case.document(self.precision)
            for of_size in expected_by_size.values()
            for expected in of_size
        ]
        results = verifier.run_cases(request, self.environment, documents, self.block_inputs)
        reason = next(iter(results.unsupported.values()), None)
        if not reason and not results.arrays:
            raise CheckError(f"{request.label()}: there are no results of its batches")
        reason = reason or self._wrong_batch_reason(expected_by_size, results.arrays)
        if reason:
            return {size: Verdict(request, "unsupported", reason) for size in batch_sizes}
        verdicts = {
            size: self._judge(of_size, results.arrays) for size, of_size in expected_by_size.items()
        }
        evidence = results.kernel_evidence
        return {
            size: replace(verdict, kernel_evidence=evidence) for size, verdict in verdicts.items()
        }

    def _compute_expected(self, size: int) -> list[Expected]:
        """Return the cases of a batch size, with their expected results.

        They are the whole network and, if its limits are not sharp for all layers, blocks. In
        float32, layers whose limits are not sharp in any of these run alone too.
        """
        oracle, precision = self.verifier.oracle, self.precision
        expected = [_with_timed_batch(each, size) for each in self.networks]
        if precision == "float64" or not self._find_layers_without_sharp_limit(expected):
            return expected
        self.block_inputs = oracle.write_block_inputs(self.networks)
        blocks = cases.block_cases(self.workload, self.seed, _BLOCK_WEIGHTS, self.images)
        computed = oracle.compute_expected(blocks, self.block_inputs, precision=precision)
        expected += [_with_timed_batch(each, size) for each in computed]
        if precision == "float32":
            names = self._find_layers_without_sharp_limit(expected)
            layers = cases.distinct_layer_cases(self.workload, names, self.seed, self.images)
            computed = oracle.compute_expected(layers, precision=precision)
            expected += [_with_timed_batch(each, size) for each in computed]
        return expected

    def _find_layers_without_sharp_limit(self, timed: Sequence[Expected]) -> list[str]:
        """Return the layers whose weight gradient has no limit below `_SHARP` in any case."""
        sharp = {
            deviation.layer
            for expected in timed
            for deviation in judge.compare(expected, self.precision, expected.truth)
            if deviation.kind == "gradient"
            and deviation.name.endswith("/weight")
            and deviation.allowed < _SHARP * deviation.size
        }
        return [
            layer.name
            for layer in self.workload.network.layers
            if isinstance(layer, xl.Convolution | xl.InnerProduct) and layer.name not in sharp
        ]

    def _wrong_batch_reason(
        self,
        expected_by_size: Mapping[int, Sequence[Expected]],
        arrays: Mapping[str, Arrays],
    ) -> str | None:
        """Return why the results are not those of the batch sizes. None if they are.

        The worker of an earlier revision computes the few images of the case instead.
        """
        for size, of_size in expected_by_size.items():
            for expected in of_size:
                of_case = arrays.get(expected.case.key(self.precision), {})
                if "images" not in of_case or int(of_case["images"]) != size:
                    return f"its worker did not compute a batch of {size} images"
        return None

    def _judge(self, expected: Sequence[Expected], arrays: Mapping[str, Arrays]) -> Verdict:
        """Return the verdict on one batch size.

        If something is outside its limit, each layer runs alone. There, no ReLU can switch. If all
        layers are right, more draws decide whether rounding may have switched a ReLU.
        """
        deviations = [*self._compare(expected, arrays)]
        place = None
        if not all(deviation.is_within_tolerance for deviation in deviations):
            place = self._find_first_wrong_layer(deviations)
            if place is None:
                comparisons = [(each, self.precision) for each in expected]
                deviations = judge_cases(
                    self.verifier.oracle, comparisons, arrays, self.block_inputs
                )
        violations = tuple(each for each in deviations if not each.is_within_tolerance)
        return Verdict(
            self.request,
            "different" if violations else "equal",
            None,
            max(deviations, key=lambda deviation: deviation.excess),
            place,
            summarize_by_scope_precision_weights(deviations),
            violations,
        )

    def _compare(
        self, expected: Sequence[Expected], arrays: Mapping[str, Arrays]
    ) -> Iterator[Deviation]:
        for each in expected:
            yield from judge.compare(each, self.precision, arrays[each.case.key(self.precision)])

    def _find_first_wrong_layer(self, deviations: Sequence[Deviation]) -> Place | None:
        """Return the first layer that is wrong alone. None if no layer is, or if none could run.

        If blocks are wrong, only layers of the first of them are run.
        """
        wrong = [each.case for each in deviations if not each.is_within_tolerance]
        blocks = [case for case in wrong if not case.is_whole_network]
        tested = (blocks[0].workload if blocks else self.workload).network.layers
        in_workload = {layer.name for layer in self.workload.network.layers}
        names = [layer.name for layer in tested if layer.name in in_workload]
        try:
            failing = self.verifier.find_failing_layers(
                self.request, self.environment, self.seed, wrong[0], names, "scaled"
            )
        except CheckError:
            return None
        first = next((name for name in names if name in failing), None)
        return Place(self._skip_to_failing_reader(first, failing), _CAUSE) if first else None

    def _skip_to_failing_reader(self, name: str, failing: Set[str]) -> str:
        """Return the convolution that reads a layer without weights, if it fails too.

        Alone, such a layer keeps the convolution behind it (see `blocks.isolate_layer`).
        """
        layers = self.workload.network.layers
        layer = next(layer for layer in layers if layer.name == name)
        reader = next((each for each in layers if name in each.inputs), None)
        is_readers_fault = (
            not isinstance(layer, xl.Convolution | xl.InnerProduct)
            and isinstance(reader, xl.Convolution)
            and reader.name in failing
        )
        return reader.name if is_readers_fault and reader else name


def _with_timed_batch(expected: Expected, batch_size: int) -> Expected:
    return replace(expected, case=replace(expected.case, timed_batch_size=batch_size))
