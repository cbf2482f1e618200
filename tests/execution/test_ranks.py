"""Tests of launches of several ranks on this machine: merged results and failures."""

import os
import re
import shutil
import signal
import subprocess
import time

import psutil
import pytest

from tests.fake_framework import DEATHS, SLOW, TWO_RANKS, death_code
from tests.remaining_processes import list_workers
from tests.sample_replies import build_reply
from xfbench.base.errors import UsageError
from xfbench.execution import ranks
from xfbench.host import machine
from xfbench.planning import experiment
from xfbench.worker import affinity

two_cores = pytest.mark.skipif(machine.usable_cores() < 2, reason="each rank needs its own core")
PRINTS = """
class Trainer(FakeTrainer):
    def step(self, batch):
        print(len(batch), flush=True)
        super().step(batch)
"""


@pytest.fixture
def two_rank_launch(shared_fake_launch):
    """Return a launch of two ranks, each pinned to its own core if there are two."""
    return shared_fake_launch(PRINTS, affinity="cores", **TWO_RANKS)


def test_ranks_train_on_their_parts_and_share_a_record(two_rank_launch, tmp_path):
    record, folder = two_rank_launch
    assert record.status == "ok", record.reason
    assert record.measurement.images == 3 * 8
    assert record.measurement.losses == (1.5,) * 5
    assert [observed_rank.rank for observed_rank in record.observed.ranks] == [0, 1]
    outputs = [(folder / name).read_text().split() for name in ("stdout", "stdout.1")]
    assert outputs == [["4"] * 5] * 2
    names = {path.name for path in folder.iterdir()}
    assert {"stdout", "stdout.1", "reply.json", "reply.1.json"} <= names
    copy = shutil.copytree(folder, tmp_path / "copy")
    subprocess.run([copy / "command.sh"], check=True, timeout=60)
    new_names = {path.name for path in copy.iterdir()} - names
    assert new_names == {"reply-again.json", "reply-again.1.json"}


def test_strong_scaling_divides_the_batch(launch_fake):
    sizes = {"scaling": "strong", "global_batch_size": 4, "batch_size_per_rank": 2}
    record, folder = launch_fake(PRINTS, **{**TWO_RANKS, **sizes})
    # The canary's expected loss is for another batch size.
    assert record.status == "invalid" and "initial weights" in record.reason
    assert record.measurement.images == 3 * 4
    assert (folder / "stdout.1").read_text().split() == ["2"] * 5


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("rank", [0, 1])
def test_rank_that_ends_in_a_step_ends_the_launch_and_is_named(launch_fake, rank, death):
    _, status, words = DEATHS[death]
    start_s = time.monotonic()
    record, _ = launch_fake(death_code(rank, death), **TWO_RANKS)
    assert time.monotonic() - start_s < 30
    assert record.status == status
    assert f"rank {rank} of 2" in record.reason and words in record.reason


def test_hanging_rank_ends_all_ranks_at_the_time_limit(launch_fake):
    code = "def after_step(rank, steps): time.sleep(600 * rank)"
    record, _ = launch_fake(code, time_limit=5, **TWO_RANKS)
    assert record.status == "timed_out"


def test_killed_rank_is_named_not_the_ranks_ended_after_it(launch_fake, tmp_path):
    """Rank 1 is killed from outside while it trains."""
    from threading import Thread

    def kill():
        end = time.monotonic() + 30
        while time.monotonic() < end:
            for process in list_workers(tmp_path):
                try:
                    if process.environ().get("XFBENCH_RANK") == "1":
                        time.sleep(1)
                        process.send_signal(signal.SIGKILL)
                        return
                except psutil.Error:
                    continue
            time.sleep(0.05)

    killer = Thread(target=kill)
    killer.start()
    record, _ = launch_fake(SLOW, steps=30, **TWO_RANKS)
    killer.join()
    assert record.status == "crashed"
    assert "rank 1 of 2: no reply: it was ended by SIGKILL" in record.reason


@two_cores
def test_ranks_get_disjoint_cores(two_rank_launch):
    record, _ = two_rank_launch
    assigned_cpus = [set(observed_rank.laid_out) for observed_rank in record.observed.ranks]
    assert [len(cpus) for cpus in assigned_cpus] == [1, 1] and not assigned_cpus[0] & assigned_cpus[
        1
    ]
    assert [set(observed_rank.affinity) for observed_rank in record.observed.ranks] == assigned_cpus


@two_cores
def test_a_rank_that_leaves_its_cores_is_invalid_and_named(launch_fake):
    code = """
def after_step(rank, steps):
    if rank == 1:
        os.sched_setaffinity(0, range(os.cpu_count()))
"""
    record, _ = launch_fake(code, affinity="cores", **TWO_RANKS)
    assert record.status == "invalid"
    assert "rank 1 was given CPUs" in record.reason and "may run on" in record.reason


@pytest.mark.parametrize("pinning", ["sockets", "numa"])
def test_ranks_get_all_cpus_of_a_socket_or_numa_node(launch_fake, pinning):
    record, _ = launch_fake(affinity=pinning, **TWO_RANKS)
    assert record.status == "ok", record.reason
    planned = affinity.plan_cpus(pinning, 2, 1, 0, os.sched_getaffinity(0))
    assert [[*rank.laid_out] for rank in record.observed.ranks] == planned
    assert [[*rank.affinity] for rank in record.observed.ranks] == planned


@pytest.fixture
def one_allowed_cpu():
    """Restrict this process, and the ranks that it starts, to one CPU."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    yield max(allowed)
    os.sched_setaffinity(0, allowed)


@two_cores
@pytest.mark.parametrize("pinning", ["sockets", "numa"])
def test_a_rank_that_leaves_its_socket_or_numa_node_is_invalid(
    launch_fake, one_allowed_cpu, pinning
):
    code = """
def after_step(rank, steps):
    if rank == 1:
        os.sched_setaffinity(0, range(os.cpu_count()))
"""
    record, _ = launch_fake(code, affinity=pinning, **TWO_RANKS)
    assert record.status == "invalid"
    assert f"rank 1 was given CPUs {one_allowed_cpu}, but may run on 0, " in record.reason


def test_ranks_end_with_the_reason_if_they_do_not_fit_in_a_socket(launch_fake):
    record, _ = launch_fake(affinity="sockets", threads=4096, **TWO_RANKS)
    assert record.status == "unavailable"
    # Both ranks say so; either may be the first.
    expected = r"rank [01] of 2: --pinning sockets: 2 ranks of 4096 threads need"
    assert re.match(expected, record.reason)


def test_gpu_memory_is_that_of_the_rank_with_the_most():
    replies = [build_reply(0), build_reply(1)]
    for reply, peak in zip(replies, (7, 5), strict=True):
        reply["measurement"]["peak_device_bytes"] = peak
    replies[0]["measurement"]["peak_device_reserved_bytes"] = 9
    measurement = ranks.merge_replies(replies)["measurement"]
    assert measurement["peak_device_bytes"] == 7
    assert measurement["peak_device_reserved_bytes"] is None


def test_merged_steps_and_losses_are_means_of_all_ranks():
    merged = ranks.merge_replies([build_reply(0), build_reply(1)])
    measurement = merged["measurement"]
    assert measurement["build_seconds"] == 2.0
    assert measurement["step_seconds"] == [1.0, 1.5]
    assert (measurement["images"], measurement["peak_rss_bytes"]) == (16, 200)
    assert measurement["losses"] == [2.0, 5.0]
    assert measurement["phases"] == {"input_seconds": 0.5}
    assert merged["used"] == {"here": 4.0}
    assert merged["used_on_kernel"] == {"one": 4.0}
    assert merged["observed"]["affinity"] == [0, 1]
    assert [observed_rank["affinity"] for observed_rank in merged["observed"]["ranks"]] == [
        [0],
        [1],
    ]


def test_deviating_rank_decides_the_merged_observation():
    deviating_reply = build_reply(1)
    deviating_reply["observed"]["kernel"] = "native"
    deviating_reply["canary"]["loss"] = 2.4
    merged = ranks.merge_replies([build_reply(0), deviating_reply])
    assert merged["observed"]["kernel"] == "native"
    assert merged["canary"]["loss"] == 2.4


@pytest.mark.parametrize(
    ("shares", "expected"), [((0.1, 0.3), 0.2), ((0.1, None), None), ((None, None), None)]
)
def test_merged_share_of_copies_is_the_mean_if_every_rank_has_one(shares, expected):
    replies = [build_reply(rank) for rank in range(len(shares))]
    for reply, share in zip(replies, shares, strict=True):
        reply["observed"]["gpu_copy_share"] = share
    merged = ranks.merge_replies(replies)["observed"]["gpu_copy_share"]
    assert merged == (expected and pytest.approx(expected))


@pytest.mark.parametrize(
    ("losses", "expected"), [((2.3, 2.1, 2.4), 2.1), ((2.3, 2.2, 2.6), 2.6), ((2.3, None), None)]
)
def test_merged_canary_is_the_farthest_from_the_first_rank(losses, expected):
    replies = [{**build_reply(rank), "canary": {"loss": loss}} for rank, loss in enumerate(losses)]
    for rank_reply in replies:
        rank_reply["measurement"]["step_seconds"] = [1.0, 1.0]
    assert ranks.merge_replies(replies)["canary"]["loss"] == expected


def test_ranks_with_different_step_counts_are_refused():
    with pytest.raises(ValueError, match="argument"):
        ranks.merge_replies([build_reply(0), build_reply(1, step_seconds=[1.0])])


def build_cells(**settings):
    chosen = {"framework": ["torch"], "workload": ["lenet"], **settings}
    return [cell for cell, _ in experiment.expand_matrices([experiment.build_matrix(**chosen)])]


def test_strong_scaling_divides_and_weak_multiplies_the_batch():
    strong = build_cells(ranks=[1, 2, 4], scaling="strong")
    assert [(c.global_batch_size, c.batch_size_per_rank) for c in strong] == [
        (64, 64),
        (64, 32),
        (64, 16),
    ]
    weak = build_cells(ranks=[1, 2, 4], scaling="weak")
    assert [(c.global_batch_size, c.batch_size_per_rank) for c in weak] == [
        (64, 64),
        (128, 64),
        (256, 64),
    ]
    assert [c.strategy for c in weak] == ["none", "ddp", "ddp"]


def test_all_cells_are_pinned_when_ranks_of_one_share_a_node():
    """Without pinning a single rank could use all cores, which would make scaling look worse."""
    shared = build_cells(ranks=[1, 2, 4], scaling="weak")
    assert [c.affinity for c in shared] == ["cores"] * 3
    assert [c.affinity for c in build_cells(ranks=[1], scaling="weak")] == ["none"]
    spread = build_cells(ranks=[1, 2, 4], nodes=[1, 2], scaling="weak", launcher="slurm")
    layouts = [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2)]
    assert [(c.ranks, c.nodes, c.affinity) for c in spread] == [
        (*layout, "cores") for layout in layouts
    ]
    alone = build_cells(ranks=[1, 2], ranks_per_node=1, scaling="weak", launcher="slurm")
    assert [(c.nodes, c.affinity) for c in alone] == [(1, "none"), (2, "none")]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ranks": [2]}, "--scaling strong"),
        ({"ranks": [3], "scaling": "strong"}, "cannot be divided evenly among 3 ranks"),
        ({"ranks": [0], "scaling": "weak"}, "give at least 1"),
    ],
)
def test_invalid_rank_count_is_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        build_cells(**settings)


def merge_energies(*readings, gpus=False, nodes=("here",), uuid_hash=None):
    """Return the merged energy of ranks with these readings, spread evenly over the nodes."""
    replies = [build_reply(rank, energy_joules=joules) for rank, joules in enumerate(readings)]
    for rank, rank_reply in enumerate(replies):
        rank_reply["used"] = {nodes[rank * len(nodes) // len(readings)]: 1.0}
        rank_reply["observed"]["gpus"] = [{"name": "a GPU", "uuid_hash": uuid_hash}] if gpus else []
    merged = ranks.merge_replies(replies)
    assert [gpu["rank"] for gpu in merged["observed"]["gpus"]] == [*range(gpus * len(readings))]
    return merged["measurement"]["energy_joules"]


def test_energy_counts_every_node_once_and_every_gpu():
    assert merge_energies(5.0, 5.5) == 5.5  # one node: both ranks read the same counters
    assert merge_energies(5.0, 5.0, 7.0, 7.0, nodes=("here", "there")) == 12.0
    assert merge_energies(5.0, 7.0, gpus=True) == 12.0
    # Both ranks read the counter of the same GPU.
    assert merge_energies(5.0, 5.5, gpus=True, uuid_hash="1a") == 5.5
    assert merge_energies(5.0, None, nodes=("here", "there")) is None
    assert merge_energies(None, None) is None
