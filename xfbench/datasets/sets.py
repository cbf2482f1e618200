"""Prepared data sets, found by name in the data folder or by path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xfbench.base import errors, paths
from xfbench.datasets.manifest import Manifest
from xfbench.host import media
from xfbench.model.request import PreparedSet
from xfbench.worker.formats import Damaged

BUILT_IN = ("digits", "synthetic")


@dataclass(frozen=True)
class PreparedDataSet:
    """A prepared data set and its folder."""

    folder: Path
    manifest: Manifest

    def describe_for_request(self) -> PreparedSet:
        """Return what a request stores about the data set. Paths are not stored."""
        manifest, medium = self.manifest, media.describe_medium(self.folder)
        stripes = f" ({media.describe_striping(medium.striping)})" if medium.striping else ""
        counts = {f"{name}_images": split.samples for name, split in manifest.splits.items()}
        return PreparedSet(
            digest=manifest.samples_digest,
            format=manifest.format,
            channels=manifest.preprocessing.channels,
            classes=len(manifest.classes),
            shape=manifest.shape,
            medium=f"{medium.file_system} on {medium.device}{stripes}",
            **counts,
        )

    def document(self) -> dict[str, Any]:
        """Return the data set as `xfbench data list --json` prints it."""
        manifest = self.manifest.model_dump(mode="json", by_alias=True)
        return {"folder": str(self.folder), "digest": self.manifest.samples_digest, **manifest}


def list_prepared() -> list[PreparedDataSet]:
    """Return the prepared data sets in the data folder, sorted by folder name.

    Folders without a valid manifest are skipped.
    """
    data_sets = []
    for folder in sorted(paths.data().glob("*/manifest.json")):
        try:
            data_sets.append(PreparedDataSet(folder.parent, Manifest.read(folder.parent)))
        except Damaged:
            continue
    return data_sets


def find_data_set(name_or_folder: str) -> PreparedDataSet:
    """Return the prepared data set with this name or in this folder.

    `name_or_folder` is a path if it contains "/" or starts with "." or "~". Otherwise it is a name:
    the name of a folder in the data folder, or else the name in a manifest. Raises UsageError
    unless exactly one data set matches.
    """
    if "/" in name_or_folder or name_or_folder.startswith((".", "~")):
        folder = paths.expand_user(name_or_folder).absolute()
        try:
            return PreparedDataSet(folder, Manifest.read(folder))
        except Damaged as error:
            raise errors.UsageError(f"--data {name_or_folder}: {error}") from error
    data_sets = list_prepared()
    matches = [data_set for data_set in data_sets if data_set.folder.name == name_or_folder]
    matches = matches or [
        data_set for data_set in data_sets if data_set.manifest.name == name_or_folder
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        folder_names = ", ".join(data_set.folder.name for data_set in matches)
        raise errors.UsageError(
            f"several data sets are named {name_or_folder!r}: choose one of {folder_names}"
        )
    names = [*BUILT_IN, *(data_set.folder.name for data_set in data_sets)]
    unknown = errors.unknown_name_error("data set", name_or_folder, names)
    raise errors.UsageError(f"{unknown}; create others with `xfbench data prepare`")
