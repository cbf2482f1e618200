"""Programs, modules, name services and locks of sites, as they meet the command `xfbench run`."""

import os
import shutil
import socket
import subprocess
import sys

import pytest

from tests import temporary_mounts
from tests.cli.site_runs import RUN, read_launch_variables, read_records, run_command
from tests.fake_framework import STRATEGY
from tests.remaining_processes import list_running, wait_for
from xfbench.base import paths
from xfbench.execution import job_queue

NO_LOCKS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int is_below(int file) {
    char link[64], name[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    return readlink(link, name, sizeof name - 1) > 0 && !strncmp(name, FOLDER, strlen(FOLDER));
}
int flock(int file, int operation) {
    int (*real)(int, int) = dlsym(RTLD_NEXT, "flock");
    if (is_below(file)) { errno = ERROR; return -1; }
    return real(file, operation);
}
static int control(const char *name, int file, int command, void *argument) {
    int (*real)(int, int, ...) = dlsym(RTLD_NEXT, name);
    if ((command == F_SETLK || command == F_SETLKW) && is_below(file)) { errno = ERROR; return -1; }
    return real(file, command, argument);
}
#define CONTROL(name) int name(int file, int command, ...) { \\
    va_list rest; va_start(rest, command); void *argument = va_arg(rest, void *); va_end(rest); \\
    return control(#name, file, command, argument); }
CONTROL(fcntl)
CONTROL(fcntl64)
"""


@pytest.mark.deep
@pytest.mark.parametrize(
    "number",
    [
        pytest.param("ENOLCK", marks=pytest.mark.case("Locks fail with ENOLCK")),
        pytest.param("ENOSYS", marks=pytest.mark.case("Locks fail with ENOSYS")),
        "EOPNOTSUPP",
    ],
)
def test_file_system_without_locks_ends_a_run_with_advice(tmp_path, number):
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    source, library = tmp_path / "locks.c", tmp_path / "locks.so"
    source.write_text(NO_LOCKS)
    home, results = tmp_path / "home", tmp_path / "home" / "results"
    defined = [f'-DFOLDER="{home}"', f"-DERROR={number}"]
    subprocess.run(
        ["cc", "-shared", "-fPIC", *defined, "-o", library, source, "-ldl"], check=True, timeout=60
    )
    home.mkdir()
    environments = paths.cache() / "environments"
    if environments.is_dir():
        (home / "environments").symlink_to(environments)
    words = [word for word in RUN if word != "--no-verify"]
    completed = run_command(
        *words, f"--results={results}", XFBENCH_HOME=str(home), LD_PRELOAD=str(library)
    )
    assert completed.returncode in (1, 2), completed.stderr
    assert "provides no locks" in completed.stderr and "--results" in completed.stderr
    assert "Traceback" not in completed.stderr and "defect" not in completed.stderr


BANNER = "--------\n  Welcome to the Example Machine 5\n--------\n--> Checking quota (P-1)...OK\n"
LOG = "Sun Jul  7 03:08:22 2024 [INFO4] [euid=12,pid=34] plugin: credential added\n"


@pytest.mark.parametrize(
    ("printed", "number"),
    [
        pytest.param(
            f"{BANNER}41234\n", "41234", marks=pytest.mark.case("Banner before the job number")
        ),
        pytest.param(
            f"{LOG}{LOG}41235\n",
            "41235",
            marks=pytest.mark.case("Plugin's log before the job number"),
        ),
        pytest.param(
            "41236;north\n", "41236", marks=pytest.mark.case("Job number with a cluster name")
        ),
        pytest.param(f"41237\n{BANNER}", "41237"),
        pytest.param("sbatch: Submitted batch job 41237\n0\n", "41237"),
        pytest.param("\033[1;32mSubmitted batch job 41238\033[0m\r\n", "41238"),
    ],
)
def test_slurm_is_asked_about_the_submitted_job(
    install, run_inline, tmp_path, results_folder, printed, number, monkeypatch
):
    monkeypatch.setattr(job_queue, "_LOOK_SECONDS", 0.01)
    (tmp_path / "printed").write_text(printed)
    asked = tmp_path / "asked"
    install("sbatch", f"cat {tmp_path / 'printed'}")
    install("squeue", "echo Welcome to the queue")
    install("scancel", "exit 0")
    state = f"JobId={number} JobName=x JobState=CANCELLED Reason=None"
    install("scontrol", f'echo "$*" >> {asked}\necho Welcome 1\necho "{state}"\necho Goodbye')
    completed = run_inline(*RUN, "--launcher=slurm", f"--results={results_folder}")
    assert completed.returncode == 1, completed.stderr
    assert set(asked.read_text().splitlines()) == {f"-o show job {number}"}
    assert [record["reason"] for record in read_records(results_folder)] == [
        f"the job was cancelled (job {number})"
    ]


def test_job_that_another_cluster_took_has_ended(install, run_inline, results_folder, monkeypatch):
    monkeypatch.setattr(job_queue, "_LOOK_SECONDS", 0.01)
    install("sbatch", "echo 41241")
    install("squeue", "exit 0")
    install("scontrol", "echo JobId=41241 JobState=REVOKED Reason=None")
    completed = run_inline(*RUN, "--launcher=slurm", f"--results={results_folder}")
    assert completed.returncode == 1
    [record] = read_records(results_folder)
    assert record["reason"] == "another cluster of the federation took the job (job 41241)"


@pytest.mark.parametrize("line", ["41239", "41239 normal xfbench me PD 0:00 1 (Priority)"])
def test_job_of_another_results_folder_is_not_followed(install, run_inline, results_folder, line):
    install("squeue", f"echo Welcome\necho '{line}'")
    install("sbatch", "echo 41240")
    completed = run_inline(*RUN, "--launcher=slurm", f"--results={results_folder}")
    assert completed.returncode == 1
    assert "job 41239 (xfbench-" in completed.stderr and "scancel 41239" in completed.stderr
    assert "41240" not in completed.stderr and not read_records(results_folder)


def test_sbatch_without_a_number_is_refused_with_its_words(install, run_inline, results_folder):
    install("sbatch", "echo Your project has 5 hours left")
    install("squeue", "exit 0")
    completed = run_inline(*RUN, "--launcher=slurm", f"--results={results_folder}")
    assert completed.returncode == 1
    assert "no job number" in completed.stderr and "5 hours left" in completed.stderr


REJECTED = "sbatch: error: Your account has used 9 of 8 hours\nsbatch: error: Batch job refused\n"


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (REJECTED, "Your account has used 9 of 8 hours; Batch job refused"),
        (f"{BANNER}{REJECTED}Ask help@example.org\n", "Your account has used 9 of 8 hours; Batch"),
        ("sbatch: error: no such queue: a\n\n*** Maintenance on Monday ***\n", "no such queue: a"),
        ("No hours left.\nSee the wiki.\n", "No hours left. See the wiki."),
    ],
)
def test_reason_of_a_rejected_job_is_what_sbatch_said(
    install, run_inline, tmp_path, results_folder, printed, reason
):
    (tmp_path / "printed").write_text(printed)
    install("sbatch", f"cat {tmp_path / 'printed'} >&2\nexit 1")
    install("squeue", "exit 0")
    completed = run_inline(*RUN, "--launcher=slurm", f"--results={results_folder}")
    assert completed.returncode == 1
    [record] = read_records(results_folder)
    assert record["status"] == "unavailable" and reason in record["reason"]
    assert "Maintenance" not in record["reason"]


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("squeue: error: lookup failed\nsqueue: fatal: no configuration", "no configuration"),
        (f"{BANNER}slurm_load_jobs error: Unable to contact slurm", "Unable to contact slurm"),
    ],
)
def test_a_slurm_that_cannot_be_reached_is_asked_for_no_job(
    install, run_inline, tmp_path, results_folder, printed, reason
):
    (tmp_path / "printed").write_text(printed)
    install("squeue", f"cat {tmp_path / 'printed'} >&2\nexit 1")
    install("sbatch", "echo 41234")
    words = [*RUN, "--launcher=slurm", f"--results={results_folder}"]
    dry_run = run_inline(*words, "--dry-run")
    assert dry_run.returncode == 0 and "#SBATCH" in dry_run.stdout
    assert "warning: Slurm cannot be reached from here" in dry_run.stderr
    completed = run_inline(*words)
    assert completed.returncode == 1 and "no launches left" not in completed.stderr
    [record] = read_records(results_folder)
    assert record["status"] == "unavailable" and reason in record["reason"]
    assert record["reason"].startswith("Slurm cannot be reached from here: ")


SETS_ROOT = "export TOOLROOT=/opt/tool"
OPEN_MPI = 'if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit; fi\n'
START_RANK = """
while [ "$1" != env ]; do shift; done
OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE={ranks} "$@"
"""
START_TWO_RANKS = f"""
{START_RANK.format(rank=1, ranks=2).rstrip()} &
{START_RANK.format(rank=0, ranks=2)}
[ $? = 0 ] && wait $!
"""
MOUNT_HOSTS = 'mount --bind "$0" /etc/hosts && exec "$@"'


@pytest.mark.case("Modules that print")
@pytest.mark.parametrize(
    "lines",
    [
        f'module() {{ [ "$1" = load ] && {{ echo "loaded: see a=b"; {SETS_ROOT}; }}; return 0; }}',
        f'echo "Welcome, n=1"\nmodule() {{ [ "$1" = load ] && {SETS_ROOT}; return 0; }}\nfalse',
    ],
)
def test_printing_modules_set_variables_and_nothing_else(run_with_modules, results_folder, lines):
    completed = run_with_modules(lines)
    assert completed.returncode == 0, completed.stderr
    variables = read_launch_variables(results_folder)
    assert variables["TOOLROOT"] == "/opt/tool"
    assert not any(" " in name for name in variables)


@pytest.mark.case("Missing module with exit status 0")
@pytest.mark.parametrize(
    "load",
    [
        "echo \"M.c(1):ERROR:105: Unable to locate '$2'\" >&2",
        f"{{ echo \"M.c(1):ERROR:105: Unable to locate '$2'\" >&2; {SETS_ROOT}; }}",
        f"{{ printf 'Loading\\n  \\033[31mERROR\\033[0m: missing prereq\\n'; {SETS_ROOT}; }} >&2",
        "echo loaded",
    ],
)
def test_missing_module_is_found_out_without_exit_status(run_with_modules, results_folder, load):
    completed = run_with_modules(f'module() {{ [ "$1" = load ] && {load}; return 0; }}')
    assert completed.returncode == 1
    [record] = read_records(results_folder)
    assert record["status"] == "unavailable" and "tool/2.5" in record["reason"]


def test_variables_of_modules_may_have_any_bytes(run_with_modules, results_folder):
    completed = run_with_modules(
        'module() { [ "$1" = load ] && export NOTE="$(printf "a\\nb\\351")"; return 0; }'
    )
    assert completed.returncode == 0, completed.stderr
    assert read_launch_variables(results_folder)["NOTE"] == "a\nb\udce9"
    [script] = results_folder.rglob("command.sh")
    assert b"a\nb\xe9" in script.read_bytes()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            "module() { [ $1 = load ] && { echo 't:ERROR:150: conflicts' >&2; return 1; }; }",
            "module 'tool/2.5' was not loaded; it printed 't:ERROR:150: conflicts'",
        ),
        (
            "module() { [ $1 = load ] && { echo no licence >&2; exit 3; }; return 0; }",
            "module tool/2.5 ended the shell with exit status 3; it printed 'no licence'",
        ),
        (
            "echo closed >&2; exit 4",
            "init.sh ended the shell with exit status 4; it printed 'closed'",
        ),
    ],
)
def test_what_keeps_a_module_from_loading_is_said(run_with_modules, results_folder, lines, reason):
    assert run_with_modules(lines).returncode == 1
    [record] = read_records(results_folder)
    assert record["status"] == "unavailable" and reason in record["reason"]


def test_interpreter_is_the_one_of_modules_that_replace_the_path(run_with_modules, results_folder):
    completed = run_with_modules(
        'module() { [ "$1" = load ] && export PATH=/opt/missing; return 0; }'
    )
    assert completed.returncode == 1
    [record] = read_records(results_folder)
    assert record["status"] == "unavailable" and "provide no python3" in record["reason"]


@pytest.mark.deep
@pytest.mark.case("Process mark that is older than the run")
def test_children_of_ranks_end_with_the_run_and_no_others(
    run_with_modules, results_folder, install, tmp_path
):
    """Neither the mark of the shell nor that of the capture is taken for the mark of the run."""
    child = tmp_path / "child"
    install(
        "python3",
        f'[ -n "$OMPI_COMM_WORLD_RANK" ] && setsid sh -c "echo \\$\\$ > {child}; exec sleep 300" '
        f'> {tmp_path}/out 2>&1 &\nexec "{sys.executable}" "$@"',
    )
    install("mpirun", f"{OPEN_MPI}{START_RANK.format(rank=0, ranks=1)}")
    module = f'module() {{ [ "$1" = load ] && {{ echo note >&2; {SETS_ROOT}; }}; return 0; }}'
    words = run_with_modules.write_site(module, settings='launcher = "mpi"')
    with subprocess.Popen(["sleep", "300"], env={**os.environ, "XFBENCH_RUN": "01d"}) as bystander:
        try:
            completed = run_command(*words, XFBENCH_RUN="01d")
            assert completed.returncode == 0, completed.stderr
            assert read_launch_variables(results_folder)["TOOLROOT"] == "/opt/tool"
            assert child.read_text()
            wait_for(lambda: not list_running(results_folder))
            assert bystander.poll() is None
        finally:
            bystander.kill()


@pytest.mark.case("MPI with another name")
@pytest.mark.parametrize("version", ["mpirun (IBM Spectrum MPI) 10.4.0.03rtm4", "SiteMPI 3.1"])
def test_mpi_of_another_name_is_used_or_refused_with_advice(
    install, run_inline, results_folder, version
):
    install(
        "mpirun",
        f'if [ "$1" = --version ]; then echo Welcome; echo "{version}"; exit; fi\n'
        'while [ "$1" != env ]; do shift; done\n'
        'OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 exec "$@"',
    )
    completed = run_inline(*RUN, "--launcher=mpi", f"--results={results_folder}")
    [record] = read_records(results_folder)
    if "Spectrum" in version:
        assert completed.returncode == 0 and record["status"] == "ok", record["reason"]
    else:
        assert record["status"] == "unavailable"
        assert version in record["reason"] and "site file" in record["reason"]


@pytest.mark.parametrize("how", [">&2", "; exit 1"])
def test_version_of_mpi_counts_on_any_stream_and_with_any_status(
    install, run_inline, results_folder, how
):
    install(
        "mpirun",
        f'if [ "$1" = --version ]; then echo "mpirun (Open MPI) 1.4.5" {how}; exit; fi\n'
        'while [ "$1" != env ]; do shift; done\n'
        'OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 exec "$@"',
    )
    completed = run_inline(*RUN, "--launcher=mpi", f"--results={results_folder}")
    assert completed.returncode == 0, completed.stderr


@pytest.mark.deep
@pytest.mark.case("Host name that resolves to another machine's address")
def test_ranks_on_nodes_meet_at_an_address_of_this_machine(
    install, fake_adapter, results_folder, tmp_path
):
    temporary_mounts.require_mounting("unshare")
    fake_adapter()
    install("mpirun", f"{OPEN_MPI}{START_TWO_RANKS}")
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n203.0.113.9 {socket.gethostname()}\n")
    words = ["run", "--framework=odd", "--workload=lenet", "--ranks=2", "--nodes=2"]
    words += ["--scaling=strong", "--launcher=mpi", f"--strategy={STRATEGY}", "--no-verify"]
    words += ["--batch-size=8", "--steps=3", "--launches=1", f"--results={results_folder}"]
    completed = run_command(*words, prefix=("unshare", "-m", "sh", "-c", MOUNT_HOSTS, hosts))
    assert completed.returncode == 0, completed.stderr
    [record] = read_records(results_folder)
    assert (record["status"], record["request"]["nodes"]) == ("ok", 2)
