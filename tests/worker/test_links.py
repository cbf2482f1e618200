"""Counters of links: bytes over the loopback, files as the kernel has them, a library like NVML."""

import shutil
import socket
import subprocess

import pytest

from xfbench.worker import links

MEGABYTE = 10**6
# Two devices, the second without NVLink; what each call adds to a counter is what was moved.
NVML = """
typedef struct { unsigned f, s; long long t, l; int type, result; unsigned long long v; } field;
static unsigned long long reads;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned n, void **h) { *h = (void *)(unsigned long)n; return 0; }
int nvmlDeviceGetFieldValues(void *h, int n, field *all) {
  for (int i = 0; i < n; i++) {
    int link = all[i].f == 138 || all[i].f == 139;
    all[i].result = (link && (h || all[i].s != ~0u)) ? 3 : 0;
    all[i].v = 5000 + reads * (all[i].f == 138 ? 3 : all[i].f == 139 ? 4 : all[i].f == 197 ? 5 : 6);
  }
  reads += 100 * !!h;
  return 0;
}
"""


def send(count):
    """So many bytes over the loopback."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        for _ in range(0, count, 10_000):
            one.sendall(bytes(10_000))
            left = 10_000
            while left:
                left -= len(other.recv(left))


def test_traffic_per_step_excludes_pauses():
    meter = links.Meter("cpu")
    send(4 * MEGABYTE)
    meter.pause()
    send(40 * MEGABYTE)
    meter.resume()
    send(4 * MEGABYTE)
    told = {one["name"]: one for one in meter.report(10)["links"]}
    assert 0.8 * MEGABYTE <= told["lo"]["sent_bytes"] < 4 * MEGABYTE
    assert told["lo"]["kind"] == "loopback" and told["lo"]["bits_per_second"] is None
    assert told["lo"]["received_bytes"] >= 0.8 * MEGABYTE
    assert all(one["kind"] == "network" for name, one in told.items() if name != "lo")


def test_missing_nvidia_counters_are_explained():
    without = links.read_counters("cpu")[1]
    assert without["nvlink"] == without["pcie"] == "no rank used an NVIDIA device"
    found, without = links._read_nvidia("cuda", "libthere-is-none.so.1")
    assert found == {} and without["pcie"].startswith("libthere-is-none.so.1 finds no device")


def test_infiniband_counters_count_4_byte_words(tmp_path):
    assert links._read_infiniband(tmp_path)[1] == {"infiniband": "there is no port of it"}
    counters = tmp_path / "mlx5_0" / "ports" / "1" / "counters"
    counters.mkdir(parents=True)
    assert "cannot be read" in links._read_infiniband(tmp_path)[1]["infiniband"]
    (counters / "port_xmit_data").write_text("1000\n")
    (counters / "port_rcv_data").write_text("500\n")
    (counters.parent / "rate").write_text("100 Gb/sec (4X EDR)\n")
    assert links._read_infiniband(tmp_path) == ({("infiniband", "mlx5_0:1"): (4000, 2000)}, {})
    assert links._link_speed("infiniband", "mlx5_0:1", ports=tmp_path) == 1e11


@pytest.mark.parametrize(("said", "speed"), [("25000", 25e9), ("-1", None), ("", None)])
def test_interface_speed_comes_from_the_kernel(tmp_path, said, speed):
    (tmp_path / "eth0").mkdir()
    (tmp_path / "eth0" / "speed").write_text(said)
    assert links._link_speed("network", "eth0", folder=tmp_path) == speed
    assert links._link_speed("network", "eth1", folder=tmp_path) is None


@pytest.mark.parametrize("earlier", [(10**18, 0), (0, 10**18)], ids=["sent", "received"])
def test_reset_link_counter_is_omitted_and_reported(earlier):
    meter = links.Meter("cpu")
    meter.before["loopback", "lo"] = earlier
    told = meter.report(1)
    assert "lo" not in [one["name"] for one in told["links"]]
    assert told["uncounted"]["loopback"] == "the counter of lo began again"


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_nvml_link_counters_are_read_per_device(tmp_path):
    source, library = tmp_path / "nvml.c", tmp_path / "libnvml.so"
    source.write_text(NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    before, without = links._read_nvidia("cuda", str(library))
    after, _ = links._read_nvidia("cuda", str(library))
    assert set(before) == {("nvlink", "0"), ("pcie", "0"), ("pcie", "1")}
    assert without == {"nvlink": "device 1 has no such counter"}
    moved = {
        name: tuple(b - a for a, b in zip(before[name], after[name], strict=True))
        for name in before
    }
    assert before["nvlink", "0"] == (5000 * 1024, 5000 * 1024)
    out, into = moved["nvlink", "0"]
    assert out > 0 and 3 * into == 4 * out and out % 1024 == 0
    out, into = moved["pcie", "1"]
    assert out > 0 and 5 * into == 6 * out
