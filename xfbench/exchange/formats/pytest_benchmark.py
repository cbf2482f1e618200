"""JSON of pytest-benchmark (`--benchmark-json`, `--benchmark-save`): one figure per benchmark.

The value is the median duration of a call over all rounds, in seconds. It is converted if the timer
counts nanoseconds, such as `perf_counter_ns`. Its range goes from the fastest to the slowest round.
With `--benchmark-json` or `--benchmark-save-data`, the file has the durations of all rounds, and
they are imported too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from xfbench.base.foreign_names import collect_private_names
from xfbench.exchange.formats import (
    Entry,
    File,
    Missed,
    as_list,
    as_object,
    keep_nonempty_text,
    list_keys,
    parse_number,
    parse_positive_integer,
    parse_time,
    quote_value,
    supported_workload_and_framework,
)
from xfbench.exchange.replay import ReplayTimer

TOOL = "pytest-benchmark"
_ID = re.compile("sha256:[0-9a-f]{64}")


def is_recognised(file: File) -> bool:
    """Return whether the file has the keys that every version of pytest-benchmark writes."""
    document = as_object(file.document)
    return "machine_info" in document and "benchmarks" in document


def host_and_user_names(file: File) -> Iterable[str]:
    """Return the name of the host that ran the benchmarks, and names in their parameters."""
    return collect_private_names(file.document)


def entries(file: File) -> Iterator[Entry | Missed]:
    """Yield a figure per benchmark.

    Raises ValueError if the file has no valid time or no list of benchmarks.
    """
    document = file.document
    title = f"{TOOL} {keep_nonempty_text(document.get('version')) or '(version unknown)'}"
    created = parse_time(document.get("datetime"))
    if created is None:
        raise ValueError("the file has no valid time ('datetime')")
    if not isinstance(document["benchmarks"], list):
        raise ValueError("'benchmarks' is not a list")
    if not document["benchmarks"]:
        yield Missed("benchmarks", "the list is empty: no benchmark ran", fault=False)
    machine = _describe_machine(as_object(document["machine_info"]))
    for index, document_benchmark in enumerate(document["benchmarks"]):
        benchmark = as_object(document_benchmark)
        location = f"benchmarks[{index}] {_benchmark_name_without_folders(benchmark)}"
        stats = as_object(benchmark.get("stats"))
        per_second = _timer_ticks_per_second(as_object(benchmark.get("options")))
        numbers = [parse_number(stats.get(key)) for key in ("median", "min", "max")]
        value, low, high = (number and number / per_second for number in numbers)
        values = [parse_number(raw_value) for raw_value in as_list(stats.get("data"))]
        rounds_s = [round_time / per_second for round_time in values if round_time is not None]
        if value is None:
            present = quote_value(stats["median"]) if "median" in stats else list_keys(stats)
            yield Missed(location, f"the stats have no numeric median; they have {present}")
        elif len(rounds_s) < len(values):
            yield Missed(location, "the stats have data that are not numbers")
        else:
            launch, about = _launch_reference_and_fields(benchmark)
            yield Entry(
                title=title,
                where=f"{location}, stats.median{launch}",
                created=created,
                quantity="time per step (median)" if launch else "time per call (median)",
                unit="s",
                value=value,
                low=low,
                high=high,
                values=tuple(rounds_s),
                about={**about, "machine": machine},
            )


def _timer_ticks_per_second(options: dict[str, Any]) -> float:
    """Return in which part of a second the timer counts: with `perf_counter_ns`, 1e9."""
    suffix = str(options.get("timer")).rpartition("_")[2]
    return {"ns": 1e9, "us": 1e6, "ms": 1e3}.get(suffix, 1.0)


def _benchmark_name_without_folders(benchmark: dict[str, Any]) -> str:
    """Return the benchmark's name as FILE::NAME, without the folders of FILE."""
    full_name = (
        keep_nonempty_text(benchmark.get("fullname"))
        or keep_nonempty_text(benchmark.get("name"))
        or "without a name"
    )
    file, separator, rest = full_name.partition("::")
    return f"{file.rpartition('/')[2]}{separator}{rest}"


def _launch_reference_and_fields(benchmark: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the launch that the benchmark replays, as a text, and the benchmark's `About` fields.

    The text is ", of the launch in record ID". It is "" if the benchmark does not replay a launch
    of xfbench (see `ReplayTimer`).
    """
    extra_info = as_object(benchmark.get("extra_info"))
    launch = keep_nonempty_text(extra_info.get("record"))
    timer = as_object(benchmark.get("options")).get("timer")
    if launch is None or not _ID.fullmatch(launch) or timer != ReplayTimer().__name__:
        return "", supported_workload_and_framework(as_object(benchmark.get("params")))
    names = ("workload", "framework", "kernel", "device", "precision")
    return f", of the launch in record {launch}", {
        **{name: keep_nonempty_text(extra_info.get(name)) for name in names},
        "framework_version": keep_nonempty_text(extra_info.get("version")),
        "threads": parse_positive_integer(extra_info.get("threads")),
        "global_batch_size": parse_positive_integer(extra_info.get("batch_size")),
    }


def _describe_machine(info: dict[str, Any]) -> str | None:
    """Return the processor's name and the number of CPUs, such as "AMD EPYC 7763, 64 CPUs".

    The number is omitted if the file does not state it. Return None if there is no name.
    """
    cpu = as_object(info.get("cpu"))
    brand = (
        keep_nonempty_text(cpu.get("brand_raw"))
        or keep_nonempty_text(cpu.get("brand"))
        or keep_nonempty_text(info.get("processor"))
    )
    cpus = parse_positive_integer(cpu.get("count"))
    return brand and f"{brand}, {cpus} CPUs" if cpus else brand
