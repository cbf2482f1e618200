"""Photographs as a publisher gives them, and `xfbench data prepare` on them in every format."""

from dataclasses import dataclass

import PIL.ExifTags
import PIL.Image
from typer.testing import CliRunner

from tests import photographs
from xfbench.cli import data as cli

FILE_FORMATS = ("folder", "tfrecord", "lmdb", "recordio")  # those that keep encoded files
GROUPS = {
    "kept": (FILE_FORMATS, []),  # the files' own bytes
    "scaled": (("raw", *FILE_FORMATS), []),  # pixels of one size
    "jpeg": (("tfrecord", "lmdb", "recordio"), ["--encode", "jpeg:90"]),  # new JPEG files
    "turned": (FILE_FORMATS, []),  # each of EXIF's eight orientations, as a class of its own
}
ORIENTATIONS = range(1, 9)


@dataclass(frozen=True)
class Scale:
    """How many photographs, of how many pixels a side, and the side that they are scaled to."""

    count: int
    train: int
    sides: tuple
    size: int


SCALES = {
    "few": Scale(84, 63, (64, 125), 56),
    "many": Scale(2000, 1680, (64, 125), 56),
    "large": Scale(2000, 1680, (256, 500), 256),
}


class PhotographSets:
    """A function: the folder of a set, prepared when it is first needed.

    `cache` keeps the photographs themselves between sessions.
    """

    def __init__(self, root, cache):
        self.root = root
        self.cache = cache

    def __call__(self, scale, name):
        scale_settings, (group, form) = SCALES[scale], name.split("-")
        kind, source = "imagenet", self.cache
        if group == "turned":
            kind, source = "folder", self.turned_pictures()
        else:
            source = photographs.make_image_set(
                self.cache, scale_settings.sides, scale_settings.count, scale_settings.train
            )
        options = [*GROUPS[group][1]]
        if group in ("scaled", "jpeg"):
            options += ["--size", str(scale_settings.size)]
        folder = self.root / "photographs" / scale / name
        prepare(kind, source, folder, "--format", form, *options)
        return folder

    def turned_pictures(self):
        """A folder with one photograph that asks for each of EXIF's orientations."""
        folder = self.root / "turned"
        if folder.exists():
            return folder
        crop = photographs.open_photograph("coffee.png").crop((100, 50, 164, 114))
        for orientation in ORIENTATIONS:
            exif = PIL.Image.Exif()
            exif[PIL.ExifTags.Base.Orientation] = orientation
            (folder / str(orientation)).mkdir(parents=True)
            crop.save(folder / str(orientation) / "coffee.jpg", quality=95, exif=exif)
        return folder


def prepare(kind, source, target, *options):
    """Run `xfbench data prepare` in this process; what it writes to standard error."""
    arguments = ["prepare", kind, "--from", str(source), "--to", str(target), *options]
    outcome = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stderr
