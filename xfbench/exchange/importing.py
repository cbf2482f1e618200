"""Reads records from everything that can hold them, into a results folder.

Sources are results folders, archives, packs, submissions, and files of other tools. A bundle that
was run on another machine is read by `xfbench/bundle.py`.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from xfbench.base import paths, safe_read, shared_files
from xfbench.base.errors import UsageError
from xfbench.base.wording import pluralize
from xfbench.exchange import archive, audit, figures, submission, submission_audit
from xfbench.model.sealed import MAX_DOCUMENT_BYTES
from xfbench.store import merging
from xfbench.store.results_folder import Store, WarningHandler, is_results_folder

_PACK_SUFFIX = ".ndjson"
_MAX_SUBMISSION_BYTES = 2**34
_MAX_SUBMISSION_ENTRIES = 2_000_000  # files and folders
_NOTHING_IMPORTED = "nothing of the submission was imported"


def import_source(
    source: Path, target: Store, warn: WarningHandler, inform: WarningHandler
) -> tuple[int, int]:
    """Import the records of `source` into `target`.

    Return the number of new records, and the number of records that `target` already had. Records
    of xfbench come with their certificates and tuning searches, from folders also with their run
    folders. Values of other tools become records that state their source.

    - `warn` gets a message for each damaged record or file.
    - `inform` gets a message for each file or entry of another tool that has no figure, and one
      about what was not checked, was not readable, or is impossible in records of xfbench.

    A submission is imported only if it has no defect. Raises UsageError if `source` cannot be
    imported, or if `target` cannot be written.
    """
    if submission.is_submission(source):
        return _import_submission(source, target, warn, inform)
    if _is_unpacked_archive(source):
        raise UsageError(
            f"{source} is an unpacked archive: import the archive itself, or pack it again: "
            f"cd {shlex.quote(str(source))} && tar cf ../records.tar */*.json manifest.json"
        )
    if is_results_folder(source):
        counts = merging.merge_stores([Store(source)], target, warn, inform=inform)
        inform(
            f"{source}: digests were checked, but not whether the figures are possible: "
            f"xfbench results validate {source}"
        )
        return counts
    if source.is_file() and source.suffix == _PACK_SUFFIX:
        counts = merging.import_pack(source, target, warn)
        _say_defects(source, inform)
        return counts
    if source.is_file() and archive.is_archive(source):
        counts = archive.import_archive(source, target, warn)
        _say_defects(source, inform)
        return counts
    return figures.import_figures(source, target, warn, inform)


def _is_unpacked_archive(source: Path) -> bool:
    """Return whether a folder has the files of an archive, which are not those of a folder."""
    records = source / "records"
    has_manifest = (source / "manifest.json").is_file() and records.is_dir()
    return has_manifest and not any(path.is_dir() for path in records.iterdir())


def _import_submission(
    source: Path, target: Store, warn: WarningHandler, inform: WarningHandler
) -> tuple[int, int]:
    """Import a submission as `import_source` does.

    A private copy is validated and imported, because its sender may change the folder meanwhile.
    """
    with tempfile.TemporaryDirectory(prefix="xfbench-submission-") as scratch:
        copy = Path(scratch) / source.absolute().name
        _copy_submission(source, copy)
        if not submission.is_submission(copy):
            raise UsageError(f"{source} changed while it was copied: {_NOTHING_IMPORTED}")

        def name_source(text: str) -> str:
            return text.replace(str(copy), str(source))

        _, defects = audit.validate_results(copy)
        for defect in defects:
            raise UsageError(
                f"{name_source(defect.file)}: {defect.detail}: {_NOTHING_IMPORTED} "
                f"(xfbench results validate {source} lists {pluralize(len(defects), 'defect')})"
            )
        if message := submission_audit.describe_what_is_not_compared(copy):
            inform(name_source(message))
        return merging.merge_stores(
            [Store(copy)],
            target,
            lambda line: warn(name_source(line)),
            "submitted",
            lambda line: inform(name_source(line)),
        )


def _copy_submission(source: Path, copy: Path) -> None:
    """Copy the files of a submission to the new folder `copy`, which no other user can read.

    Raises UsageError if the submission is too large, or if a file is not plain or cannot be read.
    """
    remaining_bytes, remaining_entries = _MAX_SUBMISSION_BYTES, _MAX_SUBMISSION_ENTRIES
    copy.mkdir(mode=0o700)
    try:
        for parent, folder_names, file_names in os.walk(source, onerror=_raise):
            place = Path(parent).relative_to(source)
            folder = copy / place
            if len(place.parts) > paths.MAX_DEPTH:
                raise UsageError(
                    f"{source} has too many folders inside each other: {_NOTHING_IMPORTED}"
                )
            for name in (*folder_names, *file_names):
                path, remaining_entries = Path(parent) / name, remaining_entries - 1
                if min(remaining_bytes, remaining_entries) < 0:
                    raise UsageError(f"{source} is too large: {_NOTHING_IMPORTED}")
                if name in folder_names and not path.is_symlink():
                    (folder / name).mkdir(mode=0o700)
                    continue
                content = safe_read.read_bytes(path, MAX_DOCUMENT_BYTES)
                remaining_bytes -= len(content)
                shared_files.write_file(folder / name, content, permissions=shared_files.PRIVATE)
    except shared_files.UnsafeFileError as error:
        raise UsageError(f"{error}: {_NOTHING_IMPORTED}") from error
    except (OSError, ValueError) as error:
        failed = getattr(error, "filename", None) or source
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{failed}: {reason}: {_NOTHING_IMPORTED}") from error


def _raise(error: OSError) -> None:
    raise error


def _say_defects(source: Path, inform: WarningHandler) -> None:
    """Say what `xfbench results validate` finds in an archive or a pack that was imported."""
    _, defects = audit.validate_results(source)
    if defects:
        inform(
            f"{source} has {pluralize(len(defects), 'defect')}, such as {defects[0].defect}: "
            f"{defects[0].detail} (xfbench results validate {source} lists all)"
        )


def check_sources(sources: Sequence[Path], target: Store) -> list[Path]:
    """Return the sources without `target` itself, after a check that all of them exist.

    Raises UsageError if one is missing, or if none is left.
    """
    for source in sources:
        if not source.exists():
            raise UsageError(f"{source}: no such file or folder")
    other_sources = [source for source in sources if source.resolve() != target.folder.resolve()]
    if not other_sources:
        raise UsageError(f"{target.folder} is the results folder itself")
    return other_sources
