"""Finds prepared data sets: by name in the data folder, or where somebody says one is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xfbench.base import errors, paths
from xfbench.data.manifest import Manifest
from xfbench.host import media
from xfbench.request import PreparedSet
from xfbench.worker.formats import Damaged

BUILT_IN = ("digits", "synthetic")


@dataclass(frozen=True)
class Found:
    """A data set and where it is."""

    folder: Path
    manifest: Manifest

    def facts(self) -> PreparedSet:
        """What a request says of it: no paths."""
        one, medium = self.manifest, media.describe(self.folder)
        counts = {f"{name}_images": split.samples for name, split in one.splits.items()}
        return PreparedSet(
            digest=one.digest,
            format=one.format,
            channels=one.preprocessing.channels,
            classes=len(one.classes),
            shape=one.shape,
            medium=f"{medium.file_system} on {medium.device}",
            **counts,
        )

    def document(self) -> dict[str, Any]:
        """As `data list --json` prints it."""
        manifest = self.manifest.model_dump(mode="json", by_alias=True)
        return {"folder": str(self.folder), "digest": self.manifest.digest, **manifest}


def prepared() -> list[Found]:
    """Every data set of the data folder, by its folder's name; what is none is passed over."""
    found = []
    for folder in sorted(paths.data().glob("*/manifest.json")):
        try:
            found.append(Found(folder.parent, Manifest.read(folder.parent)))
        except Damaged:
            continue
    return found


def find(wanted: str) -> Found:
    """The data set of that name or in that folder. Raises UsageError."""
    if "/" in wanted or wanted.startswith((".", "~")):
        folder = Path(wanted).expanduser().absolute()
        try:
            return Found(folder, Manifest.read(folder))
        except Damaged as error:
            raise errors.UsageError(f"--data {wanted}: {error}") from error
    known = prepared()
    named = [one for one in known if one.folder.name == wanted]
    named = named or [one for one in known if one.manifest.name == wanted]
    if len(named) == 1:
        return named[0]
    if named:
        there = ", ".join(one.folder.name for one in named)
        raise errors.UsageError(f"data set {wanted!r} is there as {there}: name one of them")
    names = [*BUILT_IN, *(one.folder.name for one in known)]
    unknown = errors.unknown_name_error("data set", wanted, names)
    raise errors.UsageError(f"{unknown}; others are made by `xfbench data prepare`")
