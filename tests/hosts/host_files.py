"""The files of a described host: written to a folder, by the paths of the system they replace."""

import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent / "described"
DESCRIPTIONS = {
    path.stem: tomllib.loads(path.read_text()) for path in sorted(FOLDER.glob("*.toml"))
}


def parse_cpus(text):
    """Return the numbers in a list such as "0-3,8,10-30:2", whose last part has a stride."""
    cpus = []
    for part in filter(None, text.split(",")):
        bounds, _, stride = part.partition(":")
        first, _, last = bounds.partition("-")
        cpus += range(int(first), int(last or first) + 1, int(stride or 1))
    return cpus


def write_text(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_host(folder, host):
    """Write the files of `host`; return them by the paths that they replace.

    - `sockets`: by number of the socket, its CPUs. `nodes`: by number of the NUMA node, its CPUs.
    - `siblings`: "stride N" if hardware threads are N apart, "blocks N" if N follow each other.
    - `cpuinfo`, `cgroup`, `mountinfo`: contents of these files in /proc.
    - `groups`: contents of files below /sys/fs/cgroup. `nvidia_smi`: what the program prints.
    """
    cpus = folder / "cpu"
    cpus.mkdir(parents=True)
    online = sorted(cpu for text in host["sockets"].values() for cpu in parse_cpus(text))
    for name in ("online", "possible", "present"):
        write_text(cpus / name, ",".join(map(str, online)) + "\n")
    for socket, text in host["sockets"].items():
        for cpu in parse_cpus(text):
            topology = cpus / f"cpu{cpu}" / "topology"
            write_text(topology / "physical_package_id", f"{socket}\n")
            write_text(topology / "thread_siblings_list", list_siblings(host, cpu, online) + "\n")
    nodes = folder / "node"
    nodes.mkdir()
    for node, text in host.get("nodes", {}).items():
        cpu_list = ",".join(map(str, parse_cpus(text))) if ":" in text else text
        write_text(nodes / f"node{node}" / "cpulist", f"{cpu_list}\n")
        for cpu in parse_cpus(text):
            (cpus / f"cpu{cpu}" / f"node{node}").mkdir()
    groups = folder / "cgroup"
    groups.mkdir()
    for name, text in host.get("groups", {}).items():
        write_text(groups / name, text + "\n")
    for name in ("cpuinfo", "mountinfo"):
        write_text(folder / name, host.get(name, ""))
    write_text(folder / "own_groups", host.get("cgroup", "0::/\n"))
    program = folder / "bin" / "nvidia-smi"
    write_text(program.with_name("output"), host.get("nvidia_smi", ""))
    status = host.get("nvidia_smi_status", 0 if "nvidia_smi" in host else 9)
    is_list = '[ "${1#--query-gpu}" = "$1" ]'
    write_text(program, f'#!/bin/sh\n{is_list} && exit\ncat "${{0%/*}}/output"; exit {status}\n')
    program.chmod(0o755)
    return {
        "/proc/cpuinfo": str(folder / "cpuinfo"),
        "/sys/devices/system/cpu": str(cpus),
        "/sys/devices/system/node": str(nodes),
        "/sys/fs/cgroup": str(groups),
        "/proc/self/cgroup": str(folder / "own_groups"),
        "/proc/self/mountinfo": str(folder / "mountinfo"),
    }


def list_siblings(host, cpu, online):
    """Return the hardware threads of the core of a CPU, as the kernel lists them."""
    kind, number = host.get("siblings", "blocks 1").split(" ")
    size = int(number)
    if kind == "stride":
        return ",".join(str(each) for each in online if each % size == cpu % size)
    first = cpu - cpu % size
    return f"{first}-{first + size - 1}" if size > 1 else str(cpu)
