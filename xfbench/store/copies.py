"""Changed copies of a results folder's documents, which were exported without private names.

The file `copies.json` has the id of the original of each copy. If a copy comes back to the folder
that has its original, it is not imported.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress

from xfbench.base import atomic_files, shared_files, strict_json
from xfbench.model.sealed import MAX_DOCUMENT_BYTES
from xfbench.store.results_folder import Store

_FILE = "copies.json"


def read_originals(store: Store) -> dict[str, str]:
    """Return the id of the original of each changed copy that was exported from `store`.

    A file of another user is ignored: it would decide which records are not imported.
    """
    try:
        content = shared_files.read_own_file(store.folder / _FILE, MAX_DOCUMENT_BYTES)
        document = strict_json.parse(content)
    except (OSError, ValueError, RecursionError):
        return {}
    pairs = document.items() if isinstance(document, dict) else ()
    return {copy: original for copy, original in pairs if isinstance(original, str)}


def remember_originals(store: Store, originals: Mapping[str, str]) -> None:
    """Add the ids of originals by copy to the file, if it can be written."""
    noted = read_originals(store)
    if noted.keys() >= originals.keys():
        return
    with suppress(OSError):
        text = json.dumps({**noted, **originals}, indent=1) + "\n"
        atomic_files.write(store.folder / _FILE, text.encode())


def ids_with_copies(store: Store, ids: Collection[str]) -> set[str]:
    """Return the ids, and those of the copies whose originals are among them."""
    originals = {*ids}
    copies = [copy for copy, original in read_originals(store).items() if original in originals]
    return originals.union(copies)
