"""Files of pytest-benchmark that are made from records.

A file has the form that `pytest --benchmark-save` writes. `pytest-benchmark compare FILE` and
`pytest --benchmark-only --benchmark-compare=FILE` read it. A cell that the plugin can measure has
the plugin's name for it. Any other cell has a name that the plugin never uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest_benchmark
from pytest_benchmark.stats import Stats

from xfbench.analysis.leaderboard import Row, Table
from xfbench.base.errors import UsageError
from xfbench.benchmarks import architectures, names
from xfbench.benchmarks.architectures import Architecture
from xfbench.exchange.replay import ReplayTimer
from xfbench.model.record import Machine, Record
from xfbench.model.request import Cell, PreparedSet
from xfbench.model.sealed import age_key
from xfbench.model.strategy import format_options
from xfbench.statistics import has_valid_steps

# Settings that say how long a cell is measured, or that follow from others.
_UNNAMED = {
    *("steps", "epochs", "warmup", "min_seconds", "min_warmup_seconds"),
    *("seed", "profile", "batch_size_per_rank"),
}


def build_file(
    tables: Iterable[Table], records: Iterable[Record], say: Callable[[str], None]
) -> dict[str, Any]:
    """Return the content of a pytest-benchmark file, with one benchmark for each ranked cell.

    - `records`: at least the records of the ranked rows of `tables`.
    - `say`: receives a message about each cell that is left out, because its framework or workload
      is unknown here.

    The figures are seconds per step, over the steps of all launches of a cell. If several rows have
    the same name, the fastest one is used. Raises UsageError if the rows come from several kinds of
    machine, because a file describes only one.
    """
    rows: dict[str, Row] = {}
    machines = set()
    for table in tables:
        for row in table.rows:  # the fastest first
            try:
                rows.setdefault(_extend_id(row.request), row)
            except UsageError as error:
                say(f"{row.request.label()}: left out: {error}")
                continue
            machines.add(table.machine)
    if len(machines) > 1:
        raise UsageError(
            f"the records are from {len(machines)} kinds of machine ({'; '.join(sorted(machines))})"
            ": choose one with --where, for example --where 'machine.cpu_model=NAME'"
        )
    ranked_ids = {record_id for row in rows.values() for record_id in row.records}
    counted = {
        record.id: record
        for record in records
        if record.id in ranked_ids and record.status == "ok" and has_valid_steps(record)
    }
    newest = max(counted.values(), key=age_key, default=None)
    return {
        "machine_info": _describe_machine(newest.machine if newest else None),
        "commit_info": _describe_commit(newest),
        "benchmarks": [
            _build_benchmark(name, row, [counted[each] for each in row.records if each in counted])
            for name, row in rows.items()
        ],
        "datetime": newest.created.replace("Z", "+00:00") if newest else None,
        "version": pytest_benchmark.__version__,
    }


def _extend_id(cell: Cell) -> str:
    """Return the benchmark's id, extended by the settings that differ from the plugin's cell.

    Raises UsageError if the framework or the workload is unknown here.
    """
    profile = Architecture(title="", device=cell.device, threads=(cell.threads,))
    [usual_cell] = architectures.build_cells(
        profile, [cell.framework], [cell.workload], cell.steps or 1
    )
    parts = [names.format_id(cell)]
    for name in Cell.model_fields:
        value = getattr(cell, name)
        if name not in (*names.PARAMETERS, *_UNNAMED) and value != getattr(usual_cell, name):
            parts.append(f"{name}={_format_value(value)}")
    return "-".join(parts)


def _format_value(value: Any) -> str:
    if isinstance(value, PreparedSet):
        return f"{value.format} {value.digest.removeprefix('sha256:')[:8]} {value.medium}"
    return format_options(value) if isinstance(value, tuple) else str(value)


def _build_benchmark(benchmark_id: str, row: Row, records: Sequence[Record]) -> dict[str, Any]:
    request = row.request
    stats = Stats()  # type: ignore[no-untyped-call]
    for record in records:
        assert record.measurement
        for seconds in record.measurement.step_seconds:
            stats.update(seconds)  # type: ignore[no-untyped-call]
    return {
        "group": names.format_group(request),
        "name": f"{names.FUNCTION}[{benchmark_id}]",
        "fullname": names.format_full_name(benchmark_id),
        "params": dict(zip(names.PARAMETERS, names.list_parameters(request), strict=True)),
        "param": benchmark_id,
        "extra_info": {
            "records": [record.id for record in records],
            "certificate": row.certificate,
            "batch_certificate": row.batch_certificate,
            "framework": row.framework,
            "version": row.framework_version,
            "kernel": row.kernel,
            "threads": row.threads_observed,
            "workload": request.workload,
            "device": request.device,
            "precision": request.precision,
            "batch_size": row.global_batch_size,
            "images_per_second": row.images_per_second and row.images_per_second.value,
        },
        "options": {"timer": ReplayTimer().__name__},
        "stats": {**stats.as_dict(), "iterations": 1},  # type: ignore[no-untyped-call]
    }


def _describe_machine(machine: Machine | None) -> dict[str, Any]:
    """Return the part of a file that describes the machine. Records name no host."""
    if machine is None:
        return {}
    return {
        "node": "",
        "processor": machine.cpu_model,
        "machine": machine.microarchitecture,
        "release": machine.kernel_release,
        "system": "Linux",
        "cpu": {"brand_raw": machine.cpu_model, "count": machine.logical_cpus},
    }


def _describe_commit(record: Record | None) -> dict[str, Any]:
    software = record.software if record else None
    return {
        "id": (software and software.git_commit) or "unversioned",
        "time": None,
        "author_time": None,
        "dirty": bool(software and software.git_dirty),
        "project": "xfbench",
        "branch": "(unknown)",
    }
