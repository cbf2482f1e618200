"""Small prepared data sets in the formats of the frameworks' own readers."""

import numpy as np

from tests.adapters.cases import CROPPED
from xfbench.datasets import sources, writing
from xfbench.datasets.manifest import Preprocessing

COUNT = CROPPED.network.classes


def crop_marked_images(rows=28, columns=24):
    """Return images with the row encoded in red, the column in green and the image in blue."""
    images = np.empty((COUNT, 3, rows, columns), np.uint8)
    images[:, 0] = 8 * np.arange(rows)[:, np.newaxis]
    images[:, 1] = 8 * np.arange(columns)
    images[:, 2] = 5 * np.arange(COUNT)[:, np.newaxis, np.newaxis]
    return images


def noise_images():
    """Return images of random pixels with an odd number of surplus rows and columns."""
    return np.random.RandomState(0).randint(0, 256, (COUNT, 3, 27, 33)).astype(np.uint8)


def large_images():
    """Return images of random pixels, large enough to crop ConvNet's input from."""
    return np.random.RandomState(0).randint(0, 256, (64, 3, 36, 36)).astype(np.uint8)


# By content: the function that makes the images, and the number of classes.
IMAGES = {
    "places": (crop_marked_images, COUNT),
    "noise": (noise_images, COUNT),
    "large": (large_images, 10),
}


def write_data_set(name, folder):
    """Write the set "<format> <content>" below `folder` if it is missing; return its folder."""
    data_format, content = name.split()
    target = folder / data_format / content
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        if content == "digits":
            source, channels = sources.open_bundled_digits(), 1
        else:
            make_images, count = IMAGES[content]
            images = make_images()
            samples = sources._ArraySamples(images, np.arange(len(images)) % count)
            classes = tuple(f"{number:02d}" for number in range(count))
            source, channels = sources.Source(content, classes, {"train": samples}, 3, "made"), 3
        writing.make_data_set(source, target, data_format, Preprocessing(channels=channels))
    return target
