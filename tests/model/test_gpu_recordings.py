"""A bundle that was run on an H100 on 2026-11-26, imported as it came back.

`h100/` has the launches of JAX and one of PyTorch. The host's name, its kernel's name and most of
the packages are removed. `verify` of the plan is false, because the verification cases are left
out.
"""

import itertools
from pathlib import Path

import pytest

from xfbench import bundle
from xfbench.analysis.leaderboard import build_tables
from xfbench.rendering.report import content
from xfbench.store.results_folder import Store

RECORDINGS = Path(__file__).parent / "h100"
NOT_RECORDED = ("uuid_hash", "slowed_of_seconds")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The records of the launches that were recorded."""
    store = Store(tmp_path_factory.mktemp("results"))
    return list(bundle.import_carried_run(RECORDINGS, store, lambda line: None))


def test_recorded_launches_are_valid(recorded):
    launches = [(record.request.framework, record.request.workload) for record in recorded]
    assert sorted(launches) == [
        *[("jax", "convnet")] * 2,
        *[("jax", "lenet")] * 2,
        ("torch", "lenet"),
    ]
    assert [record.reason for record in recorded if record.status != "ok"] == []
    assert all(record.canary.relative_error < 1e-5 for record in recorded)


def test_recorded_clocks_are_shown(recorded):
    for record in recorded:
        [gpu] = record.observed.gpus
        assert (gpu.name, gpu.clock_hz, gpu.most_clock_hz) == (
            "NVIDIA H100 80GB HBM3",
            1.98e9,
            1.98e9,
        )
        assert gpu.others == () and gpu.busy_before == 0.0
        assert (record.limit.matrix_product, record.limit.precision) == (67e12, "float32")


def test_what_was_not_recorded_is_null(recorded):
    for record in recorded:
        [gpu] = record.observed.gpus
        assert {getattr(gpu, name) for name in NOT_RECORDED} == {None}
        # The energy is that of the whole training loop, compiling included.
        assert record.measurement.energy_joules > 60 and record.measurement.energy_seconds is None
    [of_torch] = [record for record in recorded if record.request.framework == "torch"]
    assert of_torch.observed.kernel_evidence[0] == "requested, not shown"
    rows = list_rows(recorded)
    assert {row.costs.joules_per_image for row in rows} == {None}


def list_rows(records):
    tables = build_tables(records, {})
    return list(itertools.chain.from_iterable((*each.rows, *each.unranked) for each in tables))


def test_cpu_threads_that_worked_are_not_shown_for_a_gpu(recorded):
    rows = list_rows(recorded)
    assert len(rows) == 3
    assert {(row.threads_observed, row.cpus_busy) for row in rows} == {(None, None)}
    facts = [dict(content._row_facts(row, recorded[0])) for row in rows]
    assert [fact["threads"] for fact in facts] == ["2 requested"] * 3
