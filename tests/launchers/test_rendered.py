"""Compare the commands of each launcher and site with stored files, so that changes are visible.

`python -m tests.launchers.test_rendered` rewrites the stored files. Review them before a commit.
"""

import sys
from pathlib import Path

import pytest

from xfbench.base.processes import Command
from xfbench.host import sites
from xfbench.launchers import local, mpi, slurm
from xfbench.launchers.resources import Resources

STORED_FOLDER = Path(__file__).parent / "rendered"
RANK = Command(
    ("/opt/python", "worker.pyz", "request.json", "reply.json"),
    {"OMP_NUM_THREADS": "12", "PYTHONHASHSEED": "0"},
    Path("/scratch/run"),
)
FOUR_RANKS = Resources(ranks=4, nodes=2, threads=12, variables={"PATH": "/usr/bin"})
NAMED_HOSTS = Resources(ranks=4, nodes=2, threads=12, hosts=("a1", "a2"), options=("-tag-output",))
JOB = slurm.Job(
    name="xfbench-0123456789ab",
    argv=("/opt/python", "-P", "-m", "xfbench", "run", "--job", "/scratch/my jobs/job.json"),
    folder=Path("/scratch/my jobs"),
    nodes=2,
    ranks_per_node=2,
    threads=12,
    minutes=60,
    queue="normal",
    account="TG-1",
    options=("--exclusive",),
    variables=(("XFBENCH_HOME", "/home/me/it's mine"),),
)


def render_commands(commands):
    return "".join(f"{command.to_shell_line()}\n" for command in commands)


def render_site(name):
    site = sites.load_site(name)
    return render_commands(mpi.build_commands_with_site_start(RANK, FOUR_RANKS, site.start))


RENDERED = {
    "local.sh": lambda: render_commands(local.build_commands(RANK, Resources(ranks=2))),
    "openmpi.sh": lambda: render_commands(mpi.build_commands(RANK, FOUR_RANKS)),
    "openmpi-hosts.sh": lambda: render_commands(mpi.build_commands(RANK, NAMED_HOSTS)),
    "mpich.sh": lambda: render_commands(mpi.build_commands(RANK, FOUR_RANKS, "mpiexec", "mpich")),
    "mpich-hosts.sh": lambda: render_commands(
        mpi.build_commands(RANK, NAMED_HOSTS, "mpiexec", "mpich")
    ),
    "srun.sh": lambda: render_commands(slurm.build_commands(RANK, FOUR_RANKS)),
    "srun-pmi2.sh": lambda: render_commands(slurm.build_commands(RANK, FOUR_RANKS, "pmi2")),
    "stampede2.sh": lambda: render_site("stampede2"),
    "maverick.sh": lambda: render_site("maverick"),
    "summitdev.sh": lambda: render_site("summitdev"),
    "job.sh": lambda: slurm.job_script(JOB),
}


@pytest.mark.parametrize("name", RENDERED)
def test_rendered_commands_match_the_stored_files(name):
    assert RENDERED[name]() == (STORED_FOLDER / name).read_text()


def test_every_stored_file_is_rendered():
    assert {file.name for file in STORED_FOLDER.iterdir()} == set(RENDERED)


if __name__ == "__main__":
    for name, render in RENDERED.items():
        (STORED_FOLDER / name).write_text(render())
    sys.exit()


@pytest.mark.parametrize("build", [mpi.build_commands, slurm.build_commands])
def test_the_start_command_decides_the_gpus_of_a_rank(build):
    """Slurm gives each rank its own, and this process has those of the first node."""
    command = Command(RANK.argv, {**RANK.environment, "CUDA_VISIBLE_DEVICES": "0,1"}, RANK.cwd)
    for built in build(command, FOUR_RANKS):
        assert not any("CUDA_VISIBLE_DEVICES" in word for word in built.argv)
        assert built.environment["CUDA_VISIBLE_DEVICES"] == "0,1"
