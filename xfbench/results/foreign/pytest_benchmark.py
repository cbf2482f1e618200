"""JSON of pytest-benchmark (`--benchmark-json`, `--benchmark-save`): a benchmark is a figure.

Its value is the median over rounds, in seconds per call, with the fastest and the slowest; the
rounds themselves are there with `--benchmark-save-data`, or `--benchmark-json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from xfbench.benchmarks.replay import Replay
from xfbench.results.foreign import (
    Entry,
    File,
    Missed,
    count,
    listed,
    mapping,
    moment,
    number,
    ours,
    text,
)

TOOL = "pytest-benchmark"
_ID = re.compile("sha256:[0-9a-f]{64}")


def recognised(file: File) -> bool:
    """By the two things that every version has written."""
    document = mapping(file.document)
    return "machine_info" in document and "benchmarks" in document


def private(file: File) -> Iterable[str]:
    """The node's name."""
    return [str(mapping(file.document["machine_info"]).get("node") or "")]


def entries(file: File) -> Iterator[Entry | Missed]:
    """A figure per benchmark. Raises ValueError where the time is missing."""
    document = file.document
    title = f"{TOOL} {text(document.get('version')) or '(version unknown)'}"
    created = moment(document.get("datetime"))
    if created is None:
        raise ValueError("it has no time ('datetime') that can be read")
    if not isinstance(document["benchmarks"], list):
        raise ValueError("its 'benchmarks' are no list")
    machine = _machine(mapping(document["machine_info"]))
    for index, one in enumerate(document["benchmarks"]):
        found = mapping(one)
        where = f"benchmarks[{index}] {_name(found)}"
        stats = mapping(found.get("stats"))
        value, low, high = (number(stats.get(key)) for key in ("median", "min", "max"))
        values = [number(one) for one in listed(stats.get("data"))]
        known = [one for one in values if one is not None]
        if value is None:
            yield Missed(where, "its stats have no median that is a number")
        elif len(known) < len(values):
            yield Missed(where, "its stats have data that are no numbers")
        else:
            launch, about = _about(found)
            yield Entry(
                title=title,
                where=f"{where}, stats.median{launch}",
                created=created,
                quantity="time per step (median)" if launch else "time per call (median)",
                unit="s",
                value=value,
                low=low,
                high=high,
                values=tuple(known),
                about={**about, "machine": machine},
            )


def _name(benchmark: dict[str, Any]) -> str:
    """Its own, and that of its file without the folders."""
    full = text(benchmark.get("fullname")) or text(benchmark.get("name")) or "without a name"
    file, mark, rest = full.partition("::")
    return f"{file.rpartition('/')[2]}{mark}{rest}"


def _about(benchmark: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Which launch of ours it is, in words, if it is one; and what it is of."""
    said = mapping(benchmark.get("extra_info"))
    launch = text(said.get("record"))
    timer = mapping(benchmark.get("options")).get("timer")
    if launch is None or not _ID.fullmatch(launch) or timer != Replay().__name__:
        return "", ours(mapping(benchmark.get("params")))
    names = ("workload", "framework", "kernel", "device", "precision")
    return f", of the launch in record {launch}", {
        **{name: text(said.get(name)) for name in names},
        "framework_version": text(said.get("version")),
        "threads": count(said.get("threads")),
        "global_batch_size": count(said.get("batch_size")),
    }


def _machine(info: dict[str, Any]) -> str | None:
    """The processor in the file's words."""
    cpu = mapping(info.get("cpu"))
    brand = text(cpu.get("brand_raw")) or text(cpu.get("brand")) or text(info.get("processor"))
    cpus = count(cpu.get("count"))
    return brand and f"{brand}, {cpus} CPUs" if cpus else brand
