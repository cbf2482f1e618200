"""Checkpoints of every framework: training that goes on from one is the training that was left."""

import json
from dataclasses import replace

import pytest

from tests import interpreters
from xfbench import adapter
from xfbench.equality.blocks import NOISE
from xfbench.running import worker_archive
from xfbench.workloads import Workload, workloads
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

FRAMEWORKS = ["caffe", "ipex", "jax", "mxnet", "reference", "tensorflow", "torch"]
FILLERS = {"weight_filler": xl.Filler("msra"), "bias_filler": xl.Filler("constant", 0.1)}
# Running averages, and a rate that changes between the steps before and after.
NORMED = Workload(
    xl.Network(
        "normed",
        (3, 8, 8),
        5,
        (
            xl.Convolution("conv", ("data",), 4, 3, 1, 1, **FILLERS),
            xl.BatchNorm("norm", ("conv",), eps=1e-5),
            xl.ReLU("relu", ("norm",)),
            xl.InnerProduct("ip", ("relu",), 5, **FILLERS),
            xl.SoftmaxLoss("loss", ("ip",)),
        ),
    ),
    Solver(0.05, "step", gamma=0.1, stepsize=4, momentum=0.9, weight_decay=1e-3),
    replace(NOISE, mean=NOISE.mean * 3),
    4,
    "synthetic",
    "made up",
)
NETWORKS = {"lenet": workloads()["lenet"], "normed": NORMED}

# In the framework's interpreter, as a worker is; what reads pickles is out of order meanwhile.
SCRIPT = """
import importlib, json, pathlib, pickle, sys
archive, framework, kernel, described = sys.argv[1:]
sys.path.insert(0, archive)
from xfbench.worker import checkpoint
from xfbench.worker.input import synthetic_batch
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import workload_from_json
from xfbench.workloads.initial import initial_parameters

workload = workload_from_json(json.loads(pathlib.Path(described).read_text()))
build = importlib.import_module(f"xfbench.adapters.{framework}.train").build

def made(seed):
    trainer = build(workload.network, workload.solver, Options(kernel, 1), Group())
    trainer.assign(initial_parameters(workload.network, seed))
    return trainer

def trained(trainer, seeds):
    for seed in seeds:
        trainer.step(trainer.load(*synthetic_batch(workload, 4, seed)))
        trainer.wait()
    return checkpoint.fingerprint(trainer.parameters())

def refuse(*_, **__):
    raise RuntimeError("a pickle was read")

folder = pathlib.Path("checkpoint")
folder.mkdir()
first = made(0)
at = trained(first, range(3))
weights = first.parameters()
first.save(folder)
end = trained(first, range(3, 6))

second = made(1)
pickle.load = pickle.loads = pickle.Unpickler = pickle._Unpickler = refuse
second.restore(folder)
found = checkpoint.fingerprint(second.parameters())
weights_alone = made(0)
weights_alone.assign(weights)
print(json.dumps({
    "parameters": found == at,
    "end": trained(second, range(3, 6)) == end,
    "end of weights alone": trained(weights_alone, range(3, 6)) == end,
    "averages": sum(name.endswith("/mean") for name in at),
    "bytes": checkpoint.size(folder),
    "least": checkpoint.least_bytes(workload, weights),
}))
"""


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_been_left(
    framework, network, tmp_path
):
    """Bit for bit, in a trainer with other weights, which would not do with the weights alone."""
    described = adapter.load(framework)
    (tmp_path / "workload.json").write_text(json.dumps(NETWORKS[network].to_json()))
    given = framework, described.default_kernel, "workload.json"
    archive = worker_archive.worker_archive(framework)
    shown = interpreters.run(framework, SCRIPT, archive, *given, folder=tmp_path)
    answer = json.loads(shown.splitlines()[-1])
    assert answer["parameters"] and answer["end"]
    assert not answer["end of weights alone"]
    assert answer["averages"] == (network == "normed")
    assert answer["bytes"] >= answer["least"]
    assert described.checkpoint


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_launch_with_checkpoints_is_as_good_as_one_without(launch, framework):
    record = launch(framework, workload=["lenet"], batch_size=[8], steps=4, checkpoints=2)
    assert record.status == "ok", record.reason
    taken = record.checkpoints
    assert taken.equal and taken.format == adapter.load(framework).checkpoint
    assert len(taken.save_seconds) == len(taken.load_seconds) == 2
    # 431,080 parameters of LeNet's and as many velocities, in float32.
    assert 8 * 431_080 <= taken.bytes < 1.1 * 8 * 431_080


@pytest.mark.parametrize(
    ("framework", "strategy"),
    [
        *(("caffe", "mpi"), ("jax", "mpi"), ("mxnet", "dist_sync")),
        *(("tensorflow", "mirrored"), ("torch", "ddp")),
    ],
)
def test_of_two_ranks_the_first_saves_and_both_go_on(launch, framework, strategy):
    settings = {"ranks": [2], "strategy": [strategy], "scaling": "weak", "threads": [1]}
    record = launch(
        framework, workload=["lenet"], batch_size=[8], steps=4, checkpoints=2, **settings
    )
    assert record.status == "ok", record.reason
    assert record.checkpoints.equal and len(record.checkpoints.save_seconds) == 2
    assert len(record.measurement.step_seconds) == 4
