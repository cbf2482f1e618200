"""Inputs of blocks, drawn from quantiles of activations."""

import numpy as np
import pytest

from tests.equality.proofs import Proof
from xfbench.equality import cases, jobs
from xfbench.worker.block_input import KNOTS, build_table, draw_input
from xfbench.workloads import workloads


def relu_activations(shape):
    """Return activations whose channels differ in mean and in their share of zeros."""
    values = np.random.RandomState(0).standard_normal(shape)
    return np.maximum(values + np.linspace(-1, 1, shape[1])[:, None, None], 0)


def test_drawn_values_have_the_distribution_of_each_channel():
    activations = relu_activations((4, 8, 20, 20))
    drawn = draw_input(build_table(activations), (16, 8, 20, 20), seed=3)
    assert drawn.dtype == np.float32
    for channel in range(8):
        before, after = activations[:, channel], drawn[:, channel]
        assert after.mean() == pytest.approx(before.mean(), abs=0.05)
        assert after.std() == pytest.approx(before.std(), rel=0.1)
        assert (after == 0).mean() == pytest.approx(
            (before == 0).mean(), abs=1 / 12
        )  # gaps of the table
        assert before.min() <= after.min() and after.max() <= before.max() + 1e-6


def test_draws_depend_on_the_seed_alone():
    table = build_table(relu_activations((4, 8, 20, 20)))
    first, again, other = (draw_input(table, (2, 8, 20, 20), seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("shape", [(2, 500), (2, 1024, 1, 1), (4, 3, 3, 3)])
def test_channels_with_few_values_share_a_row(shape):
    activations = np.random.RandomState(0).standard_normal(shape)
    table = build_table(activations)
    assert table.shape == (1, KNOTS)
    assert draw_input(table, (2, shape[1], 1, 1), 0).shape == (2, shape[1], 1, 1)


def test_a_table_is_small():
    assert build_table(relu_activations((2, 64, 56, 56))).nbytes == 64 * KNOTS * 4


def test_workers_without_tables_get_the_inputs_that_others_draw(tmp_path, monkeypatch):
    """A worker of an earlier revision reads inputs as arrays."""
    workload = workloads()["lenet"]
    case = next(case for case in cases.block_cases(workload, 0, ["scaled"], 4) if case.reads)
    document = case.document("float32")
    shape = workload.network.shapes[case.reads]
    table = build_table(relu_activations((4, *shape)))
    np.savez(tmp_path / "tables.npz", **{document["input"]: table})
    request = Proof.of("reference").request.model_copy(update={"revision": "0" * 40})
    for files, expected in (
        ({"block_input.py": b""}, table),
        ({"check.py": b""}, draw_input(table, (4, *shape), 0)),
    ):
        monkeypatch.setattr(jobs.worker_archive, "read_worker_files", lambda _, files=files: files)
        monkeypatch.setattr(jobs.job, "build_job_document", lambda *_, **__: {})
        jobs.copy_inputs_and_build_job(
            [document], request, workload, tmp_path / "tables.npz", tmp_path
        )
        with np.load(tmp_path / "inputs.npz") as inputs:
            assert np.array_equal(inputs[document["input"]], expected)
        (tmp_path / "inputs.npz").unlink()
