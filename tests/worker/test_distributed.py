"""How ranks find out who they are, and meet."""

import subprocess
import sys

import pytest

from xfbench.worker import distributed
from xfbench.worker.protocol import Group

VARIABLES = [name for pair in distributed._TOLD_BY for name in pair]


@pytest.fixture(autouse=True)
def nobody_says(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ({}, (0, 1)),
        ({"XFBENCH_RANK": "1", "XFBENCH_SIZE": "2"}, (1, 2)),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}, (3, 4)),
        # Under mpirun in a batch job, Slurm's are those of the batch step.
        (
            {
                **{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
                **{"SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
            },
            (1, 2),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (1, 2)),
        ({"OMPI_COMM_WORLD_RANK": "1"}, (0, 1)),
    ],
)
def test_rank_and_size_come_from_launcher_variables(monkeypatch, told, place):
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert distributed.place() == place


def test_group_refuses_an_unexpected_number_of_ranks(monkeypatch):
    monkeypatch.setenv("XFBENCH_RANK", "0")
    monkeypatch.setenv("XFBENCH_SIZE", "2")
    assert distributed.group({"ranks": 2, "strategy": "ddp"}).size == 2
    with pytest.raises(RuntimeError, match="4 ranks were asked for, and 2 were started"):
        distributed.group({"ranks": 4, "strategy": "ddp"})


def test_ranks_exchange_their_addresses(tmp_path):
    script = (
        "import sys\n"
        "from xfbench.worker import distributed\n"
        "from xfbench.worker.protocol import Group\n"
        "group = Group(int(sys.argv[1]), 3, 'mirrored', sys.argv[2])\n"
        "print(*distributed.addresses(group))\n"
    )
    meeting = str(tmp_path / "meeting")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(rank), meeting], stdout=subprocess.PIPE, text=True
        )
        for rank in range(3)
    ]
    heard = [rank.communicate(timeout=60)[0].split() for rank in ranks]
    assert heard[0] == heard[1] == heard[2]
    assert len(set(heard[0])) == 3
    assert all(address.startswith("127.0.0.1:") for address in heard[0])


def test_wait_for_a_missing_rank_fails_and_names_the_rank(tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "_PATIENCE", 3)
    group = Group(0, 2, "mirrored", str(tmp_path / "meeting"))
    with pytest.raises(RuntimeError, match="ranks 1 did not come"):
        distributed.addresses(group)


def test_batch_parts_are_equal_and_cover_the_batch():
    parts = [Group(rank, 4).shard(64) for rank in range(4)]
    assert [part.start for part in parts] == [0, 16, 32, 48] and parts[-1].stop == 64
    assert Group(0, 4, "parts").shard(64) == slice(0, 64)


def test_address_is_loopback_or_the_chosen_interface(monkeypatch):
    assert distributed.address(remote=False) == "127.0.0.1"
    monkeypatch.setenv("XFBENCH_INTERFACE", "lo")
    assert distributed.address(remote=True) == "127.0.0.1"
    monkeypatch.setenv("XFBENCH_INTERFACE", "nowhere0")
    with pytest.raises(RuntimeError, match="network interface nowhere0"):
        distributed.address(remote=True)


def test_host_name_that_resolves_to_loopback_is_ignored(monkeypatch):
    """As Debian has it: the host's own name is 127.0.1.1."""
    monkeypatch.setattr(distributed.socket, "gethostbyname", lambda name: "127.0.1.1")
    monkeypatch.setattr(distributed.socket, "if_nameindex", lambda: [(1, "lo"), (2, "eth0")])
    known = {"lo": "127.0.0.1", "eth0": "10.1.2.3"}
    monkeypatch.setattr(distributed, "_of_interface", known.get)
    assert distributed.address(remote=True) == "10.1.2.3"
    monkeypatch.setattr(distributed.socket, "if_nameindex", lambda: [(1, "lo")])
    assert distributed.address(remote=True) == "127.0.0.1"


def test_address_placeholder_in_the_environment_is_replaced(monkeypatch):
    monkeypatch.setenv("DMLC_NODE_HOST", "at {address}")
    distributed.name_addresses(remote=False)
    assert distributed.os.environ["DMLC_NODE_HOST"] == "at 127.0.0.1"
