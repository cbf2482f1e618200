"""Verify the gradients of a batch as large as the one that is timed.

Libraries choose their algorithms by the shape of the batch. The other cases have 2 or 4 images, so
their kernels may differ from those of a batch of 256. Therefore the gradients of the timed batch
size are compared too: on the cell's device, in its precision, with its kernel and its threads.

The batch repeats the images of a case in random order. Its mean gradient equals the gradient of the
case, and so do the statistics of batch norm. So the float64 truth and the rounding of the case are
valid for any batch size, and the reference never computes a large batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import gcd
from pathlib import Path

from xfbench.environments.environment import Environment
from xfbench.equality import cases, judge
from xfbench.equality.jobs import CaseResults
from xfbench.equality.oracle import Expected
from xfbench.equality.verify import Verdict, Verifier
from xfbench.model.request import Request
from xfbench.workloads import Workload

# Half of the error that rounding to TF32 makes in one value. If all limits of the whole network are
# below, rounding cannot hide TF32 or a faster algorithm, and the blocks are not needed.
_SHARP = 2.0**-12
# With these weights, every layer matters. They are enough for the blocks.
_BLOCK_WEIGHTS = ("scaled",)


def verify_batch_sizes(
    verifier: Verifier,
    request: Request,
    environment: Environment,
    batch_sizes: Sequence[int],
    seed: int = 0,
) -> dict[int, Verdict]:
    """Return the verdict on the gradients of each batch size. The request has one rank.

    `batch_sizes` are numbers of images on one rank. Raises CheckError if the framework gives no
    results.
    """
    workload = cases.workload_with_case_rate_and_warmup(request)
    sizes_by_images = defaultdict(list)
    for batch_size in batch_sizes:
        images = gcd(batch_size, cases.case_batch_size_per_rank(workload))
        sizes_by_images[images].append(batch_size)
    verdicts: dict[int, Verdict] = {}
    for images, sizes in sizes_by_images.items():
        verdicts |= _verify_sizes_with_same_images(
            verifier, request, environment, workload, images, sizes, seed
        )
    return verdicts


def _verify_sizes_with_same_images(
    verifier: Verifier,
    request: Request,
    environment: Environment,
    workload: Workload,
    images: int,
    batch_sizes: Sequence[int],
    seed: int,
) -> dict[int, Verdict]:
    """Return the verdict on each batch size. `images` is the number of different images."""
    precision = request.precision
    network_cases = cases.own_and_scaled_whole_network_cases(workload, seed, images=images)
    networks = verifier.oracle.compute_expected(network_cases, precision=precision)
    block_inputs: Path | None = None
    blocks: list[Expected] = []
    if precision != "float64" and not all(
        _is_sharp(expected, precision, max(batch_sizes)) for expected in networks
    ):
        block_inputs = verifier.oracle.write_block_inputs(networks)
        block_cases = cases.block_cases(workload, seed, _BLOCK_WEIGHTS, images)
        blocks = verifier.oracle.compute_expected(block_cases, block_inputs, precision=precision)
    expected_by_size = {
        size: [_with_timed_batch(expected, size) for expected in (*networks, *blocks)]
        for size in batch_sizes
    }
    sizes_text = ", ".join(map(str, batch_sizes))
    verifier.say(f"{request.framework} {request.kernel}: {workload.name}, batch {sizes_text}")
    documents = [
        expected.case.document(precision)
        for of_size in expected_by_size.values()
        for expected in of_size
    ]
    results = verifier.run_cases(request, environment, documents, block_inputs)
    reason = next(iter(results.unsupported.values()), None) or _wrong_batch_reason(
        expected_by_size, precision, results
    )
    if reason:
        return {size: Verdict(request, "unsupported", reason) for size in batch_sizes}
    return {
        size: verifier.judge_and_locate(
            request,
            environment,
            workload,
            [(expected, precision) for expected in of_size],
            results,
            block_inputs,
            seed,
        )
        for size, of_size in expected_by_size.items()
    }


def _with_timed_batch(expected: Expected, batch_size: int) -> Expected:
    return replace(expected, case=replace(expected.case, timed_batch_size=batch_size))


def _wrong_batch_reason(
    expected_by_size: Mapping[int, Sequence[Expected]], precision: str, results: CaseResults
) -> str | None:
    """Return why the results are not those of the batch sizes. None if they are.

    The worker of an earlier revision computes the small batch of the case instead.
    """
    for size, of_size in expected_by_size.items():
        for expected in of_size:
            arrays = results.arrays.get(expected.case.key(precision), {})
            if "images" not in arrays or int(arrays["images"]) != size:
                return f"its worker did not compute a batch of {size} images"
    return None


def _is_sharp(network: Expected, precision: str, batch_size: int) -> bool:
    """Return whether all limits on the whole network's gradients are below `_SHARP`."""
    truth = network.truth
    deviations = judge.compare(_with_timed_batch(network, batch_size), precision, truth)
    return all(deviation.tolerance < _SHARP for deviation in deviations)
