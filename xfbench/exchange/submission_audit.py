"""Checks a submission as a whole (see `submission.py`). `audit.py` checks its records.

The files must match the manifest. The described machines must be the machines of the records. Each
cell must have the command that repeats it. No host and no user may be named.

A submission is the text of somebody else. Its commands are compared, word by word, with those that
its records give. They are neither run nor parsed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from xfbench.base import digests, paths, private_names, safe_read, strict_json
from xfbench.base.version import __version__
from xfbench.exchange import submission
from xfbench.model import certificate
from xfbench.model.record import Record
from xfbench.model.sealed import MAX_DOCUMENT_BYTES, age_key
from xfbench.rendering.report import repeat
from xfbench.store.results_folder import Store

# The file, the kind of the defect, and its detail.
Finding = tuple[str, Literal["whole", "machine", "repeat", "private"], str]
# What a Markdown line may have before its text: marks of quotations and of list items.
_CONTAINER = re.compile(r" {0,3}(?:>|[-+*](?=\s)|\d{1,9}[.)](?=\s)) ?")
_INDENTED_CODE = re.compile(r" {4}| {0,3}\t")
_CODE_MARK = re.compile(r"`|~~~|<")
_ESCAPED = re.compile(r"\\.")
_LINE_END = re.compile(r"\r\n?|\n")  # of Markdown; `splitlines` splits at more


def audit_submission(folder: Path) -> Iterator[Finding]:
    """Yield each defect of the submission in `folder`."""
    manifest_findings = list(audit_manifest(folder))
    yield from manifest_findings
    store = Store(folder)
    records = list(store.records())
    certificates = certificate.read_certificates(folder)
    expected_files = submission.build_description_files(records, certificates)
    manifest = _read_object_or_empty(folder / submission.MANIFEST)
    if _read_object_or_empty(folder / submission.MACHINES).get(
        "machines"
    ) != submission.describe_machines(records):
        detail = "it does not describe the machines of the records"
        yield str(folder / submission.MACHINES), "machine", detail
    is_of_this_version = _is_of_this_version(manifest)
    for name in (submission.BOARD, submission.README) if is_of_this_version else ():
        if _read_file_or_empty(folder / name) != expected_files[name]:
            yield str(folder / name), "whole", "it does not describe these records"
    used = {
        certificate_id
        for record in records
        for certificate_id in certificate.find_certificate_ids(record, certificates)
    }
    for identity in sorted(certificates):
        path = store.certificate_path(identity)
        if identity not in used and path.is_file():
            yield str(path), "whole", "it covers none of the records"
    yield from _audit_cells(folder, records, is_of_this_version=is_of_this_version)
    yield from _audit_private_names(folder, submission.collect_hostname_hashes(records))


def describe_what_is_not_compared(folder: Path) -> str | None:
    """Return a message if `audit_submission` cannot compare all files with the records."""
    if _is_of_this_version(_read_object_or_empty(folder / submission.MANIFEST)):
        return None
    return (
        f"{folder}: another version of xfbench wrote it: {submission.README}, {submission.BOARD} "
        f"and the titles in {submission.REPEAT} were not compared with the records"
    )


def _is_of_this_version(manifest: Mapping[str, Any]) -> bool:
    return manifest.get("xfbench") == __version__


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
    for entry_path in sorted(paths.iterate_below(folder)):
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
    folder: Path, records: Sequence[Record], *, is_of_this_version: bool
) -> Iterator[Finding]:
    """Yield the defects of the cells, and of their commands in the README."""
    path = folder / submission.REPEAT
    by_id = {record.id: record for record in records}
    expected_cells = {
        tuple(cell["records"]): cell
        for cell in submission.describe_cells_and_repeat_commands(records)
    }
    remaining_ids = {record.id for record in records if record.request}
    commands: list[str] = []
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
            detail = f"{location}: {unknown_ids[0]} is missing, or in another cell"
            yield str(path), "repeat", detail
        launches = sorted(
            (by_id[record_id] for record_id in remaining_ids & set(ids)),
            key=age_key,
        )
        remaining_ids -= set(ids)
        command = cell.get("command")
        commands += [command] if isinstance(command, str) else []
        if launches and (problem := _command_error(command, launches)):
            yield str(path), "repeat", f"{location}: {problem}"
        elif is_of_this_version and cell | {"command": None} != (
            expected_cells.get(tuple(ids), {}) | {"command": None}
        ):
            yield str(path), "repeat", f"{location}: it does not describe its records"
    if remaining_ids:
        detail = f"{len(remaining_ids)} records without a cell, such as {min(remaining_ids)}"
        yield str(path), "repeat", detail
    yield from _audit_readme(folder, commands)


def _audit_readme(folder: Path, commands: Sequence[str]) -> Iterator[Finding]:
    """Yield a defect for each command that the README lacks, and for any other code in it."""
    path = folder / submission.README
    lines = _LINE_END.split(_read_file_or_empty(path).decode(errors="replace"))
    known_lines = {f"    {line}" for line in (*commands, *submission.README_COMMANDS)}
    present_lines = {*lines}
    for command in commands:
        if f"    {command}" not in present_lines:
            yield str(path), "repeat", f"it lacks the command of a cell: {command}"
    for line in lines:
        if line not in known_lines and _may_be_code(line):
            yield str(path), "repeat", f"it has code that is no command of a cell: {line.strip()}"


def _may_be_code(line: str) -> bool:
    """Return whether Markdown may show the line, or a part of it, as code.

    A reader copies code to a shell. HTML may show code, too.
    """
    start = 0
    while match := _CONTAINER.match(line, start):
        start = match.end()
    if _INDENTED_CODE.match(line, start):
        return True
    text = line[start:]
    for span in submission.README_CODE_SPANS:
        text = text.replace(span, "")
    return _CODE_MARK.search(_ESCAPED.sub("", text)) is not None


def _command_error(command: Any, launches: Sequence[Record]) -> str | None:
    """Return why the command is not the one that repeats these launches, or None if it is.

    Every option that the records need must be there, with their value. Other options may repeat a
    value that the records have. The order of the options does not matter. A word may be quoted.
    """
    if not repeat.repeat_command_display_parts(launches):
        return None if command is None else "its records give no command, but it has one"
    if command is None:
        return "it has no command"
    needed, stored = repeat.given_options(launches), repeat.stored_options(launches[-1])
    for record in launches:
        if repeat.stored_options(record) != stored:
            return "its records are of several cells"
    words = command.split(" ") if isinstance(command, str) else []
    if words[:2] != ["xfbench", "run"]:
        return "its command is not `xfbench run` with options"
    remaining, missing = words[2:], dict(needed)
    allowed = stored | needed
    while remaining:
        option = remaining.pop(0)
        if option not in allowed:
            return f"its command has {option}, which the records do not give, or give once"
        missing.pop(option, None)
        value = allowed.pop(option)
        if value is True:
            continue
        word = remaining.pop(0) if remaining else None
        if not _is_word(word, str(value)):
            return f"its command has {option} {word}, but a record has {value}"
    for name, value in missing.items():
        return f"its command lacks {name} {value}, which a record has"
    return None


def _is_word(word: str | None, value: str) -> bool:
    """Return whether `word` is `value` for every shell: as it is, or in quotation marks."""
    return repeat.needs_no_quotes(value) and word in (value, f"'{value}'", f'"{value}"')


def _audit_private_names(folder: Path, hostname_hashes: Collection[str]) -> Iterator[Finding]:
    for path in sorted(paths.iterate_below(folder)):
        if path.is_symlink() or not path.is_file():
            continue
        content = _read_file_or_empty(path)
        try:
            private_name = submission.describe_private_name_in_json(
                strict_json.parse(content), hostname_hashes
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
        document = strict_json.parse(_read_file_or_empty(path))
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _read_file_or_empty(path: Path) -> bytes:
    """Return the bytes of a file, or b"" if the file is unreadable, not regular or too large."""
    try:
        return safe_read.read_bytes(path, MAX_DOCUMENT_BYTES)
    except (OSError, ValueError):
        return b""
