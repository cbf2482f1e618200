"""The manifest of a data set, `manifest.json`: its samples, their order and its preprocessing."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from xfbench.base import atomic_files, digests
from xfbench.worker import prepared
from xfbench.worker.formats import Damaged

FormatName = Literal["raw", "folder", "tfrecord", "lmdb", "recordio"]


class _ManifestModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Preprocessing(_ManifestModel):
    """The preprocessing of every image after it was read from its source.

    `size` is (height, width) in pixels, or None if each image has its own. `fit` says how images
    reach that size: squashed, or scaled by the shorter side and cropped at the center. `encoding`
    is "pixels", "png" or "jpeg:90" if images were decoded and encoded again. `shuffle` is the seed
    of a fixed order, or None for the source's order.
    """

    channels: Literal[1, 3]
    size: tuple[int, int] | None = None
    fit: Literal["squash", "crop"] = "squash"
    encoding: str | None = None
    shuffle: int | None = None


class Split(_ManifestModel):
    """The number of samples and the digest of their digests in order (see `worker.samples`).

    `turned` counts JPEG files whose EXIF orientation is mirrored or rotated.
    """

    samples: int
    stream_digest: str
    turned: int = 0


class Manifest(_ManifestModel):
    """The contents of `manifest.json`.

    `shape` is (channels, height, width) if all images share it. `classes` are the class names by
    label. `digest` identifies the samples and their order in any format.
    """

    schema_: Literal["xfbench.data/1"] = Field(default="xfbench.data/1", alias="schema")
    name: str
    format: FormatName
    classes: tuple[str, ...]
    shape: tuple[int, int, int] | None
    splits: dict[Literal["train", "test"], Split]
    preprocessing: Preprocessing
    source: str

    @property
    def samples_digest(self) -> str:
        """Return the digest of all splits and classes; it is equal for the same samples."""
        streams = {name: split.stream_digest for name, split in self.splits.items()}
        return digests.of_json({"streams": streams, "classes": list(self.classes)})

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest. Raises Damaged if it is missing or invalid."""
        document = prepared.read_manifest(folder)
        try:
            return cls.model_validate(document)
        except ValueError as error:
            first_line = str(error).splitlines()[0]
            raise Damaged(f"{folder}/manifest.json: {first_line}") from error

    def write(self, folder: Path) -> None:
        text = self.model_dump_json(by_alias=True, indent=1) + "\n"
        atomic_files.write(folder / "manifest.json", text.encode())
