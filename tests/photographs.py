"""A data set like ImageNet: class folders of JPEGs, cropped from a few real photographs.

The photographs come with scikit-image (0.26), whose documentation states their licences. astronaut,
rocket and hubble_deep_field are in the public domain. ihc (from a microscope) has no known
restrictions. chelsea (a cat), coffee and retina are CC0.

Each photograph gives three classes: crops around its left, middle and right third. The seed decides
sides, positions, scales, mirroring, quality and chroma subsampling, so the same Pillow makes the
same bytes. Some files are gray and some are progressive, as in ImageNet.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, ImageOps

NAMES = (
    *("astronaut.png", "chelsea.png", "coffee.png", "hubble_deep_field.jpg", "ihc.png"),
    *("retina.jpg", "rocket.jpg"),
)
CLASSES = tuple(
    f"n{number:02d}_{Path(name).stem}_{part}"
    for number, (name, part) in enumerate((name, part) for name in NAMES for part in range(3))
)
COUNT, TRAIN = 2000, 1680
GRAY_EVERY, PROGRESSIVE_EVERY = 50, 40


def make_image_set(
    cache: Path,
    sides: tuple[int, int] = (256, 500),
    count: int = COUNT,
    train: int = TRAIN,
    seed: int = 0,
) -> Path:
    """Return the folder with `train` and `val`; make it if it does not exist.

    Images have `sides[0]` to `sides[1]` pixels per side. The first `train` of `count` images are
    for training.
    """
    recipe = [Path(__file__).read_text(encoding="utf-8"), PIL.__version__, sides]
    recipe += [count, train, seed]
    recipe.append(importlib.metadata.version("scikit-image"))
    folder = cache / f"photographs-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    # A folder of this process, because another process may make the same set now.
    partial = Path(tempfile.mkdtemp(prefix=folder.name, suffix=".partial", dir=cache))
    for split in ("train", "val"):
        for name in CLASSES:
            (partial / split / name).mkdir(parents=True)
    photographs = [open_photograph(name) for name in NAMES]
    with ThreadPoolExecutor() as pool:
        splits = ["train"] * train + ["val"] * (count - train)
        for _ in pool.map(
            lambda n: _write(partial / splits[n], n, photographs, sides, seed), range(count)
        ):
            pass
    try:
        partial.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(partial)
    assert folder.is_dir()
    return folder


def open_photograph(name: str) -> Image.Image:
    """Return a photograph in RGB."""
    package = importlib.util.find_spec("skimage")
    assert package and package.submodule_search_locations, (
        "scikit-image is missing: install the dev extra"
    )
    with Image.open(Path(package.submodule_search_locations[0]) / "data" / name) as picture:
        return picture.convert("RGB")


def _write(
    folder: Path, number: int, photographs: list[Image.Image], sides: tuple[int, int], seed: int
) -> None:
    random = np.random.RandomState([seed, number])
    label = number % len(CLASSES)
    crop = _crop(photographs[label // 3], label % 3, sides, random)
    if random.randint(2):
        crop = ImageOps.mirror(crop)
    if number % GRAY_EVERY == 7:
        crop = crop.convert("L")
    crop.save(
        folder / CLASSES[label] / f"{number:04d}.JPEG",
        "jpeg",
        quality=int(random.randint(75, 96)),
        subsampling=("4:2:0", "4:2:0", "4:2:2", "4:4:4")[random.randint(4)],
        progressive=number % PROGRESSIVE_EVERY == 11,
    )


def _crop(
    photograph: Image.Image, part: int, sides: tuple[int, int], random: np.random.RandomState
) -> Image.Image:
    """Return a crop with its center in third `part` of the photograph, scaled to a random size."""
    height, width = (int(side) for side in random.randint(sides[0], sides[1] + 1, 2))
    max_scale = min(photograph.width / width, photograph.height / height)
    scale = max_scale * random.uniform(0.35, 1)
    center = (part + random.uniform(0, 1)) / 3 * photograph.width
    left_edge = min(max(center - scale * width / 2, 0), photograph.width - scale * width)
    top_edge = random.uniform(0, photograph.height - scale * height)
    box = (left_edge, top_edge, left_edge + scale * width, top_edge + scale * height)
    return photograph.resize((width, height), Image.Resampling.BICUBIC, box)
