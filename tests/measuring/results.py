"""How long a results folder of a million records takes to index, and its leaderboards to print.

Start it by hand, because it writes gigabytes: `python -m tests.measuring.results FOLDER
[--records N] [--singles]`. It makes the records (a pack, or single files), prints the seconds and
the memory of each command, and leaves the folder. The launches are of invented machines: twenty of
each cell, and 32 cells in a table. An eighth of the launches is of LeNet.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import rfc8785

from xfbench.base import digests
from xfbench.host.machine import describe_machine
from xfbench.model.facts import workload_facts
from xfbench.model.record import Limit, Measurement, Observed, Record, Software
from xfbench.model.request import Cell
from xfbench.store import pack
from xfbench.workloads import workloads

LAUNCHES = 20
KERNELS = {"caffe": "openblas", "mxnet": "onednn", "tensorflow": "onednn", "torch": "onednn"}
THREADS = (1, 2, 4, 8, 16, 32, 48, 64)


def build_template(framework: str, threads: int, workload: str) -> dict:
    """A record's JSON values, as long as a measured one's."""
    request = Cell(
        framework=framework,
        environment="managed",
        workload=workload,
        kernel=KERNELS[framework],
        threads=threads,
        global_batch_size=64,
        batch_size_per_rank=64,
        data="synthetic",
        steps=20,
        warmup=5,
    ).request(1)
    steps = tuple(0.1 + n / 1e5 for n in range(20))
    record = Record.make(
        status="ok",
        cell=digests.of_json(request.cell_digest_fields()),
        request=request,
        workload=workload_facts(workloads()[workload]),
        observed=Observed(
            framework_version="1.0",
            threads=threads,
            cpus=float(threads),
            affinity=tuple(range(threads)),
            kernel=request.kernel,
            kernel_evidence=("a line that the framework wrote about its kernels",) * 2,
            libraries=tuple(f"/opt/lib/libsomething.{n}.so" for n in range(12)),
            layout="NCHW",
        ),
        measurement=Measurement(
            startup_seconds=1.5,
            build_seconds=1.0,
            first_step_seconds=0.5,
            warmup_seconds=(0.11,) * 5,
            step_seconds=steps,
            wall_seconds=5.0,
            images=26 * 64,
            peak_rss_bytes=10**9,
            losses=(2.302585,) * 26,
        ),
        machine=describe_machine(),
        limit=Limit(
            threads=threads,
            precision="float32",
            matrix_product=1e15,
            memory_bandwidth=1e11,
            source="measured",
        ),
        software=Software(
            xfbench_version="0.1.0",
            git_commit="0" * 40,
            git_dirty=False,
            worker_digest=digests.of_bytes(b"worker"),
            adapter_digest=digests.of_bytes(framework.encode()),
            environment_digest=digests.of_bytes(b"environment"),
            packages={f"package-{n}": f"1.{n}.0" for n in range(40)},
        ),
    )
    return record.document()


def generate_records(count: int) -> Iterator[tuple[str, bytes]]:
    """So many records: hexadecimal id and canonical form without it."""
    templates = [
        build_template(framework, threads, workload)
        for workload in workloads()
        for framework in KERNELS
        for threads in THREADS
    ]
    # The canonical form is written once of each kind; what differs stands in for marks in it.
    bodies = []
    for record_template in templates:
        del record_template["id"]
        record_template["created"], record_template["machine"]["cpu_model"] = "@created@", "@model@"
        record_template["request"]["launch"], record_template["measurement"]["build_seconds"] = (
            987654321,
            987654.321,
        )
        bodies.append(rfc8785.dumps(record_template).decode())
    number = 0
    while number < count:
        machine_number, number_on_machine = divmod(number, len(bodies) * LAUNCHES)
        launch, template_number = divmod(number_on_machine, len(bodies))
        created_s = 1_700_000_000 + number
        created = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(created_s))
        body = (
            bodies[template_number]
            .replace("@created@", created)
            .replace("@model@", f"Processor {machine_number}")
            .replace("987654321", str(launch + 1))
            .replace("987654.321", repr(1 + (number % 999 + 1) / 1000))
        ).encode()
        yield hashlib.sha256(body).hexdigest(), body
        number += 1


def write_pack(folder: Path, count: int) -> None:
    """Put generated records into a pack."""
    lines = (
        b'{"id":"sha256:%s",%s\n' % (identity.encode(), body[1:])
        for identity, body in generate_records(count)
    )
    pack.write_pack(folder / "packs", lines)


def write_singles(folder: Path, count: int, skip: int = 0) -> None:
    """Put generated records, but the first of them, into single files."""
    for number, (identity, body) in enumerate(generate_records(count)):
        if number >= skip:
            path = folder / "records" / identity[:2] / f"{identity}.json"
            path.parent.mkdir(exist_ok=True)
            document = {"id": f"sha256:{identity}", **json.loads(body)}
            path.write_text(json.dumps(document, indent=1))


def run_timed(activity: str, *command: str) -> None:
    """Run xfbench, and print how long it took and how much memory its processes had at most."""
    start = time.perf_counter()
    process = psutil.Popen([sys.executable, "-m", "xfbench", *command], stdout=subprocess.DEVNULL)
    largest_bytes = 0
    while process.poll() is None:
        largest_bytes = max(largest_bytes, memory_of_processes(process))
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(0.05)
    seconds = time.perf_counter() - start
    print(
        f"{activity}: {seconds:.2f} s, {largest_bytes / 2**30:.2f} GiB, exit {process.returncode}",
        flush=True,
    )


def memory_of_processes(process: psutil.Process) -> int:
    """Return the bytes of memory that a process and its children use now."""
    total_bytes = 0
    with contextlib.suppress(psutil.Error):
        for member in (process, *process.children(recursive=True)):
            total_bytes += member.memory_info().rss
    return total_bytes


def main() -> None:
    """The whole measurement."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--singles", action="store_true")
    arguments = parser.parse_args()
    folder, count = arguments.folder, arguments.records
    (folder / "records").mkdir(parents=True)
    start = time.perf_counter()
    (write_singles if arguments.singles else write_pack)(folder, count)
    print(f"{count} records made: {time.perf_counter() - start:.0f} s", flush=True)
    folder_options = ["--results", str(folder)]
    list_command = ["results", "list", "--limit", "1", *folder_options]
    leaderboard_command = ["leaderboard", "--workload", "lenet", *folder_options]
    run_timed("first leaderboard", *leaderboard_command)
    run_timed("second leaderboard", *leaderboard_command)
    run_timed("nothing new", *list_command)
    write_singles(folder, count + 1000, count)
    run_timed("a thousand new", *list_command)
    run_timed("leaderboard with them", *leaderboard_command)
    one_machine = ["--where", "machine.cpu_model=Processor 1"]
    run_timed("leaderboard of a machine", *leaderboard_command, *one_machine)
    print(f"index: {(folder / 'index.duckdb').stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
