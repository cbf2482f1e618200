"""What is wrong with a submission as a whole: see `submission.py`; its records are `audit.py`'s.

Whether it is as its manifest says and has nothing else in it, describes the machines of its
records, says for each cell how to repeat it, and names no host and no user.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from xfbench.base import digests, private_names
from xfbench.base.errors import UsageError
from xfbench.base.version import __version__
from xfbench.equality import certificate
from xfbench.records.record import Record
from xfbench.report import repeat
from xfbench.request import SOLVER, Request
from xfbench.results import submission
from xfbench.results.store import Store

Found = tuple[str, Literal["whole", "machine", "repeat", "private"], str]
# What `xfbench run` makes of the words after it; raises UsageError for what it would not take.
Parse = Callable[[Sequence[str]], Mapping[str, Any]]
_LONGEST = 2**28  # bytes of a file that is looked into
# Options that have to be as the records', with what they are where they are not given.
_SETTINGS: dict[str, tuple[Callable[[Request], Any], Any]] = {
    "workload": (lambda asked: asked.workload, None),
    "framework": (lambda asked: asked.framework, None),
    "kernel": (lambda asked: asked.kernel, None),
    "device": (lambda asked: asked.device, "cpu"),
    "precision": (lambda asked: asked.precision, "float32"),
    "threads": (lambda asked: asked.threads, None),
    "batch_size": (lambda asked: asked.kept_batch_size, None),
    "ranks": (lambda asked: asked.ranks, 1),
    "nodes": (lambda asked: asked.nodes, 1),
    "scaling": (lambda asked: asked.scaling, None),
    "strategy": (lambda asked: asked.strategy if asked.ranks > 1 else None, None),
    "data": (
        lambda asked: f"{asked.data}-{asked.data_set.format}" if asked.data_set else asked.data,
        None,
    ),
    "warmup": (lambda asked: asked.warmup, None),
    "steps": (lambda asked: asked.steps, None),
    "epochs": (lambda asked: asked.epochs, None),
    "checkpoints": (lambda asked: asked.checkpoints, 0),
    **{name: (attrgetter(name), None) for name in SOLVER},
    "memory_limit": (lambda asked: asked.memory_limit, None),
    "allocator": (lambda asked: asked.allocator, None),
}


def defects(folder: Path, parse: Parse | None = None) -> Iterator[Found]:
    """Each defect: the file, its kind and what is wrong; `parse` tries the commands."""
    whole = list(against_manifest(folder))
    yield from whole
    store = Store(folder)
    records = list(store.records())
    certificates = certificate.read_folder(folder)
    made = submission.described(records, certificates)
    written = _json(folder / submission.MANIFEST).get("xfbench")
    if _json(folder / submission.MACHINES).get("machines") != submission.machines(records):
        told = "it is not the description of the machines that the records are of"
        yield str(folder / submission.MACHINES), "machine", told
    if written == __version__ and _read(folder / submission.BOARD) != made[submission.BOARD]:
        told = "it is not the leaderboard of these records"
        yield str(folder / submission.BOARD), "whole", told
    named = {record.certificate for record in records}
    for identity in sorted(certificates):
        path = store.certificate_path(identity)
        if identity not in named and path.is_file():
            yield str(path), "whole", "no record names this certificate"
    yield from _repeats(folder, {one.id: one for one in records}, parse)
    yield from _private(folder, submission.hosts_of(records))


def against_manifest(folder: Path) -> Iterator[Found]:
    """What is otherwise than the manifest says, missing, or not to be there."""
    path = folder / submission.MANIFEST
    listed = _json(path).get("files")
    if _json(path).get("schema") != submission.SCHEMA or not isinstance(listed, dict):
        yield str(path), "whole", f"it is no manifest of schema {submission.SCHEMA}"
        return
    there: set[str] = set()
    for one in sorted(folder.rglob("*")):
        name = one.relative_to(folder).as_posix()
        if one.is_dir() and not one.is_symlink():
            continue
        there.add(name)
        if one.is_symlink() or not one.is_file():
            yield str(one), "whole", "it is no plain file"
        elif name != submission.MANIFEST and name not in listed:
            yield str(one), "whole", "it does not belong: it is not in the manifest"
    expected = (submission.MACHINES, submission.REPEAT, submission.README, submission.BOARD)
    for name in sorted({*listed, *expected}):
        said = listed.get(name)
        if name not in there:
            yield str(folder / name), "whole", "it is missing"
        elif not isinstance(said, dict) or not _is(folder / name, said):
            yield str(folder / name), "whole", "its content is not what the manifest says"
        elif name not in expected and not _has_place(name):
            yield str(folder / name), "whole", "it has no place in a submission"


def _is(path: Path, said: Mapping[str, Any]) -> bool:
    content = _read(path)
    found = {"bytes": len(content), "digest": digests.of_bytes(content)}
    return found == said


def _has_place(name: str) -> bool:
    parts = name.split("/")
    deep = {"records": 3, "certificates": 2}.get(parts[0])
    return len(parts) == deep and name.endswith(".json")


def _repeats(folder: Path, records: Mapping[str, Record], parse: Parse | None) -> Iterator[Found]:
    path = folder / submission.REPEAT
    readme = _read(folder / submission.README).decode(errors="replace").splitlines()
    left = {one for one, record in records.items() if record.request}
    cells = _json(path).get("cells")
    for number, cell in enumerate(cells if isinstance(cells, list) else (), 1):
        title = cell.get("title") if isinstance(cell, dict) else None
        where = f"cell {number} ({title})"
        ids = cell.get("records") if isinstance(cell, dict) else None
        if not isinstance(ids, list) or not ids or not all(isinstance(one, str) for one in ids):
            yield str(path), "repeat", f"{where} names no records"
            continue
        if strange := [one for one in ids if one not in left]:
            yield str(path), "repeat", f"{where}: {strange[0]} is not there, or in another cell"
        launches = [records[one] for one in sorted(left & set(ids), key=_order(records))]
        left -= set(ids)
        command = cell.get("command")
        if launches and (why := _wrong(command, launches, parse)):
            yield str(path), "repeat", f"{where}: {why}"
        if isinstance(command, str) and f"    {command}" not in readme:
            yield str(folder / submission.README), "repeat", f"{where}: its command is not there"
    if left:
        one = min(left)
        yield str(path), "repeat", f"{len(left)} records are in no cell, as {one}"


def _order(records: Mapping[str, Record]) -> Callable[[str], tuple[str, str]]:
    return lambda one: (records[one].created, one)


def _wrong(command: Any, launches: Sequence[Record], parse: Parse | None) -> str | None:
    """Why the command does not repeat these launches, as far as it can be seen."""
    if command is None:
        return "it has no command" if repeat.repeat_command(launches) else None
    words = command.split() if isinstance(command, str) else []
    if words[:2] != ["xfbench", "run"] or command != " ".join(words):
        return "its command is not `xfbench run` and options"
    if parse is None:
        return None
    try:
        given = parse(words[2:])
    except UsageError as error:
        return f"its command is none: {error}"
    for record in launches:
        asked = record.request
        for name, (value, default) in _SETTINGS.items() if asked else ():
            found = given.get(name)
            wanted = value(asked) if asked else None
            if str(default if found is None else found) != str(wanted):
                told = f"--{name.replace('_', '-')} {found}"
                return f"its command has {told}, and a record {wanted}"
    return None


def _private(folder: Path, hosts: Collection[str]) -> Iterator[Found]:
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        content = _read(path)
        try:
            why = submission.named_in(json.loads(content), hosts)
        except (ValueError, RecursionError):
            why = private_names.named(content.decode(errors="replace"), hosts)
        why = why or private_names.named(path.relative_to(folder).as_posix(), hosts)
        if why:
            yield str(path), "private", f"it names {why}"


def _json(path: Path) -> dict[str, Any]:
    """The object that a file has; an empty one where it has none."""
    try:
        found = json.loads(_read(path))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _read(path: Path) -> bytes:
    """A file's bytes; none where it cannot be read, or is no plain file, or too large."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _LONGEST:
            return b""
        return path.read_bytes()
    except OSError:
        return b""
