"""Submissions: folders of results for a shared leaderboard (`xfbench.submission/1`).

A submission is a results folder with records and their certificates. It also has these files:

- `machine.json` describes the machines.
- `repeat.json` and `README.md` have the command that repeats each cell.
- `leaderboard.md` has the leaderboards.
- `submission.json`, the manifest, has the size and digest of every other file.

The same version of xfbench always writes the same files for the same records and certificates.
Private names are removed from the records (`private_copies.py`). Records that still name a host or
a user are left out, so that no file names a host or a user.
`submission_audit.py` checks submissions.
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
from xfbench.base import atomic_files, digests, private_names, strict_json
from xfbench.base.errors import UsageError
from xfbench.base.version import __version__
from xfbench.exchange.private_copies import PrivateCopies
from xfbench.host.machine import describe_machine
from xfbench.model import certificate
from xfbench.model.certificate import Certificate
from xfbench.model.record import Record, Software
from xfbench.model.sealed import age_key
from xfbench.rendering import external_figures, formats, tables
from xfbench.rendering.report import repeat
from xfbench.store import pack
from xfbench.store.results_folder import Place, Store, WarningHandler

SCHEMA = "xfbench.submission/1"
MANIFEST = "submission.json"
MACHINES, REPEAT, README, BOARD = "machine.json", "repeat.json", "README.md", "leaderboard.md"
_MARKDOWN = formats.FORMATS["markdown"]
# Other commands in the README than those of cells.
README_COMMANDS = ("xfbench results validate DIR", "xfbench results import DIR --results results")
README_CODE_SPANS = ("`records/`", "`certificates/`")  # of its text
_README_TEXT = """# Results of xfbench {version}

{counts}. The figures are in [{board}]({board}), the machines in [{machines}]({machines}), the
records of all launches in `records/`, and the proofs of equal networks in `certificates/`. Check
the folder, or import it into other results:

    {check}
    {take}

# How to repeat it

Use xfbench {versions}. Each command repeats the launches of one cell on a machine of the same kind.
[{repeat}]({repeat}) has the same commands for programs.
"""
_DATA_SET_NOTE = "Prepare its data set first: see xfbench data prepare."
_PYTHON_NOTE = "It ran in the interpreter given by --python {}=PATH."
_NO_COMMAND_NOTE = "No command repeats it: its settings have names that a command cannot contain."


def is_submission(folder: Path) -> bool:
    """Return whether the folder has a submission's manifest."""
    return (folder / MANIFEST).is_file()


def write_submission(
    folder: Path,
    stored_records: Iterable[tuple[Place, Record]],
    source: Store,
    warn: WarningHandler,
) -> int:
    """Write a submission to `folder`, and return its number of records.

    `stored_records` and their certificates come from the results folder `source`. A record that
    names a host or a user is left out, and `warn` gets a message. Raises UsageError if `folder` is
    not empty or cannot be written, or if no record remains.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty: choose another folder")
    copies = PrivateCopies(source, warn)
    originals = {}
    candidates = []
    for place, original in stored_records:
        candidates.append(copies.copy_record(place, original))
        originals[candidates[-1][0].id] = original
    hostname_hashes = {
        describe_machine().hostname_hash,
        *collect_hostname_hashes(record for record, _ in candidates),
    }
    selected: list[tuple[Record, bytes]] = []
    for record, content in candidates:
        if private_name := describe_private_name_in_json(record.document(), hostname_hashes):
            warn(f"record {record.id[7:19]} names {private_name}: left out")
        else:
            selected.append((record, content))
    if not selected:
        raise UsageError(f"{source.folder} has no records to submit")
    records = [record for record, _ in selected]
    certificates = copies.copy_certificates(
        _select_valid_certificates(
            [originals[record.id] for record in records],
            certificate.read_certificates(source.folder),
        )
    )
    proofs: Certificates = {each.id: each for each, _ in certificates}
    absolute = folder.absolute()
    partial: Path | None = None
    try:
        absolute.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".xfbench-", dir=absolute.parent))
        target = Store(partial)
        for record, content in selected:
            line = pack.format_line(strict_json.parse(content))
            # Same bytes for packed records and single files.
            atomic_files.write(target.record_path(record.id[7:]), pack.to_record_file_content(line))
        for proof, content in certificates:
            atomic_files.write(target.certificate_path(proof.id), content)
        for name, content in build_description_files(records, proofs).items():
            atomic_files.write(partial / name, content)
        atomic_files.write(partial / MANIFEST, _to_json(build_manifest(partial)))
        partial.chmod(0o755)
        partial.replace(absolute)
        copies.remember()
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from error
    finally:
        if partial and partial.exists():
            shutil.rmtree(partial)
    return len(selected)


def _select_valid_certificates(
    records: Sequence[Record], certificates: Certificates
) -> dict[str, Certificate | str]:
    certificate_ids = {
        certificate_id
        for record in records
        for certificate_id in certificate.find_certificate_ids(record, certificates)
    }
    return {
        certificate_id: proof
        for certificate_id, proof in sorted(certificates.items())
        if certificate_id in certificate_ids and isinstance(proof, Certificate)
    }


def collect_hostname_hashes(records: Iterable[Record]) -> set[str]:
    """Return the hashes of the host names of all machines in the records."""
    return {record.machine.hostname_hash for record in records if record.machine}


def describe_private_name_in_json(value: Any, hostname_hashes: Collection[str]) -> str | None:
    """Return a private name in a JSON value, such as "the host node7", or None if none is found.

    Private names are home folders, email addresses, and host names whose hashes are in
    `hostname_hashes`. The keys of objects are not searched.
    """
    if isinstance(value, str):
        return private_names.describe_private_name(value, hostname_hashes)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next(
        filter(None, (describe_private_name_in_json(part, hostname_hashes) for part in parts)), None
    )


def build_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a submission: size and digest of every other file in `folder`."""
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


def build_description_files(
    records: Sequence[Record], certificates: Certificates
) -> dict[str, bytes]:
    """Return the content of each file that describes the records, by file name.

    These are all files of a submission except records, certificates and the manifest.
    """
    records = sorted(records, key=age_key)
    cells = describe_cells_and_repeat_commands(records)
    return {
        MACHINES: _to_json({"machines": describe_machines(records)}),
        REPEAT: _to_json({"cells": cells}),
        BOARD: render_markdown_leaderboard(records, certificates),
        README: _render_readme(records, cells),
    }


def describe_machines(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return a description of each machine, with the number of the records from this machine."""
    record_counts = Counter(record.machine for record in records if record.machine)
    descriptions = [
        {**machine.model_dump(mode="json"), "records": count}
        for machine, count in record_counts.items()
    ]
    return sorted(descriptions, key=lambda description: json.dumps(description, sort_keys=True))


def describe_cells_and_repeat_commands(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return a description of each cell on each kind of machine.

    - `command` is the command that repeats the cell, or None if there is none.
    - `prepared` says whether the cell reads a prepared data set.
    - `python` says whether the command also needs the option --python.
    - `slurm` says whether the command may need the options of a Slurm job.
    - `records` are the ids of the cell's records.
    """
    descriptions = []
    for head, cells in sorted(
        grouping.group_by_heading_and_cell(records).items(), key=lambda group: group[0]
    ):
        for launches in cells.values():
            request = launches[-1].request
            assert request is not None
            descriptions.append(
                {
                    "title": f"{request.label()} · {head[1]} · {head[3]} · batch {head[5]}",
                    "machine": head[6],
                    "cell": launches[-1].cell,
                    "framework": request.framework,
                    "command": " ".join(repeat.repeat_command_display_parts(launches)) or None,
                    "prepared": request.data_set is not None,
                    "python": repeat.has_user_chosen_python(launches),
                    "slurm": request.launcher == "slurm",
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


def render_markdown_leaderboard(records: Sequence[Record], certificates: Certificates) -> bytes:
    """Return the leaderboards as Markdown, followed by the external figures and their sources."""
    parts = [
        tables.FORMATS["markdown"](leaderboard.build_tables(records, certificates), "throughput")
    ]
    if elsewhere := external_figures.distinct_external_figures(records):
        descriptions = [external_figures.describe_figure(figure) for figure in elsewhere]
        lines = [
            (description.workload or "–", *description.table_cells) for description in descriptions
        ]
        sources = external_figures.cited_keys_and_titles(elsewhere)
        parts += [_MARKDOWN.render_heading("Not measured with xfbench, not ranked")]
        parts += [
            _MARKDOWN.render_table(("network", *external_figures.HEADERS), lines),
            "",
            _MARKDOWN.render_heading("Sources"),
        ]
        parts += [_MARKDOWN.render_table(("source", "is"), sources)]
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
        {_format_xfbench_version(record.software) for record in launches if record.software}
    )
    names = {"board": BOARD, "machines": MACHINES, "repeat": REPEAT}
    names |= dict(zip(("check", "take"), README_COMMANDS, strict=True))
    version_text = _MARKDOWN.render_note(", ".join(versions)).strip() or __version__
    about = _README_TEXT.format(version=__version__, counts=counts, versions=version_text, **names)
    return (about + "".join(map(_render_cell, cells))).encode()


def _format_xfbench_version(software: Software) -> str:
    commit = f" ({software.git_commit[:12]})" if software.git_commit else ""
    return f"{software.xfbench_version}{commit}"


def _render_cell(cell: dict[str, Any]) -> str:
    notes = [f"{cell['machine']}; {len(cell['records'])} records."]
    notes += [_DATA_SET_NOTE] if cell["prepared"] else []
    notes += [_PYTHON_NOTE.format(cell["framework"])] if cell["python"] else []
    notes += [repeat.SLURM_NOTE] if cell["slurm"] else []
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
