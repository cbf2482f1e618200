"""The bandwidth of links: on this host, on described hosts, and on GPUs of a fake NVML."""

import importlib
import json
import os
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

import pytest

from tests import nvml as stub
from xfbench.base import processes
from xfbench.execution import link_bandwidth
from xfbench.execution.link_bandwidth import Node
from xfbench.worker import nvml

NODES = (Node(0, (0, 1), 0), Node(1, (2, 3), 1), Node(2, (), None))  # the last has only memory


@pytest.fixture
def describe_host(tmp_path):
    """A function that writes the system's files of a host, and returns the two folders.

    Each CPU is (socket, core, node). The further nodes have memory and no CPU.
    """

    def write(cpus, memory_nodes):
        cpu_folder, node_folder = tmp_path / "cpu", tmp_path / "node"
        for number, (socket, core, node) in enumerate(cpus):
            topology = cpu_folder / f"cpu{number}" / "topology"
            topology.mkdir(parents=True)
            (topology / "physical_package_id").write_text(f"{socket}\n")
            siblings = [each for each, (s, c, _) in enumerate(cpus) if (s, c) == (socket, core)]
            (topology / "thread_siblings_list").write_text(",".join(map(str, siblings)) + "\n")
            (cpu_folder / f"cpu{number}" / f"node{node}").mkdir()
        for node in memory_nodes:
            (node_folder / f"node{node}").mkdir(parents=True)
            on_node = [str(number) for number, cpu in enumerate(cpus) if cpu[2] == node]
            (node_folder / f"node{node}" / "cpulist").write_text(",".join(on_node) + "\n")
        (node_folder / "has_memory").write_text(",".join(map(str, memory_nodes)) + "\n")
        return cpu_folder, node_folder

    return write


def test_nodes_have_one_cpu_of_each_core_and_their_socket(describe_host):
    """Two sockets with two cores of two hardware threads each, and a node of fast memory."""
    cpus = [(number % 4 // 2, number % 2, number % 4 // 2) for number in range(8)]
    folders = describe_host(cpus, [0, 1, 10])
    nodes = link_bandwidth.list_nodes(set(range(8)), *folders)
    assert nodes == [Node(0, (0, 1), 0), Node(1, (2, 3), 1), Node(10, (), None)]
    assert nodes[1].name == "memory of node 1 (socket 1)"
    [first, *_] = link_bandwidth.list_nodes({5}, *folders)
    assert first == Node(0, (5,), 0)


def test_host_without_numbered_nodes_is_one_node(tmp_path):
    [node] = link_bandwidth.list_nodes({0, 1}, tmp_path / "cpu", tmp_path / "node")
    assert node == Node(None, (0, 1), None) and node.name == "memory"


def fake_copies(monkeypatch, reply_to):
    """Answer each copy by `reply_to`, which gets its job; return the list of jobs."""
    jobs = []

    def output(command, **_):
        jobs.append(json.loads(command[-1]))
        return json.dumps(reply_to(jobs[-1]))

    monkeypatch.setattr(processes, "output", output)
    return jobs


def test_memory_is_copied_by_the_cpus_of_the_target(monkeypatch):
    def reply(job):
        speed = 50e9 if job["source"] == job["target"] else 20e9
        return {"seconds": [job["size_bytes"] / speed] * 6, "shares": [1.0, None]}

    jobs = fake_copies(monkeypatch, reply)
    speeds = link_bandwidth.measure_memory(NODES)
    pairs = [(job["source"], job["target"], job["cpus"]) for job in jobs]
    assert pairs == [
        *((source, 0, [0, 1]) for source in (0, 1, 2)),
        *((source, 1, [2, 3]) for source in (0, 1, 2)),
    ]
    figures = [round(speed.bytes_per_second.value / 1e9) for speed in speeds]
    assert figures == [50, 20, 20, 20, 50, 20]
    links = [speed.link for speed in speeds[:3]]
    assert links == ["within the node", "between sockets", ""]
    assert speeds[1].bytes_per_second.confidence == 0.95


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"seconds": [1.0] * 6, "shares": [0.5, 1.0]}, "only 50% of the copy was in the memory"),
        (processes.CommandError("it died"), "it died"),
    ],
)
def test_failed_copy_has_a_reason_and_no_figure(monkeypatch, reply, reason):
    def answer(job):
        if isinstance(reply, Exception):
            raise reply
        return reply

    fake_copies(monkeypatch, answer)
    [speed] = link_bandwidth.measure_memory(NODES[:1])
    assert speed.bytes_per_second is None and reason in speed.reason
    lines = link_bandwidth.format_lines([speed], [])
    assert any(
        line.startswith("memory of node 0 (socket 0) to") and reason in line for line in lines
    )


def test_memory_of_this_host_is_measured(monkeypatch):
    monkeypatch.setattr(link_bandwidth, "_MAX_COPY_BYTES", 2**24)
    [node, *_] = link_bandwidth.list_nodes(os.sched_getaffinity(0))
    [speed] = link_bandwidth.measure_memory([node])
    assert speed.reason is None and speed.link == "within the node"
    assert speed.bytes_per_second.launches == 6 and speed.bytes_per_second.value > 0


@pytest.mark.parametrize(
    ("nodes", "note"),
    [
        (NODES[:1], "This host has one NUMA node and no NVIDIA GPU: there is nothing between"),
        (NODES, "This host has no NVIDIA GPU."),
    ],
)
def test_host_without_links_says_so(monkeypatch, nodes, note):
    fake_copies(monkeypatch, lambda job: {"seconds": [1.0] * 6, "shares": [None, None]})
    monkeypatch.setattr(link_bandwidth, "list_nodes", lambda _: nodes)
    monkeypatch.setattr(nvml, "list_visible_devices", lambda: None)
    speeds, notes = link_bandwidth.measure_links()
    assert [each.startswith(note) for each in notes] == [True]
    assert len(speeds) == (1 if len(nodes) == 1 else 6)


SUMMITDEV = {
    **{"count": 4, "name": "Tesla P100-SXM2-16GB", "pcie_generation": 3, "pcie_lanes": 16},
    **{"nvlinks_0": "1,1,cpu,cpu", "nvlinks_1": "0,0,cpu,cpu"},
    **{"nvlinks_2": "3,3,cpu,cpu", "nvlinks_3": "2,2,cpu,cpu"},
}


@pytest.fixture
def measure_fake_gpus(tmp_path, monkeypatch):
    """A function that measures GPUs that NVML describes so, and whose copies have these speeds.

    A speed is in GB/s, by (source, target).
    """
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    library = str(stub.build(tmp_path))
    monkeypatch.setenv("NVML_VALUES", str(tmp_path / "values"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for function in (nvml.list_node_devices, nvml.list_visible_devices):
        monkeypatch.setattr(function, "__defaults__", (library,))
    monkeypatch.setattr(nvml.find_rank_device, "__defaults__", (None, library))
    framework = SimpleNamespace(interpreter=Path("python"), variables=lambda *_: {})
    monkeypatch.setattr(link_bandwidth.environment, "find_environment", lambda _: framework)

    def measure(device, speeds):
        stub.write_device(tmp_path / "values", **device)

        def reply(job):
            copies = [
                {
                    "source": source,
                    "target": target,
                    "seconds": [job["size_bytes"] / rate / 1e9] * 6,
                }
                for (source, target), rate in speeds.items()
            ]
            gpus = [{"uuid": str(number + 1)} for number in range(device["count"])]
            return {"gpus": gpus, "copies": copies}

        fake_copies(monkeypatch, reply)
        monkeypatch.setattr(link_bandwidth, "list_nodes", lambda _: [])
        speeds, notes = link_bandwidth.measure_links()
        return speeds, " ".join(notes)

    yield measure
    nvml.load_library.cache_clear()


def test_nvlinks_to_cpus_and_gpus_have_their_peak(measure_fake_gpus):
    """The figures that were published for Summitdev."""
    speeds = {(None, 0): 31.77, (0, 1): 35.12, (0, 2): 21.47}
    (to_gpu, direct, indirect), note = measure_fake_gpus(SUMMITDEV, speeds)
    assert note == ""
    assert (to_gpu.kind, to_gpu.source, to_gpu.target) == ("cpu-gpu", "CPU memory", "GPU 0")
    assert to_gpu.link == direct.link == "2 NVLinks"
    assert to_gpu.peak_bytes_per_second == direct.peak_bytes_per_second == 40e9
    assert to_gpu.share_of_peak == pytest.approx(0.79, abs=0.005)
    assert direct.is_direct and direct.share_of_peak == pytest.approx(0.878, abs=0.005)
    assert (indirect.link, indirect.is_direct) == ("indirect", False)
    assert indirect.share_of_peak is None
    text = "\n".join(link_bandwidth.format_lines([to_gpu, direct, indirect], []))
    assert "31.8 (31.8 – 31.8)" in text and "79%" in text
    document = link_bandwidth.build_document([to_gpu], ["a note"])
    assert json.loads(json.dumps(document))["links"][0]["share_of_peak"] == to_gpu.share_of_peak


def test_pcie_and_nvswitch_have_their_peak(measure_fake_gpus):
    device = {"count": 2, "name": "NVIDIA H100 80GB HBM3", "pcie_generation": 5, "pcie_lanes": 16}
    switched = {f"nvlinks_{gpu}": ",".join(["switch"] * 18) for gpu in range(2)}
    (to_cpu, between), _ = measure_fake_gpus(device | switched, {(1, None): 50, (0, 1): 360})
    assert (to_cpu.source, to_cpu.target, to_cpu.link) == ("GPU 1", "CPU memory", "PCIe 5.0 ×16")
    assert to_cpu.peak_bytes_per_second == pytest.approx(63e9, rel=1e-3)
    assert between.is_direct and between.link == "18 NVLinks to a switch"
    assert between.share_of_peak == pytest.approx(360 / 450)


def test_unknown_gpu_has_no_peak(measure_fake_gpus):
    [speed], _ = measure_fake_gpus({"count": 1}, {(None, 0): 10})
    assert (speed.link, speed.peak_bytes_per_second, speed.share_of_peak) == ("", None, None)


def test_gpus_without_pytorch_are_not_measured(measure_fake_gpus, monkeypatch):
    monkeypatch.setattr(link_bandwidth.environment, "find_environment", lambda _: None)
    speeds, note = measure_fake_gpus({"count": 1}, {})
    assert speeds == [] and "xfbench env create torch" in note


def test_gpu_copies_use_pinned_memory_and_events(monkeypatch):
    """A fake PyTorch, because there may be no GPU: a copy to the CPU takes 2 ms, others 1 ms."""
    copied = []

    class Tensor:
        def __init__(self, place):
            self.place = place

        def pin_memory(self):
            return Tensor("pinned")

        def copy_(self, source, non_blocking):
            assert non_blocking
            copied.append((source.place, self.place))

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.done = len(copied)

        def synchronize(self):
            pass

        def elapsed_time(self, end):
            assert end.done == self.done + 1
            return 2.0 if copied[-1][1] == "pinned" else 1.0

    fake = ModuleType("torch")
    fake.uint8, fake.Tensor = "uint8", Tensor
    fake.ones = lambda size, dtype, device="cpu": Tensor(device)
    fake.cuda = SimpleNamespace(
        device_count=lambda: 2,
        device=lambda _: nullcontext(),
        get_device_properties=lambda gpu: SimpleNamespace(uuid=f"uuid {gpu}"),
        Event=Event,
    )
    with mock.patch.dict(sys.modules, {"torch": fake}):
        reply = importlib.import_module("xfbench.adapters.torch.copies").measure_copies(100, 3)
    assert reply["gpus"] == [{"uuid": "uuid 0"}, {"uuid": "uuid 1"}]
    pairs = [(copy["source"], copy["target"]) for copy in reply["copies"]]
    assert pairs == [(None, 0), (None, 1), (0, None), (0, 1), (1, None), (1, 0)]
    assert reply["copies"][0]["seconds"] == [0.001] * 3
    assert reply["copies"][2]["seconds"] == [0.002] * 3
    assert copied.count(("pinned", "cuda:0")) == 4
