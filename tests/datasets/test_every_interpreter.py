"""Every framework's interpreter decodes the same pixels, so that all are fed the same bytes."""

import pytest

from xfbench.datasets import sets, sources, writing
from xfbench.datasets.manifest import Preprocessing
from xfbench.execution.launch import LaunchContext
from xfbench.model import adapter
from xfbench.session import Session
from xfbench.store.results_folder import Store

FRAMEWORKS = ("caffe", "jax", "mxnet", "reference", "tensorflow", "torch")


@pytest.mark.deep
def test_jpeg_files_give_every_framework_the_same_input(folders, tmp_path, cell):
    """As the canary, a loss before anything is trained, and those of two updates say."""
    target = tmp_path / "set"
    preprocessing = Preprocessing(channels=3, shuffle=0)
    writing.make_data_set(sources.open_image_folder(folders()), target, "folder", preprocessing)
    data_set = sets.PreparedDataSet(target, sets.find_data_set(str(target)).manifest)
    folders_by_key = {data_set.describe_for_request().folder_lookup_key: target}
    session = Session(LaunchContext(Store(tmp_path / "results"), data_folders=folders_by_key))
    session.prepare(FRAMEWORKS)
    requests = [
        cell(
            framework=name,
            environment=adapter.load(name).environment.kind,
            kernel=adapter.load(name).default_kernel,
            workload="convnet",
            global_batch_size=8,
            batch_size_per_rank=8,
            data=data_set.manifest.name,
            data_set=data_set.describe_for_request(),
            steps=2,
            warmup=0,
        ).request(1)
        for name in FRAMEWORKS
    ]
    records = list(session.launch(requests))
    assert [record.status for record in records] == ["ok"] * 6, [
        record.reason for record in records
    ]
    for record in records:
        assert record.canary.relative_error < 1e-6
    losses = [record.measurement.losses for record in records]
    assert losses == [pytest.approx(losses[0], rel=1e-6)] * 6
