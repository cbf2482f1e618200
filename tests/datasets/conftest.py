"""Data sets as their publishers give them, small and of seeded noise; frameworks to read them."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.datasets.idx_files import encode_idx
from tests.datasets.sample_sets import SampleSets
from tests.datasets.tasks import Answers


@pytest.fixture
def picture():
    """A function: a smooth picture of that height and width as a JPEG (or PNG) file."""

    def encode_picture(seed, height=40, width=48, kind="JPEG", mode="RGB"):
        channels = len(mode)
        coarse = np.random.RandomState(seed).randint(0, 256, (5, 6, channels), np.uint8)
        image = Image.fromarray(coarse if channels > 1 else coarse[..., 0], mode)
        file = io.BytesIO()
        image.resize((width, height), Image.Resampling.BICUBIC).save(file, kind)
        return file.getvalue()

    return encode_picture


@pytest.fixture
def folders(tmp_path, picture):
    """A function: `train` and `val` with class folders of JPEG files, some of them gray."""

    def make_class_folders(train=7, val=3, classes=("n01", "n02", "n03"), **settings):
        root = tmp_path / "pictures"
        for split, count in (("train", train), ("val", val)):
            for label, name in enumerate(classes):
                class_folder = root / split / name
                class_folder.mkdir(parents=True)
                for number in range(count):
                    mode = "L" if number == 2 else "RGB"
                    content = picture(100 * label + number, mode=mode, **settings)
                    (class_folder / f"{name}_{number}.JPEG").write_bytes(content)
        return root

    return make_class_folders


@pytest.fixture
def mnist(tmp_path):
    """A function: the four files of MNIST, of fewer images."""

    def make_mnist(train=50, test=20):
        root = tmp_path / "mnist"
        root.mkdir()
        random = np.random.RandomState(0)
        for prefix, count in (("train", train), ("t10k", test)):
            images = random.randint(0, 256, (count, 28, 28))
            labels = random.randint(0, 10, count)
            (root / f"{prefix}-images-idx3-ubyte").write_bytes(encode_idx(images))
            (root / f"{prefix}-labels-idx1-ubyte").write_bytes(encode_idx(labels))
        return root

    return make_mnist


@pytest.fixture
def cifar(tmp_path):
    """The six files of CIFAR-10's binary version, of 10 images each."""
    root = tmp_path / "cifar"
    root.mkdir()
    random = np.random.RandomState(1)
    for name in [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]:
        rows = random.randint(0, 256, (10, 3073)).astype(np.uint8)
        rows[:, 0] %= 10
        (root / name).write_bytes(rows.tobytes())
    return root


@pytest.fixture(scope="session")
def find_set(request, tmp_path_factory):
    """A function: the folder of a data set by its name, written when it is first needed."""
    root = tmp_path_factory.mktemp("sets")
    cache = getattr(request.config, "cache", None)
    return SampleSets(root, cache.mkdir("photographs") if cache else root)


@pytest.fixture(scope="session")
def answers(request, find_set, tmp_path_factory):
    """A function: the answer of a task, for which the tasks of all collected tests are run."""
    cases = (getattr(item, "callspec", None) for item in request.session.items)
    tasks = [case.params["answer"] for case in cases if case and "answer" in case.params]
    return Answers(tasks, find_set, tmp_path_factory.mktemp("tasks"))


@pytest.fixture
def answer(request, answers):
    """The answer of the task that is the test's parameter."""
    return answers(request.param)
