"""Reads records from everything that can hold them, into a results folder.

Sources are results folders, archives, packs, submissions, and files of other tools. A bundle that
was run on another machine is read by `xfbench/bundle.py`.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tarfile import is_tarfile

from xfbench.base.errors import UsageError
from xfbench.exchange import archive, figures, submission, submission_audit
from xfbench.store import merging
from xfbench.store.results_folder import Store, WarningHandler, is_results_folder

_PACK_SUFFIX = ".ndjson"


def import_source(
    source: Path, target: Store, warn: WarningHandler, inform: WarningHandler
) -> tuple[int, int]:
    """Import the records of `source` into `target`.

    Return the number of new records, and the number of records that `target` already had. Records
    of xfbench come with their certificates and tuning searches, from folders also with their run
    folders. Values of other tools become records that state their source.

    - `warn` gets a message for each damaged record or file.
    - `inform` gets a message for each file or entry of another tool that has no figure.

    Raises UsageError if `source` cannot be imported, or if `target` cannot be written.
    """
    if submission.is_submission(source):
        for file, _, detail in submission_audit.audit_manifest(source):
            raise UsageError(f"{file}: {detail}: nothing of the submission was imported")
    if is_results_folder(source):
        return merging.merge_stores([Store(source)], target, warn)
    if source.is_file() and source.suffix == _PACK_SUFFIX:
        return merging.import_pack(source, target, warn)
    if source.is_file() and _is_archive(source):
        return archive.import_archive(source, target, warn)
    return figures.import_figures(source, target, warn, inform)


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


def _is_archive(file: Path) -> bool:
    if file.name.endswith(archive.SUFFIXES):
        return True
    # A cut compressed file raises what its decompressor raises.
    with suppress(OSError, EOFError, zlib.error, lzma.LZMAError):
        return is_tarfile(file)
    return False
