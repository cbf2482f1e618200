"""Joins results folders: by content, so that merging twice changes nothing.

With a record come the certificate it names and the folder of its run; searches of `xfbench tune`
come with the folder. What is none of these is told of and stays behind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from xfbench.base import atomic_files
from xfbench.base.errors import UsageError
from xfbench.equality import certificate
from xfbench.equality.certificate import Certificate
from xfbench.records.record import Record
from xfbench.results import pack
from xfbench.results.store import Complain, Place, Store
from xfbench.tuning import saved


def merge(sources: Sequence[Store], target: Store, complain: Complain) -> tuple[int, int]:
    """How many records came into `target`, and how many of the sources' it had.

    Raises UsageError where it cannot be written.
    """
    target.prepare()
    have = {record.id for record, _, _ in target.contents()}
    new = known = 0
    for source in sources:
        if source.folder.resolve() == target.folder.resolve():
            continue
        bring_searches(source.folder, target, _of(source.folder, complain))
        certificates = certificate.read_folder(source.folder)
        for record, place, content in source.contents(_of(source.folder, complain)):
            try:
                if record.certificate in certificates:
                    _bring_certificate(
                        source, certificates.pop(record.certificate), target, complain
                    )
                if record.id in have:
                    known += 1
                    continue
                bring_run(source.run_folder(record), target.run_folder(record), target)
                keep(record, place, content, target)
            except OSError as error:
                raise UsageError(f"{target.folder}: {error.strerror}") from error
            have.add(record.id)
            new += 1
    return new, known


def _of(folder: Path, complain: Complain) -> Complain:
    return lambda line: complain(f"{folder}: {line}")


def keep(record: Record, place: Place | None, content: bytes, target: Store) -> None:
    """Put the record's bytes into a file of its own, as they are; a pack's line is laid out."""
    if place is not None and place.length is not None:
        content = pack.as_file(content)
    atomic_files.write(target.single_path(record.id[7:]), content)


def _bring_certificate(
    source: Store, found: Certificate | str, target: Store, complain: Complain
) -> None:
    if isinstance(found, str):
        complain(f"{source.folder}: {found}")
        return
    path = target.certificate_path(found.id)
    if not path.exists():
        atomic_files.write(path, source.certificate_path(found.id).read_bytes())


def bring_searches(source: Path, target: Store, complain: Complain) -> None:
    """Copy what `xfbench tune` found. Raises UsageError where it cannot be written."""
    for one, content in saved.contents(source, complain):
        try:
            atomic_files.write(one.place(target.folder), content)
        except OSError as error:
            raise UsageError(f"{target.folder}: {error.strerror}") from error


def bring_run(source: Path, run: Path, target: Store) -> None:
    """Copy a run's files; what it points to is not its own."""
    if run.exists() or source.is_symlink() or not source.is_dir():
        return
    fresh = target.new_run()
    for path in source.iterdir():
        if path.is_symlink() or not path.is_file():
            continue
        try:
            if path.suffix != ".pyz":  # the same in many runs
                raise OSError
            os.link(path, fresh / path.name)
        except OSError:
            shutil.copy2(path, fresh / path.name)
    fresh.replace(run)
