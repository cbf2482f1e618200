"""Tests of frameworks on CUDA, on a machine that may have no device."""

import pytest

from tests.adapters.cases import Case, parametrize
from xfbench.execution.launch import LaunchContext
from xfbench.host import machine
from xfbench.model import adapter, capabilities
from xfbench.planning import experiment
from xfbench.planning.scheduling import launch_order
from xfbench.session import Session
from xfbench.store.results_folder import Store

ON_GPUS = ("jax", "mxnet", "tensorflow", "torch")
CPU_ONLY = {  # message of each build
    "mxnet": "built without CUDA, finds no NVIDIA device",
    "torch": "built without CUDA, finds no NVIDIA device",
    "tensorflow": "finds no NVIDIA device",
    "jax": "finds no NVIDIA device",
}
KERNELS = {name: [*adapter.load(name).kernels_on("cuda")] for name in ON_GPUS}
REFUSED_CASES = [
    Case("refuse_device", framework, kernel=kernel, device="cuda")
    for framework, kernels in KERNELS.items()
    for kernel in kernels
]
PROFILE = Case("profile_fake_gpu", "torch")
SHOWN = "PyTorch called aten::cudnn_convolution ×2"
NOT_SHOWN = "requested, not shown"
# By requested kernel and what the GPU ran: the observed kernel and the first line of evidence.
OBSERVED = {
    "cudnn": {
        "cuDNN": ("cudnn", SHOWN),
        "other kernels": ("native", "the GPU ran a kernel ×3 in 500 ms"),
        "nothing": ("cudnn", NOT_SHOWN),
    },
    "cudnn_deterministic": {
        "cuDNN": ("cudnn_deterministic", SHOWN),
        "other kernels": ("native", "the GPU ran a kernel ×3 in 500 ms"),
        "nothing": ("cudnn_deterministic", NOT_SHOWN),
        "cuDNN's newer interface": ("cudnn", SHOWN),
    },
    "channels_last": {"cuDNN": ("channels_last", SHOWN), "nothing": ("channels_last", NOT_SHOWN)},
    "inductor": {"cuDNN": ("inductor", ""), "nothing": ("inductor", "")},
    "cuda_graphs": {
        "graphs": ("cuda_graphs", ""),
        "other kernels": ("inductor", ""),
        "nothing": ("cuda_graphs", ""),
    },
}
OBSERVE_CASES = [Case("observe_fake_gpu", "torch", "cropped", kernel=name) for name in OBSERVED]
REPEAT = Case("repeat_fake_gpu_step", "torch", "cropped")
COPY = Case("copy_to_fake_gpu", "torch", "cropped")
TF32_CASES = [
    Case("switch_tf32", "torch", precision=precision) for precision in ("float32", "tf32")
]
CUDNN_CASES = [Case("switch_cudnn", "torch", kernel=kernel) for kernel in KERNELS["torch"]]


@pytest.fixture
def no_device():
    """Skip the test if there is a device."""
    if machine.list_accelerator_models():
        pytest.skip("there is an NVIDIA device here")


def build_requests(framework, **settings):
    """Return requests for LeNet on CUDA."""
    matrix = experiment.build_matrix(
        framework=[framework], workload=["lenet"], device=["cuda"], launches=1, **settings
    )
    return launch_order(experiment.expand_matrices([matrix]))


@pytest.mark.deep
@parametrize(REFUSED_CASES, "framework", "kernel")
def test_framework_without_a_device_says_so(no_device, case, answers):
    message = answers(case).facts["unavailable"]
    assert CPU_ONLY[case.framework] in message
    assert "\n" not in message


@pytest.mark.deep
@pytest.mark.usefixtures("no_device")
def test_launch_without_a_device_is_unavailable(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "list_accelerator_models", lambda: ["a GPU"])
    session = Session(LaunchContext(Store(tmp_path / "results")))
    session.prepare(["mxnet"])
    [record] = session.launch(build_requests("mxnet"))
    assert record.status == "unavailable"
    assert CPU_ONLY["mxnet"] in record.reason
    assert "\n" not in record.reason


@pytest.mark.parametrize("framework", ON_GPUS)
def test_gpu_kernels_differ_from_cpu_kernels(framework):
    on_cpu = adapter.load(framework).kernels_on("cpu")
    assert KERNELS[framework] and on_cpu[0] == adapter.load(framework).default_kernel
    assert not {"onednn", "eigen"} & {*KERNELS[framework]}
    assert "cudnn" not in on_cpu


def test_pytorch_has_its_kernels_on_cuda():
    cudnn = ["cudnn", "cudnn_deterministic"]
    assert KERNELS["torch"] == [*cudnn, "channels_last", "inductor", "cuda_graphs", "native"]


@pytest.mark.deep
@parametrize(CUDNN_CASES, "framework", "kernel")
def test_pytorch_lets_cudnn_try_its_algorithms(case, answers):
    """Other frameworks do so by default."""
    fixed = case.kernel == "cudnn_deterministic"
    switches = {"enabled": case.kernel != "native", "benchmark": not fixed, "deterministic": fixed}
    assert answers(case).facts == {**switches, "allow_tf32": False}


@pytest.mark.deep
@parametrize(TF32_CASES, "precision")
def test_pytorch_switches_tf32_on_only_if_requested(case, answers):
    """By the names of today's versions, and of a version that has dropped the old names."""
    facts, requested = answers(case).facts, case.precision == "tf32"
    assert facts["in TF32"] == [requested, requested]
    assert facts["without old names"] == ["tf32" if requested else "ieee"] * 2


@pytest.mark.deep
@parametrize([COPY], "framework")
def test_pytorch_copies_batches_while_the_gpu_computes(case, answers):
    """From pinned memory, and on a stream for which the training waits, but the host does not."""
    facts = answers(case).facts
    assert facts["equal"] and facts["channels last"]
    copied = ["pin", "copying: to cuda at once"]
    used = ["used by training"] * 2
    assert facts["copy"] == [*copied, *copied, "training waits for copying", *used]


@pytest.mark.deep
@parametrize([COPY], "framework")
def test_pytorch_keeps_few_batches_on_the_gpu(case, answers):
    waits = [f"host waits for event {number}" for number in (1, 2)]
    assert answers(case).facts["steps"] == ["event", "event", "event", waits[0], "event", waits[1]]


@pytest.mark.deep
@parametrize([PROFILE], "framework")
def test_each_kernel_of_a_gpu_is_counted_once(case, answers):
    """PyTorch counts the forward kernel twice: the profiler's overhead claims it, too."""
    facts = answers(case).facts
    assert facts["forward"] == {"conv1": pytest.approx(7e-6)}
    assert facts["backward"] == {"conv1": pytest.approx(11e-6)}
    assert facts["update"] == pytest.approx(13e-6)
    assert facts["unattributed"] == pytest.approx(17e-6)
    assert facts["counted by PyTorch"] == pytest.approx(14e-6)


@pytest.mark.deep
@parametrize([PROFILE], "framework")
def test_kernels_of_a_gpu_are_named_by_their_time(case, answers):
    assert answers(case).facts["lines"] == [
        "PyTorch called aten::cudnn_convolution ×1",
        "the GPU ran sgd<float> ×1 in 0.013 ms",
        "the GPU ran wgrad<float> ×1 in 0.011 ms",
        "the GPU ran cudnn::forward<float> ×1 in 0.007 ms",
    ]


@pytest.mark.deep
@parametrize([PROFILE], "framework")
def test_copies_are_a_share_of_all_that_a_gpu_ran(case, answers):
    """A copy from the CPU; then also NCCL's kernel and copies to a GPU and to the CPU."""
    facts = answers(case).facts
    in_both = 17 + 7 + 11 + 13
    assert facts["copy share"] == pytest.approx(17 / in_both)
    assert facts["copy share with exchange"] == pytest.approx(
        (17 + 10 + 2 + 1) / (in_both + 10 + 2 + 1 + 20 + 3)
    )


@pytest.mark.deep
@parametrize([REPEAT], "framework")
def test_recorded_step_copies_and_exchanges_as_the_timed_steps_did(case, answers):
    facts = answers(case).facts
    assert facts["counts"] == [[0, 1], [1, 1]]
    assert facts["alone"] and facts["share"] == 0.25


@pytest.mark.deep
@parametrize(OBSERVE_CASES, "kernel")
def test_pytorch_shows_the_kernel_that_ran_on_a_gpu(case, answers):
    facts = answers(case).facts
    for ran, (kernel, first_line) in OBSERVED[case.kernel].items():
        observed, evidence = facts[ran]
        assert observed == kernel, ran
        compiled = case.kernel in ("inductor", "cuda_graphs")
        assert "CompiledFunctionBackward" in evidence[0] if compiled else evidence[0] == first_line
        assert (NOT_SHOWN in evidence) == (ran == "nothing")


def test_cuda_graphs_are_unsupported_on_a_cpu():
    [on_gpu] = build_requests("torch", kernel=["cuda_graphs"])
    assert capabilities.refusal_reason(on_gpu) is None
    on_cpu = on_gpu.model_copy(update={"device": "cpu"})
    assert (
        capabilities.refusal_reason(on_cpu) == "kernel cuda_graphs of PyTorch does not support cpu"
    )


def test_parameter_servers_of_tensorflow_serve_ranks_on_gpus_and_see_none_themselves():
    """Untested on a GPU: a server that saw one would take all of its memory."""
    [request] = build_requests(
        "tensorflow", strategy=["parameter_server"], ranks=[2], scaling="weak"
    )
    assert capabilities.refusal_reason(request) is None
    strategy = adapter.load("tensorflow").find_or_build_strategy("parameter_server")
    assert strategy.counted["servers"]["CUDA_VISIBLE_DEVICES"] == ""


def test_settings_without_gpu_support_are_unsupported():
    for framework in ("jax", "tensorflow", "torch"):
        [on_gpu] = build_requests(framework, precision=["tf32"])
        assert capabilities.refusal_reason(on_gpu) is None
        on_cpu = on_gpu.model_copy(
            update={"device": "cpu", "kernel": adapter.load(framework).default_kernel}
        )
        assert "TF32" in capabilities.refusal_reason(on_cpu)
    [on_gpu] = build_requests("caffe")
    assert "no device cuda" in capabilities.refusal_reason(on_gpu)
