"""Inputs of blocks, drawn from quantiles of activations."""

import numpy as np
import pytest

from xfbench.worker.block_input import KNOTS, build_table, draw_input


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
