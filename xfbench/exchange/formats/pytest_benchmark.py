"""JSON of pytest-benchmark (`--benchmark-json`, `--benchmark-save`): a benchmark is a figure.

Its value is the median over rounds, in seconds per call, with the fastest and the slowest; the
rounds themselves are there with `--benchmark-save-data`, or `--benchmark-json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from xfbench.exchange.formats import (
    Entry,
    File,
    Missed,
    as_list,
    as_object,
    known_names,
    parse_count,
    parse_number,
    parse_text,
    parse_time,
)
from xfbench.exchange.replay import Replay

TOOL = "pytest-benchmark"
_ID = re.compile("sha256:[0-9a-f]{64}")


def is_recognised(file: File) -> bool:
    """By the two things that every version has written."""
    document = as_object(file.document)
    return "machine_info" in document and "benchmarks" in document


def private_names(file: File) -> Iterable[str]:
    """The node's name."""
    return [str(as_object(file.document["machine_info"]).get("node") or "")]


def entries(file: File) -> Iterator[Entry | Missed]:
    """A figure per benchmark. Raises ValueError where the time is missing."""
    document = file.document
    title = f"{TOOL} {parse_text(document.get('version')) or '(version unknown)'}"
    created = parse_time(document.get("datetime"))
    if created is None:
        raise ValueError("it has no time ('datetime') that can be read")
    if not isinstance(document["benchmarks"], list):
        raise ValueError("its 'benchmarks' are no list")
    machine = _describe_machine(as_object(document["machine_info"]))
    for index, document_benchmark in enumerate(document["benchmarks"]):
        benchmark = as_object(document_benchmark)
        location = f"benchmarks[{index}] {_benchmark_name(benchmark)}"
        stats = as_object(benchmark.get("stats"))
        value, low, high = (parse_number(stats.get(key)) for key in ("median", "min", "max"))
        values = [parse_number(raw_value) for raw_value in as_list(stats.get("data"))]
        rounds_s = [round_s for round_s in values if round_s is not None]
        if value is None:
            yield Missed(location, "its stats have no median that is a number")
        elif len(rounds_s) < len(values):
            yield Missed(location, "its stats have data that are no numbers")
        else:
            launch, about = _describe_benchmark(benchmark)
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


def _benchmark_name(benchmark: dict[str, Any]) -> str:
    """Its own, and that of its file without the folders."""
    full_name = (
        parse_text(benchmark.get("fullname"))
        or parse_text(benchmark.get("name"))
        or "without a name"
    )
    file, separator, rest = full_name.partition("::")
    return f"{file.rpartition('/')[2]}{separator}{rest}"


def _describe_benchmark(benchmark: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Which launch of ours it is, in words, if it is one; and what it is of."""
    extra_info = as_object(benchmark.get("extra_info"))
    launch = parse_text(extra_info.get("record"))
    timer = as_object(benchmark.get("options")).get("timer")
    if launch is None or not _ID.fullmatch(launch) or timer != Replay().__name__:
        return "", known_names(as_object(benchmark.get("params")))
    names = ("workload", "framework", "kernel", "device", "precision")
    return f", of the launch in record {launch}", {
        **{name: parse_text(extra_info.get(name)) for name in names},
        "framework_version": parse_text(extra_info.get("version")),
        "threads": parse_count(extra_info.get("threads")),
        "global_batch_size": parse_count(extra_info.get("batch_size")),
    }


def _describe_machine(info: dict[str, Any]) -> str | None:
    """The processor in the file's words."""
    cpu = as_object(info.get("cpu"))
    brand = (
        parse_text(cpu.get("brand_raw"))
        or parse_text(cpu.get("brand"))
        or parse_text(info.get("processor"))
    )
    cpus = parse_count(cpu.get("count"))
    return brand and f"{brand}, {cpus} CPUs" if cpus else brand
