"""Say what an archive of a kit shows: `python -m tests.measuring.kit.report ARCHIVE ...`.

Records and certificates are not read here: `xfbench results import --bundle ARCHIVE` imports them.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from tests.measuring.kit.cells import EXTRA_MODE, PLAIN_MODES
from tests.measuring.kit.there import run as there
from xfbench import statistics

_FEWEST_FOR_INTERVAL = 3


def main() -> None:
    """Print what the archives show, each on its own."""
    for archive in map(Path, sys.argv[1:]):
        print(f"# {archive}\n")
        print(build_report(archive))


def build_report(archive: Path) -> str:
    """Return the text about an archive: facts, time by events, switches and throughput."""
    replies = dict(read_replies(archive))
    parts = [_list_summaries(replies, stage) for stage in ("facts", "events", "rest")]
    parts += [_list_switches(replies), _tabulate_throughput(replies)]
    return "\n\n".join(filter(None, parts))


def read_replies(archive: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the reply of each item, with its request as `asked` if it is a launch."""
    for content in there.read_members(archive)[0]:
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            files = {
                name.rpartition("/")[2]: (name, tar.extractfile(name)) for name in tar.getnames()
            }
            documents = {
                key: json.loads(file.read())
                for key, (_, file) in files.items()
                if key in ("reply.json", "request.json") and file
            }
        if "reply.json" in documents:
            reply = documents["reply.json"]
            if "request.json" in documents:
                reply["asked"] = documents["request.json"]["request"]
            yield files["reply.json"][0].rpartition("/")[0], reply


def _list_summaries(replies: dict[str, dict[str, Any]], stage: str) -> str:
    return "\n".join(
        f"- {name}: {reply.get('summary') or reply['reason']}"
        for name, reply in replies.items()
        if name.startswith(f"{stage}/")
    )


def _list_switches(replies: dict[str, dict[str, Any]]) -> str:
    """Return a line for each switch: what was asked for, and what was observed."""
    lines = []
    for name, reply in replies.items():
        if not name.startswith("switches/"):
            continue
        if reply["status"] != "ok":
            lines.append(f"- {name}: {reply['status']}: {reply['reason']}")
            continue
        asked, differences = reply["asked"], there.list_differences(reply, reply["asked"])
        seen = "; ".join(differences) or "NOT SEEN"
        lines.append(f"- {name}: {asked['precision']}, {asked['kernel']} was requested: {seen}")
    return "\n".join(lines)


def _tabulate_throughput(replies: dict[str, dict[str, Any]]) -> str:
    """Return a table of the adapter's throughput over that of the plain loop, by round."""
    plain: dict[tuple[Any, ...], dict[int, float]] = defaultdict(dict)
    adapters: dict[tuple[Any, ...], dict[int, float]] = defaultdict(dict)
    for name, reply in replies.items():
        if figures := reply.get("plain"):
            names = ("framework", "network", "batch_size", "precision", "device", "mode")
            launch = int(name.rpartition("-")[2])
            plain[tuple(figures[each] for each in names)][launch] = figures["images_per_second"]
        elif name.startswith("launches/") and reply["status"] == "ok":
            asked = reply["asked"]
            seconds = sorted(reply["measurement"]["step_seconds"])
            names = ("framework", "workload", "global_batch_size", "precision", "device", "kernel")
            key = tuple(asked[each] for each in names)
            rate = asked["global_batch_size"] / seconds[len(seconds) // 2]
            adapters[key][asked["launch"]] = rate
    rows = []
    for key, rates in sorted(plain.items()):
        *cell, mode = key
        if mode == EXTRA_MODE:
            rows.append((*cell, mode, "", _format_rates([*rates.values()]), "", ""))
        for kernel, mode_of_kernel in PLAIN_MODES.items():
            of_adapter = adapters.get((*cell, kernel), {})
            if mode_of_kernel == mode and of_adapter:
                ratios = [rate / rates[n] for n, rate in of_adapter.items() if n in rates]
                texts = (_format_rates([*each.values()]) for each in (rates, of_adapter))
                rows.append((*cell, mode, kernel, *texts, _format_ratios(ratios)))
    headers = ("framework", "network", "batch", "precision", "device", "plain loop", "kernel")
    headers += ("plain images/s", "xfbench images/s", "ratio")
    return tabulate(rows, headers, "github", disable_numparse=True) if rows else ""


def _format_rates(rates: Sequence[float]) -> str:
    low, high = min(rates), max(rates)
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def _format_ratios(ratios: Sequence[float]) -> str:
    """Return the geometric mean with its interval of 95 %, or the range of two ratios."""
    if not ratios:
        return ""
    if len(ratios) < _FEWEST_FOR_INTERVAL:
        return f"{min(ratios):.3f} to {max(ratios):.3f}"
    interval = statistics.geometric_interval(ratios)
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


if __name__ == "__main__":
    main()
