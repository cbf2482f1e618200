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
from xfbench.host.machine import describe
from xfbench.model import certificate
from xfbench.model.certificate import Certificate
from xfbench.model.record import Record, Software
from xfbench.rendering import external_figures, formats, tables
from xfbench.rendering.report import repeat
from xfbench.store import pack
from xfbench.store.results_folder import Place, Store, WarningHandler

SCHEMA = "xfbench.submission/1"
MANIFEST = "submission.json"
MACHINES, REPEAT, README, BOARD = "machine.json", "repeat.json", "README.md", "leaderboard.md"
_MARKDOWN = formats.FORMATS["markdown"]
_README_TEXT = """# Results of xfbench {version}

{counts}. The figures are in [{board}]({board}), the machines in [{machines}]({machines}), what
every launch gave in `records/`, and what proves networks equal in `certificates/`. Check all of
it, or take it to others:

    xfbench results validate DIR
    xfbench results import DIR --results results

# How to repeat it

With xfbench {versions}; each command does the launches of one cell again, on a machine of its kind.
[{repeat}]({repeat}) has the same for programs.
"""
_DATA_SET_NOTE = "Its data set is to be prepared first: see xfbench data prepare."
_PYTHON_NOTE = "It ran in an interpreter that was named with --python {}=PATH."
_NO_COMMAND_NOTE = "No command repeats it: its settings have names that no command could have."


def is_submission(folder: Path) -> bool:
    """Whether the folder says that it is a submission."""
    return (folder / MANIFEST).is_file()


def write_submission(
    folder: Path,
    stored_records: Iterable[tuple[Place, Record]],
    source: Store,
    warn: WarningHandler,
) -> int:
    """Write a submission of these records and their certificates; how many records are in it.

    `warn` hears of each record that names a host or a user, which is left out. Raises
    UsageError where the folder is not empty, cannot be written, or nothing is left.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty: name another folder")
    candidates = list(stored_records)
    hosts = {describe().hostname_hash, *host_hashes(record for _, record in candidates)}
    selected: list[tuple[Place, Record]] = []
    for place, record in candidates:
        if private_name := find_private_name(record.document(), hosts):
            warn(f"{record.id[7:19]} names {private_name}: left out")
        else:
            selected.append((place, record))
    if not selected:
        raise UsageError(f"{source.folder}: there are no records to submit")
    records = [record for _, record in selected]
    certificates = _certificates_of(records, certificate.read_folder(source.folder))
    absolute = folder.absolute()
    partial: Path | None = None
    try:
        absolute.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".xfbench-", dir=absolute.parent))
        target = Store(partial)
        for place, record in selected:
            content = pack.to_record_file(
                pack.format_line(json.loads(place.content()))
            )  # however it was kept
            atomic_files.write(target.record_path(record.id[7:]), content)
        for certificate_id in certificates:
            content = source.certificate_path(certificate_id).read_bytes()
            atomic_files.write(target.certificate_path(certificate_id), content)
        for name, content in build_files(records, certificates).items():
            atomic_files.write(partial / name, content)
        atomic_files.write(partial / MANIFEST, _to_json(build_manifest(partial)))
        partial.chmod(0o755)
        partial.replace(absolute)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from error
    finally:
        if partial and partial.exists():
            shutil.rmtree(partial)
    return len(selected)


def _certificates_of(
    records: Sequence[Record], certificates: Certificates
) -> dict[str, Certificate | str]:
    certificate_ids = {record.certificate for record in records if record.certificate}
    return {
        certificate_id: proof
        for certificate_id, proof in sorted(certificates.items())
        if certificate_id in certificate_ids and isinstance(proof, Certificate)
    }


def host_hashes(records: Iterable[Record]) -> set[str]:
    """The hashes of the hosts' names."""
    return {record.machine.hostname_hash for record in records if record.machine}


def find_private_name(value: Any, hosts: Collection[str]) -> str | None:
    """Who is named in any text of a JSON value; None where nobody is seen to be."""
    if isinstance(value, str):
        return private_names.find_private_name(value, hosts)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next(filter(None, (find_private_name(part, hosts) for part in parts)), None)


def build_manifest(folder: Path) -> dict[str, Any]:
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


def build_files(records: Sequence[Record], certificates: Certificates) -> dict[str, bytes]:
    """The files that these records and certificates make, by name."""
    records = sorted(records, key=lambda record: (record.created, record.id))
    cells = describe_cells(records)
    return {
        MACHINES: _to_json({"machines": describe_machines(records)}),
        REPEAT: _to_json({"cells": cells}),
        BOARD: render_leaderboard(records, certificates),
        README: _render_readme(records, cells),
    }


def describe_machines(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Each machine that records are of, as they have it, and how many they are."""
    record_counts = Counter(record.machine for record in records if record.machine)
    descriptions = [
        {**machine.model_dump(mode="json"), "records": count}
        for machine, count in record_counts.items()
    ]
    return sorted(descriptions, key=lambda description: json.dumps(description, sort_keys=True))


def describe_cells(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Of each cell on each kind of machine: what it is, the command that repeats it, its records.

    `command` is null for what no command could say.
    """
    descriptions = []
    for head, cells in sorted(grouping.group_by_cell(records).items(), key=lambda group: group[0]):
        for launches in cells.values():
            request = launches[-1].request
            assert request is not None
            descriptions.append(
                {
                    "title": f"{request.label()} · {head[1]} · {head[3]} · batch {head[5]}",
                    "machine": head[6],
                    "cell": launches[-1].cell,
                    "framework": request.framework,
                    "command": " ".join(repeat.build_repeat_command(launches)) or None,
                    "prepared": request.data_set is not None,
                    "python": repeat.has_named_python(launches),
                    "records": sorted(record.id for record in launches),
                }
            )
    return sorted(
        descriptions,
        key=lambda description: (
            description["title"],
            description["machine"],
            description["records"],
        ),
    )


def render_leaderboard(records: Sequence[Record], certificates: Certificates) -> bytes:
    """The leaderboards, and below them figures from elsewhere."""
    parts = [tables.FORMATS["markdown"](leaderboard.tables(records, certificates), "throughput")]
    if elsewhere := external_figures.external_figures(records):
        descriptions = [external_figures.describe_figure(figure) for figure in elsewhere]
        lines = [(description.workload or "–", *description.fields) for description in descriptions]
        sources = external_figures.bibliography(elsewhere)
        parts += [_MARKDOWN.render_heading("Not measured with xfbench, not ranked")]
        parts += [
            _MARKDOWN.table(("network", *external_figures.HEADERS), lines),
            "",
            _MARKDOWN.render_heading("Sources"),
        ]
        parts += [_MARKDOWN.table(("source", "is"), sources)]
    return ("\n".join(parts) + "\n").encode()


def _render_readme(records: Sequence[Record], cells: Sequence[dict[str, Any]]) -> bytes:
    launches = [record for record in records if record.request]
    counts = (
        f"{len(launches)} launches of {len(cells)} cells on {len(describe_machines(records))} "
        "machines"
    )
    if external_count := len(records) - len(launches):
        counts += f", and {external_count} figures from elsewhere"
    versions = sorted(
        {_describe_version(record.software) for record in launches if record.software}
    )
    names = {"board": BOARD, "machines": MACHINES, "repeat": REPEAT}
    version_text = _MARKDOWN.render_note(", ".join(versions)).strip() or __version__
    about = _README_TEXT.format(version=__version__, counts=counts, versions=version_text, **names)
    return (about + "".join(map(_render_cell, cells))).encode()


def _describe_version(software: Software) -> str:
    commit = f" ({software.git_commit[:12]})" if software.git_commit else ""
    return f"{software.xfbench_version}{commit}"


def _render_cell(cell: dict[str, Any]) -> str:
    notes = [f"{cell['machine']}; {len(cell['records'])} records."]
    notes += [_DATA_SET_NOTE] if cell["prepared"] else []
    notes += [_PYTHON_NOTE.format(cell["framework"])] if cell["python"] else []
    command = (
        f"    {cell['command']}"
        if cell["command"]
        else _MARKDOWN.render_note(_NO_COMMAND_NOTE).strip()
    )
    heading = _MARKDOWN.render_heading(cell["title"])
    note = _MARKDOWN.render_note(" ".join(notes))
    return f"\n{heading}{note}\n\n{command}\n"


def _to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
