"""Which variables reach a rank, through real start commands and one that stands for srun."""

import json
import os

import pytest

from xfbench.host import machine, sites

PRINT = """
NAMES = ("CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "NCCL_TOKEN", "NCCL_SOCKET_IFNAME",
         "GLOO_SOCKET_IFNAME")
import json
print(json.dumps({name: os.environ[name] for name in NAMES if name in os.environ}), flush=True)
"""
# Starts one rank, with a GPU of its own.
SRUN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
CUDA_VISIBLE_DEVICES=7 SLURM_PROCID=0 SLURM_NTASKS=1 exec "$@"
"""


@pytest.fixture
def launch_and_read_variables(launch_fake, monkeypatch):
    """Return a function that launches one rank and returns the variables that the rank has."""
    monkeypatch.setattr(machine, "list_accelerator_models", lambda: ["a GPU"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("NCCL_TOKEN", "secret")

    def launch(**request):
        record, folder = launch_fake(PRINT, adapter={"devices": ["cpu", "cuda"]}, **request)
        assert record.status == "ok", record.reason
        return json.loads((folder / "stdout").read_text().splitlines()[0])

    yield launch
    machine.describe_machine.cache_clear()  # it has the GPU


@pytest.fixture
def site_file(tmp_path, monkeypatch):
    """Return a function that writes a site file with these lines and returns its name."""

    def write_site(lines):
        file = tmp_path / "mine.toml"
        file.write_text(f'title = "mine"\n{lines}\n')
        return sites.register_file(str(file))

    return write_site


@pytest.fixture
def srun(tmp_path, monkeypatch):
    """Be inside a Slurm allocation with a program that stands for srun."""
    for name, text in {"srun": SRUN, "scontrol": "#!/bin/sh\nexit 1\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")


def test_local_rank_on_a_gpu_has_the_users_settings_of_nccl(launch_and_read_variables):
    variables = launch_and_read_variables(device="cuda")
    assert variables == {"CUDA_VISIBLE_DEVICES": "2", "NCCL_DEBUG": "INFO"}


def test_local_rank_on_cpus_has_no_settings_of_nccl(launch_and_read_variables):
    assert launch_and_read_variables() == {"CUDA_VISIBLE_DEVICES": "2"}


@pytest.mark.usefixtures("srun")
def test_rank_under_srun_has_the_gpu_that_srun_gives_it(launch_and_read_variables, site_file):
    site = site_file('interface = "lo"')
    assert launch_and_read_variables(device="cuda", launcher="slurm", site=site) == {
        "CUDA_VISIBLE_DEVICES": "7",
        "NCCL_DEBUG": "INFO",
        "NCCL_SOCKET_IFNAME": "=lo",
        "GLOO_SOCKET_IFNAME": "lo",
    }


@pytest.mark.usefixtures("srun")
def test_variables_of_the_site_have_precedence(launch_and_read_variables, site_file):
    lines = 'interface = "lo"\nvariables = { NCCL_SOCKET_IFNAME = "ib0", NCCL_DEBUG = "WARN" }'
    variables = launch_and_read_variables(device="cuda", launcher="slurm", site=site_file(lines))
    assert (variables["NCCL_SOCKET_IFNAME"], variables["NCCL_DEBUG"]) == ("ib0", "WARN")


def test_interface_of_a_site_does_not_matter_on_one_machine(launch_and_read_variables, site_file):
    """Ranks on one machine use the loopback interface."""
    variables = launch_and_read_variables(site=site_file('interface = "lo"'))
    assert not {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} & {*variables}
