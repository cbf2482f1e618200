"""A folder of results for a leaderboard that many share: `xfbench.submission/1`.

It is a results folder, with records and their certificates, and beside them what others
need to judge and to repeat them: the machines, a command for each cell, the leaderboard, and a
manifest with the size and digest of every file. Equal contents make equal folders. Nothing in it
names a host or a user; what would stays at home. `submission_audit.py` checks one.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from xfbench.analysis import grouping, leaderboard
from xfbench.analysis.leaderboard import Certificates
from xfbench.base import atomic_files, digests, private_names
from xfbench.base.errors import UsageError
from xfbench.base.version import __version__
from xfbench.equality import certificate
from xfbench.equality.certificate import Certificate
from xfbench.host.machine import describe
from xfbench.layout import beside, formats, tables
from xfbench.records.record import Record, Software
from xfbench.report import repeat
from xfbench.results import pack
from xfbench.results.store import Complain, Place, Store

SCHEMA = "xfbench.submission/1"
MANIFEST = "submission.json"
MACHINES, REPEAT, README, BOARD = "machine.json", "repeat.json", "README.md", "leaderboard.md"
_FORM = formats.FORMATS["markdown"]
_ABOUT = """# Results of xfbench {version}

{counts}. The figures are in [{board}]({board}), the machines in [{machines}]({machines}), what
every launch gave in `records/`, and what proves networks equal in `certificates/`. Check all of
it, or take it to others:

    xfbench results validate DIR
    xfbench results import DIR --results results

# How to repeat it

With xfbench {versions}; each command does the launches of one cell again, on a machine of its kind.
[{repeat}]({repeat}) has the same for programs.
"""
_PREPARED = "Its data set is to be prepared first: see xfbench data prepare."
_NAMED = "It ran in an interpreter that was named with --python {}=PATH."
_NO_COMMAND = "No command repeats it: its settings have names that no command could have."


def is_one(folder: Path) -> bool:
    """Whether the folder says that it is a submission."""
    return (folder / MANIFEST).is_file()


def write(
    folder: Path, found: Iterable[tuple[Place, Record]], source: Store, complain: Complain
) -> int:
    """Write a submission of these records and their certificates; how many records are in it.

    `complain` hears of each record that names a host or a user, which is left out. Raises
    UsageError where the folder is not empty, cannot be written, or nothing is left.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty: name another folder")
    known = list(found)
    hosts = {describe().hostname_hash, *hosts_of(record for _, record in known)}
    kept: list[tuple[Place, Record]] = []
    for place, record in known:
        if why := named_in(record.document(), hosts):
            complain(f"{record.id[7:19]} names {why}: left out")
        else:
            kept.append((place, record))
    if not kept:
        raise UsageError(f"{source.folder}: there are no records to submit")
    records = [record for _, record in kept]
    certificates = _named_by(records, certificate.read_folder(source.folder))
    absolute = folder.absolute()
    partial: Path | None = None
    try:
        absolute.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".xfbench-", dir=absolute.parent))
        target = Store(partial)
        for place, record in kept:
            content = pack.as_file(pack.line(json.loads(place.content())))  # however it was kept
            atomic_files.write(target.single_path(record.id[7:]), content)
        for one in certificates:
            content = source.certificate_path(one).read_bytes()
            atomic_files.write(target.certificate_path(one), content)
        for name, content in described(records, certificates).items():
            atomic_files.write(partial / name, content)
        atomic_files.write(partial / MANIFEST, _json(manifest(partial)))
        partial.chmod(0o755)
        partial.replace(absolute)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from error
    finally:
        if partial and partial.exists():
            shutil.rmtree(partial)
    return len(kept)


def _named_by(
    records: Sequence[Record], certificates: Certificates
) -> dict[str, Certificate | str]:
    wanted = {record.certificate for record in records if record.certificate}
    return {
        one: found
        for one, found in sorted(certificates.items())
        if one in wanted and isinstance(found, Certificate)
    }


def hosts_of(records: Iterable[Record]) -> set[str]:
    """The hashes of the hosts' names."""
    return {record.machine.hostname_hash for record in records if record.machine}


def named_in(value: Any, hosts: Collection[str]) -> str | None:
    """Who is named in any text of a JSON value; None where nobody is seen to be."""
    if isinstance(value, str):
        return private_names.named(value, hosts)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next(filter(None, (named_in(one, hosts) for one in parts)), None)


def manifest(folder: Path) -> dict[str, Any]:
    """Every other file of the folder, with its size and digest."""
    files = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return {
        "schema": SCHEMA,
        "xfbench": __version__,
        "files": {
            name: {"bytes": path.stat().st_size, "digest": digests.of_bytes(path.read_bytes())}
            for name, path in files.items()
            if name != MANIFEST
        },
    }


def described(records: Sequence[Record], certificates: Certificates) -> dict[str, bytes]:
    """The files that these records and certificates make, by name."""
    records = sorted(records, key=lambda one: (one.created, one.id))
    cells = repeats(records)
    return {
        MACHINES: _json({"machines": machines(records)}),
        REPEAT: _json({"cells": cells}),
        BOARD: board(records, certificates),
        README: _readme(records, cells),
    }


def machines(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Each machine that records are of, as they have it, and how many they are."""
    found = Counter(record.machine for record in records if record.machine)
    told = [{**one.model_dump(mode="json"), "records": count} for one, count in found.items()]
    return sorted(told, key=lambda one: json.dumps(one, sort_keys=True))


def repeats(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Of each cell on each kind of machine: what it is, the command that repeats it, its records.

    `command` is null for what no command could say.
    """
    found = []
    for head, cells in sorted(grouping.of_cells(records).items(), key=lambda one: one[0]):
        for launches in cells.values():
            asked = launches[-1].request
            assert asked is not None
            found.append(
                {
                    "title": f"{asked.label()} · {head[1]} · {head[3]} · batch {head[5]}",
                    "machine": head[6],
                    "cell": launches[-1].cell,
                    "framework": asked.framework,
                    "command": " ".join(repeat.repeat_command(launches)) or None,
                    "prepared": asked.data_set is not None,
                    "python": repeat.has_named_python(launches),
                    "records": sorted(one.id for one in launches),
                }
            )
    return sorted(found, key=lambda one: (one["title"], one["machine"], one["records"]))


def board(records: Sequence[Record], certificates: Certificates) -> bytes:
    """The leaderboards, and below them figures from elsewhere."""
    parts = [tables.FORMATS["markdown"](leaderboard.tables(records, certificates), "throughput")]
    if elsewhere := beside.figures(records):
        told = [beside.described(one) for one in elsewhere]
        lines = [(one.workload or "–", *one.fields) for one in told]
        sources = beside.bibliography(elsewhere)
        parts += [_FORM.above("Not measured with xfbench, not ranked")]
        parts += [_FORM.table(("network", *beside.HEADERS), lines), "", _FORM.above("Sources")]
        parts += [_FORM.table(("source", "is"), sources)]
    return ("\n".join(parts) + "\n").encode()


def _readme(records: Sequence[Record], cells: Sequence[dict[str, Any]]) -> bytes:
    measured = [record for record in records if record.request]
    counts = f"{len(measured)} launches of {len(cells)} cells on {len(machines(records))} machines"
    if others := len(records) - len(measured):
        counts += f", and {others} figures from elsewhere"
    versions = sorted({_version(one.software) for one in measured if one.software})
    names = {"board": BOARD, "machines": MACHINES, "repeat": REPEAT}
    told = _FORM.below(", ".join(versions)).strip() or __version__
    about = _ABOUT.format(version=__version__, counts=counts, versions=told, **names)
    return (about + "".join(map(_cell, cells))).encode()


def _version(software: Software) -> str:
    commit = f" ({software.git_commit[:12]})" if software.git_commit else ""
    return f"{software.xfbench_version}{commit}"


def _cell(one: dict[str, Any]) -> str:
    notes = [f"{one['machine']}; {len(one['records'])} records."]
    notes += [_PREPARED] if one["prepared"] else []
    notes += [_NAMED.format(one["framework"])] if one["python"] else []
    command = f"    {one['command']}" if one["command"] else _FORM.below(_NO_COMMAND).strip()
    return f"\n{_FORM.above(one['title'])}{_FORM.below(' '.join(notes))}\n\n{command}\n"


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
