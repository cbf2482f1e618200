"""The records of requests, in a results folder."""

from __future__ import annotations

from collections.abc import Iterable

from xfbench.records.record import Record
from xfbench.request import Request
from xfbench.results.store import Store, silent

# By which the index chooses what may be done already.
_CHOSEN_BY = ("framework", "workload", "kernel", "threads", "ranks")


def done(requests: Iterable[Request], store: Store) -> list[Record]:
    """The records of these requests that have an outcome; what failed is to be tried again.

    Oldest first.
    """
    return [
        record
        for record in recorded(requests, store)
        if record.source == "measured" and record.status in ("ok", "invalid")
    ]


def recorded(requests: Iterable[Request], store: Store) -> list[Record]:
    """All records of these requests, oldest first. Only what may be one of them is read."""
    from xfbench.results import index  # DuckDB takes a while to load, and most runs need none
    from xfbench.results.selection import equal

    asked = set(requests)
    if not store.folder.is_dir():
        return []
    kinds = {tuple(str(getattr(one, name)) for name in _CHOSEN_BY) for one in asked}
    with index.opened(store, silent) as known:
        found = [
            record
            for kind in sorted(kinds)
            for _, record in known.select(
                [equal(f"request.{n}", value) for n, value in zip(_CHOSEN_BY, kind, strict=True)]
            )
            if record.request in asked
        ]
    return sorted(found, key=lambda record: (record.created, record.id))
