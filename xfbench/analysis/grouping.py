"""Grouping of records into the tables and rows of leaderboards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from xfbench.base.wording import pluralize
from xfbench.model.machines import machine_class, machine_class_of_record
from xfbench.model.provenance import drop_untrusted_or_impossible_fields
from xfbench.model.record import Record
from xfbench.model.request import Request
from xfbench.model.sealed import age_key

# Fields that are equal in all records of a row. If records are split by them, no row is split.
ROW_FIELDS = (
    *("request.workload", "request.device", "request.precision", "machine.cpu_model"),
    *("request.framework", "request.kernel", "request.threads", "request.ranks"),
)


def group_by_heading_and_cell(
    records: Iterable[Record], *, include_probes: bool = False
) -> dict[tuple[Any, ...], dict[Any, list[Record]]]:
    """Group records into the tables and rows of leaderboards.

    Returns {heading: {cell: records of one row, oldest first}}.

    - A heading is (workload, data, device, precision, scaling, batch size, machine, solver).
    - One row has the launches of a cell with all seeds.
    - A record that xfbench did not measure has a row of its own.
    - `include_probes`: whether probes, which measure nothing, are included.
    """
    groups: dict[tuple[Any, ...], dict[Any, list[Record]]] = defaultdict(lambda: defaultdict(list))
    cells: dict[Any, str] = {}
    for record in map(
        drop_untrusted_or_impossible_fields,
        sorted(records, key=age_key),
    ):
        request = record.request
        if request is None or (request.probe and not include_probes):
            continue
        *key, solver = request.table_key
        head = (*key, machine_class_of_record(record), solver)
        if record.source != "measured":
            groups[head][f"{record.source} {record.id}"].append(record)
            continue
        # Use the cell of the oldest record for all seeds.
        cell = record.cell or request.model_dump_json(exclude={"launch"})
        groups[head][cells.setdefault((head, _cell_key_without_seed(record)), cell)].append(record)
    return groups


# Fields that differ between the launches of one cell.
_FIELDS_OF_LAUNCHES = {"launch", "session", "position", "seed", "profile"}
CellKey = tuple[tuple[object, ...], str]


def cell_and_machine(request: Request, machine: str) -> CellKey:
    """Return a key that is equal for the requests of one cell, with all seeds, on one machine kind.

    `machine` is the kind of machine, as `machine_class` returns it.
    """
    return tuple(value for name, value in request if name not in _FIELDS_OF_LAUNCHES), machine


def replaced_keys(keys: Iterable[CellKey]) -> set[CellKey]:
    """Return the keys without a machine whose cell also has a key with a machine.

    Keys are those of `cell_and_machine`. Launches of a job that failed have no machine. Once the
    cell was launched again, they say nothing about it.
    """
    all_keys = set(keys)
    unknown = machine_class(None)
    launched_cells = {cell for cell, machine in all_keys if machine != unknown}
    return {key for key in all_keys if key[1] == unknown and key[0] in launched_cells}


def _cell_key_without_seed(record: Record) -> tuple[Any, ...]:
    """Return a key that is equal for records whose cells differ only in the seed."""
    request, software, workload = record.request, record.software, record.workload
    if request is None or software is None or workload is None:
        return (record.cell or request,)
    seedless_request = request.model_copy(update={"seed": 0, "launch": 1})
    return seedless_request, workload.digest, software.adapter_digest, software.environment_digest


# Fields that no table shows as a column, each with a function that returns a text with its value.
HIDDEN_FIELDS: dict[str, Callable[[Any], str]] = {
    "steps": partial(pluralize, noun="step"),
    "epochs": partial(pluralize, noun="epoch"),
    "min_seconds": "{:g} s or more".format,
    "warmup": "warm-up {}".format,
    "min_warmup_seconds": "warm-up of {:g} s or more".format,
    "window": "windows of {}".format,
    "affinity": "affinity {}".format,
    "nodes": partial(pluralize, noun="node"),
    "scaling": "{} scaling".format,
    "launcher": "by {}".format,
    "site": "site {}".format,
    "input_threads": partial(pluralize, noun="input thread"),
    "environment": "environment {}".format,
    "revision": "revision {:.12}".format,
    "python": "python {}".format,
}


def describe_hidden_differences(requests: Sequence[Request]) -> list[str]:
    """Describe each request by its values of the hidden fields that differ between the requests.

    - A hidden field is one that no table shows as a column.
    - A description is text such as "20 steps, windows of 5", or "" if no hidden field differs.
    """
    differing = [
        name for name in HIDDEN_FIELDS if len({getattr(request, name) for request in requests}) > 1
    ]
    field_values = [[(name, getattr(request, name)) for name in differing] for request in requests]
    return [
        ", ".join(HIDDEN_FIELDS[name](value) for name, value in values if value is not None)
        for values in field_values
    ]
