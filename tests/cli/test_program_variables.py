"""Which variables of the user's shell reach the programs that a run starts."""

import sys

import pytest

from tests.cli.site_runs import RUN, read_records
from xfbench.base import revisions
from xfbench.environments import installer
from xfbench.execution import job_queue
from xfbench.host import core_latency

# Of xfbench itself, of ranks, of threads, and of loaders: none of these may reach a rank.
PLANTED = {
    **{"XFBENCH_RUN": "0ld", "XFBENCH_RANK": "5", "XFBENCH_SIZE": "9"},
    **{"XFBENCH_WATCH": "127.0.0.1:9:x", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"},
    **{"PMI_RANK": "4", "PMI_SIZE": "8", "PMI_FD": "77", "PMIX_RANK": "2", "PMIX_NAMESPACE": "n"},
    **{"PMIX_SERVER_URI4": "n;tcp4://127.0.0.1:9", "OMPI_MCA_ess_base_vpid": "3"},
    **{"SLURM_PROCID": "6", "SLURM_LOCALID": "6", "SLURM_STEP_ID": "1"},
    **{"OMP_NUM_THREADS": "7", "OMP_PROC_BIND": "true", "KMP_AFFINITY": "disabled"},
    **{"OPENBLAS_CORETYPE": "Prescott", "GOMP_CPU_AFFINITY": "0", "MKL_DYNAMIC": "TRUE"},
    **{"PYTHONPATH": "/planted", "LD_PRELOAD": "/planted.so", "GLIBC_TUNABLES": "glibc.malloc=1"},
    **{"BASH_ENV": "/planted.sh", "ENV": "/planted.sh"},
}
SETTINGS = {"OMPI_MCA_btl": "self", "UCX_TLS": "tcp", "SLURM_CONF": "/planted.conf"}
START = """
env -0 > {folder}/start.$$
while [ "$1" != env ]; do shift; done
export OMP_PROC_BIND=close KMP_BLOCKTIME=3 PYTHONHOME=/planted BASH_ENV=/planted.sh
{rank} exec "$@"
"""


@pytest.fixture
def planted(monkeypatch):
    """The environment of this process with variables that must not reach ranks."""
    for name, value in {**PLANTED, **SETTINGS}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def seen(tmp_path, install):
    """A function that returns the variables of each process of a program that keeps them.

    Programs keep them in files `NAME.PID`. The program "rank" is an interpreter.
    """
    folder = tmp_path / "seen"
    folder.mkdir()
    install("rank", f'env -0 > {folder}/rank.$$\nexec "{sys.executable}" "$@"')

    def read(name):
        texts = [file.read_bytes().decode() for file in folder.glob(f"{name}.*")]
        return [dict(e.split("=", 1) for e in text.split("\0") if "=" in e) for text in texts]

    read.folder = folder
    return read


def find_planted(variables):
    return {name for name, value in PLANTED.items() if variables.get(name) == value}


@pytest.mark.parametrize("launcher", ["local", "mpi", "slurm"])
def test_ranks_have_no_planted_variable(
    planted, seen, install, run_inline, results_folder, launcher, tmp_path, monkeypatch
):
    version = '[ "$1" = --version ] && { echo "mpirun (Open MPI) 4.1.4"; exit; }\n'
    of_mpi = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1"
    of_slurm = "SLURM_PROCID=0 SLURM_NTASKS=1"
    install("mpirun", version + START.format(folder=seen.folder, rank=of_mpi))
    install("srun", START.format(folder=seen.folder, rank=of_slurm))
    if launcher == "slurm":
        monkeypatch.setenv("SLURM_JOB_ID", "7")
    python = f"--python=reference={tmp_path}/programs/rank"
    completed = run_inline(*RUN, f"--launcher={launcher}", f"--results={results_folder}", python)
    assert completed.returncode == 0, completed.stderr
    [record] = read_records(results_folder)
    of_ranks, of_starts = seen("rank"), seen("start")
    assert of_ranks and len(of_starts) == (launcher != "local")
    for variables in (*of_ranks, *of_starts):
        assert find_planted(variables) == set()
    for variables in of_ranks:
        assert not {"KMP_BLOCKTIME", "PYTHONHOME", "OMP_PROC_BIND", "BASH_ENV"} & variables.keys()
        assert variables["OMP_NUM_THREADS"] in ("1", str(record["request"]["threads"]))
    for variables in of_starts:
        assert variables.items() >= SETTINGS.items()


def test_module_shell_adds_nothing_of_the_user(
    planted, run_with_modules, install, seen, tmp_path, monkeypatch
):
    start_file = tmp_path / "start.sh"
    start_file.write_text(f"touch {tmp_path / 'started'}\n")
    monkeypatch.setenv("BASH_ENV", str(start_file))
    monkeypatch.setenv("TOOLROOT", "/opt/tool")  # the user has loaded the same module
    shell_rank = 'env -0 > {}/rank.$$\nexec "{}" "$@"'
    install("python3", shell_rank.format(seen.folder, sys.executable))
    completed = run_with_modules(
        f"env -0 > {seen.folder}/shell.$$\n"
        "module() {\n"
        '    [ "$1" = purge ] && unset TOOLROOT\n'
        '    [ "$1" = load ] || return 0\n'
        "    export TOOLROOT=/opt/tool OMP_PROC_BIND=spread XFBENCH_RANK=8\n"
        "    export PYTHONPATH=/tool${PYTHONPATH:+:$PYTHONPATH}\n"
        "}"
    )
    assert completed.returncode == 0, completed.stderr
    assert not (tmp_path / "started").exists()
    [of_shell] = seen("shell")
    assert find_planted(of_shell) == set()
    for variables in seen("rank"):
        assert find_planted(variables) == set()
        assert (variables["TOOLROOT"], variables["PYTHONPATH"]) == ("/opt/tool", "/tool")
        assert "OMP_PROC_BIND" not in variables and variables.get("XFBENCH_RANK") != "8"


def test_job_has_no_mark_and_no_options_of_the_users_shell(
    planted, install, run_inline, results_folder, seen, monkeypatch
):
    monkeypatch.setattr(job_queue, "_LOOK_SECONDS", 0.01)
    for name in ("SBATCH_ARRAY_INX", "SBATCH_JOB_NAME", "SQUEUE_STATES", "SCANCEL_STATE"):
        monkeypatch.setenv(name, "CD")
    monkeypatch.setenv("SBATCH_RESERVATION", "course")
    monkeypatch.setenv("XFBENCH_DATA", "/my data")
    keep = f"env -0 > {seen.folder}/{{}}.$$\n"
    install("sbatch", keep.format("sbatch") + "echo 41238")
    install("squeue", keep.format("query"))
    install("scontrol", keep.format("query") + 'echo "JobId=41238 JobState=CANCELLED Reason=None"')
    run_inline(*RUN, "--launcher=slurm", f"--results={results_folder}")
    [of_sbatch] = seen("sbatch")
    assert find_planted(of_sbatch) == {"PYTHONPATH"}
    assert "XFBENCH_RUN" not in of_sbatch
    assert not {"SBATCH_ARRAY_INX", "SBATCH_JOB_NAME"} & of_sbatch.keys()
    assert of_sbatch["SBATCH_RESERVATION"] == "course"
    assert seen("query")
    for variables in seen("query"):
        assert not {"SQUEUE_STATES", "SCANCEL_STATE"} & variables.keys()
    [script] = results_folder.glob("jobs/*/job.sh")
    assert "export XFBENCH_DATA='/my data'" in script.read_text()


def test_git_looks_at_the_checkout_of_xfbench(planted, install, seen, monkeypatch):
    for name in ("GIT_DIR", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_TRACE"):
        monkeypatch.setenv(name, "/planted")
    install("git", f"env -0 > {seen.folder}/git.$$\necho {'0' * 40}")
    revisions.find_revision.cache_clear()
    try:
        revisions.find_revision()
    finally:
        revisions.find_revision.cache_clear()
    for variables in seen("git"):
        assert not {"GIT_DIR", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"} & variables.keys()
        assert variables["XFBENCH_RUN"] != PLANTED["XFBENCH_RUN"]


def test_packages_come_from_the_sources_of_the_user_alone(
    planted, install, run_inline, fake_adapter, seen, tmp_path, monkeypatch
):
    """A package called pip on the user's PYTHONPATH names another source."""
    pip = tmp_path / "modules" / "pip"
    pip.mkdir(parents=True)
    (pip / "__main__.py").write_text("print(\"global.index-url='https://planted'\")")
    monkeypatch.setenv("PYTHONPATH", str(pip.parent))
    monkeypatch.setenv("VIRTUAL_ENV", "/planted")
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LD_PRELOAD")
    install("uv", f"env -0 > {seen.folder}/uv.$$\nexit 1")
    monkeypatch.setattr(installer, "find_uv_bin", lambda: f"{tmp_path}/programs/uv")
    lock = f"nowhere==1 --hash=sha256:{'0' * 64}\n"
    managed = {"kind": "managed", "python": "3.11"}
    fake_adapter(environment=managed, files={"requirements.lock": lock})
    completed = run_inline("env", "create", "odd")
    assert completed.returncode == 1
    assert seen("uv")
    for variables in seen("uv"):
        assert not {"PYTHONPATH", "VIRTUAL_ENV"} & variables.keys()
        assert variables.get("UV_DEFAULT_INDEX") != "https://planted"


def test_measurements_of_the_machine_ignore_threads_of_the_shell(planted, seen, monkeypatch):
    monkeypatch.setattr(core_latency.sys, "executable", str(seen.folder.parent / "programs/rank"))
    core_latency.measure_core_latency_s()
    assert seen("rank")
    for variables in seen("rank"):
        assert find_planted(variables) == {"PYTHONPATH"}
