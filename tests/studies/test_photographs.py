"""Tests of the photographs of a study and of its optional data sets."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from xfbench.base import paths
from xfbench.base.errors import UsageError
from xfbench.datasets import photographs, sources, writing
from xfbench.datasets.manifest import Preprocessing
from xfbench.planning import experiment
from xfbench.studies import answer, cells, media, running
from xfbench.worker import pictures, prepared


@pytest.fixture(autouse=True)
def temporary_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XFBENCH_DATA", str(tmp_path / "data"))


@pytest.fixture
def few_photographs(monkeypatch):
    """Make the photograph set small, so that it is made quickly."""
    monkeypatch.setattr(photographs, "TRAIN", 12)
    monkeypatch.setattr(photographs, "TEST", 2)


def test_photographs_are_reproducible_jpeg_files(few_photographs):
    source = photographs.open_photographs()
    [train, test] = source.splits.values()
    assert (len(train), len(test), len(source.classes)) == (12, 2, 10)
    files = [train[number].image for number in range(12)]
    assert all(file.startswith(b"\xff\xd8") for file in files) and len(set(files)) == 12
    assert files == [photographs.open_photographs().splits["train"][n].image for n in range(12)]
    assert {train[number].label for number in range(10)} == set(range(10))
    assert not {test[0].key, test[1].key} & {train[number].key for number in range(12)}
    pixels = pictures.decode_pixels(train[3])
    assert pixels.shape == (3, 256, 256) and pixels.std() > 10


def test_every_format_has_the_same_pixels_in_the_same_order(few_photographs):
    study = experiment.load("data-format")
    matrices = [
        matrix for matrix in study.matrices_of_size("laptop") if "photographs-raw" in matrix.data
    ]
    [placed_matrix] = [
        media.write_prepared_data(study, matrix, media.medium_folders({})) for matrix in matrices
    ]
    split_sets = [prepared.open_prepared(folder).splits for folder in map(Path, placed_matrix.data)]
    assert len(split_sets) == 5
    samples_by_format = [[split["train"][number] for number in range(12)] for split in split_sets]
    assert [isinstance(samples[0].image, np.ndarray) for samples in samples_by_format] == [
        True,
        *[False] * 4,
    ]
    first_pixels = [pictures.decode_pixels(sample) for sample in samples_by_format[0]]
    for samples in samples_by_format[1:]:
        assert [sample.label for sample in samples] == [
            sample.label for sample in samples_by_format[0]
        ]
        for pixels, sample in zip(first_pixels, samples, strict=True):
            assert np.array_equal(pixels, pictures.decode_pixels(sample))


def test_packaged_photographs_have_few_bytes_and_enough_pixels():
    for name in photographs.NAMES:
        file = paths.package_folder("xfbench.datasets.photographs") / f"{name}.jpg"
        assert file.stat().st_size < 40_000
        with Image.open(file) as picture:
            assert min(picture.size) >= photographs.SIDE


@pytest.fixture
def optional_data_study(make_study):
    """Return a study of the digits and of an optional data set."""
    matrix = {"data": ["digits", "cifar10"], "epochs": 1, "steps": None, "launches": 1}
    return make_study({"name": "values"}, matrix, present=["cifar10"])


def test_missing_data_set_is_reported_and_the_rest_runs(optional_data_study, make_launches):
    study_plan = running.plan_study_and_write_data(optional_data_study, "laptop", running.Choices())
    assert [request.data for request in study_plan.plan.requests] == ["digits"]
    assert study_plan.missing_data == ("cifar10",)
    study_answer = answer.answer_study(optional_data_study, "laptop", make_launches(0.1), {})
    assert study_answer.missing[-1] == (
        "cifar10",
        "there is no data set cifar10: create it with `xfbench data prepare`",
    )


@pytest.mark.parametrize("folder", ["cifar10-raw", "cifar10"])
def test_optional_data_set_is_used_when_present(optional_data_study, make_launches, folder):
    preprocessing = Preprocessing(channels=1)
    source = replace(sources.open_bundled_digits(), name="cifar10")
    writing.make_data_set(source, paths.data() / folder, "raw", preprocessing)
    writing.make_data_set(source, paths.data() / f"{folder}-too", "raw", preprocessing)
    study_plan = running.plan_study_and_write_data(optional_data_study, "laptop", running.Choices())
    assert {request.data for request in study_plan.plan.requests} == {"digits", "cifar10"}
    assert study_plan.missing_data == ()
    [cifar_request] = [request for request in study_plan.plan.requests if request.data == "cifar10"]
    [data_folder] = {str(path) for path in study_plan.plan.data_folders.values()}
    assert (
        data_folder.endswith(f"/{folder}")
        and cifar_request.data_set.folder_lookup_key in study_plan.plan.data_folders
    )
    record = make_launches(0.1)[0]
    record = record.model_copy(update={"request": cifar_request})
    assert not answer.answer_study(optional_data_study, "laptop", [record], {}).missing


def test_digits_on_disk_differ_from_the_built_in_digits(make_study, make_launches):
    [cell] = [
        cell
        for cell, _ in running.plan_study_and_write_data(
            make_study(
                {"name": "values"},
                {"data": ["digits-raw"], "epochs": 1, "steps": None},
                prepared={"format": ["raw"]},
            ),
            "laptop",
            running.Choices(),
        ).plan.protocols
    ]
    record = make_launches(0.1)[0].model_copy(update={"request": cell.request(1)})
    for data, belongs in ((["digits"], False), (None, False), (["digits-raw@*"], True)):
        study = make_study({"name": "values"}, {"data": data, "epochs": 1, "steps": None})
        assert bool(cells.select_records(study, "laptop", [record])) == belongs


def test_study_with_only_missing_data_is_an_error(make_study):
    matrix = {"data": ["cifar10"], "epochs": 1, "steps": None}
    study = make_study({"name": "values"}, matrix, present=["cifar10"])
    with pytest.raises(UsageError, match="mine: there is no data set cifar10"):
        running.plan_study_and_write_data(study, "laptop", running.Choices())
