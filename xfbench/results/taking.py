"""Takes figures from other tools' files, each as a record that says where it is from.

Such a record has no request and no certificate: it is shown beside what was measured, and never
ranked. A file gives the same records whenever it is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from xfbench.base import private_names
from xfbench.base.errors import UsageError
from xfbench.base.terminal_text import make_legible
from xfbench.records.elsewhere import About, Citation, Figure, impossible
from xfbench.records.record import Record
from xfbench.results.foreign import Entry, File, Format, Missed, formats
from xfbench.results.store import Complain, Store

_MOST_BYTES = 2**28
_LONGEST = 200  # characters of a text that is taken


class _NotKnownError(UsageError):
    """A file is of no format that is known."""


def take(source: Path, target: Store, complain: Complain, note: Complain) -> tuple[int, int]:
    """Take what a file, or every file below a folder, has: how many records are new, were there.

    `complain` hears of figures that cannot be taken, `note` of what has none. Raises UsageError
    where there is nothing to take at all, and where the results cannot be written.
    """
    read: list[Record] = []
    told: list[str] = []
    if source.is_file():
        read += _records(source, complain, told.append)
    else:
        for path in sorted(source.rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            try:
                read += _records(path, complain, told.append)
            except _NotKnownError as error:
                told.append(str(error))
            except UsageError as error:
                complain(str(error))
    for line in told[:20]:
        note(line)
    if len(told) > 20:
        note(f"{len(told) - 20} more have nothing that can be imported")
    if not read:
        raise UsageError(f"{source}: there is no figure in it that can be imported")
    target.prepare()
    have = {record.id for record, _, _ in target.contents()}
    fresh = {record.id: record for record in read if record.id not in have}
    for record in fresh.values():
        try:
            target.add(record)
        except OSError as error:
            raise UsageError(f"{target.folder}: {error.strerror}") from error
    return len(fresh), len({record.id for record in read}) - len(fresh)


def _records(path: Path, complain: Complain, note: Complain) -> list[Record]:
    """A file's records. Raises UsageError where it is of no known format, or damaged."""
    file = _file(path)
    known = formats()
    one = next((one for one in known if one.recognised(file)), None)
    if one is None:
        tools = ", ".join(one.TOOL for one in known)
        raise _NotKnownError(
            f"{_shown(path)}: this is no exported archive and no file of {tools}: nothing is taken"
        )
    try:
        return list(_of_entries(path, file, one, complain, note))
    except (ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"{_shown(path)}: no whole file of {one.TOOL}: {reason}; write it anew"
        ) from error


def _file(path: Path) -> File:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{_shown(path)}: it is larger than {_MOST_BYTES >> 20} MiB: split it")
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{_shown(path)}: {error.strerror}") from error
    try:
        return File(content, json.loads(content))
    except (ValueError, RecursionError):
        return File(content, None)


def _of_entries(
    path: Path, file: File, of: Format, complain: Complain, note: Complain
) -> Iterator[Record]:
    hidden = private_names.make_redactor(of.private(file))

    def clean(text: str) -> str:
        return make_legible(hidden(text), _LONGEST)

    for entry in of.entries(file):
        if isinstance(entry, Missed):
            tell = complain if entry.fault else note
            tell(f"{_shown(path)}: {clean(entry.where)}: {clean(entry.why)}")
            continue
        try:
            made = _record(path.name, of.TOOL, entry, clean)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            why: str | None = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        else:
            why = impossible(made.figure) if made.figure else None
            if not why:
                yield made
        if why:
            complain(f"{_shown(path)}: {clean(entry.where)}: {clean(why)}")


def _record(name: str, tool: str, entry: Entry, clean: Callable[[str], str]) -> Record:
    about: dict[str, Any] = {
        key: clean(value) if isinstance(value, str) else value for key, value in entry.about.items()
    }
    return Record.make(
        created=entry.created,
        source="imported",
        citation=Citation(
            key=tool, title=clean(entry.title), where=f"{clean(name)}: {clean(entry.where)}"
        ),
        figure=Figure(
            quantity=clean(entry.quantity),
            unit=clean(entry.unit),
            value=entry.value,
            low=entry.low,
            high=entry.high,
            values=entry.values,
            about=About(**about),
        ),
        status="failed" if entry.failed else "ok",
        reason=clean(entry.failed) if entry.failed else None,
        request=None,
        workload=None,
    )


def _shown(path: Path) -> str:
    return make_legible(str(path), 4096)
