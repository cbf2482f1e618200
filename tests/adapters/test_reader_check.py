"""Tests of the check that compares a framework's own reader with ours in each launch."""

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

# A reader of raw pixels: CHANGE alters its samples, and DECODE runs during training.
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
def launch_with_reader(tmp_path, monkeypatch, launch_real):
    """A function that returns the record of a launch whose reader changes images this way."""
    framework_adapter = adapter.load("reference")
    adapter_folder = tmp_path / "adapters" / "reference"
    shutil.copytree(framework_adapter.folder, adapter_folder)
    text = (adapter_folder / "adapter.toml").read_text()
    (adapter_folder / "adapter.toml").write_text(f'readers = {{ raw = "rows" }}\n{text}')
    monkeypatch.setenv("XFBENCH_ADAPTERS", str(adapter_folder.parent))

    def run(change, data_format="raw", decode="", count=40, **settings_changes):
        images = np.random.RandomState(0).randint(0, 256, (count, 1, 28, 28)).astype(np.uint8)
        samples = sources._ArraySamples(images, np.arange(count) % 9)
        source = sources.Source("noise", tuple("0123456789"), {"train": samples}, 1, "made")
        text = READER.replace("CHANGE", change).replace("DECODE", decode)
        (adapter_folder / "reader.py").write_text(text)
        folder = tmp_path / data_format
        if not folder.exists():
            writing.make_data_set(source, folder, data_format, Preprocessing(channels=1))
        settings = {"workload": ["lenet"], "batch_size": [8], "loader": ["native"]}
        return launch_real(
            "reference", data=[str(folder)], **{"steps": 2, **settings, **settings_changes}
        )

    return run


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ("pass", "ok", ""),
        ("label += 1", "invalid", "other labels than xfbench's"),
        ("image = 255 - image", "invalid", "other images than xfbench's"),
        ("break", "invalid", "no image to compare"),
    ],
)
def test_wrong_images_or_labels_make_the_launch_invalid(launch_with_reader, change, status, words):
    record = launch_with_reader(change)
    assert record.status == status, record.reason
    assert words in (record.reason or "")
    if change == "pass":
        check = record.storage.reader
        assert check.compared == 40 and check.differing == 0 and check.labels_equal


def test_pixel_differences_of_a_decoder_are_shown_in_the_table(launch_with_reader):
    record = launch_with_reader("image = image + np.uint8(3) * (image < 200)")
    assert record.status == "ok", record.reason
    check = record.storage.reader
    assert (check.compared, check.differing, check.largest_difference) == (40, 40, 3)
    assert 2 < check.mean_difference < 3
    table_text = tables.to_text(leaderboard.build_tables([record], {}), "throughput")
    assert "native, ±3" in table_text


@pytest.mark.case("Another decoder in the framework's Python")
def test_other_pixels_than_listed_are_shown_in_the_table(launch_with_reader, tmp_path):
    check = launch_with_reader("pass").storage.decoder
    assert (check.compared, check.differing) == (8, 0)
    with (tmp_path / "raw" / "train.pixels").open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    record = launch_with_reader("pass")
    check = record.storage.decoder
    assert record.status == "ok" and (check.compared, check.differing) == (8, 1)
    table_text = tables.to_text(leaderboard.build_tables([record], {}), "throughput")
    assert "native, other decoder" in table_text


@pytest.mark.case("Two file systems of one kind")
def test_launches_on_two_network_file_systems_are_marked(launch_with_reader):
    record = launch_with_reader("pass")
    records = []
    for number in range(2):
        medium = record.storage.medium.model_copy(update={"source_hash": f"{number:016x}"})
        storage = record.storage.model_copy(update={"medium": medium})
        fields = record.model_dump(exclude={"id", "schema_"}) | {"storage": storage}
        records.append(type(record).make(**fields))
    for chosen, count in ((records, 1), (records[:1], 0)):
        table_text = tables.to_text(leaderboard.build_tables(chosen, {}), "storage")
        assert table_text.count("(2 file systems)") == count, table_text


def test_format_without_a_native_reader_is_unsupported(launch_with_reader):
    record = launch_with_reader("pass", data_format="tfrecord")
    assert record.status == "unsupported"
    assert "no reader of its own for tfrecord here: it has raw" in record.reason


# Hashing releases the interpreter lock.
BUSY = """
        def decode(data=bytes(10_000_000)):
            while not END.is_set():
                hashlib.sha512(data).digest()
        threading.Thread(target=decode, daemon=True).start()
"""


@pytest.mark.skipif(machine.usable_cores() < 2, reason="two threads need two cores to be seen")
def test_decoding_threads_are_not_counted_as_training_threads(launch_with_reader):
    for _ in range(5):
        record = launch_with_reader("pass", decode=BUSY.strip(), count=900, steps=100, threads=[1])
        assert record.status == "ok", record.reason
        assert record.observed.threads == 1
        phases = record.measurement.phases
        share = phases["input_cpu_seconds"] / phases["cpu_seconds"]
        assert 0.2 < share < 1
        [table] = leaderboard.build_tables([record], {})
        assert f"{share:.1%}" in tables.to_text([table], "storage")
        if record.observed.cpus > 1.4:
            break
    else:
        pytest.skip("other work left both threads one core")
    request_without_threads = record.request.model_copy(update={"input_threads": 0})
    observation = record.measurement, record.observed, record.canary.loss
    assert "CPUs were busy" in validity.measurement_defect(
        request_without_threads, *observation, expected=None, share_of_peak=None
    )
