"""Frameworks asked for CUDA, as a worker is on a node where nobody has looked for a device."""

import json

import pytest

from tests import interpreters
from xfbench import adapter, experiment
from xfbench.host import machine
from xfbench.results.store import Store
from xfbench.running import runner, worker_archive

ON_GPUS = ("jax", "mxnet", "tensorflow", "torch")
CPU_ONLY = {  # what each build says of itself
    "mxnet": "built without CUDA, finds no NVIDIA device",
    "torch": "built without CUDA, finds no NVIDIA device",
    "tensorflow": "finds no NVIDIA device",
    "jax": "finds no NVIDIA device",
}


@pytest.fixture
def session(monkeypatch, tmp_path):
    """A session whose driver takes it for granted that there is a device."""
    if machine.accelerators():
        pytest.skip("there is an NVIDIA device here")
    monkeypatch.setattr(machine, "accelerators", lambda: ["a GPU"])
    return runner.Session(Store(tmp_path / "results"))


def asked(framework, **settings):
    """Requests for LeNet on CUDA, a launch of each kernel."""
    matrix = experiment.matrix(framework=[framework], device=["cuda"], launches=1, **settings)
    return runner.plan(experiment.cells([matrix]))


@pytest.mark.parametrize("framework", ON_GPUS)
def test_without_a_device_it_says_so(session, framework):
    session.prepare([framework], {}, print)
    kernels = [*adapter.load(framework).kernels_on("cuda")]
    requests = asked(framework, workload=["lenet"], kernel=kernels)
    assert {one.kernel for one in requests} == {*kernels}
    records = runner.run(requests, session)
    assert [one.status for one in records] == ["unavailable"] * len(requests)
    for record in records:
        assert CPU_ONLY[framework] in record.reason
        assert record.reason.count("\n") == 0


@pytest.mark.parametrize("framework", ON_GPUS)
def test_gpus_have_kernels_of_their_own(framework):
    described = adapter.load(framework)
    on_gpu, on_cpu = described.kernels_on("cuda"), described.kernels_on("cpu")
    assert on_gpu and on_cpu[0] == described.default_kernel
    assert not {"onednn", "eigen"} & {*on_gpu}
    assert "cudnn" not in on_cpu


SWITCHES = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
from xfbench.adapters.torch import train
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import workloads
lenet = workloads()["lenet"]
found = {}
for kernel in json.loads(sys.argv[2]):
    train.build(lenet.network, lenet.solver, Options(kernel, 1), Group())
    cudnn = torch.backends.cudnn
    found[kernel] = [cudnn.enabled, cudnn.benchmark, cudnn.allow_tf32]
print(json.dumps(found))
"""


def test_pytorch_lets_cudnn_try_its_algorithms_as_others_do_unasked(tmp_path):
    kernels = adapter.load("torch").kernels_on("cuda")
    assert [*kernels] == ["cudnn", "channels_last", "inductor", "native"]
    archive = worker_archive.worker_archive("torch")
    shown = interpreters.run("torch", SWITCHES, archive, json.dumps(kernels), folder=tmp_path)
    found = json.loads(shown.splitlines()[-1])
    assert found == {kernel: [kernel != "native", True, False] for kernel in kernels}


def test_what_a_framework_has_not_on_a_gpu_is_unsupported():
    [request] = asked(
        "tensorflow", workload=["lenet"], strategy=["parameter_server"], ranks=[2], scaling="weak"
    )
    assert "compute on CPUs alone" in runner.refusal(request)
    for framework in ("jax", "tensorflow", "torch"):
        [on_gpu] = asked(framework, precision=["tf32"], workload=["lenet"])
        assert runner.refusal(on_gpu) is None
        on_cpu = on_gpu.model_copy(
            update={"device": "cpu", "kernel": adapter.load(framework).default_kernel}
        )
        assert "TF32" in runner.refusal(on_cpu)
    [on_gpu] = asked("caffe", workload=["lenet"])
    assert "no device cuda" in runner.refusal(on_gpu)
