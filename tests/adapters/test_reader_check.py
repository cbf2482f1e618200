"""What a framework's own reader gives is compared with ours in every launch that it feeds."""

import shutil

import numpy as np
import pytest

from xfbench.analysis import leaderboard
from xfbench.datasets import sources, writing
from xfbench.datasets.manifest import Preprocessing
from xfbench.execution import validity
from xfbench.host import machine
from xfbench.model import adapter
from xfbench.rendering import tables

pytestmark = pytest.mark.deep

# A reader of raw pixels that changes what it gives by CHANGE, and beside training does DECODE.
READER = """
import hashlib, threading
import numpy as np
from xfbench.worker.input import open_data_set

def open_reader(files, options):
    return Reader(files)

class Reader:
    def __init__(self, files):
        self.files = files
        self.data = open_data_set("x", files.workload, files.batch_size, 0, str(files.folder))

    def epoch(self, seed):
        END = threading.Event()
        DECODE
        try:
            yield from self.data.epoch(self.files.batch_size, seed)
        finally:
            END.set()

    def center_crops(self):
        for index in range(self.files.image_count):
            image, label = self.data.train.crop(index)
            CHANGE
            yield image[np.newaxis], np.array([label])
"""


@pytest.fixture
def read(tmp_path, monkeypatch, launch):
    """A function: the record of a launch that a reader fed which changes images so."""
    described = adapter.load("reference")
    own = tmp_path / "adapters" / "reference"
    shutil.copytree(described.folder, own)
    text = (own / "adapter.toml").read_text()
    (own / "adapter.toml").write_text(f'readers = {{ raw = "rows" }}\n{text}')
    monkeypatch.setenv("XFBENCH_ADAPTERS", str(own.parent))

    def do(change, form="raw", decode="", count=40, **more):
        images = np.random.RandomState(0).randint(0, 256, (count, 1, 28, 28)).astype(np.uint8)
        kept = sources._Arrays(images, np.arange(count) % 9)
        source = sources.Source("noise", tuple("0123456789"), {"train": kept}, 1, "made")
        text = READER.replace("CHANGE", change).replace("DECODE", decode)
        (own / "reader.py").write_text(text)
        folder = tmp_path / form
        if not folder.exists():
            writing.make_data_set(source, folder, form, Preprocessing(channels=1))
        settings = {"workload": ["lenet"], "batch_size": [8], "input": ["native"]}
        return launch("reference", data=[str(folder)], **{"steps": 2, **settings, **more})

    return do


@pytest.mark.parametrize(
    ("change", "status", "told"),
    [
        ("pass", "ok", ""),
        ("label += 1", "invalid", "other labels than ours"),
        ("image = 255 - image", "invalid", "other images than ours"),
        ("break", "invalid", "no image to compare"),
    ],
)
def test_wrong_images_or_labels_make_the_launch_invalid(read, change, status, told):
    record = read(change)
    assert record.status == status, record.reason
    assert told in (record.reason or "")
    if change == "pass":
        check = record.storage.reader
        assert check.compared == 40 and check.differing == 0 and check.labels_equal


def test_pixel_differences_of_a_decoder_are_shown_in_the_table(read):
    record = read("image = image + np.uint8(3) * (image < 200)")
    assert record.status == "ok", record.reason
    check = record.storage.reader
    assert (check.compared, check.differing, check.largest_difference) == (40, 40, 3)
    assert 2 < check.mean_difference < 3
    shown = tables.to_text(leaderboard.tables([record], {}), "throughput")
    assert "native, ±3" in shown


def test_format_without_a_native_reader_is_unsupported(read):
    record = read("pass", form="tfrecord")
    assert record.status == "unsupported"
    assert "no reader of its own for tfrecord here: it has raw" in record.reason


# Hashing lets go of the interpreter's lock.
BUSY = """
        def decode(data=bytes(10_000_000)):
            while not END.is_set():
                hashlib.sha512(data).digest()
        threading.Thread(target=decode, daemon=True).start()
"""


@pytest.mark.skipif(machine.usable_cores() < 2, reason="two threads need two cores to be seen")
def test_decoding_threads_are_not_counted_as_training_threads(read):
    for _ in range(5):
        record = read("pass", decode=BUSY.strip(), count=900, steps=100, threads=[1])
        assert record.status == "ok", record.reason
        assert record.observed.threads == 1
        spent = record.measurement.phases
        share = spent["input_cpu_seconds"] / spent["cpu_seconds"]
        assert 0.2 < share < 1
        [table] = leaderboard.tables([record], {})
        assert f"{share:.1%}" in tables.to_text([table], "storage")
        if record.observed.cpus > 1.4:
            break
    else:
        pytest.skip("other work left both threads one core")
    alone = record.request.model_copy(update={"input_threads": 0})
    seen = record.measurement, record.observed, record.canary.loss
    assert "kept busy" in validity.measurement_defect(
        alone, *seen, expected=None, share_of_peak=None
    )
