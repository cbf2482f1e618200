"""Which records stand in one table, and in one row of it: like with like."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from xfbench.model.machines import machine_class
from xfbench.model.provenance import trusted_record
from xfbench.model.record import Record
from xfbench.model.request import Request

# Fields that are the same in all records of a row.
PARTITION_FIELDS = (
    *("request.workload", "request.device", "request.precision", "machine.cpu_model"),
    *("request.framework", "request.kernel", "request.threads", "request.ranks"),
)


def group_by_cell(
    records: Iterable[Record], *, probes: bool = False
) -> dict[tuple[Any, ...], dict[Any, list[Record]]]:
    """The records by the table they stand in, and by their row in it, oldest first.

    Those from elsewhere have rows of their own, and nothing in them that counts. Probes measure
    nothing, and stand nowhere unless they are asked for.
    """
    groups: dict[tuple[Any, ...], dict[Any, list[Record]]] = defaultdict(lambda: defaultdict(list))
    cells: dict[Any, str] = {}
    for record in map(
        trusted_record, sorted(records, key=lambda record: (record.created, record.id))
    ):
        request = record.request
        if request is None or (request.probe and not probes):
            continue
        head = (
            request.workload,
            _data_set_label(request),
            request.device,
            request.precision,
            request.scaling or "",
            request.fixed_batch_size,
            machine_class(record.machine),
            request.solver,
        )
        if record.source != "measured":
            groups[head][f"{record.source} {record.id}"].append(record)
            continue
        # One row for a cell with all its seeds, under the name of the first of them.
        cell = record.cell or request.model_dump_json(exclude={"launch"})
        groups[head][cells.setdefault((head, _key_without_seed(record)), cell)].append(record)
    return groups


def _key_without_seed(record: Record) -> tuple[Any, ...]:
    """What makes a record's cell but its seed: other weights and another order, nothing else."""
    request, software, workload = record.request, record.software, record.workload
    if request is None or software is None or workload is None:
        return (record.cell or request,)
    seedless_request = request.model_copy(update={"seed": 0, "launch": 1})
    return seedless_request, workload.digest, software.adapter_digest, software.environment_digest


def _data_set_label(request: Request) -> str:
    """The data set; of a prepared one which samples, since names are anybody's."""
    data_set = request.data_set
    return f"{request.data} {data_set.digest[7:15]}" if data_set else request.data


# What no column of a table has, by what it is called.
_HIDDEN_FIELDS = {
    "steps": "{} steps",
    "epochs": "{} epochs",
    "warmup": "warm-up {}",
    "window": "windows of {}",
    "affinity": "affinity {}",
    "nodes": "{} nodes",
    "launcher": "by {}",
    "site": "site {}",
    "input_threads": "{} input threads",
    "environment": "environment {}",
}


def describe_differences(requests: Sequence[Request]) -> list[str]:
    """Of requests that a table shows alike, what each of them is otherwise in: "20 steps"."""
    differing = [
        name for name in _HIDDEN_FIELDS if len({getattr(request, name) for request in requests}) > 1
    ]
    field_values = [[(name, getattr(request, name)) for name in differing] for request in requests]
    return [
        ", ".join(_HIDDEN_FIELDS[name].format(value) for name, value in values if value is not None)
        for values in field_values
    ]
