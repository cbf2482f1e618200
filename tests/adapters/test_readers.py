"""Tests of frameworks' own readers: each image once per epoch, cropped, mirrored and scaled."""

import numpy as np
import pytest

from tests.adapters import data_sets
from tests.adapters.cases import CROPPED, Case, parametrize
from tests.adapters.data_sets import COUNT
from tests.adapters.inside import EPOCHS
from xfbench.model import adapter, capabilities
from xfbench.planning import experiment
from xfbench.planning.scheduling import launch_order

pytestmark = pytest.mark.deep
READERS = {
    name: [*readers] for name in adapter.list_names() if (readers := adapter.load(name).readers)
}
PLACES, NOISE = (
    [
        Case("read", framework, "cropped", data=f"{form} {content}")
        for framework, forms in READERS.items()
        for form in forms
    ]
    for content in ("places", "noise")
)
# Caffe's Data layer always has the order of the database.
IN_ANY_ORDER = [case for case in PLACES if case.framework != "caffe"]
BATCH, SIDE = CROPPED.batch_size, CROPPED.network.input_shape[1]
BATCHES = COUNT // BATCH


@parametrize(PLACES, "framework", "data")
def test_images_are_cropped_at_many_places_and_some_mirrored(case, answers):
    answer = answers(case)
    originals, arrays = data_sets.crop_marked_images(), answer.arrays
    batches, labels = arrays["images"], arrays["labels"].astype(int)
    assert batches.shape == (EPOCHS * BATCHES, BATCH, 3, SIDE, SIDE)
    assert batches.dtype == np.float32
    corners, mirrored = set(), 0
    for image, label in zip(batches.reshape(-1, 3, SIDE, SIDE), labels.reshape(-1), strict=True):
        plain = image / 0.5 + np.reshape(CROPPED.pixels.mean, (3, 1, 1))
        rgb_image = plain[::-1]
        is_mirrored = rgb_image[1, 0, 0] > rgb_image[1, 0, -1]
        mirrored += is_mirrored
        rgb_image = rgb_image[..., ::-1] if is_mirrored else rgb_image
        row, column = (int(rgb_image[channel, 0, 0]) // 8 for channel in (0, 1))
        window = originals[label, :, row : row + SIDE, column : column + SIDE]
        np.testing.assert_allclose(rgb_image, window, atol=1e-4)
        corners.add((row, column))
    for epoch in labels.reshape(EPOCHS, -1):
        assert len(set(epoch)) == BATCHES * BATCH
    assert len({row for row, _ in corners}) > 3 and len({column for _, column in corners}) > 2
    assert 5 < mirrored < EPOCHS * BATCHES * BATCH - 5
    assert np.isfinite(answer.facts["loss"])


@parametrize(NOISE, "framework", "data")
def test_center_crops_are_bit_identical_to_ours(case, answers):
    facts = answers(case).facts
    assert facts["compared"] == {
        "compared": COUNT,
        "differing": 0,
        "largest_difference": 0,
        "mean_difference": 0.0,
        "labels_equal": True,
    }
    assert facts["mapped"] == []


@parametrize(IN_ANY_ORDER, "framework", "data")
def test_reader_shuffles_differently_for_another_seed(case, answers):
    labels = answers(case).arrays["labels"]
    assert len({tuple(epoch) for epoch in labels.reshape(EPOCHS, -1)}) > 1


@pytest.mark.parametrize("framework", READERS)
def test_launch_records_what_the_framework_read(framework, shared_real_launch):
    record = shared_real_launch(framework)
    assert record.status == "ok", record.reason
    check = record.storage.reader
    assert (check.compared, check.differing, check.labels_equal) == (500, 0, True)
    assert record.request.input_threads == 1


@pytest.mark.parametrize(
    "framework",
    [pytest.param(name, marks=() if name == "torch" else pytest.mark.long) for name in READERS],
)
def test_launch_fed_crops_in_color_reads_images_equal_to_ours(framework, launch_real, scratch):
    images = str(data_sets.write_data_set(f"{READERS[framework][0]} large", scratch / "sets"))
    settings = {"workload": ["convnet"], "batch_size": [16], "threads": [1], "steps": 4}
    record = launch_real(framework, data=[images], loader=["native"], **settings)
    assert record.status == "ok", record.reason
    check = record.storage.reader
    assert (check.compared, check.differing, check.labels_equal) == (64, 0, True)
    assert record.request.input_threads == 1


@pytest.mark.parametrize("framework", READERS)
def test_format_without_a_reader_is_refused(framework, scratch):
    data_format = next(
        candidate
        for candidate in ("raw", "tfrecord", "lmdb")
        if candidate not in READERS[framework]
    )
    digits = str(data_sets.write_data_set(f"{data_format} digits", scratch / "sets"))
    settings = {"framework": [framework], "workload": ["lenet"], "data": [digits]}
    [request] = launch_order(
        experiment.expand_matrices(
            [experiment.build_matrix(**settings, loader=["native"], launches=1)]
        )
    )
    assert f"no reader of its own for {data_format}" in capabilities.refusal_reason(request)
