"""Reads records from everything that can hold them, into a results folder.

Sources are results folders, archives, packs, submissions, and files of other tools. A bundle that
was run on another machine is read by `xfbench/bundle.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xfbench.base.errors import UsageError
from xfbench.base.wording import pluralize
from xfbench.exchange import archive, audit, figures, submission, submission_audit
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
    - `inform` gets a message for each file or entry of another tool that has no figure, and one
      about what was not checked, was not readable, or is impossible in records of xfbench.

    A submission is imported only if it has no defect. Raises UsageError if `source` cannot be
    imported, or if `target` cannot be written.
    """
    if submission.is_submission(source):
        _, defects = audit.validate_results(source)
        for defect in defects:
            raise UsageError(
                f"{defect.file}: {defect.detail}: nothing of the submission was imported "
                f"(xfbench results validate {source} lists {pluralize(len(defects), 'defect')})"
            )
        if message := submission_audit.describe_what_is_not_compared(source):
            inform(message)
        return merging.merge_stores([Store(source)], target, warn, "submitted", inform)
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
