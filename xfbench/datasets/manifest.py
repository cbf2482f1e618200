"""The manifest of a data set, `manifest.json`: format, classes, splits and preprocessing."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from xfbench.base import atomic_files, digests
from xfbench.worker import prepared
from xfbench.worker.formats import Damaged

ORDERED_MESSAGE = (
    "the training images are ordered by class, and readers of record files keep that order: "
    "convert the data set to --format folder, and convert folder:DIR, which mixes the images"
)
FormatName = Literal["raw", "folder", "tfrecord", "lmdb", "recordio"]


class _ManifestModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Preprocessing(_ManifestModel):
    """The preprocessing of every image after it was read from its source.

    - `channels`: 1 (gray) or 3 (RGB).
    - `size`: (height, width) in pixels, or None if each image keeps its size.
    - `fit`: how images reach `size`. "squash" scales height and width separately. "crop" scales the
      image by its shorter side and crops it at the center.
    - `encoding`: "pixels", "png" or "jpeg:QUALITY" if images are decoded and encoded again, or None
      if image files keep their encoding.
    - `shuffle`: seed of the order of the samples, or None for the order of the source.
    """

    channels: Literal[1, 3]
    size: tuple[int, int] | None = None
    fit: Literal["squash", "crop"] = "squash"
    encoding: str | None = None
    shuffle: int | None = None


class Split(_ManifestModel):
    """The size and content of a split.

    - `samples`: number of samples.
    - `stream_digest`: digest of all samples in order (see `worker.samples.stream_digest`).
    - `turned`: number of JPEG files whose EXIF orientation is mirrored or rotated.
    - `skipped`: names of the samples that `--skip-damaged` left out.
    - `ordered`: whether the samples are grouped by class instead of mixed.
    """

    samples: int
    stream_digest: str
    turned: int = 0
    skipped: tuple[str, ...] = ()
    ordered: bool = False


class Manifest(_ManifestModel):
    """The contents of `manifest.json`.

    - `classes`: names of the classes, in the order of their labels.
    - `shape`: (channels, height, width) if all images have the same shape, or None.
    - `source`: origin of the data set, such as its authors.
    - `patterns`, `features`: the values of `--pattern` and `--features` for files of another tool.
    """

    schema_: Literal["xfbench.data/1"] = Field(default="xfbench.data/1", alias="schema")
    name: str
    format: FormatName
    classes: tuple[str, ...]
    shape: tuple[int, int, int] | None
    splits: dict[Literal["train", "test"], Split]
    preprocessing: Preprocessing
    source: str
    patterns: tuple[str, ...] = ()
    features: dict[str, str] = Field(default_factory=dict)

    @property
    def samples_digest(self) -> str:
        """The digest of all splits and classes.

        The digest identifies the samples and their order, whatever the format.
        """
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
        """Write `manifest.json` to the folder atomically."""
        text = self.model_dump_json(by_alias=True, indent=1) + "\n"
        atomic_files.write(folder / "manifest.json", text.encode())
