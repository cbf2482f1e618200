"""Verify the gradients of a batch as large as the one that is timed.

Libraries choose their algorithms by the shape of the batch. The other cases have 2 or 4 images, so
their kernels may differ from those of a batch of 256. Therefore the gradients of the timed batch
size are compared too: on the cell's device, in its precision, with its kernel and its threads. They
are read from the first update, because launches time the program that computes updates.

The batch repeats the images of a case in random order. Its mean gradient equals the gradient of the
case, and so do the statistics of batch norm. So the float64 truth and the rounding of the case are
valid for any batch size, and the reference never computes a large batch.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from xfbench.environments.environment import Environment
from xfbench.equality import cases, judge
from xfbench.equality.jobs import Arrays, CaseResults, CheckError
from xfbench.equality.judge import Deviation
from xfbench.equality.locate import Place
from xfbench.equality.oracle import Expected
from xfbench.equality.verify import (
    Verdict,
    Verifier,
    judge_cases,
    may_be_rounding,
    summarize_by_scope_precision_weights,
)
from xfbench.model.request import Request
from xfbench.workloads import Workload
from xfbench.workloads import layers as xl

# Limits below these, relative to a layer's weight gradient, are sharp. Rounding to TF32, which
# float32 must not hide, changes a value, and sums of its products, by 2e-4 (root mean square). The
# other precisions round far more themselves.
_SHARP = {"float32": 2.0**-13, "tf32": 2.0**-5, "bfloat16": 2.0**-2}
# A batch norm's products are not rounded to TF32, and its sums have more terms.
_SHARP_GAMMA = 2.0**-9
# Layers that run alone if the limits of the whole network are not sharp, though they have no
# weights: their errors show only in gradients of layers before them.
_WITHOUT_WEIGHTS = (xl.LRN, xl.Pooling)
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
        self.layers = cases.distinct_layer_cases(workload, seed, images)

    def verify(self, batch_sizes: Sequence[int]) -> dict[int, Verdict]:
        """Return the verdict on each batch size."""
        request, verifier = self.request, self.verifier
        expected_by_size = {size: self._choose_cases(size) for size in batch_sizes}
        sizes_text = ", ".join(map(str, batch_sizes))
        verifier.say(
            f"{request.framework} {request.kernel}: {self.workload.name}, batch {sizes_text}"
        )
        results = self._run([each for of_size in expected_by_size.values() for each in of_size])
        reason = next(iter(results.unsupported.values()), None)
        if not reason and not results.arrays:
            raise CheckError(f"{request.label()}: there are no results of its batches")
        reason = reason or self._wrong_batch_reason(expected_by_size, results.arrays)
        if reason:
            return {size: Verdict(request, "unsupported", reason) for size in batch_sizes}
        verdicts = {
            size: self._judge(size, of_size, results.arrays)
            for size, of_size in expected_by_size.items()
        }
        evidence = results.evidence_by_images
        return {
            size: replace(verdict, kernel_evidence=evidence.get(size, results.kernel_evidence))
            for size, verdict in verdicts.items()
        }

    def _run(self, expected: Iterable[Expected]) -> CaseResults:
        documents = [each.case.document(self.precision) for each in expected]
        return self.verifier.run_cases(self.request, self.environment, documents, self.block_inputs)

    def _choose_cases(self, size: int) -> list[Expected]:
        """Return the cases of a batch size, with their expected results.

        They are the whole network and, if its limits are not sharp for all layers, blocks. Layers
        whose limits are not sharp in any of these run alone too, and so do those without weights.
        """
        verifier, precision = self.verifier, self.precision
        oracle = verifier.oracle
        expected = [_with_timed_batch(each, size) for each in self.networks]
        if not (verifier.all_at_once or self._find_layers_without_sharp_limit(expected)):
            return expected
        self.block_inputs = oracle.write_block_inputs(self.networks)
        blocks = cases.block_cases(self.workload, self.seed, _BLOCK_WEIGHTS, self.images)
        computed = oracle.compute_expected(blocks, self.block_inputs, precision=precision)
        expected += [_with_timed_batch(each, size) for each in computed]
        if verifier.all_at_once:
            return expected + self._expect_layers(self.layers, size)
        without_limit = self._find_layers_without_sharp_limit(expected)
        network = self.workload.network
        names = {
            layer.name
            for layer in network.layers
            if layer.name in without_limit or isinstance(layer, _WITHOUT_WEIGHTS)
        }
        return expected + self._expect_layers(names, size)

    def _expect_layers(self, names: Container[str], size: int) -> list[Expected]:
        """Return the cases of these layers alone, with their expected results."""
        chosen = {case.name: case for name, case in self.layers.items() if name in names}
        computed = self.verifier.oracle.compute_expected(
            [*chosen.values()], precision=self.precision
        )
        return [_with_timed_batch(each, size) for each in computed]

    def _find_layers_without_sharp_limit(self, timed: Sequence[Expected]) -> list[str]:
        """Return the layers whose weight gradient has no sharp limit in any of these cases.

        A sharp limit of one layer holds for all layers that differ only in names. In float64, all
        limits are sharp.
        """
        if self.precision == "float64":
            return []
        of_weight = _SHARP[self.precision]
        limits = {"weight": of_weight, "gamma": max(of_weight, _SHARP_GAMMA)}
        sharp = {
            self.layers[deviation.layer].name
            for expected in timed
            for deviation in judge.compare(expected, self.precision, expected.truth)
            if deviation.layer in self.layers
            and deviation.allowed
            < limits.get(deviation.name.rpartition("/")[2], 0.0) * deviation.size
        }
        return [
            layer.name
            for layer in self.workload.network.layers
            if isinstance(layer, xl.Convolution | xl.InnerProduct | xl.BatchNorm)
            and self.layers[layer.name].name not in sharp
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

    def _judge(
        self, size: int, expected: Sequence[Expected], arrays: Mapping[str, Arrays]
    ) -> Verdict:
        """Return the verdict on one batch size.

        If something is outside its limit, each layer runs alone. A layer that is wrong alone makes
        the cell different. If all layers are right, more draws decide whether rounding may have
        switched a ReLU in a larger case.
        """
        deviations = [*self._compare(expected, arrays)]
        place = None
        if not all(deviation.is_within_tolerance for deviation in deviations):
            try:
                failing = self._find_failing_layers(size, expected, arrays)
            except CheckError as error:
                if may_be_rounding(deviations):
                    reason = f"outside its limits, and its layers cannot run alone: {error}"
                    return Verdict(self.request, "unsupported", reason)
                failing = []
            else:
                if not failing:
                    deviations = self._judge_with_more_draws(expected, arrays)
            place = Place(self._skip_to_failing_reader(failing), _CAUSE) if failing else None
        violations = tuple(each for each in deviations if not each.is_within_tolerance)
        if not violations and (names := self._find_layers_without_sharp_limit(expected)):
            reason = f"rounding of this batch may hide an error of {', '.join(names)}"
            return Verdict(self.request, "unsupported", reason)
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

    def _judge_with_more_draws(
        self, expected: Sequence[Expected], arrays: Mapping[str, Arrays]
    ) -> list[Deviation]:
        comparisons = [(each, self.precision) for each in expected]
        return judge_cases(self.verifier.oracle, comparisons, arrays, self.block_inputs)

    def _find_failing_layers(
        self, size: int, expected: Sequence[Expected], arrays: Mapping[str, Arrays]
    ) -> list[str]:
        """Return the layers that are wrong alone, in the network's order.

        Layers that have not run yet are run. Raises CheckError if one gives no results.
        """
        ran = {each.case.name: each for each in expected}
        missing = [name for name, case in self.layers.items() if case.name not in ran]
        more = self._expect_layers(missing, size)
        all_arrays = dict(arrays)
        if more:
            results = self._run(more)
            reason = next(iter(results.unsupported.values()), None)
            if reason := reason or self._wrong_batch_reason({size: more}, results.arrays):
                raise CheckError(reason)
            all_arrays |= results.arrays
        alone = {each.case.name: each for each in [*expected, *more]}
        is_right = {
            name: self._is_layer_right(each, all_arrays)
            for name, each in alone.items()
            if name.startswith("layer/")
        }
        return [name for name, case in self.layers.items() if not is_right[case.name]]

    def _is_layer_right(self, expected: Expected, arrays: Mapping[str, Arrays]) -> bool:
        """Return whether a layer alone is within its limits.

        Only a ReLU or a maximum may be switched by rounding, so that more draws may explain it.
        """
        has_switches = any(map(_may_switch, expected.case.workload.network.layers))
        judge_case = self._judge_with_more_draws if has_switches else self._compare
        deviations = judge_case([expected], arrays)
        return all(deviation.is_within_tolerance for deviation in deviations)

    def _skip_to_failing_reader(self, failing: Sequence[str]) -> str:
        """Return the first layer that fails. If it has no weights, perhaps the convolution behind.

        Alone, a layer without weights keeps the convolution behind it (see
        `blocks.isolate_layer`). So that convolution is named, if it fails too.
        """
        layers = self.workload.network.layers
        first = next(layer for layer in layers if layer.name == failing[0])
        reader = next((each for each in layers if first.name in each.inputs), None)
        is_readers_fault = (
            not isinstance(first, xl.Convolution | xl.InnerProduct)
            and isinstance(reader, xl.Convolution)
            and reader.name in failing
        )
        return reader.name if is_readers_fault and reader else first.name


def _may_switch(layer: xl.Layer) -> bool:
    return isinstance(layer, xl.ReLU) or (isinstance(layer, xl.Pooling) and layer.method == "max")


def _with_timed_batch(expected: Expected, batch_size: int) -> Expected:
    return replace(expected, case=replace(expected.case, timed_batch_size=batch_size))
