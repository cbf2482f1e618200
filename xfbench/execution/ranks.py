"""Merges the replies of a launch's ranks.

- Time of a step, synchronous strategy: the mean over the ranks, because each rank waits for the
  others in every step.
- Time of a step, asynchronous strategy: the harmonic mean over the ranks, because each rank has its
  own rate, and the rates add up.
- Training losses: the mean over the ranks.
- The canary's loss: the loss that differs most from the first rank's loss.
- Times of start-up, building, each phase and the whole loop: those of the slowest rank.
- Images and memory: the sum over the ranks.
- Memory of GPUs: that of the rank with the most; None if it is unknown for a rank.
- Share of copies on the GPU: the mean over the ranks; None if it is unknown for a rank.
- Energy: the sum over the nodes or GPUs.
- Threads and busy CPUs: the largest value of any rank.
- Other observations: the first rank's value. If another rank observed a different value, the launch
  gets the different value, so that the deviation is visible.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from xfbench.execution import rank_communication
from xfbench.worker import page_cache

_SLOWEST = ("startup_seconds", "build_seconds", "wall_seconds")
_BY_STEP = ("warmup_seconds", "step_seconds")
_RANK_FIELDS = ("threads", "cpus", "affinity", "laid_out")
_ADDED_UP = ("images", "peak_rss_bytes")
_LARGEST = ("peak_device_bytes", "peak_device_reserved_bytes")


def merge_replies(
    replies: Sequence[dict[str, Any]], nodes: int = 1, *, asynchronous: bool = False
) -> dict[str, Any]:
    """Return the launch's reply, merged from the replies of its ranks.

    - `replies`: one per rank, in the order of ranks, all with the status "ok".
    - `nodes`: the number of nodes.
    - `asynchronous`: whether the strategy is asynchronous, so that ranks do not wait for each
      other.

    Raises ValueError if the ranks' numbers of steps differ.
    """
    first = replies[0]
    if len(replies) == 1:
        return first
    used = {
        name: sum((Counter(reply.get(name, {})) for reply in replies), Counter())
        for name in ("used", "used_on_kernel")
    }
    places = [reply["place"] for reply in replies if "place" in reply]
    if "measurement" not in first:
        return {**first, **used, "places": places}
    measurement = _merge_measurements_by_mean_step_time(
        [reply["measurement"] for reply in replies], asynchronous
    )
    measurement["energy_joules"] = _total_energy(replies)
    communication = [reply.get("communication") for reply in replies]
    return {
        **first,
        **used,
        "places": places,
        "kinds": _describe_node_kinds(replies),
        "measurement": measurement,
        "communication": rank_communication.merge_communication(
            communication, measurement["step_seconds"], nodes, asynchronous=asynchronous
        ),
        "learning": _merge_epochs_averaging_train_loss(
            [reply["learning"] for reply in replies], asynchronous
        ),
        "canary": {
            "loss": _loss_farthest_from_first_rank([reply["canary"]["loss"] for reply in replies])
        },
        "observed": _merge_observed([reply["observed"] for reply in replies]),
        "storage": {
            **first.get("storage", {}),
            "epochs": _judge_epoch_reads_and_list_by_rank(replies),
        },
    }


def _describe_node_kinds(replies: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each kind of node that ran ranks: CPU model, CPUs and accelerators."""
    machines = [reply["machine"] for reply in replies if "machine" in reply]
    words = [
        (
            machine["cpu_model"],
            f"{machine['logical_cpus']} CPUs",
            *dict.fromkeys(machine["accelerators"]),
        )
        for machine in machines
    ]
    return sorted({" · ".join(each) for each in words})


def _merge_measurements_by_mean_step_time(
    parts: Sequence[dict[str, Any]], asynchronous: bool
) -> dict[str, Any]:
    mean = statistics.harmonic_mean if asynchronous else statistics.fmean
    rank_step_seconds = [part["step_seconds"] for part in parts] if asynchronous else []
    return {
        **parts[0],
        **{name: max(part[name] for part in parts) for name in _SLOWEST},
        "first_step_seconds": _mean_if_complete([part["first_step_seconds"] for part in parts]),
        **{
            name: [mean(step) for step in zip(*(part[name] for part in parts), strict=True)]
            for name in _BY_STEP
        },
        "rank_step_seconds": rank_step_seconds,
        **{name: sum(part[name] for part in parts) for name in _ADDED_UP},
        **{name: _largest_if_complete([part.get(name) for part in parts]) for name in _LARGEST},
        "losses": [
            _mean_if_complete(step)
            for step in zip(*(part["losses"] for part in parts), strict=True)
        ],
        "phases": {
            name: max(part["phases"].get(name, 0.0) for part in parts)
            for name in parts[0]["phases"]
        },
    }


def _total_energy(replies: Sequence[dict[str, Any]]) -> float | None:
    """Return the launch's energy in joules: the sum over the ranks' GPUs, or over the nodes.

    - If the ranks use GPUs, each rank reports the energy of its own GPU. Ranks on the same GPU
      read the same counter, so each GPU counts once.
    - Otherwise, ranks on the same node read the same counters, so each node counts once.

    Returns None if the energy of a GPU or node is missing. Workers of earlier versions report no
    GPUs.
    """
    read = {
        (*reply["used"], _counter_name(reply, rank)): reply["measurement"]
        for rank, reply in enumerate(replies)
    }
    energies = [measured.get("energy_joules") for measured in read.values()]
    known_energies = [joules for joules in energies if joules is not None]
    return sum(known_energies) if len(known_energies) == len(energies) else None


def _counter_name(reply: dict[str, Any], rank: int) -> str:
    """Return a name of the counter that the rank read: one for each GPU, and one for the node."""
    gpus = reply["observed"].get("gpus")
    return (gpus[0].get("uuid_hash") or f"GPU of rank {rank}") if gpus else "node"


def _judge_epoch_reads_and_list_by_rank(replies: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the storage reads of all epochs: first all epochs of rank 0, then those of rank 1.

    The bytes that all ranks read decide whether an epoch had the requested page cache state.
    Workers of earlier versions report no storage reads.
    """
    rank_epochs = [reply.get("storage", {}).get("epochs", ()) for reply in replies]
    merged_epochs = [
        page_cache.judge_epoch_and_mark_rank_readings(of_epoch)
        for of_epoch in zip(*rank_epochs, strict=True)
    ]
    return [reading for of_rank in zip(*merged_epochs, strict=True) for reading in of_rank]


def _merge_epochs_averaging_train_loss(
    epochs_by_rank: Sequence[Any], averages_test_figures: bool
) -> Any:
    """Merge the epochs of all ranks: one result for each epoch.

    - Duration: the slowest rank's.
    - Training loss: the mean over the ranks.
    - Test loss and accuracy: the mean over the ranks if `averages_test_figures`, else the first
      rank's.

    A synchronous strategy needs no mean of the test figures, because all ranks evaluate the same
    weights. With an asynchronous strategy, the ranks' weights differ.
    """
    if not epochs_by_rank[0]:
        return epochs_by_rank[0]
    averaged = ["train_loss", *(["test_loss", "test_accuracy"] if averages_test_figures else [])]
    return [
        {
            **epochs[0],
            "seconds": max(epoch["seconds"] for epoch in epochs),
            **{name: _mean_if_complete([epoch[name] for epoch in epochs]) for name in averaged},
        }
        for epochs in zip(*epochs_by_rank, strict=True)
    ]


def _merge_observed(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    merged_fields = {
        name: next((part[name] for part in parts if part.get(name) != parts[0].get(name)), value)
        for name, value in parts[0].items()
    }
    rank_fields = [
        {"rank": rank, **{name: part.get(name) for name in _RANK_FIELDS}}
        for rank, part in enumerate(parts)
    ]
    cpus = [part["cpus"] for part in parts if part["cpus"] is not None]
    return {
        **merged_fields,
        "threads": max(part["threads"] for part in parts),
        "cpus": max(cpus, default=None),
        "affinity": sorted({cpu for part in parts for cpu in part["affinity"]}),
        "laid_out": None,
        "gpu_copy_share": _mean_if_complete([part.get("gpu_copy_share") for part in parts]),
        "ranks": rank_fields,
        "gpus": [
            {**gpu, "rank": rank} for rank, part in enumerate(parts) for gpu in part.get("gpus", ())
        ],
    }


def _mean_if_complete(values: Sequence[float | None]) -> float | None:
    """Return the mean of `values`, or None if a value is None."""
    known_values = [value for value in values if value is not None]
    return statistics.fmean(known_values) if len(known_values) == len(values) else None


def _largest_if_complete(values: Sequence[int | None]) -> int | None:
    """Return the largest of `values`, or None if a value is None."""
    known_values = [value for value in values if value is not None]
    return max(known_values) if len(known_values) == len(values) else None


def _loss_farthest_from_first_rank(losses: Sequence[float | None]) -> float | None:
    """Return the loss that differs most from the first rank's loss; None if a loss is missing.

    All ranks had the same batch, so their losses should be equal.
    """
    first = losses[0]
    if first is None or None in losses:
        return None
    return max(losses, key=lambda loss: abs((loss or 0.0) - first))
