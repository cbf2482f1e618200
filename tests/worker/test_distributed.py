"""How ranks find out who they are, and meet."""

import subprocess
import sys

import pytest

from xfbench.worker import distributed
from xfbench.worker.protocol import Group

VARIABLES = [name for pair in distributed._RANK_VARIABLES for name in pair]


@pytest.fixture(autouse=True)
def clear_rank_variables(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "rank_and_size"),
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
def test_rank_and_size_come_from_launcher_variables(monkeypatch, variables, rank_and_size):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert distributed.rank_and_size() == rank_and_size


def test_group_refuses_an_unexpected_number_of_ranks(monkeypatch):
    monkeypatch.setenv("XFBENCH_RANK", "0")
    monkeypatch.setenv("XFBENCH_SIZE", "2")
    assert distributed.build_group({"ranks": 2, "strategy": "ddp"}).size == 2
    with pytest.raises(RuntimeError, match="4 ranks were requested, but 2 were started"):
        distributed.build_group({"ranks": 4, "strategy": "ddp"})


def test_ranks_exchange_their_addresses(tmp_path):
    script = (
        "import sys\n"
        "from xfbench.worker import distributed\n"
        "from xfbench.worker.protocol import Group\n"
        "group = Group(int(sys.argv[1]), 3, 'mirrored', sys.argv[2])\n"
        "print(*distributed.exchange_rank_addresses(group))\n"
    )
    rendezvous_path = str(tmp_path / "meeting")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(rank), rendezvous_path],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    addresses = [process.communicate(timeout=60)[0].split() for process in processes]
    assert addresses[0] == addresses[1] == addresses[2]
    assert len(set(addresses[0])) == 3
    assert all(address.startswith("127.0.0.1:") for address in addresses[0])


def test_wait_for_a_missing_rank_fails_and_names_the_rank(tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "_MAX_POLLS", 3)
    group = Group(0, 2, "mirrored", str(tmp_path / "meeting"))
    with pytest.raises(RuntimeError, match="ranks 1 did not register"):
        distributed.exchange_rank_addresses(group)


def test_batch_parts_are_equal_and_cover_the_batch():
    shards = [Group(rank, 4).shard(64) for rank in range(4)]
    assert [shard.start for shard in shards] == [0, 16, 32, 48] and shards[-1].stop == 64
    assert Group(0, 4, "parts").shard(64) == slice(0, 64)


def test_address_is_loopback_or_the_chosen_interface(monkeypatch):
    assert distributed.host_address(remote=False) == "127.0.0.1"
    monkeypatch.setenv("XFBENCH_INTERFACE", "lo")
    assert distributed.host_address(remote=True) == "127.0.0.1"
    monkeypatch.setenv("XFBENCH_INTERFACE", "nowhere0")
    with pytest.raises(RuntimeError, match="network interface nowhere0"):
        distributed.host_address(remote=True)


def test_host_name_that_resolves_to_loopback_is_ignored(monkeypatch):
    """As Debian has it: the host's own name is 127.0.1.1."""
    monkeypatch.setattr(distributed.socket, "gethostbyname", lambda name: "127.0.1.1")
    monkeypatch.setattr(distributed.socket, "if_nameindex", lambda: [(1, "lo"), (2, "eth0")])
    addresses = {"lo": "127.0.0.1", "eth0": "10.1.2.3"}
    monkeypatch.setattr(distributed, "_address_of_interface", addresses.get)
    assert distributed.host_address(remote=True) == "10.1.2.3"
    monkeypatch.setattr(distributed.socket, "if_nameindex", lambda: [(1, "lo")])
    assert distributed.host_address(remote=True) == "127.0.0.1"


def test_address_placeholder_in_the_environment_is_replaced(monkeypatch):
    monkeypatch.setenv("DMLC_NODE_HOST", "at {address}")
    distributed.replace_address_placeholders_in_env(remote=False)
    assert distributed.os.environ["DMLC_NODE_HOST"] == "at 127.0.0.1"
