"""The newest records of a results folder, from which commands estimate durations."""

from __future__ import annotations

from contextlib import suppress

from xfbench.base.errors import XfbenchError
from xfbench.base.terminal_text import say
from xfbench.model.record import Record
from xfbench.store import index
from xfbench.store.results_folder import Store

_MOST = 1000


def read_newest(store: Store) -> list[Record]:
    """Return the newest records. Without a folder or its index, return an empty list."""
    if store.folder.is_dir():
        with suppress(XfbenchError), index.open_index(store, say) as record_index:
            return [record for _, record in record_index.newest((), _MOST)]
    return []
