"""NVML readings reveal a GPU that is shared, busy, too hot or throttled."""

import hashlib
import os
import shutil
import subprocess

import pytest

from tests import fake_framework, nvml
from xfbench.execution import launch
from xfbench.host import conditions, doctor, machine, sites
from xfbench.model import gpus
from xfbench.model.gpus import Gpu

FREE = Gpu(
    name="a GPU",
    driver="555.55",
    clock_hz=1.41e9,
    most_clock_hz=1.41e9,
    temperature_celsius=61,
    power_limit_watts=400,
    memory_bytes=3 * 2**30,
    memory_of_bytes=40 * 2**30,
    busy_before=0.0,
    slowed_seconds={"power": 0.0, "thermal": 0.0},
    slowed_of_seconds=10.0,
)
SILENT = Gpu(
    **dict.fromkeys(Gpu.model_fields, None)
    | {"rank": 0, "slowed_by": (), "others": ()}
    | {"slowed_seconds": {}}
)
WALL_S = 10.0


@pytest.fixture(autouse=True)
def forget_simulated_gpus():
    yield
    machine.describe_machine.cache_clear()


@pytest.mark.parametrize("gpu", [FREE, SILENT], ids=["free", "silent"])
def test_free_or_silent_gpu_has_no_defect(gpu):
    assert gpus.invalid_reason([gpu], WALL_S) is None
    assert not list(gpus.noise_causes([gpu], WALL_S))


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"others": ("python3", "nvidia-cuda")}, "was shared with 2 other processes: wait"),
        ({"busy_before": 0.37}, "was busy for 37% of the time before the launch used it"),
        ({"slowed_seconds": {"thermal": 0.2}}, "slowed down (thermal; 0.2 s of 10.0 s, 61 °C)"),
        ({"slowed_by": ("hardware thermal slowdown",)}, "(hardware thermal slowdown; 0.0 s"),
        ({"slowed_by": ("power brake", "power cap")}, "(power brake; 0.0 s of 10.0 s"),
    ],
)
def test_shared_busy_or_throttled_gpu_is_a_defect(update, message):
    # Launches of earlier versions: the whole launch counts.
    earlier = [FREE.model_copy(update={"slowed_of_seconds": None, **update})]
    assert message in gpus.invalid_reason(earlier, WALL_S)
    rank_gpu = FREE.model_copy(update={"rank": 3, **update})
    reason = gpus.invalid_reason([FREE, rank_gpu], 10 * WALL_S)
    assert message in reason and reason.startswith("the GPU of rank 3")


@pytest.mark.parametrize(
    ("update", "line"),
    [
        (
            {"slowed_seconds": {"power": 1.5, "thermal": 0.0}},
            "power limit of 400 W held the clock of rank 0's GPU down for 1.5 s",
        ),
        (
            {"slowed_seconds": {"board limit": 1.5}},
            "board limit held the clock of rank 0's GPU down for 1.5 s",
        ),
        (
            {"slowed_by": ("application clocks",), "clock_hz": 1.095e9},
            "the clock of rank 0's GPU is set to 1095 MHz of 1410",
        ),
    ],
)
def test_power_and_clock_limits_are_noise_not_a_defect(update, line):
    gpu = FREE.model_copy(update=update)
    assert gpus.invalid_reason([gpu], WALL_S) is None
    assert list(gpus.noise_causes([gpu], WALL_S)) == [line]


@pytest.fixture
def launch_with_gpu(launch_fake, tmp_path, monkeypatch):
    """Return a function that launches on a simulated GPU and returns the record.

    `write` writes the state of the GPU to a file that a fake NVML reads. The driver sees a device
    that does not exist.
    """
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    file = tmp_path / "values"
    variables = {"LD_LIBRARY_PATH": str(tmp_path), "NVML_VALUES": str(file)}
    adapter = {"devices": ["cpu", "cuda"], "variables": variables}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine, "list_accelerator_models", lambda: ["a GPU"])

    def launch_on_cuda(write, *options, **settings):
        nvml.build(tmp_path, *options)
        write(file)
        return launch_fake(device="cuda", adapter=adapter, **settings)[0]

    return launch_on_cuda


def test_record_contains_the_gpu_state_of_the_launch(launch_with_gpu):
    record = launch_with_gpu(lambda file: nvml.write_device(file, energy__4=5_250_000))
    assert record.status == "ok", record.reason
    assert record.measurement.energy_joules == 250.0
    [gpu] = record.observed.gpus
    assert gpu.slowed_of_seconds == record.measurement.energy_seconds > 0
    assert gpu.uuid_hash and "GPU-1" not in gpu.uuid_hash
    assert gpu.model_copy(update={"uuid_hash": None, "slowed_of_seconds": 10.0}) == FREE


# What a driver of 2014 exports, and no more.
OLD_NVML = """
#include <string.h>
int nvmlInit(void) { return 0; }
int nvmlDeviceGetCount(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex(unsigned number, void **device) { *device = (void *)7; return 0; }
int nvmlDeviceGetName(void *device, char *name, unsigned size) { strcpy(name, "K20"); return 0; }
"""


@pytest.mark.case("Driver of 2016")
@pytest.mark.parametrize("suffix", ["", "_v2"])
def test_functions_that_an_old_driver_lacks_are_unknown_values(launch_with_gpu, tmp_path, suffix):
    def build_old_library(file):
        source = OLD_NVML
        for name in ("Init", "DeviceGetCount", "DeviceGetHandleByIndex"):
            source = source.replace(f"nvml{name}(", f"nvml{name}{suffix}(")
        (tmp_path / "old.c").write_text(source)
        library = tmp_path / "libnvidia-ml.so.1"
        command = ["cc", "-shared", "-fPIC", "-w", "-o", library, tmp_path / "old.c"]
        subprocess.run(command, check=True)

    record = launch_with_gpu(build_old_library)
    assert record.status == "ok", record.reason
    assert record.measurement.energy_joules is None
    [gpu] = record.observed.gpus
    assert (gpu.name, gpu.driver, gpu.clock_hz, gpu.memory_bytes) == ("K20", None, None, None)


def test_library_without_any_function_of_nvml_is_no_nvml(launch_with_gpu, tmp_path):
    def build_stub(file):
        (tmp_path / "stub.c").write_text("int stub;")
        library = tmp_path / "libnvidia-ml.so.1"
        subprocess.run(["cc", "-shared", "-o", library, tmp_path / "stub.c"], check=True)

    record = launch_with_gpu(build_stub)
    assert record.status == "ok", record.reason
    assert record.observed.gpus == () and record.measurement.energy_joules is None


@pytest.mark.parametrize(
    ("visible", "site", "status"),
    [
        ("GPU-1,GPU-2", "", "ok"),
        ("GPU-1,nothing,GPU-2", "", "unavailable"),  # CUDA ignores what follows a wrong name
        ("GPU-1", "", "unavailable"),
        ("GPU-1", "share_gpus = true", "ok"),
    ],
)
def test_ranks_need_a_gpu_each_unless_the_site_lets_them_share(
    launch_fake, tmp_path, monkeypatch, visible, site, status
):
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    nvml.build(tmp_path)
    nvml.write_device(tmp_path / "values", count=2)
    variables = {
        "LD_LIBRARY_PATH": str(tmp_path),
        "NVML_VALUES": str(tmp_path / "values"),
        "CUDA_VISIBLE_DEVICES": visible,
    }
    adapter = {"devices": ["cpu", "cuda"], "variables": variables}
    file = tmp_path / "mine.toml"
    file.write_text(f'title = "mine"\n{site}\n')
    monkeypatch.setattr(machine, "list_accelerator_models", lambda: ["a GPU", "a GPU"])
    name = sites.register_file(str(file))
    record, _ = launch_fake(device="cuda", adapter=adapter, site=name, **fake_framework.TWO_RANKS)
    assert record.status == status, record.reason
    if status == "unavailable":
        assert "another rank of this node uses the same GPU: start at most 1" in record.reason


# As with `srun --gpus-per-task`. A process of the launcher would set it before the worker starts.
OWN_GPU = """
os.environ["CUDA_VISIBLE_DEVICES"] = {"0": "GPU-4", "1": "1"}[os.environ["XFBENCH_RANK"]]
"""


def test_each_rank_uses_the_only_gpu_that_its_launcher_shows_it(launch_fake, tmp_path, monkeypatch):
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    nvml.build(tmp_path)
    nvml.write_device(tmp_path / "values", count=4)
    variables = {"LD_LIBRARY_PATH": str(tmp_path), "NVML_VALUES": str(tmp_path / "values")}
    adapter = {"devices": ["cpu", "cuda"], "variables": variables}
    monkeypatch.setattr(machine, "list_accelerator_models", lambda: ["a GPU"] * 4)
    record, _ = launch_fake(OWN_GPU, device="cuda", adapter=adapter, **fake_framework.TWO_RANKS)
    assert record.status == "ok", record.reason
    assert [(gpu.rank, gpu.uuid_hash) for gpu in record.observed.gpus] == [
        (rank, hashlib.sha256(uuid).hexdigest()[:16])
        for rank, uuid in enumerate((b"GPU-4", b"GPU-2"))
    ]


@pytest.mark.parametrize("visible", ["NoDevFiles", "-1", "", "-1,0,1"])
def test_a_list_without_devices_shows_none(launch_fake, monkeypatch, visible):
    monkeypatch.setattr(machine, "list_accelerator_models", lambda: ["a GPU", "a GPU"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    record, folder = launch_fake(device="cuda", adapter={"devices": ["cpu", "cuda"]})
    assert (record.status, folder.exists()) == ("unavailable", False)
    assert record.reason == "no NVIDIA device was found here"


def test_more_ranks_than_gpus_are_refused_before_the_launch(launch_fake, monkeypatch):
    monkeypatch.setattr(machine, "list_accelerator_models", lambda: ["a GPU", "a GPU"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    adapter = {"devices": ["cpu", "cuda"]}
    record, folder = launch_fake(device="cuda", adapter=adapter, **fake_framework.TWO_RANKS)
    assert (record.status, folder.exists()) == ("unavailable", False)
    assert record.reason.startswith("2 ranks on a node need 2 GPUs, but it has 1")


@pytest.mark.parametrize(("nodes", "is_refused"), [(1, True), (2, False)])
def test_more_ranks_than_the_gpus_of_a_node_are_not_submitted(tmp_path, nodes, is_refused):
    file = tmp_path / "mine.toml"
    file.write_text('title = "mine"\nlauncher = "slurm"\ngpus = 4\n')
    cell = fake_framework.cell(
        framework="torch",
        kernel="cudnn",
        device="cuda",
        launcher="slurm",
        site=sites.register_file(str(file)),
        **{**fake_framework.TWO_RANKS, "strategy": "ddp", "ranks": 8, "global_batch_size": 32},
        nodes=nodes,
    )
    obstacle = launch.launch_obstacle(cell.request(1))
    assert (obstacle is not None) == is_refused
    assert not is_refused or "8 ranks on a node need 8 GPUs, but it has 4" in obstacle[1]


NVIDIA_SMI_SCRIPT = """#!/bin/sh
case "$1 $*" in
--query-gpu=*) printf 'a GPU\\na GPU\\n' ;;
*--id=0) ;;
*) echo /usr/bin/other ;;
esac
"""


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Install a fake `nvidia-smi` that lists two devices; a process computes on the second."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(NVIDIA_SMI_SCRIPT)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


MODELS = [
    *("NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB", "GRID V100D-8Q", "NVIDIA H100 80GB HBM3"),
    *("NVIDIA GeForce GTX 1080 with Max-Q Design", "Quadro RTX 6000", "Orin (nvgpu)", "a GPU"),
    *("NVIDIA RTX 6000 Ada Generation", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA TITAN Xp"),
]
MESSAGES = [
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
    "Failed to initialize NVML: Driver/library version mismatch",
    "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.",
    "WARNING: infoROM is corrupted at gpu 0000:04:00.0",
    *("[Unknown Error]", "[N/A]", "name", "ERROR: 7", "GPU access blocked by the operating system"),
]


@pytest.fixture
def print_from_nvidia_smi(tmp_path, monkeypatch):
    """Return a function that makes a fake `nvidia-smi` print lines, with exit status 0."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    caches = machine.list_accelerator_models, machine.list_accelerator_messages

    def print_lines(*lines, status=0):
        text = "".join(f"{line}\n" for line in lines)
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {status}\n")
        program.chmod(0o755)
        for each in caches:
            each.cache_clear()

    yield print_lines
    for each in caches:
        each.cache_clear()


def test_sentences_of_nvidia_smi_are_reported_and_are_no_models(print_from_nvidia_smi):
    print_from_nvidia_smi(MESSAGES[0], *MODELS, "No devices were found", *MESSAGES[1:])
    assert machine.list_accelerator_models() == MODELS
    assert machine.list_accelerator_messages() == MESSAGES
    print_from_nvidia_smi(MODELS[0], MESSAGES[1])
    findings = doctor._check_accelerators()
    assert [finding.check for finding in findings] == ["nvidia-smi", "gpu"]
    assert MESSAGES[1] in findings[0].detail


@pytest.mark.parametrize(
    ("status", "models"), [(8, MODELS[:1]), (14, MODELS[:1]), (15, MODELS[:1]), (6, []), (9, [])]
)
def test_models_are_known_if_nvidia_smi_fails_for_another_device(
    print_from_nvidia_smi, status, models
):
    print_from_nvidia_smi(MODELS[0], MESSAGES[3], status=status)
    assert machine.list_accelerator_models() == models
    assert machine.list_accelerator_messages() == [MESSAGES[3]] * len(models)


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (18, "Failed to initialize NVML: Driver/library version mismatch"),
        (4, "Failed to initialize NVML: Insufficient Permissions"),
        (255, "Unknown Error"),
    ],
)
def test_what_keeps_nvidia_smi_from_the_devices_is_said(
    print_from_nvidia_smi, launch_fake, status, line
):
    print_from_nvidia_smi(line, status=status)
    assert machine.list_accelerator_models() == []
    [finding] = doctor._check_accelerators()
    assert finding.state == "warn" and line in finding.detail
    record, _ = launch_fake(device="cuda", adapter={"devices": ["cpu", "cuda"]})
    assert record.reason == f"no NVIDIA device was found here: {line}"


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (["No running processes found"], []),
        (["No devices were found", "[Not Supported]"], []),
        (
            ["/opt/my python/bin/python", "[Insufficient Permissions]", "train"],
            ["python", "[Insufficient Permissions]", "train"],
        ),
    ],
)
def test_sentences_of_nvidia_smi_are_no_processes(print_from_nvidia_smi, monkeypatch, lines, names):
    print_from_nvidia_smi(*lines)
    monkeypatch.setattr(machine, "list_accelerator_models", lambda: ["a GPU"])
    assert machine.list_accelerator_processes() == names


def test_pinned_rank_is_near_its_gpu(launch_with_gpu):
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2 or allowed[-1] > 63:
        pytest.skip("needs two CPUs, and their bits in one word")
    record = launch_with_gpu(
        lambda file: nvml.write_device(file, cpus_0=1 << allowed[-1]), affinity="cores", threads=1
    )
    assert record.status == "ok", record.reason
    assert record.observed.laid_out == record.observed.affinity == (allowed[-1],)


def test_process_on_another_gpu_is_noise_not_a_defect(launch_with_gpu, nvidia_smi):
    record = launch_with_gpu(nvml.write_device)
    assert record.status == "ok", record.reason
    assert (
        conditions.list_record_disturbances(record)[-1]
        == "another process computed on a GPU of this node"
    )


def test_gpus_hidden_by_cuda_visible_devices_are_ignored(nvidia_smi, monkeypatch):
    # Call the function without its cache.
    monkeypatch.setattr(
        machine, "list_accelerator_models", machine.list_accelerator_models.__wrapped__
    )
    assert machine.list_accelerator_models() == ["a GPU", "a GPU"]
    assert machine.list_accelerator_processes() == ["other"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert machine.list_accelerator_processes() == []


def test_throttling_is_counted_in_the_timed_steps_alone(launch_with_gpu):
    # The counter is read twice when training begins, when timed steps begin, and when they end.
    record = launch_with_gpu(lambda file: nvml.write_device(file, held_1__3=10**12))
    assert record.status == "ok", record.reason
    assert record.observed.gpus[0].slowed_seconds["thermal"] == 0.0
    record = launch_with_gpu(lambda file: nvml.write_device(file, held_1__4=10**12))
    assert record.status == "invalid" and "slowed down (thermal; 1000.0 s" in record.reason


OLD_DRIVER = "-DDRIVER_440"
SHARED = {"processes": "1", "processes__2": "1,self"}


@pytest.mark.parametrize(
    ("recording", "values", "options", "message"),
    [
        ("k40-of-a-driver-that-just-started", {"busy__2": 0}, [OLD_DRIVER], None),
        ("k20-of-a-driver-that-just-started", {"busy__3": 0}, [OLD_DRIVER], None),
        ("rtx3090-at-rest", {}, [], None),
        ("a5000-full-of-data", {}, [], None),
        ("part-of-a-p4", {}, [], None),
        ("v100-of-two-processes", SHARED | {"busy": 0}, [OLD_DRIVER], "was shared with"),
        ("v100-of-two-processes", {}, [OLD_DRIVER], "was busy for 99% of the time before"),
        ("a100-that-works", {}, [], "was busy for 91% of the time before"),
        ("v100-under-the-power-brake", {}, [], "slowed down (power brake; 0.0 s"),
        ("laptop-that-heat-holds-down", {"busy": 0}, [], "slowed down (software thermal slowdown;"),
    ],
)
def test_recorded_gpu_states_are_classified_correctly(
    launch_with_gpu, recording, values, options, message
):
    """`values` replaces readings that are missing or that differ before a launch."""
    record = launch_with_gpu(lambda file: nvml.replay(file, recording, **values), *options)
    assert record.status == ("invalid" if message else "ok"), record.reason
    assert message is None or message in record.reason
    [gpu] = record.observed.gpus
    assert gpu.name == nvml.RECORDINGS[recording]["name"]


def test_recorded_gpu_values_are_converted_to_si_units(launch_with_gpu):
    [gpu] = launch_with_gpu(lambda file: nvml.replay(file, "rtx3090-at-rest")).observed.gpus
    assert gpu.model_copy(update={"slowed_of_seconds": None}) == Gpu(
        name="NVIDIA GeForce RTX 3090",
        driver="590.44.01",
        clock_hz=210e6,
        most_clock_hz=2100e6,
        temperature_celsius=32,
        power_limit_watts=350,
        memory_bytes=7 * 2**20,
        memory_of_bytes=24_576 * 2**20,
        busy_before=0.0,
        slowed_by=("power cap",),
        slowed_seconds={"power": 0.0, "thermal": 0.0},
        others=None,
    )


def test_reduced_application_clock_is_reported(launch_with_gpu):
    record = launch_with_gpu(
        lambda file: nvml.replay(file, "k40-of-a-driver-that-just-started", busy=0)
    )
    disturbance = "the clock of rank 0's GPU is set to 745 MHz of 875"
    assert disturbance in conditions.list_record_disturbances(record)


def test_virtual_gpu_may_report_no_clock(launch_with_gpu):
    [gpu] = launch_with_gpu(lambda file: nvml.replay(file, "part-of-a-p4")).observed.gpus
    assert (gpu.clock_hz, gpu.most_clock_hz, gpu.temperature_celsius) == (None, None, None)
