"""Small samples, and the writers of the formats; without pytest, for processes of a test."""

import importlib

import numpy as np

from xfbench.worker.samples import Sample


def open_writer(kind, folder, count=0):
    """A writer that goes on after `count` samples."""
    folder.mkdir(parents=True, exist_ok=True)
    return importlib.import_module(f"xfbench.datasets.{kind}").Writer(folder, "train", count)


def number_samples(count, side=2):
    """Small samples, no two alike, gray and RGB in turn."""
    random = np.random.RandomState(0)
    shapes = [((3, 1)[n % 2], side + n % 3, side) for n in range(count)]
    images = [random.randint(0, 256, shape, dtype=np.uint8) for shape in shapes]
    return [Sample(f"class {n % 3}/{n}.png", n % 3, image) for n, image in enumerate(images)]
