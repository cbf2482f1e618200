"""Tests of ranks under the start commands of Open MPI and MPICH."""

import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import threading
import time
from functools import partial

import psutil
import pytest

from tests import debian
from tests.cluster import slurm
from tests.fake_framework import DEATHS, SLOW, STRATEGY, TWO_RANKS, death_code
from tests.faults.driver import build_command
from tests.remaining_processes import list_ranks, list_workers, wait_for
from xfbench.base.errors import UnavailableError
from xfbench.environments import environment
from xfbench.execution import dry_run, job
from xfbench.launchers import mpi
from xfbench.model import adapter
from xfbench.model.plan import Plan
from xfbench.worker import affinity


@pytest.fixture
def launch_under_mpirun(launch_fake):
    """A function that launches two ranks under mpirun."""
    return partial(launch_fake, launcher="mpi", **TWO_RANKS)


@pytest.fixture(scope="session")
def openmpi():
    if reason := slurm.missing_reason():
        debian.skip_test(f"no Open MPI: {reason}")
    return "mpirun"


@pytest.fixture
def mpich(monkeypatch):
    """Put the MPICH of a framework's environment on the PATH as mpirun."""
    environment_of_torch = environment.ensure_environment(adapter.load("torch"))
    monkeypatch.setenv("PATH", f"{environment_of_torch.prefix / 'bin'}:{os.environ['PATH']}")
    return "mpirun"


@pytest.fixture(params=["openmpi", "mpich"])
def family(request):
    request.getfixturevalue(request.param)
    assert mpi.detect_family("mpirun") == request.param
    return request.param


def test_ranks_train_and_write_separate_output_files(launch_under_mpirun, family):
    record, folder = launch_under_mpirun()
    assert record.status == "ok", record.reason
    assert [rank.rank for rank in record.observed.ranks] == [0, 1]
    names = {path.name for path in folder.iterdir()}
    assert {"stdout", "stdout.1", "stderr.1", "reply.1.json", "stdout.start"} <= names
    assert not any("XFBENCH_WATCH" in (folder / name).read_text() for name in ("command.json",))


def test_token_of_the_watch_is_on_no_command_line(launch_under_mpirun, family, tmp_path):
    """Command lines of all processes are read while the ranks train."""
    lines, modes = set(), set()

    def look():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(list_ranks(tmp_path)) < 2:
            time.sleep(0.05)
        for file in tmp_path.rglob("watch"):
            modes.add((stat.S_IMODE(file.stat().st_mode), file.read_text().rpartition(":")[2]))
        for process in psutil.process_iter(["cmdline"]):
            lines.add(" ".join(process.info["cmdline"] or ()))

    looker = threading.Thread(target=look)
    looker.start()
    record, folder = launch_under_mpirun(SLOW)
    looker.join()
    assert record.status == "ok", record.reason
    [(mode, token)] = modes
    assert mode == 0o600 and len(token) == 32
    assert any("XFBENCH_WATCH=watch" in line for line in lines)
    assert not [line for line in lines if token in line]
    assert not (folder / "watch").exists()


@pytest.mark.parametrize(("code", "reads_file"), [(b"ADDRESS_FILE = 1", True), (b"ADDRESS", False)])
def test_workers_of_earlier_revisions_get_the_address_itself(monkeypatch, code, reads_file):
    monkeypatch.setattr(job.worker_archive, "read_worker_files", lambda _: {"watch.py": code})
    assert job._reads_address_from_file("a" * 40) == reads_file
    assert job._reads_address_from_file(None)


def test_ranks_under_mpirun_are_pinned_to_sockets(launch_under_mpirun, family):
    record, _ = launch_under_mpirun(affinity="sockets")
    assert record.status == "ok", record.reason
    planned = affinity.plan_cpus("sockets", 2, 1, 0, os.sched_getaffinity(0))
    assert [[*rank.affinity] for rank in record.observed.ranks] == planned


def test_dry_run_prints_the_command_of_a_run(launch_under_mpirun, family, monkeypatch):
    record, folder = launch_under_mpirun()
    request = record.request
    plan = Plan(
        requests=(request,),
        protocols=(),
        pythons={},
        verify=False,
        strict=False,
        time_limit=1.0,
    )
    [(label, lines)] = dry_run.list_commands_by_cell(plan).items()
    assert label == request.long_label()
    stored_command = json.loads((folder / "command.json").read_text())
    [line] = lines
    assert shlex.split(line)[-len(stored_command["argv"]) :] == stored_command["argv"]


# `make test` ends each rank once.
QUICK_DEATHS = {(0, "by a signal"), (1, "with words")}
DEATH_CASES = [
    pytest.param(
        rank, death_name, marks=() if (rank, death_name) in QUICK_DEATHS else pytest.mark.deep
    )
    for rank in (0, 1)
    for death_name in DEATHS
]


@pytest.mark.parametrize(("rank", "death_name"), DEATH_CASES)
def test_rank_that_dies_in_a_step_is_named(launch_under_mpirun, family, tmp_path, rank, death_name):
    _, status, message = DEATHS[death_name]
    record, _ = launch_under_mpirun(death_code(rank, death_name))
    assert record.status == status, record.reason
    assert f"rank {rank} of 2" in record.reason and message in record.reason
    assert not list_workers(tmp_path)


def test_killed_watcher_ends_its_rank(launch_under_mpirun, family, tmp_path):
    """The rank ends with the watcher, its parent."""

    def kill_watcher():
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            ranks = list_ranks(tmp_path)
            if len(ranks) == 2:
                time.sleep(1)
                os.kill(ranks[0].parent().pid, signal.SIGKILL)
                return
            time.sleep(0.05)

    killer = threading.Thread(target=kill_watcher)
    killer.start()
    record, _ = launch_under_mpirun(SLOW, steps=30)
    killer.join()
    assert record.status == "crashed"
    assert "rank" in record.reason and "was lost" in record.reason
    assert not list_workers(tmp_path)


def test_killed_driver_leaves_no_rank(fake_adapter, family, tmp_path):
    fake_adapter(SLOW)
    settings = {"batch-size": 4, "data": "synthetic", "steps": 100, "launches": 1, "ranks": 2}
    settings |= {"strategy": STRATEGY, "scaling": "weak", "launcher": "mpi"}
    words = [f"--{name}={value}" for name, value in settings.items()]
    words += ["--framework=odd", "--workload=lenet", "--no-verify", f"--results={tmp_path / 'r'}"]
    driver = subprocess.Popen(build_command("run", *words), stderr=subprocess.DEVNULL)
    wait_for(lambda: len(list_workers(tmp_path)) == 4, 60)  # two ranks and their watchers
    driver.kill()
    driver.wait()
    wait_for(lambda: not list_workers(tmp_path), 15)


@pytest.mark.deep
def test_time_limit_ends_blocked_ranks(launch_under_mpirun, family, tmp_path):
    blocking_source = "def after_step(rank, steps): time.sleep(600 * rank)"
    record, _ = launch_under_mpirun(blocking_source, time_limit=8)
    assert record.status == "timed_out"
    assert not list_workers(tmp_path)


def test_broken_interpreter_is_reported_as_no_rank_started(launch_under_mpirun, openmpi, tmp_path):
    site = tmp_path / "odd.toml"
    site.write_text('title = "odd"\n[variables]\nPYTHONHOME = "/nowhere"\n')
    record, _ = launch_under_mpirun(site=str(site))
    assert record.status == "crashed"
    assert "no rank was started" in record.reason


def test_unresolvable_host_starts_no_rank(launch_under_mpirun, family, tmp_path):
    site = tmp_path / "odd.toml"
    site.write_text('title = "odd"\nhosts = ["no-such-host.invalid"]\n')
    record, _ = launch_under_mpirun(site=str(site), time_limit=40)
    assert record.status == "crashed", record.reason
    assert "no rank was started" in record.reason
    assert not list_workers(tmp_path)


def test_site_defines_the_start_command(launch_under_mpirun, openmpi, tmp_path):
    site = tmp_path / "odd.toml"
    site.write_text(
        'title = "odd"\nstart = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n"]\n'
        'start_options = ["2"]\n'
    )
    record, folder = launch_under_mpirun(site=str(site))
    assert record.status == "ok", record.reason
    assert "--oversubscribe" in (folder / "command.json").read_text()


def test_missing_mpirun_makes_a_launch_unavailable(launch_under_mpirun, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    record, _ = launch_under_mpirun()
    assert record.status == "unavailable"
    assert "mpirun is not on the PATH" in record.reason


def test_unknown_mpi_program_is_refused(tmp_path):
    unknown_mpirun = tmp_path / "mpirun"
    unknown_mpirun.write_text("#!/bin/sh\necho something else\n")
    unknown_mpirun.chmod(0o755)
    with pytest.raises(UnavailableError, match="something else"):
        mpi.detect_family(str(unknown_mpirun))


def test_mpi_library_is_located_next_to_the_start_command(openmpi, mpich):
    program = shutil.which("mpirun")
    library = mpi.find_library(program, "mpich")
    assert library.name == "libmpi.so.12"
    system_library = mpi.find_library("/usr/bin/mpirun", "openmpi", ["/usr/lib/x86_64-linux-gnu"])
    assert system_library.name == "libmpi.so.40"


def test_mpi_library_next_to_its_program_comes_first(tmp_path):
    program, adjacent_library = tmp_path / "bin" / "mpirun", tmp_path / "lib" / "libmpi.so.12"
    other_library = tmp_path / "elsewhere" / "libmpi.so.12"
    for file in (program, adjacent_library, other_library):
        file.parent.mkdir()
        file.touch(mode=0o755)
    search = ["", str(other_library.parent)]
    assert mpi.find_library(str(program), "mpich", search) == adjacent_library
    adjacent_library.unlink()
    assert mpi.find_library(str(program), "mpich", search) == other_library
    assert mpi.find_library(str(program), "openmpi", search) is None
