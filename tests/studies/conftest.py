"""Fixtures that make studies, their records and their answers.

All records have the same machine and software.
"""

import itertools
import struct

import pytest
from PIL import Image

from tests.sample_records import SOFTWARE
from xfbench.base import digests
from xfbench.datasets import sources, writing
from xfbench.datasets.manifest import Preprocessing
from xfbench.host.machine import describe_machine
from xfbench.model.certificate import Certificate
from xfbench.model.record import Epoch
from xfbench.planning import experiment
from xfbench.studies import answer


@pytest.fixture
def make_study():
    """Return a function that makes a study with one matrix and one analysis."""

    def make(analysis, matrix=None, **fields):
        settings = {"framework": ["reference"], "workload": ["lenet"], "batch_size": [4]}
        settings |= {"steps": 3, "warmup": 1, "data": ["synthetic"], **(matrix or {})}
        return experiment.Experiment.model_validate(
            {
                "name": "mine",
                "title": "t",
                "question": "q?",
                "matrix": [settings],
                "analysis": [analysis],
                **fields,
            }
        )

    return make


@pytest.fixture
def make_launches(record):
    """Return a function that makes one launch of a cell for each given step time in seconds."""

    def make(*seconds, fields=None, **request):
        record_fields = {"software": SOFTWARE, "machine": describe_machine(), **(fields or {})}
        return [
            record(steps=(step_s,) * 3, launch=number, fields=record_fields, **request)
            for number, step_s in enumerate(seconds, 1)
        ]

    return make


@pytest.fixture
def make_training(record, cell):
    """Return a function that makes a launch with the given test loss in each epoch."""

    def make(losses, seconds=1.0, launch=1, accuracy=0.9, step=0.1, **request):
        epochs = tuple(
            Epoch(
                epoch=number,
                seconds=seconds,
                train_loss=loss,
                test_loss=loss,
                test_accuracy=accuracy,
            )
            for number, loss in enumerate(losses, 1)
        )
        record_fields = {"software": SOFTWARE, "machine": describe_machine(), "learning": epochs}
        request_fields = {"steps": None, "epochs": len(losses), "data": "digits", **request}
        record_fields["request"] = cell(**request_fields).request(launch)
        record_fields["cell"] = digests.of_json(record_fields["request"].cell_digest_fields())
        return record(steps=(step,) * 3, fields=record_fields)

    return make


@pytest.fixture
def make_answer():
    """Return a function that answers a study from records."""

    def make(study, records, certificates: dict[str, Certificate | str] | None = None):
        return answer.answer_study(study, "laptop", records, certificates or {})

    return make


@pytest.fixture
def make_finding(make_answer):
    """Return a function that returns the only finding of a study from records."""

    def make(study, records, certificates: dict[str, Certificate | str] | None = None):
        [finding] = make_answer(study, records, certificates).findings
        return finding

    return make


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory):
    """Return a data folder with tiny data sets of the names that the studies know."""
    folder = tmp_path_factory.mktemp("data")
    images = tmp_path_factory.mktemp("images")
    for split, label in itertools.product(("train", "val"), ("n01", "n02")):
        (images / split / label).mkdir(parents=True)
        Image.new("RGB", (256, 256)).save(images / split / label / f"{label}.JPEG")
    imagenet, any_size = sources.open_imagenet(images), Preprocessing(channels=3)
    for name in ("imagenet-folder", "imagenet-tfrecord", "imagenet-lmdb"):
        writing.make_data_set(imagenet, folder / name, name.split("-")[1], any_size)
    writing.make_data_set(imagenet, folder / "imagenet", "recordio", any_size)
    writing.make_data_set(imagenet, folder / "imagenet-100", "recordio", any_size)
    mnist = tmp_path_factory.mktemp("mnist")
    for split in ("train", "t10k"):
        header = (struct.pack(">4I", 2051, 10, 28, 28), struct.pack(">2I", 2049, 10))
        (mnist / f"{split}-images-idx3-ubyte").write_bytes(header[0] + bytes(7840))
        (mnist / f"{split}-labels-idx1-ubyte").write_bytes(header[1] + bytes(range(10)))
    writing.make_data_set(
        sources.open_mnist(mnist), folder / "mnist", "raw", Preprocessing(channels=1)
    )
    cifar = tmp_path_factory.mktemp("cifar")
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        (cifar / name).write_bytes(bytes(3073))
    writing.make_data_set(sources.open_cifar10(cifar), folder / "cifar10", "raw", any_size)
    return folder
