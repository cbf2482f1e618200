"""Counters of links: bytes over the loopback, files as the kernel has them, a library like NVML."""

import shutil
import socket
import subprocess

import pytest

from xfbench.worker import links, nvml

MEGABYTE = 10**6
# Two devices, the second without NVLink. Each call for the second one adds to all counters.
NVML_SOURCE = """
typedef struct { unsigned f, s; long long t, l; int type, result; unsigned long long v; } field;
static unsigned long long reads;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned n, void **h) { *h = (void *)(unsigned long)n; return 0; }
int nvmlDeviceGetIndex(void *h, unsigned *n) { *n = (unsigned long)h; return 0; }
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


def send_over_loopback(byte_count):
    """So many bytes over the loopback."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as sender,
        server.accept()[0] as receiver,
    ):
        for _ in range(0, byte_count, 10_000):
            sender.sendall(bytes(10_000))
            remaining_bytes = 10_000
            while remaining_bytes:
                remaining_bytes -= len(receiver.recv(remaining_bytes))


def test_traffic_per_step_excludes_pauses():
    meter = links.LinkMeter("cpu")
    send_over_loopback(4 * MEGABYTE)
    meter.pause()
    send_over_loopback(40 * MEGABYTE)
    meter.resume()
    send_over_loopback(4 * MEGABYTE)
    links_by_name = {link["name"]: link for link in meter.report(10)["links"]}
    assert 0.8 * MEGABYTE <= links_by_name["lo"]["sent_bytes"] < 4 * MEGABYTE
    assert (
        links_by_name["lo"]["kind"] == "loopback" and links_by_name["lo"]["bits_per_second"] is None
    )
    assert links_by_name["lo"]["received_bytes"] >= 0.8 * MEGABYTE
    assert all(link["kind"] == "network" for name, link in links_by_name.items() if name != "lo")


def test_missing_nvidia_counters_are_explained():
    missing_reasons = links.read_counters_and_missing_reasons("cpu")[1]
    assert missing_reasons["nvlink"] == missing_reasons["pcie"] == "no rank used an NVIDIA device"
    counters, missing_reasons = links.read_counters_and_missing_reasons("cuda")
    assert not {kind for kind, _ in counters} & {"nvlink", "pcie"}
    assert missing_reasons["pcie"] == "NVML is missing or does not know the rank's device"


def test_infiniband_counters_count_4_byte_words(tmp_path):
    assert links._infiniband_counters_and_reasons(tmp_path)[1] == {
        "infiniband": "there is no InfiniBand port"
    }
    counters = tmp_path / "mlx5_0" / "ports" / "1" / "counters"
    counters.mkdir(parents=True)
    assert "cannot be read" in links._infiniband_counters_and_reasons(tmp_path)[1]["infiniband"]
    (counters / "port_xmit_data").write_text("1000\n")
    (counters / "port_rcv_data").write_text("500\n")
    (counters.parent / "rate").write_text("100 Gb/sec (4X EDR)\n")
    assert links._infiniband_counters_and_reasons(tmp_path) == (
        {("infiniband", "mlx5_0:1"): (4000, 2000)},
        {},
    )
    assert links._link_bits_per_second("infiniband", "mlx5_0:1", ports=tmp_path) == 1e11


@pytest.mark.parametrize(("file_text", "speed"), [("25000", 25e9), ("-1", None), ("", None)])
def test_interface_speed_comes_from_the_kernel(tmp_path, file_text, speed):
    (tmp_path / "eth0").mkdir()
    (tmp_path / "eth0" / "speed").write_text(file_text)
    assert links._link_bits_per_second("network", "eth0", folder=tmp_path) == speed
    assert links._link_bits_per_second("network", "eth1", folder=tmp_path) is None


@pytest.mark.parametrize("earlier", [(10**18, 0), (0, 10**18)], ids=["sent", "received"])
def test_reset_link_counter_is_omitted_and_reported(earlier):
    meter = links.LinkMeter("cpu")
    meter.before["loopback", "lo"] = earlier
    report = meter.report(1)
    assert "lo" not in [link["name"] for link in report["links"]]
    assert report["uncounted"]["loopback"] == "the counter of lo restarted"


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_only_the_links_of_the_ranks_device_are_counted(tmp_path, monkeypatch):
    source, library = tmp_path / "nvml.c", tmp_path / "libnvml.so"
    source.write_text(NVML_SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    first, second = (nvml.find_rank_device(rank, None, str(library)) for rank in (0, 1))
    assert links._nvidia_counters_and_reasons("cuda", first) == (
        {("nvlink", "0"): (5000 * 1024, 5000 * 1024), ("pcie", "0"): (5000, 5000)},
        {},
    )
    meter = links.LinkMeter("cuda", second)
    assert meter.uncounted["nvlink"] == "the device has no such counter"
    [link] = [link for link in meter.report(1)["links"] if link["kind"] in ("nvlink", "pcie")]
    assert (link["kind"], link["name"]) == ("pcie", "1")
    assert (link["sent_bytes"], link["received_bytes"]) == (1000, 1200)
