"""Launches that exceed their memory limit, and what their records report."""

import pytest

from xfbench.base.errors import UnavailableError, UsageError
from xfbench.base.processes import Outcome
from xfbench.environments import environment
from xfbench.execution.launch import LaunchContext
from xfbench.host import memory
from xfbench.model import adapter
from xfbench.planning.experiment import build_matrix, expand_matrices
from xfbench.session import Session
from xfbench.store.results_folder import Store
from xfbench.worker import memory as worker_memory
from xfbench.worker.memory import out_of_memory_line

LIMIT = 400_000_000
# Endings of a process without memory: an exception, an abort after a failed allocation, a silent
# crash, and SIGKILL as from the kernel.
DEATHS = {
    "raised": "np.empty(10**9)",
    "aborted": "os.write(2, b'std::bad_alloc')\nos.abort()",
    "silent": "import signal\nos.kill(os.getpid(), signal.SIGSEGV)",
    "killed": "os.kill(os.getpid(), 9)",
    "other": "raise RuntimeError('a defect')",
}
PRINT_LIMIT = "import resource\nprint(resource.getrlimit(resource.RLIMIT_DATA)[0], flush=True)\n"


@pytest.fixture
def dead(launch_fake):
    """Return a function that runs a launch with this ending and returns its record and output."""

    def run_launch(ending, limit=LIMIT):
        record, folder = launch_fake(PRINT_LIMIT + DEATHS[ending], memory_limit=limit)
        return record, (folder / "stdout").read_text()

    return run_launch


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("raised", "out of memory: MemoryError was raised: Unable to allocate 7.45 GiB"),
        ("aborted", "out of memory: it aborted: std::bad_alloc"),
        ("silent", "out of memory, probably: it was ended by SIGSEGV without an error"),
    ],
)
def test_out_of_memory_record_says_how_the_launch_ended(dead, ending, reason):
    record, output = dead(ending)
    assert record.status == "failed" and record.reason.startswith(reason), record.reason
    assert memory.is_out_of_memory(record)
    assert record.request.memory_limit == LIMIT
    assert output.split() == [str(LIMIT)]


@pytest.mark.parametrize("ending", ["killed", "other"])
def test_other_failures_are_not_out_of_memory(dead, ending):
    record, _ = dead(ending)
    assert not memory.is_out_of_memory(record) and record.status in ("crashed", "failed")


def test_silent_crash_without_a_limit_is_a_crash(dead):
    record, output = dead("silent", limit=None)
    assert record.status == "crashed" and "SIGSEGV" in record.reason
    assert output.split() == ["-1"]


def test_kernel_oom_count_marks_a_killed_process():
    killed = Outcome(-9)
    assert memory.out_of_memory_reason(killed, "", None, 1) == "out of memory: the kernel killed it"
    assert memory.out_of_memory_reason(killed, "", None, 0) is None
    assert (
        memory.out_of_memory_reason(Outcome(-9, timed_out=True), "out of memory", None, 1) is None
    )
    assert isinstance(memory.count_oom_kills_since_boot(), int)


def test_out_of_memory_of_a_rank_is_recognized(record):
    out_of_memory_record = record(
        fields={"status": "failed", "reason": "rank 1 of 2: out of memory: x"}
    )
    assert memory.is_out_of_memory(out_of_memory_record)
    other_failure = record(fields={"status": "failed", "reason": "TypeError: out of memory: x"})
    assert not memory.is_out_of_memory(other_failure)


def test_ambiguous_messages_count_only_under_a_limit():
    assert out_of_memory_line("dnnl::error: could not create a primitive", LIMIT)
    assert out_of_memory_line("dnnl::error: could not create a primitive", None) is None
    assert out_of_memory_line("OOM when allocating tensor with shape[4096]", None)
    assert out_of_memory_line("a room without a vacuum", LIMIT) is None
    assert out_of_memory_line('  File "/oom/memory.py", line 3, in allocate', LIMIT) is None
    assert (
        out_of_memory_line('File "out of memory.py", line 3\nstd::bad_alloc', None)
        == "std::bad_alloc"
    )
    assert out_of_memory_line("/tmp/oom/x", None) is None


# What PyTorch, TensorFlow, JAX and MXNet say.
CERTAIN_ON_A_GPU = [
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY",
    "RESOURCE_EXHAUSTED: Failed to allocate request for 2.25GiB (2415919104B) on device ordinal 0",
]
PROBABLE_ON_A_GPU = [
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    "GET was unable to find an engine to execute this computation",
    "No algorithm worked!",
    "Failed to find any forward convolution algorithm. with workspace size of 1073741824 bytes",
    "FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above",
]


@pytest.mark.parametrize("message", CERTAIN_ON_A_GPU)
def test_missing_memory_of_a_gpu_is_recognized(message):
    reason = worker_memory.out_of_memory_reason(RuntimeError(message), None)
    assert reason.startswith("out of memory: RuntimeError was raised: ")


@pytest.mark.parametrize("message", PROBABLE_ON_A_GPU)
def test_message_with_other_causes_is_probably_missing_memory(message):
    reason = worker_memory.out_of_memory_reason(RuntimeError(f"first line\n{message}"), None)
    assert reason == f"out of memory, probably: RuntimeError was raised: {message}"
    reason = memory.out_of_memory_reason(Outcome(-6), f"first line\n{message}\nlast", None, 0)
    assert reason == f"out of memory, probably: it aborted: {message}"


def test_allocation_that_failed_without_harm_is_not_out_of_memory():
    line = (
        "ran out of memory trying to allocate 2GiB. The caller indicates that this is not a failure"
    )
    assert memory.out_of_memory_reason(Outcome(-6), line, None, 0) is None


def test_other_errors_of_a_gpu_are_not_out_of_memory():
    for message in (
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: no kernel image is available for execution on the device",
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
    ):
        assert worker_memory.out_of_memory_reason(RuntimeError(message), None) is None


def test_available_memory_respects_the_total_and_slurm(monkeypatch):
    free_bytes = memory.available_launch_bytes()
    assert 0 < free_bytes < memory.psutil.virtual_memory().total and free_bytes % 2**28 == 0
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "1024")
    assert memory.available_launch_bytes() == 3 * 2**28
    monkeypatch.delenv("SLURM_MEM_PER_NODE")
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "512")
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "2")
    assert memory.available_launch_bytes() == 3 * 2**28


def test_memory_limit_changes_only_its_own_cell(cell):
    settings = {"framework": ["torch"], "workload": ["lenet"], "batch_size": [4]}
    [(limited_cell, _)] = expand_matrices([build_matrix(**settings, memory_limit="2GB")])
    assert limited_cell.memory_limit == 2 * 10**9
    assert limited_cell.request(1).cell_digest_fields()["memory_limit"] == 2 * 10**9
    assert "memory_limit" not in cell().request(1).cell_digest_fields()
    with pytest.raises(UsageError, match=r"memory_limit: .*for example 1MB"):
        build_matrix(**settings, memory_limit="much")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.deep)
        for name in ("caffe", "jax", "mxnet", "tensorflow", "torch")
    ],
)
def test_every_framework_reports_out_of_memory(name, cell, tmp_path):
    described_adapter = adapter.load(name)
    try:
        prepared_environment = environment.ensure_environment(described_adapter)
    except UnavailableError as error:
        pytest.skip(str(error))
    session = Session(LaunchContext(Store(tmp_path), {name: prepared_environment}))
    kernel = described_adapter.default_kernel
    sizes = {"global_batch_size": 8192, "batch_size_per_rank": 8192, "memory_limit": LIMIT * 2}
    large_cell = cell(framework=name, environment="managed", kernel=kernel, warmup=0, **sizes)
    [record] = session.launch([large_cell.request(1)])
    assert memory.is_out_of_memory(record), (record.status, record.reason)
