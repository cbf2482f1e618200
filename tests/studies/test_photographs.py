"""A study's own photographs, and data sets that it trains on where they are there."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from xfbench import experiment
from xfbench.base import paths
from xfbench.base.errors import UsageError
from xfbench.data import photographs, sources, writing
from xfbench.data.manifest import Preprocessing
from xfbench.studies import answer, cells, media, running
from xfbench.worker import pictures, prepared


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XFBENCH_DATA", str(tmp_path / "data"))


@pytest.fixture
def few(monkeypatch):
    """A set of so few that it is made at once."""
    monkeypatch.setattr(photographs, "TRAIN", 12)
    monkeypatch.setattr(photographs, "TEST", 2)


def test_photographs_are_reproducible_jpeg_files(few):
    source = photographs.source()
    [train, test] = source.splits.values()
    assert (len(train), len(test), len(source.classes)) == (12, 2, 10)
    files = [train[number].image for number in range(12)]
    assert all(file.startswith(b"\xff\xd8") for file in files) and len(set(files)) == 12
    assert files == [photographs.source().splits["train"][n].image for n in range(12)]
    assert {train[number].label for number in range(10)} == set(range(10))
    assert not {test[0].key, test[1].key} & {train[number].key for number in range(12)}
    pixels = pictures.decode_pixels(train[3])
    assert pixels.shape == (3, 256, 256) and pixels.std() > 10


def test_every_format_has_the_same_pixels_in_the_same_order(few):
    study = experiment.load("data-format")
    matrices = [one for one in study.matrices_of_size("laptop") if "photographs-raw" in one.data]
    [placed] = [media.place_data(study, one, media.medium_folders({})) for one in matrices]
    made = [prepared.open_prepared(folder).splits for folder in map(Path, placed.data)]
    assert len(made) == 5
    kept = [[split["train"][number] for number in range(12)] for split in made]
    assert [isinstance(one[0].image, np.ndarray) for one in kept] == [True, *[False] * 4]
    first = [pictures.decode_pixels(sample) for sample in kept[0]]
    for other in kept[1:]:
        assert [sample.label for sample in other] == [sample.label for sample in kept[0]]
        for one, sample in zip(first, other, strict=True):
            assert np.array_equal(one, pictures.decode_pixels(sample))


def test_packaged_photographs_have_few_bytes_and_enough_pixels():
    for name in photographs.NAMES:
        file = paths.package_folder("xfbench.data.photographs") / f"{name}.jpg"
        assert file.stat().st_size < 40_000
        with Image.open(file) as picture:
            assert min(picture.size) >= photographs.SIDE


@pytest.fixture
def optional(study):
    """A study of the digits, and of a data set that may be there."""
    matrix = {"data": ["digits", "cifar10"], "epochs": 1, "steps": None, "launches": 1}
    return study({"name": "values"}, matrix, present=["cifar10"])


def test_missing_data_set_is_reported_and_the_rest_runs(optional, launched):
    found = running.prepare(optional, "laptop", running.Choices())
    assert [one.data for one in found.plan.requests] == ["digits"]
    assert found.missing_data == ("cifar10",)
    said = answer.answer_study(optional, "laptop", launched(0.1), {})
    assert said.missing[-1] == (
        "cifar10",
        "there is no data set cifar10: create it with `xfbench data prepare`",
    )


@pytest.mark.parametrize("folder", ["cifar10-raw", "cifar10"])
def test_optional_data_set_is_used_when_present(optional, launched, folder):
    how = Preprocessing(channels=1)
    named = replace(sources.digits(), name="cifar10")
    writing.make_data_set(named, paths.data() / folder, "raw", how)
    writing.make_data_set(named, paths.data() / f"{folder}-too", "raw", how)
    found = running.prepare(optional, "laptop", running.Choices())
    assert [one.data for one in found.plan.requests] == ["digits", "cifar10"]
    assert found.missing_data == ()
    [own] = [one for one in found.plan.requests if one.data == "cifar10"]
    [place] = {str(path) for path in found.plan.data_folders.values()}
    assert place.endswith(f"/{folder}") and own.data_set.folder_key in found.plan.data_folders
    record = launched(0.1)[0]
    record = record.model_copy(update={"request": own})
    assert not answer.answer_study(optional, "laptop", [record], {}).missing


def test_digits_on_disk_differ_from_the_built_in_digits(study, launched):
    [asked] = [
        one
        for one, _ in running.prepare(
            study(
                {"name": "values"},
                {"data": ["digits-raw"], "epochs": 1, "steps": None},
                prepared={"format": ["raw"]},
            ),
            "laptop",
            running.Choices(),
        ).plan.protocols
    ]
    record = launched(0.1)[0].model_copy(update={"request": asked.request(1)})
    for data, belongs in ((["digits"], False), (None, False), (["digits-raw@*"], True)):
        made = study({"name": "values"}, {"data": data, "epochs": 1, "steps": None})
        assert bool(cells.select_records(made, "laptop", [record])) == belongs


def test_study_with_only_missing_data_is_an_error(study):
    matrix = {"data": ["cifar10"], "epochs": 1, "steps": None}
    made = study({"name": "values"}, matrix, present=["cifar10"])
    with pytest.raises(UsageError, match="mine: there is no data set cifar10"):
        running.prepare(made, "laptop", running.Choices())
