"""Series of launches, kept to try methods of measuring on them. Not a test.

A series has the launches of one session on one machine: each cell 40 times, with all step times.

`make series` records one, in an hour on a quiet machine:

    xfbench run ... --launches 40 --results results/series
    python -m tests.measuring.series results/series

The second command packs the records into a file of tests/measuring/recorded/.
"""

import argparse
import json
import lzma
from dataclasses import asdict, dataclass
from pathlib import Path

from tabulate import tabulate

from xfbench import statistics
from xfbench.model.record import Record
from xfbench.store.results_folder import Store

FOLDER = Path(__file__).parent / "recorded"
_MICROSECONDS = 1e6


@dataclass(frozen=True)
class Launch:
    """One launch of a series.

    - `cell`: label of the cell.
    - `number`: launch number, which is the number of the block.
    - `position`: position in the session, from 1.
    - `ended`: time of the end, in UTC.
    - `seconds`: duration of the whole launch.
    - `images`: images per step.
    - `first_step_s`: seconds of the first step, which is never timed.
    - `step_s`: seconds of each later step, warm-up included.
    - `steal_s`: seconds that the hypervisor took during the launch.
    - `other_cpus`: CPUs that other processes used.
    - `core_latency_s`: core-to-core latencies during the launch, in seconds.
    """

    cell: str
    number: int
    position: int
    ended: str
    seconds: float
    images: int
    first_step_s: float
    step_s: tuple[float, ...]
    steal_s: float
    other_cpus: float | None
    core_latency_s: tuple[float, ...]


@dataclass(frozen=True)
class Series:
    """The launches of one session, in their order.

    - `machine`: CPU model, microarchitecture, number of cores and kernel of the system.
    - `versions`: version of each framework, and of xfbench.
    """

    session: str
    machine: dict[str, str | int]
    versions: dict[str, str]
    launches: tuple[Launch, ...]

    def by_cell(self) -> dict[str, list[Launch]]:
        """Return the launches of each cell, in their order."""
        cells: dict[str, list[Launch]] = {}
        for launch in self.launches:
            cells.setdefault(launch.cell, []).append(launch)
        return dict(sorted(cells.items()))


def main() -> None:
    """Pack the records of a results folder, one file for each session."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    for series in read_sessions(options.results):
        path = write(series, options.folder)
        cells = series.by_cell()
        print(f"{path}: {len(series.launches)} launches of {len(cells)} cells, {series.machine}")
        rows = [
            [cell, len(launches), sum(launches_are_long(launches))]
            for cell, launches in cells.items()
        ]
        print(tabulate(rows, ["cell", "launches", "of 5 s or more"]))


def launches_are_long(launches: list[Launch]) -> list[bool]:
    """Return for each launch whether its steps took 5 s or more."""
    return [sum(launch.step_s) >= 5 for launch in launches]


def read_sessions(results: Path) -> list[Series]:
    """Return the series of each session in a results folder. Only ok launches of one rank count."""
    records_by_session: dict[str, list[Record]] = {}
    for record in Store(results).records():
        if record.request and record.status == "ok" and record.request.ranks == 1:
            records_by_session.setdefault(statistics.session_of(record), []).append(record)
    return [
        _build_series(session, records) for session, records in sorted(records_by_session.items())
    ]


def _build_series(session: str, records: list[Record]) -> Series:
    records = sorted(records, key=lambda record: record.created)
    machine, software = records[0].machine, records[0].software
    assert machine and software
    versions = {r.request.framework: r.observed.framework_version for r in records}
    return Series(
        session=session,
        machine={
            "cpu": machine.cpu_model,
            "microarchitecture": machine.microarchitecture,
            "cores": machine.cores,
            "system": machine.kernel_release,
        },
        versions={**dict(sorted(versions.items())), "xfbench": software.git_commit or ""},
        launches=tuple(
            _build_launch(record, position) for position, record in enumerate(records, 1)
        ),
    )


def _build_launch(record: Record, position: int) -> Launch:
    request, measurement, conditions = record.request, record.measurement, record.conditions
    return Launch(
        cell=request.label(),
        number=request.launch,
        position=request.position or position,
        ended=record.created,
        seconds=conditions.seconds,
        images=request.global_batch_size,
        first_step_s=measurement.first_step_seconds,
        step_s=measurement.warmup_seconds + measurement.step_seconds,
        steal_s=conditions.steal_seconds,
        other_cpus=conditions.other_cpus,
        core_latency_s=record.observed.handover_seconds,
    )


def write(series: Series, folder: Path = FOLDER) -> Path:
    """Write a series to a file in `folder`, and return its path. Steps are in microseconds."""
    document = asdict(series)
    for launch in document["launches"]:
        launch["step_s"] = [round(_MICROSECONDS * seconds) for seconds in launch["step_s"]]
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"{series.session}.json.xz"
    text = json.dumps(document, separators=(",", ":"))
    path.write_bytes(lzma.compress(text.encode(), preset=9))
    return path


def read(path: Path) -> Series:
    """Return the series of a file that `write` wrote."""
    document = json.loads(lzma.decompress(path.read_bytes()))
    launches = []
    for launch in document.pop("launches"):
        launch["step_s"] = tuple(steps / _MICROSECONDS for steps in launch["step_s"])
        launch["core_latency_s"] = tuple(launch["core_latency_s"])
        launches.append(Launch(**launch))
    return Series(**document, launches=tuple(launches))


def read_all(folder: Path = FOLDER) -> list[Series]:
    """Return the recorded series, oldest first."""
    return [read(path) for path in sorted(folder.glob("*.json.xz"))]


if __name__ == "__main__":
    main()
