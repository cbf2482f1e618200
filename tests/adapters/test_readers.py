"""Every framework's own reader gives the training images: each once, cropped, mirrored, scaled."""

import json

import numpy as np
import pytest

from tests import interpreters
from xfbench import adapter
from xfbench.data import sources, writing
from xfbench.data.manifest import Preprocessing
from xfbench.running import worker_archive
from xfbench.workloads import Pixels, Workload
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

READERS = [(name, form) for name in adapter.names() for form in adapter.load(name).readers]
COUNT, BATCH, SIDE = 11, 4, 20
FILLERS = {"weight_filler": xl.Filler("xavier"), "bias_filler": xl.Filler("constant", 0.0)}
WORKLOAD = Workload(
    xl.Network(
        "small",
        (3, SIDE, SIDE),
        COUNT,
        (
            xl.Convolution("conv", ("data",), 4, 3, 1, 1, **FILLERS),
            xl.InnerProduct("ip", ("conv",), COUNT, **FILLERS),
            xl.SoftmaxLoss("loss", ("ip",)),
        ),
    ),
    Solver(0.01, "fixed", momentum=0.9),
    Pixels("BGR", (10.0, 20.0, 30.0), 0.5, mirror=True),
    BATCH,
    "synthetic",
    "made up",
)

# In the framework's interpreter, as a worker is: the images as the network reads them.
SCRIPT = """
import importlib, json, pathlib, sys
import numpy as np
archive, framework, kernel, form, count, batch_size = sys.argv[1:]
sys.path.insert(0, archive)
from xfbench.worker import feed
from xfbench.worker.input import data_set
from xfbench.worker.protocol import Files, Group, Options
from xfbench.workloads import workload_from_json

workload = workload_from_json(json.loads(pathlib.Path("workload.json").read_text()))
train = importlib.import_module(f"xfbench.adapters.{framework}.train")
module = importlib.import_module(f"xfbench.adapters.{framework}.reader")
options = Options(kernel, 1)
trainer = train.build(workload.network, workload.solver, options, Group())
folder = pathlib.Path("set")
files = Files(folder, form, int(count), workload, int(batch_size), 1)
reader = module.open_reader(files, options)
images, labels, epochs = [], [], 6
for seed in range(epochs):
    for batch in reader.epoch(seed):
        trainer.step(batch)
        images.append(np.array(trainer.outputs(batch)["data"]))
        labels.append(np.asarray(batch[1]) if not hasattr(batch[1], "asnumpy")
                      else batch[1].asnumpy())
def mapped():
    return [line for line in open("/proc/self/maps") if str(folder.resolve()) in line]
early = reader.epoch(0)
next(early)
early.close()
compared = feed.compared(reader, data_set("set", workload, 1, 0, str(folder)).train)
np.savez("found.npz", images=images, labels=labels)
print(json.dumps({"compared": compared, "mapped": mapped(), "loss": trainer.wait()}))
"""


def places(rows=28, columns=24):
    """Images that tell where they were cropped: red rows, green columns, blue the image."""
    images = np.empty((COUNT, 3, rows, columns), np.uint8)
    images[:, 0] = 8 * np.arange(rows)[:, np.newaxis]
    images[:, 1] = 8 * np.arange(columns)
    images[:, 2] = 5 * np.arange(COUNT)[:, np.newaxis, np.newaxis]
    return images


@pytest.fixture
def read(tmp_path):
    """A function: what a framework's own reader makes of these images in a format."""

    def run(framework, form, images):
        kept = sources._Arrays(images, np.arange(COUNT))
        classes = tuple(f"{number:02d}" for number in range(COUNT))
        source = sources.Source("places", classes, {"train": kept}, 3, "made")
        writing.make(source, tmp_path / "set", form, Preprocessing(channels=3))
        (tmp_path / "workload.json").write_text(json.dumps(WORKLOAD.to_json()))
        given = framework, adapter.load(framework).default_kernel, form, COUNT, BATCH
        archive = worker_archive.worker_archive(framework)
        shown = interpreters.run(framework, SCRIPT, archive, *given, folder=tmp_path)
        with np.load(tmp_path / "found.npz", allow_pickle=False) as arrays:
            return dict(arrays), json.loads(shown.splitlines()[-1])

    return run


@pytest.mark.parametrize(("framework", "form"), READERS)
def test_every_image_once_cropped_anywhere_and_mirrored_half_of_the_time(framework, form, read):
    originals = places()
    found, answer = read(framework, form, originals)
    batches, labels = found["images"], found["labels"].astype(int)
    assert batches.shape[1:] == (BATCH, 3, SIDE, SIDE) and batches.dtype == np.float32
    each = COUNT // BATCH
    assert len(batches) == 6 * each
    corners, mirrored = set(), 0
    for image, label in zip(batches.reshape(-1, 3, SIDE, SIDE), labels.reshape(-1), strict=True):
        plain = image / 0.5 + np.reshape(WORKLOAD.pixels.mean, (3, 1, 1))
        red_first = plain[::-1]
        turned = red_first[1, 0, 0] > red_first[1, 0, -1]
        mirrored += turned
        red_first = red_first[..., ::-1] if turned else red_first
        row, column = (int(red_first[channel, 0, 0]) // 8 for channel in (0, 1))
        window = originals[label, :, row : row + SIDE, column : column + SIDE]
        np.testing.assert_allclose(red_first, window, atol=1e-4)
        corners.add((row, column))
    for epoch in labels.reshape(6, each * BATCH):
        assert len(set(epoch)) == each * BATCH
    assert len({row for row, _ in corners}) > 3 and len({column for _, column in corners}) > 2
    assert 5 < mirrored < 6 * each * BATCH - 5
    assert np.isfinite(answer["loss"])


@pytest.mark.parametrize(("framework", "form"), READERS)
def test_its_middles_are_ours_to_the_last_bit(framework, form, read):
    noise = np.random.RandomState(0).randint(0, 256, (COUNT, 3, 27, 33)).astype(np.uint8)
    _, answer = read(framework, form, noise)
    assert answer["compared"] == {
        "compared": COUNT,
        "differing": 0,
        "largest_difference": 0,
        "mean_difference": 0.0,
        "labels_equal": True,
    }
    assert answer["mapped"] == []


@pytest.mark.parametrize("framework", ["mxnet", "tensorflow", "torch"])
def test_another_seed_is_another_order(framework, read):
    """Caffe's Data layer has none but the database's."""
    [form, *_] = adapter.load(framework).readers
    found, _ = read(framework, form, places())
    orders = {tuple(epoch) for epoch in found["labels"].reshape(6, -1)}
    assert len(orders) > 1


@pytest.mark.parametrize("framework", ["caffe", "mxnet", "tensorflow", "torch"])
def test_a_launch_fed_by_the_framework_says_what_it_was_fed(framework, launch, tmp_path):
    described = adapter.load(framework)
    [form, *_] = described.readers
    images = np.random.RandomState(0).randint(0, 256, (64, 3, 36, 36)).astype(np.uint8)
    kept = sources._Arrays(images, np.arange(64) % 10)
    source = sources.Source("noise", tuple("0123456789"), {"train": kept}, 3, "made")
    writing.make(source, tmp_path / "noise", form, Preprocessing(channels=3))
    settings = {"workload": ["convnet"], "batch_size": [16], "data": [str(tmp_path / "noise")]}
    record = launch(framework, steps=4, threads=[1], input=["native"], **settings)
    assert record.status == "ok", record.reason
    check = record.storage.reader
    assert (check.compared, check.differing, check.labels_equal) == (64, 0, True)
    assert record.request.input_threads == 1
    other = next(form for form in ("raw", "tfrecord", "lmdb") if form not in described.readers)
    writing.make(source, tmp_path / "other", other, Preprocessing(channels=3))
    settings["data"] = [str(tmp_path / "other")]
    refused = launch(framework, steps=4, threads=[1], input=["native"], **settings)
    assert refused.status == "unsupported" and f"no reader of its own for {other}" in refused.reason
