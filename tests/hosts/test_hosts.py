"""Hosts that are described by files: what the commands say of each, in a mount namespace.

The descriptions are in `described`, written from public facts. `expected` has what must be said;
limits and accelerators that it does not name must be absent.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import temporary_mounts
from tests.hosts.host_files import DESCRIPTIONS, parse_cpus, write_host

pytestmark = pytest.mark.deep  # some seconds for all hosts together

ROOT = Path(__file__).parents[2]
ABSENT = {"cgroup_cpus": None, "cgroup_memory_bytes": None, "accelerators": []}
# What the doctor says of a host, unless its description expects something else.
STATES = {"cgroup": "ok", "cores": "ok", "governor": "ok", "turbo": "ok", "nvidia-smi": None}
TOPOLOGY = ("sockets", "threads_per_core", "numa_nodes")


def describe_hosts(folder, hosts):
    """Return what xfbench says of each of `hosts`, by name."""
    temporary_mounts.require_mounting("cc")
    library = folder / "fake_system.so"
    command = ["cc", "-shared", "-fPIC", "-o", library, Path(__file__).with_name("fake_system.c")]
    subprocess.run(command, check=True)
    jobs = []
    for name, host in hosts.items():
        files = write_host(folder / name, host)
        everything = ",".join(host["sockets"].values())
        allowed = sorted(parse_cpus(host.get("allowed", everything)))
        variables = {
            "FAKE_CPUS": ",".join(map(str, allowed)),
            "FAKE_MACHINE": host.get("machine", "x86_64"),
            "FAKE_KERNEL": host.get("kernel", "6.1.0"),
            "PATH": f"{folder / name / 'bin'}:{os.environ['PATH']}",
        }
        jobs.append(
            {
                "files": files,
                "variables": variables,
                "ranks": host.get("ranks", 2),
                "pinning": host.get("pinning", "cores"),
                "answer": str(folder / name / "answer.json"),
            }
        )
    (folder / "jobs.json").write_text(json.dumps(jobs))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
        **{"LD_PRELOAD": str(library), "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    }
    completed = subprocess.run(
        [sys.executable, "-m", "tests.hosts.describe", folder / "jobs.json"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert completed.returncode == 0, completed.stderr[-3000:]
    answers = {
        name: json.loads(Path(job["answer"]).read_text())
        for name, job in zip(hosts, jobs, strict=True)
    }
    if any("Operation not permitted" in answer.get("error", "") for answer in answers.values()):
        pytest.skip("no mount namespace can be made here")
    return answers


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    yield describe_hosts(folder, DESCRIPTIONS)
    shutil.rmtree(folder)


CASES = {
    "nested_v2": pytest.mark.case("cgroup version 2: limit in the group above"),
    "unlimited_v1": pytest.mark.case('cgroup version 1: values that mean "no limit"'),
    "both_versions": pytest.mark.case("cgroup versions 1 and 2 together"),
    "no_devices": pytest.mark.case('"No devices were found"'),
    "no_devices_6": pytest.mark.case('"No devices were found"'),
    "power8_minsky": pytest.mark.case("Processors that are not x86-64"),
    "power9_ac922": pytest.mark.case("Processors that are not x86-64"),
    "a64fx": pytest.mark.case("Processors that are not x86-64"),
    "grace_hopper": pytest.mark.case("Processors that are not x86-64"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=CASES.get(name, ())) for name in DESCRIPTIONS]
)
def test_host_is_described_as_it_is(answers, name):
    answer, expected = answers[name], {**ABSENT, **DESCRIPTIONS[name]["expected"]}
    assert "error" not in answer, answer
    laid_out, states = expected.pop("laid_out"), expected.pop("doctor", {})
    topology = {key: expected.pop(key) for key in TOPOLOGY if key in expected}
    assert {key: answer["machine"][key] for key in expected} == expected
    assert {key: answer["machine"]["topology"][key] for key in topology} == topology
    assert answer["threads"] == expected["cores"]
    assert answer["laid_out"] == [sorted(parse_cpus(text)) for text in laid_out]
    findings = {each["check"]: each["state"] for each in answer["doctor"]}
    states = {**STATES, "gpu": "ok" if expected["accelerators"] else None, **states}
    assert {key: findings.get(key) for key in states} == states
    details = {each["check"]: each["detail"] for each in answer["doctor"]}
    assert f"{expected['cores']} " in details["cores"]
    if expected["cgroup_cpus"] is not None:
        assert details["cgroup"] == f"limited to {expected['cgroup_cpus']:g} CPUs by a cgroup quota"
