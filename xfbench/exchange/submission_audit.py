"""Checks a submission as a whole (see `submission.py`). `audit.py` checks its records.

The files must match the manifest. The described machines must be the machines of the records. Each
cell must have a command that repeats it. No host and no user may be named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from xfbench.base import digests, private_names
from xfbench.base.errors import UsageError
from xfbench.base.version import __version__
from xfbench.exchange import submission
from xfbench.model import certificate, settings
from xfbench.model.record import Record
from xfbench.model.request import Request
from xfbench.rendering.report import repeat
from xfbench.store.results_folder import Store

# The file, the kind of the defect, and its detail.
Finding = tuple[str, Literal["whole", "machine", "repeat", "private"], str]
# Returns the parameters of `xfbench run` by name. Raises UsageError if an argument is invalid.
CommandParser = Callable[[Sequence[str]], Mapping[str, Any]]
_MAX_FILE_BYTES = 2**28  # larger files are not read


def audit_submission(folder: Path, parse_command: CommandParser | None = None) -> Iterator[Finding]:
    """Yield each defect of the submission in `folder`.

    If `parse_command` is None, the options in the commands are not checked.
    """
    manifest_findings = list(audit_manifest(folder))
    yield from manifest_findings
    store = Store(folder)
    records = list(store.records())
    certificates = certificate.read_certificates(folder)
    expected_files = submission.build_description_files(records, certificates)
    writer_version = _read_object_or_empty(folder / submission.MANIFEST).get("xfbench")
    if _read_object_or_empty(folder / submission.MACHINES).get(
        "machines"
    ) != submission.describe_machines(records):
        detail = "it does not describe the machines of the records"
        yield str(folder / submission.MACHINES), "machine", detail
    if (
        writer_version == __version__
        and _read_file_or_empty(folder / submission.BOARD) != expected_files[submission.BOARD]
    ):
        detail = "it is not the leaderboard of these records"
        yield str(folder / submission.BOARD), "whole", detail
    used = {
        certificate_id
        for record in records
        for certificate_id in certificate.find_certificate_ids(record, certificates)
    }
    for identity in sorted(certificates):
        path = store.certificate_path(identity)
        if identity not in used and path.is_file():
            yield str(path), "whole", "it covers none of the records"
    yield from _audit_cells(folder, {record.id: record for record in records}, parse_command)
    yield from _audit_private_names(folder, submission.collect_hostname_hashes(records))


def audit_manifest(folder: Path) -> Iterator[Finding]:
    """Yield a defect for each file that differs from the manifest, is missing, or is unexpected."""
    manifest_path = folder / submission.MANIFEST
    listed = _read_object_or_empty(manifest_path).get("files")
    if _read_object_or_empty(manifest_path).get("schema") != submission.SCHEMA or not isinstance(
        listed, dict
    ):
        yield str(manifest_path), "whole", f"it is not a manifest of schema {submission.SCHEMA}"
        return
    present: set[str] = set()
    for entry_path in sorted(folder.rglob("*")):
        name = entry_path.relative_to(folder).as_posix()
        if entry_path.is_dir() and not entry_path.is_symlink():
            continue
        present.add(name)
        if entry_path.is_symlink() or not entry_path.is_file():
            yield str(entry_path), "whole", "it is not a regular file"
        elif name != submission.MANIFEST and name not in listed:
            yield str(entry_path), "whole", "it does not belong: it is not in the manifest"
    expected = (submission.MACHINES, submission.REPEAT, submission.README, submission.BOARD)
    for name in sorted({*listed, *expected}):
        listing = listed.get(name)
        if name not in present:
            yield str(folder / name), "whole", "it is missing"
        elif not isinstance(listing, dict) or not _matches_manifest_entry(folder / name, listing):
            yield str(folder / name), "whole", "its content does not match the manifest"
        elif name not in expected and not _is_record_or_certificate_name(name):
            yield str(folder / name), "whole", "it does not belong in a submission"


def _matches_manifest_entry(path: Path, manifest_entry: Mapping[str, Any]) -> bool:
    content = _read_file_or_empty(path)
    actual = {"bytes": len(content), "digest": digests.of_bytes(content)}
    return actual == manifest_entry


def _is_record_or_certificate_name(name: str) -> bool:
    parts = name.split("/")
    depth = {"records": 3, "certificates": 2}.get(parts[0])
    return len(parts) == depth and name.endswith(".json")


def _audit_cells(
    folder: Path, records: Mapping[str, Record], parse_command: CommandParser | None
) -> Iterator[Finding]:
    path = folder / submission.REPEAT
    readme = _read_file_or_empty(folder / submission.README).decode(errors="replace").splitlines()
    remaining_ids = {record_id for record_id, record in records.items() if record.request}
    cells = _read_object_or_empty(path).get("cells")
    for number, cell in enumerate(cells if isinstance(cells, list) else (), 1):
        title = cell.get("title") if isinstance(cell, dict) else None
        location = f"cell {number} ({title})"
        ids = cell.get("records") if isinstance(cell, dict) else None
        if (
            not isinstance(ids, list)
            or not ids
            or not all(isinstance(record_id, str) for record_id in ids)
        ):
            yield str(path), "repeat", f"{location} names no records"
            continue
        if unknown_ids := [record_id for record_id in ids if record_id not in remaining_ids]:
            yield (
                str(path),
                "repeat",
                f"{location}: {unknown_ids[0]} is missing, or in another cell",
            )
        launches = [
            records[record_id]
            for record_id in sorted(remaining_ids & set(ids), key=_age_key(records))
        ]
        remaining_ids -= set(ids)
        command = cell.get("command")
        if launches and (problem := _command_error(command, launches, parse_command)):
            yield str(path), "repeat", f"{location}: {problem}"
        if isinstance(command, str) and f"    {command}" not in readme:
            yield str(folder / submission.README), "repeat", f"{location}: its command is missing"
    if remaining_ids:
        record_id = min(remaining_ids)
        yield (
            str(path),
            "repeat",
            f"{len(remaining_ids)} records without a cell, such as {record_id}",
        )


def _age_key(records: Mapping[str, Record]) -> Callable[[str], tuple[str, str]]:
    return lambda record_id: (records[record_id].created, record_id)


def _command_error(
    command: Any, launches: Sequence[Record], parse_command: CommandParser | None
) -> str | None:
    """Return why the command does not repeat these launches, or None.

    If `parse_command` is None, the options in the command are not checked.
    """
    if command is None:
        return "it has no command" if repeat.repeat_command_display_parts(launches) else None
    words = command.split() if isinstance(command, str) else []
    if words[:2] != ["xfbench", "run"] or command != " ".join(words):
        return "its command is not `xfbench run` with options"
    if parse_command is None:
        return None
    try:
        options = parse_command(words[2:])
    except UsageError as error:
        return f"its command is invalid: {error}"
    for record in launches:
        if record.request and (problem := _option_error(options, record.request)):
            return problem
    return None


def _option_error(options: Mapping[str, Any], request: Request) -> str | None:
    """Return why the given options do not repeat the request, or None."""
    needed_options = repeat.setting_options(request)
    for setting in settings.SETTINGS:
        if setting.option not in needed_options:
            continue
        value, needed = options.get(setting.name), needed_options[setting.option]
        value = None if value is False else value  # a switch that was not given
        stored = getattr(request, setting.cell_field, None)
        if needed is None and value is not None and stored is not None:  # it may repeat a default
            needed = setting.format_stored(stored)
        if str(value) != str(needed):
            return f"its command has {setting.option} {value}, but a record has {needed}"
    return None


def _audit_private_names(folder: Path, hostname_hashes: Collection[str]) -> Iterator[Finding]:
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        content = _read_file_or_empty(path)
        try:
            private_name = submission.describe_private_name_in_json(
                json.loads(content), hostname_hashes
            )
        except (ValueError, RecursionError):
            private_name = private_names.describe_private_name(
                content.decode(errors="replace"), hostname_hashes
            )
        private_name = private_name or private_names.describe_private_name(
            path.relative_to(folder).as_posix(), hostname_hashes
        )
        if private_name:
            yield str(path), "private", f"it names {private_name}"


def _read_object_or_empty(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty object if the file has none."""
    try:
        document = json.loads(_read_file_or_empty(path))
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _read_file_or_empty(path: Path) -> bytes:
    """Return the bytes of a file, or b"" if the file is unreadable, not regular or too large."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _MAX_FILE_BYTES:
            return b""
        return path.read_bytes()
    except OSError:
        return b""
