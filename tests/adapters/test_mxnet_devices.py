"""What MXNet does on GPUs, shown on CPUs: cuDNN is simulated, the reader has a device."""

import json

import pytest

from tests.adapters import data_sets
from tests.adapters.cases import CROPPED, NORMED
from tests.adapters.snippets import run_snippet

pytestmark = pytest.mark.deep
VARIANCE = """
import json
import mxnet as mx
from xfbench.adapters.mxnet import device, train
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import workload_from_json

def batch_norm_of_cudnn(images, gamma, beta, mean, variance, **options):
    variance[:] = 0.5
    return own_batch_norm(images, gamma, beta, mean.copy(), variance.copy(), **options)

def list_facts():
    device.stores_unbiased_variance.cache_clear()
    trainer = train.build(workload.network, workload.solver, Options("native", 1), Group())
    stored = {device.stores_unbiased_variance(mx.cpu(), t, 1e-5) for t in ("float32", "float64")}
    return f"{stored.pop()}/{len(stored)}/{trainer.averages.biased.sum()}"

workload = workload_from_json(json.load(open("workload.json")))
own_batch_norm = mx.nd.BatchNorm
facts = list_facts()
mx.nd.BatchNorm = batch_norm_of_cudnn
print(facts, list_facts())
"""


def test_variance_that_is_unbiased_already_is_not_corrected_again(tmp_path):
    (tmp_path / "workload.json").write_text(json.dumps(NORMED.to_json()))
    assert run_snippet("mxnet", VARIANCE, tmp_path) == ["False/0/1", "True/0/0"]


READ = """
import json
from pathlib import Path
import mxnet as mx
from xfbench.adapters.mxnet import device, reader
from xfbench.worker.protocol import Options, TrainingFiles
from xfbench.workloads import workload_from_json

device.context = lambda kind, rank: mx.cpu(1)  # stands for a GPU
workload = workload_from_json(json.load(open("workload.json")))
files = TrainingFiles(Path("{folder}"), "recordio", 8, workload, 4, 1)
images, labels = next(reader.open_reader(files, Options("native", 1)).epoch(0))
print(images.context, labels.context)
"""


def test_batches_of_the_reader_are_on_the_trainers_device(tmp_path):
    (tmp_path / "workload.json").write_text(json.dumps(CROPPED.to_json()))
    folder = data_sets.write_data_set("recordio places", tmp_path / "sets")
    assert run_snippet("mxnet", READ.format(folder=folder), tmp_path) == ["cpu(1)", "cpu(1)"]
