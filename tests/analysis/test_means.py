"""Means of ratios over networks: their values, and how often their intervals cover the truth."""

import math

import numpy as np
import pytest

from tests.sample_records import make_block
from xfbench import pairwise
from xfbench.analysis import means
from xfbench.statistics import Interval

LAUNCHES = 5


def draw(rng, speed, block_noise=None):
    """Draw launches that vary by 5 %. `block_noise`: noise that the other side shares."""
    shared = np.zeros(LAUNCHES) if block_noise is None else block_noise
    return {
        make_block(n): float(speed * np.exp(rng.normal(0, 0.05) + shared[n]))
        for n in range(LAUNCHES)
    }


def test_geometric_mean_adds_squares_of_half_widths():
    ratios = [
        Interval(2.0, 2.0 * math.exp(-0.3), 2.0 * math.exp(0.3), 5),
        Interval(8.0, 8.0 * math.exp(-0.4), 8.0 * math.exp(0.4), 7),
    ]
    mean = means.geometric_mean(ratios)
    assert mean.value == pytest.approx(4)
    assert (mean.low, mean.high) == pytest.approx((4 * math.exp(-0.25), 4 * math.exp(0.25)))
    assert mean.launches == 5
    without_interval = means.geometric_mean([*ratios, Interval(1.0, None, None, 2)])
    assert (without_interval.low, without_interval.high, without_interval.launches) == (
        None,
        None,
        2,
    )
    with pytest.raises(ValueError):
        means.geometric_mean([])


def test_mean_of_joint_intervals_has_the_means_of_their_ends():
    mean = means.geometric_mean_of_joint([Interval(2, 1, 4, 5), Interval(8, 4, 9, 5)])
    assert (mean.value, mean.low, mean.high) == pytest.approx((4, 2, 6))
    assert means.geometric_mean_of_joint([Interval(2, 1, 4, 5), Interval(8, None, None, 1)]) == (
        Interval(4, None, None, 1)
    )


def test_total_time_is_the_ratio_of_sums_of_seconds_per_image():
    blocks = [make_block(n) for n in range(LAUNCHES)]
    pairs = [
        (dict.fromkeys(blocks, 100.0), dict.fromkeys(blocks, 200.0)),
        (dict.fromkeys(blocks, 10.0), dict.fromkeys(blocks, 5.0)),
    ]
    ratio = means.total_time_ratio(pairs)
    expected = (1 / 100 + 1 / 10) / (1 / 200 + 1 / 5)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((expected,) * 3)
    inverse = means.total_time_ratio([(b, a) for a, b in pairs])
    assert inverse.value == pytest.approx(1 / expected)
    single_launch = {blocks[0]: 5.0}
    assert means.total_time_ratio([pairs[0], (single_launch, single_launch)]).low is None
    with pytest.raises(ValueError):
        means.total_time_ratio([])


@pytest.mark.parametrize("noisy_side", [0, 1])
def test_noise_of_a_network_counts_with_its_share_of_the_total_time(noisy_side):
    """The second network takes 90 % of the time of both sides."""
    blocks = [make_block(n) for n in range(LAUNCHES)]
    noise = (0.98, 1.0, 1.02, 0.99, 1.01)

    def relative_width(noisy_network):
        pairs = [
            tuple(
                {
                    block: speed * (factor if (network, side) == (noisy_network, noisy_side) else 1)
                    for block, factor in zip(blocks, noise, strict=True)
                }
                for side in (0, 1)
            )
            for network, speed in enumerate((90.0, 10.0))
        ]
        ratio = means.total_time_ratio(pairs)
        return math.log(ratio.high / ratio.low)

    assert relative_width(1) / relative_width(0) == pytest.approx(9, rel=0.01)


@pytest.mark.parametrize("shared_noise", [0.0, 0.2])
def test_intervals_of_means_cover_the_truth(shared_noise):
    """Also if the ratio differs between networks, and if blocks have noise in common."""
    rng = np.random.default_rng(4)
    speeds = [(100, 100), (50, 25), (4, 8), (1, 1.2)]
    truth = math.prod(b / a for a, b in speeds) ** 0.25
    true_total = sum(1 / a for a, _ in speeds) / sum(1 / b for _, b in speeds)
    covered, covered_total = [], []
    for _ in range(150):
        pairs = []
        for a, b in speeds:
            noise = rng.normal(0, shared_noise, LAUNCHES)
            pairs.append((draw(rng, a, noise), draw(rng, b, noise)))
        mean = means.geometric_mean([pairwise.compare(b, a).ratio for a, b in pairs])
        total = means.total_time_ratio(pairs)
        covered.append(mean.low < truth < mean.high)
        covered_total.append(total.low < true_total < total.high)
    assert np.mean(covered) >= 0.93
    assert np.mean(covered_total) >= 0.93
