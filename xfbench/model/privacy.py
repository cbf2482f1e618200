"""What a record, a certificate or a search says about people: the only module that decides it.

`make_private` is applied when a document is made and again when it is exported:

- Texts lose private names and paths (`xfbench/base/private_names.py`).
- Programs of other people are counted, not named.
- The fields in `VERBATIM_FIELDS` stay as they are: their texts come from xfbench, from a fixed list
  or from the person who chose them. `names_in_settings` finds names that a person chose.

docs/reference/privacy.md has a sentence about each field with text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from xfbench.base import private_names
from xfbench.base.private_names import KnownNames

OTHER_PROCESS = "another process"
# Fields whose text is never changed, with all fields below them.
VERBATIM_FIELDS = frozenset(
    {
        *("schema", "id", "created", "cell", "source", "status", "certificate"),
        *("batch_certificate", "citation", "figure", "request", "protocol", "workload", "machine"),
        *("observed.kernel", "observed.precision", "observed.layout", "observed.ranks"),
        *("observed.step_program", "observed.gpus.uuid_hash", "communication.strategy"),
        *("communication.strategy_options", "limit.precision", "storage.medium.source_hash"),
        *("storage.reads.pattern", "storage.epochs.page_cache", "support.feature"),
        *("software.xfbench_version", "software.git_commit", "software.worker_digest"),
        *("software.adapter_digest", "software.environment_digest"),
        # Certificates.
        *("subject", "verdict", "checks.kind", "xfbench_version"),
        # Searches.
        *("adapter_digest", "environment_digest", "workload_digest", "space", "best", "default"),
        *("runner_up", "records", "dropped.setting"),
    }
)
# Fields that list programs of other people.
_COUNTED_FIELDS = (
    "conditions.competing.name",
    "conditions.accelerator_processes",
    "observed.gpus.others",
)
_REMOVED_FIELDS = ("conditions.competing.pid",)


def make_private(document: dict[str, Any], names: KnownNames | None = None) -> dict[str, Any]:
    """Return the JSON document without private names and without names of other programs.

    - `names`: the private names that are known; None: those of this user, host and process.
    """
    private = names or private_names.known_names()
    programs = sorted(set(_list_programs(document)) - {OTHER_PROCESS}, key=len, reverse=True)

    def change(value: Any, path: str) -> Any:
        if path in VERBATIM_FIELDS or value is None or path in _REMOVED_FIELDS:
            return None if path in _REMOVED_FIELDS else value
        if isinstance(value, str):
            if path in _COUNTED_FIELDS:
                return OTHER_PROCESS
            text = _hide_programs(value, programs) if programs and path == "reason" else value
            return private_names.mask_known_names(text, private)
        if isinstance(value, list) and not all(isinstance(item, int | float) for item in value):
            return [change(item, path) for item in value]
        if isinstance(value, dict):
            return {key: change(item, f"{path}.{key}".lstrip(".")) for key, item in value.items()}
        return value

    return {key: change(value, key) for key, value in document.items()}


def names_in_settings(document: dict[str, Any], names: KnownNames) -> Iterator[tuple[str, str]]:
    """Yield path and text of each field of the request or workload that has one of `names`.

    A person chose these texts, for example the name of a data set. They identify the cell.
    """
    for part in ("request", "workload"):
        for path, text in _list_texts(document.get(part), part):
            if private_names.mask_known_names(text, names) != text:
                yield path, text


def _list_texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for item in value:
            yield from _list_texts(item, path)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _list_texts(item, f"{path}.{key}".lstrip("."))


def _list_programs(document: dict[str, Any]) -> Iterator[str]:
    """Yield the names of other people's programs that the document lists."""
    for part in ("conditions", "observed"):
        for text_path, text in _list_texts(document.get(part), part):
            if text_path in _COUNTED_FIELDS:
                yield text


def _hide_programs(reason: str, programs: list[str]) -> str:
    """Return why a launch does not count, without names of programs and their process ids."""
    for program in programs:
        pattern = rf"(?<!\w){re.escape(program)}(?!\w)(?: \(pid \d+\))?"
        reason = re.sub(pattern, OTHER_PROCESS, reason)
    return reason
