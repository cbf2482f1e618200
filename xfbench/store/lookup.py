"""Finds the records of requests in a results folder."""

from __future__ import annotations

from collections.abc import Iterable

from xfbench.model.record import Record
from xfbench.model.request import Request
from xfbench.model.sealed import age_key
from xfbench.store.results_folder import Store, ignore_warning

# The index preselects records by these fields.
_SELECTION_FIELDS = ("framework", "workload", "kernel", "threads", "ranks")


def find_ok_or_invalid_records(requests: Iterable[Request], store: Store) -> list[Record]:
    """Return the measured records of these requests with status "ok" or "invalid", oldest first.

    Records of failed launches are left out, because failed launches must be repeated.
    """
    return [
        record
        for record in find_records_of_requests(requests, store)
        if record.source == "measured" and record.status in ("ok", "invalid")
    ]


def find_records_of_requests(requests: Iterable[Request], store: Store) -> list[Record]:
    """Return all records of these requests, oldest first.

    The index preselects records, so that few records of other requests are read.
    """
    from xfbench.store import index  # slow to load, and most runs do not need it
    from xfbench.store.selection import equal_condition

    wanted_requests = set(requests)
    if not store.folder.is_dir():
        return []
    selections = {
        tuple(str(getattr(request, name)) for name in _SELECTION_FIELDS)
        for request in wanted_requests
    }
    with index.open_index(store, ignore_warning) as record_index:
        records = [
            record
            for selection in sorted(selections)
            for _, record in record_index.select(
                [
                    equal_condition(f"request.{name}", value)
                    for name, value in zip(_SELECTION_FIELDS, selection, strict=True)
                ]
            )
            if record.request in wanted_requests
        ]
    return sorted(records, key=age_key)
