"""A GPU that is shared, busy, too hot or held down is found out, by what NVML told of it."""

import shutil

import pytest

from tests import nvml, side_by_side
from xfbench.host import machine
from xfbench.records import gpus
from xfbench.records.gpus import Gpu
from xfbench.results.store import Store
from xfbench.running import runner

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
)
SILENT = Gpu(
    **dict.fromkeys(Gpu.model_fields, None)
    | {"rank": 0, "slowed_by": (), "others": ()}
    | {"slowed_seconds": {}}
)
WALL = 10.0


@pytest.mark.parametrize("one", [FREE, SILENT], ids=["free", "tells nothing"])
def test_what_is_free_or_tells_nothing_counts(one):
    assert gpus.defect([one], WALL) is None
    assert not list(gpus.disturbances([one], WALL))


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ({"others": ("python3", "nvidia-cuda")}, "was shared with python3, nvidia-cuda: wait"),
        ({"busy_before": 0.37}, "was busy for 37% of the time before the launch was on it"),
        ({"slowed_seconds": {"thermal": 0.2}}, "slowed down (thermal; 0.2 s of 10.0 s, 61 °C)"),
        ({"slowed_by": ("hardware thermal slowdown",)}, "(hardware thermal slowdown; 0.0 s"),
        ({"slowed_by": ("power brake", "power cap")}, "(power brake; 0.0 s of 10.0 s"),
    ],
)
def test_what_is_not_the_devices_own_speed_does_not_count(update, words):
    of_rank = FREE.model_copy(update={"rank": 3, **update})
    said = gpus.defect([FREE, of_rank], WALL)
    assert words in said and said.startswith("the GPU of rank 3")


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
def test_how_a_site_runs_its_devices_is_told_and_counts(update, line):
    one = FREE.model_copy(update=update)
    assert gpus.defect([one], WALL) is None
    assert list(gpus.disturbances([one], WALL)) == [line]


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
@pytest.mark.parametrize(
    ("values", "status", "words"),
    [
        ({"energy__2": 5_250_000}, "ok", None),
        ({"busy": 80}, "invalid", "was busy for 80%"),
        ({"reasons": 0x41, "temperature": 92}, "invalid", "(hardware thermal slowdown"),
        ({"held_1__2": 10**12}, "invalid", "slowed down (thermal; 1000.0 s"),
        ({"processes": "1"}, "invalid", "was shared with"),
    ],
)
def test_a_launch_has_its_device_on_the_record(
    own_adapter, cell, tmp_path, monkeypatch, values, status, words
):
    """The driver is told of a device that is not there, and the worker of its state, by NVML."""
    file = tmp_path / "values"
    variables = f'{{ LD_LIBRARY_PATH = "{tmp_path}", NVML_VALUES = "{file}" }}'
    own_adapter("odd", side_by_side.TRAINER, variables=variables)
    described = tmp_path / "adapters" / "odd" / "adapter.toml"
    described.write_text(described.read_text().replace('["cpu"]', '["cpu", "cuda"]'))
    nvml.build(tmp_path)
    nvml.tell(file, **values)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine, "accelerators", lambda: ["a GPU"])
    session = runner.Session(Store(tmp_path / "results"))
    session.prepare(["odd"], {}, print)
    [record] = runner.run(
        [cell(framework="odd", kernel="plain", device="cuda").request(1)], session
    )
    assert record.status == status, record.reason
    if words:
        assert words in record.reason
    [seen] = record.observed.gpus
    assert seen.name == "a GPU" and seen.clock_hz == 1.41e9
    if status == "ok":
        assert record.measurement.energy_joules == 250.0
        assert seen == FREE.model_copy(update={"slowed_seconds": {"power": 0.0, "thermal": 0.0}})
