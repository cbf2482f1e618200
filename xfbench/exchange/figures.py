"""Imports figures from files of other tools. Each figure becomes a record that states its source.

Such a record has no request and no certificate. It is shown next to measured records, and never
ranked. Importing a file again gives the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from xfbench.base import foreign_names, paths, safe_read, strict_json
from xfbench.base.errors import UsageError
from xfbench.base.terminal_text import make_legible
from xfbench.exchange.formats import Entry, File, Format, Missed, list_keys, load_formats
from xfbench.model.external_record import About, Citation, Figure, figure_error
from xfbench.model.record import Record
from xfbench.model.sealed import future_error
from xfbench.store.results_folder import Store, WarningHandler

_MAX_FILE_BYTES = 2**28
_MAX_VALUES = 8_000_000  # of a JSON file
_MAX_ENTRIES = 100_000  # figures of a file, and places without one
_MAX_NAMES = 20_000  # hosts and users of a file
_MAX_TEXT_CHARACTERS = 200  # longer texts are cut
_BEGINNINGS = {
    b"\x1f\x8b": "it is compressed with gzip: unpack it",
    b"PK\x03\x04": "it is a ZIP archive: unpack it",
    b"(\xb5/\xfd": "it is compressed with Zstandard: unpack it",
    b"\xfd7zXZ": "it is compressed with xz: unpack it",
    b"BZh": "it is compressed with bzip2: unpack it",
}


class _UnknownFormatError(UsageError):
    """The file has no supported format."""


def import_figures(
    source: Path, target: Store, warn: WarningHandler, inform: WarningHandler
) -> tuple[int, int]:
    """Import the figures in the file `source`, or in every file below the folder `source`.

    Return the number of new records, and the number of records that `target` already had.

    - `warn` gets a message for each figure or file that cannot be imported.
    - `inform` gets a message for each file or entry without a figure. After 20 messages, it gets
      only the number of the remaining ones. If there is no figure at all, it also gets the
      messages for `warn`.

    Raises UsageError if there is no figure to import, if the file `source` is invalid, or if
    `target` cannot be written.
    """
    problems: list[str] = []
    notes: list[str] = []
    records = _read_source(source, problems.append, notes.append)
    if records:
        for line in problems:
            warn(line)
    else:
        notes = problems + notes
    for line in notes[:20]:
        inform(line)
    if len(notes) > 20:
        inform(f"{len(notes) - 20} more files or entries have no figure to import")
    if not records:
        raise UsageError(f"{source} has no figure to import")
    target.create_and_check_folders()
    existing_ids = {record.id for record, _, _ in target.contents()}
    new_records = {record.id: record for record in records if record.id not in existing_ids}
    for record in new_records.values():
        try:
            target.add(record)
        except OSError as error:
            raise UsageError(f"{target.folder}: {error.strerror}") from error
    return len(new_records), len({record.id for record in records}) - len(new_records)


def _read_source(source: Path, warn: WarningHandler, inform: WarningHandler) -> list[Record]:
    """Return a record for each figure in the file `source`, or in every file of that folder.

    Raises UsageError if the file `source` is invalid.
    """
    if source.is_file():
        return _read_records(source, warn, inform)
    records: list[Record] = []
    for path in sorted(paths.iterate_below(source)):
        if path.is_symlink() or not path.is_file():
            continue
        try:
            records += _read_records(path, warn, inform)
        except _UnknownFormatError as error:
            inform(str(error))
        except UsageError as error:
            warn(str(error))
    return records


def _read_records(path: Path, warn: WarningHandler, inform: WarningHandler) -> list[Record]:
    """Return a record for each figure in the file `path`.

    Raises UsageError if the format of the file is unknown, or if the file is damaged.
    """
    file = _read_file(path)
    known_formats = load_formats()
    file_format = next(
        (file_format for file_format in known_formats if file_format.is_recognised(file)), None
    )
    if file_format is None:
        tools = ", ".join(file_format.TOOL for file_format in known_formats)
        raise _UnknownFormatError(
            f"{_legible_path(path)}: neither an exported archive nor a file of {tools}: nothing "
            f"was imported; {make_legible(_describe_content(file), _MAX_TEXT_CHARACTERS)}"
        )
    try:
        return list(_records_of_entries(path, file, file_format, warn, inform))
    except (ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"{_legible_path(path)}: not a valid file of {file_format.TOOL}: {reason}; "
            "create the file again with that tool"
        ) from error


def _describe_content(file: File) -> str:
    """Return what a file of an unknown format has, such as "it has the keys a, b"."""
    if isinstance(file.document, dict):
        return f"it has the keys {list_keys(file.document)}"
    if file.document is not None:
        return f"it has a JSON value of type {type(file.document).__name__}"
    for beginning, description in _BEGINNINGS.items():
        if file.content.startswith(beginning):
            return description
    if b"\0" in file.content[:_MAX_TEXT_CHARACTERS]:
        return "it has binary data, or a text in UTF-16: convert it to UTF-8"
    try:
        text = file.content.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        return "it has binary data"
    if not text:
        return "it is empty"
    if text[0] in "{[":
        try:
            strict_json.parse(text)
        except (ValueError, RecursionError) as error:
            return f"it is not complete JSON: {error}"
    return f"it begins with '{text.splitlines()[0]}'"


def _read_file(path: Path) -> File:
    """Return the content of a file, and its JSON value if it has one.

    Raises UsageError if the file cannot be read or is too large, or if its JSON has a key twice.
    """
    try:
        content = safe_read.read_bytes(path, _MAX_FILE_BYTES, follow_link=True)
    except OSError as error:
        raise UsageError(f"{_legible_path(path)}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(
            f"{_legible_path(path)} is larger than {_MAX_FILE_BYTES >> 20} MiB: split it"
        ) from error
    try:
        return File(content, strict_json.parse(content, max_values=_MAX_VALUES))
    except (strict_json.DuplicateKeyError, strict_json.TooManyValuesError) as error:
        if content.lstrip()[:1] not in (b"{", b"["):  # a log with many commas
            return File(content, None)
        raise UsageError(f"{_legible_path(path)}: {error}: nothing was imported") from error
    except (ValueError, RecursionError):
        return File(content, None)


def _records_of_entries(
    path: Path, file: File, file_format: Format, warn: WarningHandler, inform: WarningHandler
) -> Iterator[Record]:
    names: set[str] = set()
    for name in file_format.host_and_user_names(file):
        names.add(name)
        if len(names) > _MAX_NAMES:
            raise ValueError(f"it names more than {_MAX_NAMES:,} hosts and users")
    hide_names = foreign_names.make_private_text_redactor(names)

    def redact_and_cut(text: str) -> str:
        return make_legible(hide_names(text), _MAX_TEXT_CHARACTERS)

    for number, entry in enumerate(file_format.entries(file), 1):
        if number > _MAX_ENTRIES:
            raise ValueError(f"it has more than {_MAX_ENTRIES:,} figures and messages")
        if isinstance(entry, Missed):
            handler = warn if entry.fault else inform
            handler(
                f"{_legible_path(path)}: {redact_and_cut(entry.where)}: {redact_and_cut(entry.why)}"
            )
            continue
        try:
            record = _build_record(path.name, file_format.TOOL, entry, redact_and_cut)
        except ValidationError as error:
            first_error = error.errors(include_url=False, include_input=False)[0]
            problem: str | None = f"{'.'.join(map(str, first_error['loc']))}: {first_error['msg']}"
        else:
            problem = future_error(record.created)
            problem = problem or (figure_error(record.figure) if record.figure else None)
            if not problem:
                yield record
        if problem:
            warn(f"{_legible_path(path)}: {redact_and_cut(entry.where)}: {redact_and_cut(problem)}")


def _build_record(
    file_name: str, tool: str, entry: Entry, redact_and_cut: Callable[[str], str]
) -> Record:
    about: dict[str, Any] = {
        key: redact_and_cut(value) if isinstance(value, str) else value
        for key, value in entry.about.items()
    }
    return Record.make(
        created=entry.created,
        source="imported",
        citation=Citation(
            key=tool,
            title=redact_and_cut(entry.title),
            where=f"{redact_and_cut(file_name)}: {redact_and_cut(entry.where)}",
        ),
        figure=Figure(
            quantity=redact_and_cut(entry.quantity),
            unit=redact_and_cut(entry.unit),
            value=entry.value,
            low=entry.low,
            high=entry.high,
            values=entry.values,
            about=About(**about),
        ),
        status="failed" if entry.failed else "ok",
        reason=redact_and_cut(entry.failed) if entry.failed else None,
        request=None,
        workload=None,
    )


def _legible_path(path: Path) -> str:
    return make_legible(str(path), 4096)
