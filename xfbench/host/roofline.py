"""The peak performance of a machine, and the share of the peak that a result reaches.

The peaks are the speed of a matrix product and the bandwidth of a pass over memory. NumPy measures
them with as many threads as a launch has, in several tries. A try is a separate process on the same
cores, like a launch.

- The best product of all tries is the limit: a faster launch is invalid. It counts the CPU time
  of the threads where that is less than the elapsed time, so that other work on these cores does
  not lower the limit.
- The median product of each try is what a usual product reaches. The share of the peak that a table
  shows divides usual launches by these: the best product of all would be compared with its like.

If NumPy's OpenBLAS does not know the processor, OpenBLAS uses kernels for old processors. Therefore
the AVX-512 kernels are measured too if the processor supports them.

The cache keeps peaks for an hour, so that the next run of xfbench need not measure them again. If
the tries differ too much, the cache keeps them for ten minutes only.
Accelerators have published peaks (`peaks.toml`).

`python -m xfbench.host.roofline THREADS SECONDS SIZE...` is one try. It prints the peaks as JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics as stdlib_statistics
import sys
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import perf_counter, process_time, time
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl

from xfbench.base import atomic_files, digests, paths, processes, tool_output
from xfbench.base.errors import XfbenchError
from xfbench.base.process_variables import Purpose, select_variables
from xfbench.model import facts
from xfbench.model.gpus import Gpu, count_devices
from xfbench.model.record import Limit, Record, WorkloadFacts
from xfbench.model.request import Request
from xfbench.statistics import Block, Interval, interval_of_launches, launch_throughput
from xfbench.worker import host, system_files
from xfbench.workloads import workloads

_SECONDS = 0.4  # per measurement of the first try with each kernel
_REPEATED_SECONDS = 0.1  # of the other tries
_TRIES = 5  # with the fastest kernel
_SIZES = (1024, 2048)  # rows and columns of the matrices
_STREAM_BYTES = 64 * 2**20  # size of each of three arrays: much larger than the caches
# The peaks that this process uses, by number of threads; empty if the measurement failed. Their
# names are those of `measure_peaks`, but "float32_tries" and so on have the medians of all tries.
_PEAKS: dict[int, dict[str, Any]] = {}
_CACHE_SECONDS = 3600.0  # limited, because other work may have lowered a measured peak
_DISTURBED_CACHE_SECONDS = 600.0  # of tries that differ by more than _MAX_TRY_RATIO
_MAX_TRY_RATIO = 2.0
_KERNEL_VARIABLE = "OPENBLAS_CORETYPE"
_AVX512 = {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd"}
_KERNEL_FLAGS = {"SkylakeX": _AVX512, "Cooperlake": {*_AVX512, "avx512_bf16"}}
# Products in other precisions use hardware that NumPy does not use.
_MEASURED_PRECISIONS = ("float32", "float64")
_BEST_NAMES = (*_MEASURED_PRECISIONS, "bandwidth")
_TRIES_NAMES = tuple(f"{name}_tries" for name in _MEASURED_PRECISIONS)


def find_or_measure_limit(request: Request, gpus: Sequence[Gpu] = ()) -> Limit | None:
    """Return the peaks of the hardware that `request` uses. None if they are unknown.

    `gpus` are the GPUs that the ranks computed on.

    - GPU: the published peaks of its model. None if the ranks' models differ.
    - Processor: measured peaks. A measurement takes about eight seconds, or 14 with AVX-512. It is
      done once more if its tries differ too much. The cache keeps the result for each number of
      threads for an hour.
    """
    if request.device == "cuda":
        models = {gpu.name for gpu in gpus}
        model = models.pop() if len(models) == 1 else None
        return _find_published_limit(model, request.precision) if model else None
    if request.precision not in _MEASURED_PRECISIONS:
        return None
    if request.threads not in _PEAKS:
        cached_peaks = _read_cached_peaks(_peaks_file(request.threads))
        if cached_peaks is None:
            measure_again_and_keep_best_peaks(request.threads)
            if _are_disturbed(_PEAKS[request.threads]):
                measure_again_and_keep_best_peaks(request.threads)
        else:
            _PEAKS[request.threads] = cached_peaks
    peaks = _PEAKS[request.threads]
    if not peaks:
        return None
    return Limit(
        threads=request.threads,
        precision=request.precision,
        matrix_product=peaks[request.precision],
        matrix_product_tries=tuple(peaks.get(f"{request.precision}_tries", ())),
        memory_bandwidth=peaks["bandwidth"],
        source="measured",
    )


def compute_min_peak_share(
    limit: Limit | None,
    workload: WorkloadFacts,
    images_per_second: float,
    request: Request,
    gpus: Sequence[Gpu] = (),
) -> float | None:
    """Return the share of the best matrix product that a launch reached at least.

    A launch with a share above 1 is invalid. A multiply-add counts as two operations. Each rank has
    its own cores or GPU, so the peak of a launch is the peak in `limit` times the number of ranks.
    Ranks that share one of `gpus` count once.

    On CPUs, the operations are those of the direct computation. Libraries for GPUs choose faster
    algorithms for convolutions, so there the operations are the least that a step needs. The result
    is None if the limit is unknown, or if the network of a GPU launch is.
    """
    macs: int | None = workload.train_macs_per_image
    if request.device != "cpu":
        known = workloads().get(workload.name)
        is_same = known is not None and known.network.train_macs == macs
        macs = facts.min_train_macs_per_image(known.network) if known and is_same else None
    if limit is None or macs is None:
        return None
    devices = count_devices(gpus, request.ranks)
    return 2 * macs * images_per_second / (limit.matrix_product * devices)


def compute_record_min_peak_share(record: Record) -> float | None:
    """Return the share of the best matrix product that a launch reached at least. None if unknown.

    `compute_min_peak_share` defines the share. The launch's throughput is that of its median step.
    """
    if record.workload is None or record.measurement is None or record.request is None:
        return None
    speed = launch_throughput(record)
    gpus = record.observed.gpus if record.observed else ()
    return compute_min_peak_share(record.limit, record.workload, speed, record.request, gpus)


def usual_matrix_product(limit: Limit) -> Interval | None:
    """Return what a usual matrix product reaches, in FLOP/s, with its interval over the tries.

    It is computed as the throughput of a cell is computed from its launches. Without tries, it is
    the peak in `limit`, without an interval. If the tries differ too much, other work disturbed
    them, and the result is None.
    """
    tries = {Block("", 0, n, 0): flops for n, flops in enumerate(limit.matrix_product_tries)}
    if not tries:
        return Interval(limit.matrix_product, None, None, 1)
    return interval_of_launches(tries) if _agree(limit.matrix_product_tries) else None


def _agree(tries: Sequence[float]) -> bool:
    return max(tries) <= _MAX_TRY_RATIO * min(tries)


def _are_disturbed(peaks: Mapping[str, Any]) -> bool:
    return any(not _agree(peaks[name]) for name in _TRIES_NAMES if name in peaks)


def load_published_peaks() -> dict[str, dict[str, Any]]:
    """Return the published peaks in `peaks.toml`: one table for each processor or accelerator.

    The keys are short names, such as "v100". A table has these fields:

    - `name`: a part of the model name that the NVIDIA driver or the kernel reports.
    - `matrix_product`: the peak in FLOP/s for each precision.
    - `memory_bandwidth`: the peak in B/s.
    - `source`: the publication.
    """
    file = paths.package_folder("xfbench.host") / "peaks.toml"
    return tomllib.loads(file.read_text(encoding="utf-8", errors="replace"))


def _find_published_limit(model: str, precision: str) -> Limit | None:
    for machine in load_published_peaks().values():
        # A MIG instance is only a part of the GPU.
        is_model = machine["name"] in model and "MIG" not in model
        if is_model and precision in machine["matrix_product"]:
            return Limit(
                threads=1,
                precision=precision,
                matrix_product=machine["matrix_product"][precision],
                memory_bandwidth=machine["memory_bandwidth"],
                source=machine["source"],
            )
    return None


def measure_again_and_keep_best_peaks(threads: int) -> None:
    """Measure the peaks with `threads` threads. Keep the best of the old and new values.

    The best values replace those in this process and in the cache. Call this function again if a
    launch exceeds the peak, because other work may have slowed the earlier measurement. Therefore
    the medians of the new tries replace those of the old ones.
    """
    kernel_names = ("", *_list_openblas_kernels(host.machine_facts()["flags"]))
    first_tries = {name: _try_in_process(threads, name, _SECONDS, _SIZES) for name in kernel_names}
    successful_tries = {name: peaks for name, peaks in first_tries.items() if peaks}
    if not successful_tries:
        _PEAKS.setdefault(threads, {})
        return
    fastest = max(successful_tries, key=lambda name: successful_tries[name]["float32_median"])
    fastest_size = int(successful_tries[fastest]["size"])
    repeated = [
        _try_in_process(threads, fastest, _REPEATED_SECONDS, (fastest_size,))
        for _ in range(_TRIES - 1)
    ]
    tries = [successful_tries[fastest], *filter(None, repeated)]
    all_peaks = [*successful_tries.values(), *tries, *filter(None, [_PEAKS.get(threads)])]
    _PEAKS[threads] = {
        **{name: max(peaks[name] for peaks in all_peaks) for name in _BEST_NAMES},
        **{
            f"{name}_tries": [peaks[f"{name}_median"] for peaks in tries]
            for name in _MEASURED_PRECISIONS
        },
    }
    with suppress(OSError):  # for example a full disk: the next session measures again
        atomic_files.write(_peaks_file(threads), json.dumps(_PEAKS[threads]).encode())


def _try_in_process(
    threads: int, kernels: str, seconds: float, sizes: Sequence[int]
) -> dict[str, float]:
    """Return `measure_peaks` of a new process, or an empty dictionary if the process failed.

    `kernels`: name of OpenBLAS's kernels; "": those that OpenBLAS chooses.
    """
    kernel_variables = {_KERNEL_VARIABLE: kernels} if kernels else {}
    with suppress(XfbenchError):
        printed = processes.output(
            [
                *(sys.executable, "-P", "-m", "xfbench.host.roofline"),
                *map(str, (threads, seconds, *sizes)),
            ],
            environment={**select_variables(Purpose.MEASUREMENT), **kernel_variables},
            timeout=300,
        )
        return tool_output.read_json_object(printed)
    return {}


def _peaks_file(threads: int) -> Path:
    """Return the cache file for the peaks with `threads` threads.

    Each combination of machine, boot, usable CPUs, NumPy version and `threads` has its own file.
    """
    machine = {k: v for k, v in host.machine_facts().items() if k != "accelerators"}
    boot_id = system_files.read_system_file(Path("/proc/sys/kernel/random/boot_id"))
    cache_key = [machine, boot_id, sorted(os.sched_getaffinity(0)), np.__version__, threads]
    return paths.cache_folder("peaks") / f"{digests.of_json(cache_key)[7:39]}.json"


def _read_cached_peaks(file: Path) -> dict[str, Any] | None:
    """Read peaks from `file`. Return None if it is missing, damaged or too old."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        peaks = json.loads(file.read_bytes())
        max_age_s = _DISTURBED_CACHE_SECONDS if _are_disturbed(peaks) else _CACHE_SECONDS
        if abs(time() - file.stat().st_mtime) < max_age_s:
            return {
                **{name: float(peaks[name]) for name in _BEST_NAMES},
                **{name: [float(flops) for flops in peaks[name]] for name in _TRIES_NAMES},
            }
    return None


def _list_openblas_kernels(cpu_flags: Sequence[str]) -> list[str]:
    """Return OpenBLAS's names of the kernels that a processor with `cpu_flags` supports."""
    return [
        name for name, required_flags in _KERNEL_FLAGS.items() if required_flags <= set(cpu_flags)
    ]


def measure_peaks(
    threads: int, seconds: float = _SECONDS, sizes: Sequence[int] = _SIZES
) -> dict[str, float]:
    """Measure the peaks with `threads` threads, for `seconds` each.

    `sizes`: numbers of rows and columns of the matrices. Return:

    - For each precision, the undisturbed FLOP/s of the best matrix product, such as "float32", and
      the FLOP/s of the median product of the fastest size, such as "float32_median".
    - "size": the fastest size in float32.
    - "bandwidth": the bandwidth in B/s.
    """
    peaks: dict[str, float] = {}
    with threadpoolctl.threadpool_limits(threads):
        for name in _MEASURED_PRECISIONS:
            products = {
                size: _measure_products(np.dtype(name), threads, seconds, size) for size in sizes
            }
            medians = {
                size: stdlib_statistics.median(product.flops for product in products[size])
                for size in sizes
            }
            fastest_size = max(medians, key=lambda size: medians[size])
            peaks[name] = max(
                product.undisturbed_flops for product in itertools.chain(*products.values())
            )
            peaks[f"{name}_median"] = medians[fastest_size]
            peaks.setdefault("size", fastest_size)
    return {**peaks, "bandwidth": _measure_bandwidth(threads, seconds)}


class _Product(NamedTuple):
    """The FLOP/s of one matrix product.

    - `flops`: operations per elapsed second.
    - `undisturbed_flops`: operations per second of CPU time of each thread, or `flops` if that is
      more. Time in which other work had the cores is not counted.
    """

    flops: float
    undisturbed_flops: float


def _measure_products(dtype: np.dtype, threads: int, seconds: float, size: int) -> list[_Product]:
    """Measure matrix products of `size` rows and columns for `seconds`, one or more."""
    a, b = np.ones((size, size), dtype), np.ones((size, size), dtype)
    out = np.empty_like(a)
    products: list[_Product] = []
    end = perf_counter() + seconds
    while (start := perf_counter()) < end or not products:
        cpu_start_s = process_time()
        np.matmul(a, b, out=out)
        cpu_s = (process_time() - cpu_start_s) / threads
        elapsed_s = perf_counter() - start
        operations = 2 * size**3
        # The system counts CPU time in ticks where it has no precise clock: then it may be 0.
        undisturbed_s = min(elapsed_s, cpu_s) if cpu_s > 0 else elapsed_s
        products.append(_Product(operations / elapsed_s, operations / undisturbed_s))
    return products


def _measure_bandwidth(threads: int, seconds: float) -> float:
    """Measure the bytes per second of a = b + c with arrays in memory.

    Bytes are counted as in STREAM (McCalpin): each array counts once.
    """
    length = _STREAM_BYTES // 8
    a, b, c = np.zeros(length), np.ones(length), np.ones(length)
    bounds = np.linspace(0, length, threads + 1).astype(int)
    pieces = [slice(low, high) for low, high in itertools.pairwise(bounds)]

    def add_piece(piece: slice) -> None:
        np.add(b[piece], c[piece], out=a[piece])

    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(add_piece, pieces))
        end = perf_counter() + seconds
        while (start := perf_counter()) < end:
            list(pool.map(add_piece, pieces))
            best = max(best, 3 * _STREAM_BYTES / (perf_counter() - start))
    return best


if __name__ == "__main__":
    thread_count, duration, *matrix_sizes = sys.argv[1:]
    print(json.dumps(measure_peaks(int(thread_count), float(duration), [*map(int, matrix_sizes)])))
