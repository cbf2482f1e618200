"""Merges the communication that the ranks of a launch reported."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_GPU_LINKS = ("nvlink", "pcie")


def merge_communication(
    rank_reports: Sequence[Mapping[str, Any] | None],
    steps: Sequence[float],
    nodes: int,
    *,
    asynchronous: bool = False,
) -> dict[str, Any] | None:
    """Return the launch's communication from its ranks' reports; None if a rank has no report.

    - `rank_reports`: one report per rank, in the order of ranks.
    - `steps`: the seconds of the timed steps.
    - `nodes`: the number of nodes. The interfaces of a node come from the report of its first rank,
      and the links of each GPU from the first rank that uses it.
    - `asynchronous`: whether the strategy is asynchronous.

    `compute_seconds` of the result has one value for each step that the ranks did without
    communication. The value is the mean over the ranks. With an asynchronous strategy, the value is
    the harmonic mean.
    """
    reports = [report for report in rank_reports if report is not None]
    if len(reports) < len(rank_reports) or not reports:
        return None
    series = list(zip(*(report["compute_seconds"] for report in reports), strict=False))
    mean = statistics.harmonic_mean if asynchronous else statistics.fmean
    computing = [mean(rank_seconds) for rank_seconds in series]
    slowest = computing if asynchronous else [max(rank_seconds) for rank_seconds in series]
    median_seconds = statistics.median(slowest)
    ranks_per_node = len(reports) // nodes
    links = [
        {**link, "node": node}
        for node in range(nodes)
        for link in _links_of_node(reports[node * ranks_per_node : (node + 1) * ranks_per_node])
    ]
    sent: Counter[str] = Counter()
    for link in links:
        if link["kind"] in ("loopback", "network"):
            sent[link["name"]] += link["sent_bytes"]
    return {
        "payload_bytes": reports[0]["payload_bytes"],
        "interface_bytes": dict(sent),
        "links": links,
        "uncounted": reports[0]["uncounted"],
        "compute_seconds": computing,
        "waiting_seconds": [last - mean for last, mean in zip(slowest, computing, strict=True)],
        "exposed_seconds": [step - median_seconds for step in steps],
    }


def _links_of_node(reports: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the links in the reports of a node's ranks, each once.

    All ranks report the interfaces of the node, but only the links of their own GPU.
    """
    links = {
        (link["kind"], link["name"]): link
        for report in reversed(reports)
        for link in report["links"]
    }
    own = [key for key in links if key[0] in _GPU_LINKS]
    of_first_rank = [(link["kind"], link["name"]) for link in reports[0]["links"]]
    return [links[key] for key in dict.fromkeys([*of_first_rank, *sorted(own)])]


def min_bytes_of_all_ranks(payload_bytes: int, ranks: int, *, server: bool) -> int:
    """Return the minimum number of bytes that a step transfers, for all ranks together.

    - `payload_bytes`: the number of bytes that each rank contributes.
    - `server`: whether the ranks use a parameter server. If so, each rank sends and receives
      `payload_bytes`.

    Without a server, each of n ranks sends 2 (n - 1) / n times `payload_bytes` in an all-reduce. No
    all-reduce algorithm needs less (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms
    for clusters of workstations", 2009).
    """
    return 2 * ranks * payload_bytes if server else 2 * (ranks - 1) * payload_bytes
