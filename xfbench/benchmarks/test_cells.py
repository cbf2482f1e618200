"""Training launches as benchmarks: each cell is a benchmark, and its timed steps are the rounds.

Each launch runs in the framework's worker, as with `xfbench run`. pytest-benchmark receives the
step times of the record. xfbench's pytest plugin selects the cells.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # a plain `pytest` collects this file too
    from pytest_benchmark.fixture import BenchmarkFixture

    from xfbench.exchange.replay import ReplayTimer
    from xfbench.model.request import Cell
    from xfbench.session import Session


_SINGLE_STEP = {
    **{"steps": 1, "warmup": 0, "window": 1},
    **{"min_seconds": None, "min_warmup_seconds": None},
}


@pytest.mark.filterwarnings("ignore:Benchmark fixture was not used")  # if the launch failed
def test_training(
    xfbench_cell: Cell,
    xfbench_session: Session,
    xfbench_replay: ReplayTimer,
    benchmark: BenchmarkFixture,
    tmp_path: Path,
) -> None:
    """Measure one launch of a cell.

    With `--benchmark-disable`, measure a single step and keep no record in the results folder.
    """
    from xfbench.analysis.peak_share import share_of_usual_peak
    from xfbench.benchmarks import names
    from xfbench.equality import certify
    from xfbench.session import Session
    from xfbench.statistics import is_level_changed, launch_throughput
    from xfbench.store.results_folder import Store

    cell, session = xfbench_cell, xfbench_session
    # pytest's own name depends on the folder in which pytest was started.
    benchmark.fullname = names.format_full_name(names.format_id(cell))
    if not benchmark.enabled:
        cell = cell.model_copy(update=_SINGLE_STEP)
        session = Session(replace(session.context, store=Store(tmp_path / "results")))
    request = cell.request(launch=1)
    certify.attach_cached_certificate(request, session.context)
    [record] = session.launch([request])
    if record.status in ("unsupported", "unavailable"):
        pytest.skip(f"{record.status}: {record.reason}")
    if record.status != "ok" or record.measurement is None or record.observed is None:
        folder = session.context.store.run_folder(record)
        pytest.fail(f"{record.status}: {record.reason}\nrun folder: {folder}", pytrace=False)
    seconds = record.measurement.step_seconds
    peak_share = share_of_usual_peak([record])
    benchmark.extra_info.update(
        record=record.id,
        status=record.status,
        certificate=record.certificate,
        batch_certificate=record.batch_certificate,
        framework=cell.framework,
        version=record.observed.framework_version,
        kernel=record.observed.kernel,
        threads=record.observed.threads,
        workload=cell.workload,
        device=cell.device,
        precision=cell.precision,
        batch_size=cell.global_batch_size,
        images_per_second=launch_throughput(record),
        share_of_peak=peak_share and peak_share.value,
        steady=not is_level_changed(record),
    )
    xfbench_replay.set_next_durations(seconds)
    benchmark.pedantic(  # type: ignore[no-untyped-call]
        lambda: None, rounds=len(seconds), iterations=1, warmup_rounds=0
    )
