"""Tests of requested and observed kernels and threads, also with manipulated switches."""

import shutil
import subprocess

import pytest

from tests.adapters.cases import FRAMEWORKS, Case, parametrize
from xfbench.host import machine
from xfbench.model import adapter

pytestmark = pytest.mark.deep
KERNELS = [
    Case("train", framework, "convnet-quick", kernel=kernel)
    for framework in FRAMEWORKS
    for kernel in adapter.load(framework).kernels_on("cpu")
]
BUSY_CASES = [
    Case("keep_busy", framework, threads=threads) for framework in FRAMEWORKS for threads in (1, 2)
]
EVIDENCE = {
    ("caffe", "openblas"): "openblas",
    ("caffe", "reference"): "blas/libblas.so",
    ("caffe", "mkl"): "libmkl_rt",
    ("ipex", "channels_last"): "ipex.optimize packed",
    ("ipex", "onednn"): "ipex.optimize packed",
    ("jax", "xla"): "the step that XLA compiled contains convolution",
    ("mxnet", "onednn"): "oneDNN's layout",
    ("mxnet", "native"): "plain layout",
    ("tensorflow", "onednn"): "_Mkl",
    ("tensorflow", "eigen"): "contains no oneDNN operation",
    ("tensorflow", "xla"): "TensorFlow's executor ran no operation of the step",
    ("torch", "onednn"): "oneDNN ran convolution",
    ("torch", "channels_last"): "channels last in memory",
    ("torch", "inductor"): "the gradient of the scores is CompiledFunctionBackward",
    ("torch", "native"): "MKL ran SGEMM",
}


@parametrize(KERNELS, "framework", "kernel")
def test_requested_kernel_is_observed_and_correct(case, answers, reference):
    facts = answers(case).facts
    observed = facts["observed"]
    assert observed["kernel"] == case.kernel
    assert EVIDENCE[case.framework, case.kernel] in "; ".join(observed["kernel_evidence"])
    assert reference.unexplained(case, facts["distances"]) == []


NON_DEFAULT_KERNELS = [
    case for case in KERNELS if case.kernel != adapter.load(case.framework).default_kernel
]


@parametrize(NON_DEFAULT_KERNELS, "framework", "kernel")
def test_launch_records_the_requested_kernel(launch_real, case):
    settings = {"workload": ["lenet"], "kernel": [case.kernel], "batch_size": [8]}
    record = launch_real(case.framework, threads=[1], data="synthetic", steps=2, **settings)
    assert record.status == "ok", record.reason
    assert record.request.kernel == record.observed.kernel == case.kernel
    evidence = "; ".join(record.observed.kernel_evidence)
    assert EVIDENCE[case.framework, case.kernel] in evidence


# A library that defeats switches: it returns "1" for variables that were set to "0", and
# PyTorch's call that switches oneDNN off does nothing.
TAMPERED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
char *getenv(const char *name) {
  static char *(*real)(const char *);
  if (!strcmp(name, "TF_ENABLE_ONEDNN_OPTS") || !strcmp(name, "MXNET_MKLDNN_ENABLED")) return "1";
  if (!real) real = dlsym(RTLD_NEXT, "getenv");
  return real(name);
}
void _ZN2at7Context20setUserEnabledMkldnnEb(void *context, char enabled) {}
"""


@pytest.fixture
def set_worker_variable(tmp_path, monkeypatch):
    """A function that sets an environment variable for an adapter's worker."""

    def set_variable(framework, name, value):
        folder = tmp_path / "adapters" / framework
        shutil.copytree(adapter.load(framework).folder, folder)
        file = folder / "adapter.toml"
        first, header, rest = file.read_text().partition("\n[variables]\n")
        file.write_text(f'{first}\n[variables]\n{name} = "{value}"\n{rest}')
        assert header
        monkeypatch.setenv("XFBENCH_ADAPTERS", str(tmp_path / "adapters"))

    return set_variable


@pytest.fixture
def preload(set_worker_variable):
    """A function that makes an adapter preload a library."""
    return lambda framework, library: set_worker_variable(framework, "LD_PRELOAD", library)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_switch_against_compiling_makes_a_launch_invalid(
    launch_real, set_worker_variable, precision
):
    set_worker_variable("torch", "TORCHDYNAMO_DISABLE", "1")
    settings = {"workload": ["convnet-quick"], "kernel": ["inductor"], "precision": [precision]}
    record = launch_real("torch", batch_size=[8], steps=2, **settings)
    assert record.status == "invalid"
    assert "kernel inductor was requested, but channels_last was observed" in record.reason


@pytest.mark.parametrize(
    ("framework", "kernel"), [("mxnet", "native"), ("tensorflow", "eigen"), ("torch", "native")]
)
def test_preloaded_library_that_defeats_a_switch_is_noticed(
    launch_real, preload, tmp_path, framework, kernel
):
    source, library = tmp_path / "tampered.c", tmp_path / "libtampered.so"
    source.write_text(TAMPERED)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    preload(framework, library)
    record = launch_real(
        framework, workload=["convnet-quick"], kernel=[kernel], batch_size=[8], steps=2
    )
    assert record.status == "invalid"
    assert f"kernel {kernel} was requested, but onednn was observed" in record.reason


def test_preloaded_blas_in_place_of_another_is_noticed(launch_real, preload):
    folder = "{prefix}/usr/lib/x86_64-linux-gnu/openblas-pthread"
    preload("caffe", f"{folder}/libopenblas.so.0")
    record = launch_real(
        "caffe", workload=["convnet-quick"], kernel=["reference"], batch_size=[8], steps=2
    )
    assert record.status == "invalid"
    assert "kernel reference was requested, but openblas was observed" in record.reason
    assert "libopenblas" in record.reason


@parametrize(BUSY_CASES, "framework", "threads")
def test_framework_keeps_to_its_threads(case, answers):
    facts, cores = answers(case).facts, machine.usable_cores()
    # OpenBLAS starts no more threads than there are cores.
    size = min(case.threads, cores) if case.framework == "caffe" else case.threads
    assert set(facts["pools"].values()) == {size}
    assert facts["cpus"] <= min(case.threads, cores) * 1.05 + 0.25


@pytest.mark.parametrize("threads", [1, 2])
def test_launch_records_the_pools_of_requested_threads(launch_real, threads):
    record = launch_real("torch", workload=["lenet"], threads=[threads], data="synthetic", steps=30)
    assert record.status == "ok", record.reason
    assert record.observed.pools
    assert set(record.observed.pools.values()) == {threads}
    assert record.observed.cpus <= min(threads, machine.usable_cores()) * 1.05 + 0.25


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_launch_has_the_requested_threads_or_says_so(launch_real, framework):
    """The launch has more threads than cores; OpenBLAS does not start more."""
    cores = machine.usable_cores()
    threads = cores + 1
    record = launch_real(
        framework, workload=["lenet"], threads=[threads], data="synthetic", steps=30
    )
    if framework == "caffe":
        assert record.status == "invalid"
        assert f"{threads} threads were requested, but openblas" in record.reason
        return
    assert record.status == "ok", record.reason
    assert set(record.observed.pools.values()) == {threads}
    assert record.observed.cpus <= cores * 1.05 + 0.25
