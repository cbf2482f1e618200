"""The share of the peak: usual launches over usual matrix products, with an interval."""

import numpy as np
import pytest

from xfbench.analysis import leaderboard
from xfbench.analysis.peak_share import share_of_usual_peak
from xfbench.host.roofline import usual_matrix_product
from xfbench.model.record import Limit
from xfbench.rendering import tables
from xfbench.statistics import counted_speeds_by_block, interval_of_launches

PEAK = 1e12


@pytest.fixture
def launch(record):
    """Return a function that makes a launch at 40 images/s, divided by `factor`."""

    def make(number, factor=1.0, tries=(), best=PEAK, **fields):
        limit = Limit(
            threads=1,
            precision="float32",
            matrix_product=best,
            matrix_product_tries=tries,
            memory_bandwidth=1e11,
            source="measured",
        )
        return record(steps=(0.1 * factor,) * 3, launch=number, fields={"limit": limit, **fields})

    return make


def share_at(images_per_second, launch_record, peak=PEAK):
    return 2 * launch_record.workload.train_macs_per_image * images_per_second / peak


def test_share_of_old_records_is_relative_to_the_best_try(launch):
    launches = [launch(n + 1, 1 + 0.02 * n) for n in range(5)]
    share = share_of_usual_peak(launches)
    speed = interval_of_launches(counted_speeds_by_block(launches))
    expected = [share_at(value, launches[0]) for value in (speed.value, speed.low, speed.high)]
    assert (share.value, share.low, share.high) == pytest.approx(expected)


def test_share_is_relative_to_usual_tries_and_has_their_interval(launch):
    tries = tuple(PEAK * factor for factor in (0.78, 0.8, 0.8, 0.8, 0.82))
    launches = [launch(n + 1, 1 + 0.02 * n, tries) for n in range(5)]
    without_tries = share_of_usual_peak([launch(n + 1, 1 + 0.02 * n) for n in range(5)])
    share = share_of_usual_peak(launches)
    assert share.value == pytest.approx(without_tries.value / 0.8, rel=1e-3)
    assert share.high / share.low > without_tries.high / without_tries.low * 1.005


def test_interval_of_the_tries_turns_around_in_the_share(launch):
    tries = tuple(PEAK * factor for factor in (0.7, 0.8, 0.82, 0.79, 0.81))
    launches = [launch(n, 1.0, tries) for n in range(1, 6)]
    share, peak = share_of_usual_peak(launches), usual_matrix_product(launches[0].limit)
    assert share.low / share.value == pytest.approx(peak.value / peak.high)
    assert share.high / share.value == pytest.approx(peak.value / peak.low)
    assert share.high > share.value > share.low


def test_ranks_have_peaks_of_their_own(launch):
    [one, two] = [launch(1), launch(1)]
    two = two.model_copy(update={"request": two.request.model_copy(update={"ranks": 2})})
    assert share_of_usual_peak([two]).value == pytest.approx(share_of_usual_peak([one]).value / 2)


def test_failed_launches_and_unknown_limits_have_no_share(launch, record):
    failed = launch(1, status="failed", reason="x", measurement=None)
    assert share_of_usual_peak([failed, record()]) is None
    assert share_of_usual_peak([failed, launch(1)]).launches == 1


@pytest.mark.parametrize(("step_factor", "is_known"), [(1.02, True), (0.98, False)])
def test_a_share_above_the_measured_peak_is_unknown_and_explained(launch, step_factor, is_known):
    peak = share_at(40, launch(1), 1)
    [table] = leaderboard.build_tables([launch(1, step_factor, best=peak)], {})
    [row] = [*table.rows, *table.unranked]
    assert (row.peak_share is not None) == is_known == (not row.peak_disturbed)
    assert row.document()["share_of_peak"] == (pytest.approx(1 / 1.02) if is_known else None)
    text = tables.FORMATS["text"]([table], "throughput")
    assert "of peak" in text and ("the matrix product was disturbed" in text) != is_known


def test_a_share_above_a_published_peak_is_shown(launch):
    fast = launch(1, 0.98, best=share_at(40, launch(1), 1))
    published = fast.model_copy(
        update={"limit": fast.limit.model_copy(update={"source": "published"})}
    )
    assert share_of_usual_peak([published]).value == pytest.approx(1 / 0.98)


def test_interval_covers_the_share_of_usual_launches_and_tries(launch):
    """Launches vary by 3 %, tries by 2 %. The share of the best try is too low."""
    rng = np.random.default_rng(27)
    truth = None
    covered, best_shares = 0, []
    count = 100
    for _ in range(count):
        tries = tuple(float(PEAK * np.exp(rng.normal(0, 0.02))) for _ in range(5))
        launches = [
            launch(n + 1, float(np.exp(rng.normal(0, 0.03))), tries, max(tries)) for n in range(5)
        ]
        truth = share_at(40, launches[0])
        share = share_of_usual_peak(launches)
        covered += share.low <= truth <= share.high
        best_shares.append(share.value * np.exp(np.mean(np.log(tries))) / max(tries) / truth)
    assert covered / count >= 0.92
    assert np.mean(best_shares) < 0.985
