"""Times to a target, and learning speed-ups, of runs whose times are known."""

import math

import numpy as np
import pytest

from xfbench import pairwise, statistics
from xfbench.analysis import learning
from xfbench.analysis.learning import RunsToTarget, TimeToTarget
from xfbench.model.record import Epoch

TARGET = 0.2


@pytest.fixture
def train(record):
    """Return a function that makes a launch with these test losses and seconds of an epoch."""

    def make(losses, seconds=1.0, accuracies=None, diverged=False, **request):
        accuracies = accuracies or [0.9] * len(losses)
        epochs = tuple(
            Epoch(epoch=n, seconds=seconds, train_loss=1.0, test_loss=loss, test_accuracy=accuracy)
            for n, (loss, accuracy) in enumerate(zip(losses, accuracies, strict=True), 1)
        )
        fields = {"learning": epochs}
        launch = record(fields=fields, **request)
        epochs_request = launch.request.model_copy(update={"epochs": len(losses), "steps": None})
        launch = launch.model_copy(update={"request": epochs_request})
        if not diverged:
            return launch
        measurement = launch.measurement.model_copy(update={"losses": (2.3, None)})
        update = {"status": "invalid", "reason": "the loss of update 2", "measurement": measurement}
        return launch.model_copy(update=update)

    return make


def test_loss_is_interpolated_between_evaluations(train):
    run = train([0.8, 0.4, 0.1], seconds=2.0)
    # Half way between 0.4 and 0.1, the logarithm is that of 0.2.
    assert learning.time_to_test_loss(run, 0.2) == TimeToTarget(
        pytest.approx(5), pytest.approx(5), True
    )
    assert learning.time_to_test_loss(run, 0.4).seconds == pytest.approx(4)
    assert learning.time_to_test_loss(run, 0.05) == TimeToTarget(6, 6, False)
    assert learning.time_to_test_loss(train([0.5, 0.0]), 0.2).is_reached


def test_accuracy_is_interpolated_between_evaluations(train):
    run = train([1, 1, 1], seconds=2.0, accuracies=[0.5, 0.9, 0.7])
    assert learning.time_to_test_accuracy(run, 0.8).seconds == pytest.approx(3.5)
    assert not learning.time_to_test_accuracy(run, 0.95).is_reached


def test_time_is_unknown_within_an_epoch_without_an_earlier_evaluation(train):
    assert learning.time_to_test_loss(train([0.1, 0.1], 2.0), 0.2) == TimeToTarget(2, 0, True)
    run = train([0.9, None, 0.1], 2.0)
    assert learning.time_to_test_loss(run, 0.2) == TimeToTarget(6, 2, True)


def test_diverged_run_missed_its_target(train):
    run = train([0.5, 0.1], diverged=True)
    assert learning.is_learning_run(run)
    assert learning.time_to_test_loss(run, 0.2) == TimeToTarget(math.inf, math.inf, False)
    runs = learning.runs_to_test_loss([run, train([0.5, 0.1])], 0.2)
    assert (runs.share, runs.median_seconds) == ("1 of 2 runs", None)


def test_failed_launches_and_launches_of_steps_are_no_runs(train, record):
    failed = train([0.5]).model_copy(update={"status": "failed", "reason": "x"})
    assert learning.runs_to_test_loss([failed, record()], 0.2).times == {}


def test_targets_belong_to_workloads():
    assert learning.default_target_loss("lenet") == 0.2
    assert learning.default_target_loss("alexnet") is None
    assert learning.default_target_loss("no such network") is None


def make_runs(*times):
    return RunsToTarget(
        {statistics.Block("s", seed, 1, 0): TimeToTarget(*time) for seed, time in enumerate(times)}
    )


def exact(*seconds):
    return make_runs(*((value, value, True) for value in seconds))


def test_interpolated_times_are_compared_as_they_are():
    a, b = exact(4.0, 4.2, 4.4), exact(2.0, 2.2, 2.1)
    speeds = [{block: time.seconds for block, time in runs.times.items()} for runs in (a, b)]
    assert learning.learning_speedup(a, b) == pairwise.compare(*speeds).ratio


def test_interval_is_wider_by_an_epoch_that_is_not_interpolated():
    a, b = exact(4.0, 4.2, 4.4), exact(2.0, 2.2, 2.1)
    uncertain = make_runs((2.0, 1.0, True), (2.2, 2.2, True), (2.1, 2.1, True))
    narrow, wide = learning.learning_speedup(a, b), learning.learning_speedup(a, uncertain)
    assert wide.value == narrow.value and wide.low == narrow.low
    assert wide.high > narrow.high * 1.2
    widest = learning.learning_speedup(a, make_runs((2.0, 0.0, True), (2.2, 2.2, True)))
    assert (widest.low, widest.high) == (None, None)


def test_missed_targets_leave_the_ratio_of_medians():
    a = make_runs(*((value, value, value < 9) for value in (4.0, 4.2, 4.4, 5.0, 9.0)))
    speedup = learning.learning_speedup(a, exact(2.0, 2.2, 2.1, 2.0, 2.0))
    assert (speedup.value, speedup.low, speedup.launches) == (pytest.approx(2.2), None, 5)
    too_few = make_runs((4.0, 4.0, True), (9.0, 9.0, False))
    assert learning.learning_speedup(too_few, exact(2.0, 2.2)) is None
    assert learning.learning_speedup(make_runs(), exact(2.0)) is None


def test_missed_target_in_one_of_nine_blocks_leaves_an_interval():
    rng = np.random.default_rng(1)
    values = 4 * np.exp(rng.normal(0, 0.02, 9))
    a = make_runs(*((value, value, n > 0) for n, value in enumerate(values)))
    b = exact(*(2 * np.exp(rng.normal(0, 0.02, 9))))
    speedup = learning.learning_speedup(a, b)
    assert speedup.low < 2 < speedup.high < 2.3
    inverse = learning.learning_speedup(b, a)
    assert inverse.value == pytest.approx(1 / speedup.value)
    assert inverse.low < 0.5 < inverse.high


def test_interpolated_speedup_covers_the_truth_and_whole_epochs_do_not(train):
    """One rank needs 2.5 epochs of 1 s. Four ranks need 5.6 epochs of 0.3 s."""
    rng = np.random.default_rng(23)
    true_times, epoch_times, exponents = (2.5, 1.7), (1.0, 0.3), (0.7, 0.8)
    covered, covered_with_whole_epochs, estimates = [], [], []
    for _ in range(120):
        sides = []
        for true_s, epoch_s, exponent in zip(true_times, epoch_times, exponents, strict=True):
            records = []
            for seed in range(5):
                seed_s = true_s * math.exp(rng.normal(0, 0.05))
                losses = [
                    2.3 * (TARGET / 2.3) ** ((epoch * epoch_s / seed_s) ** exponent)
                    for epoch in range(1, 9)
                ]
                records.append(train(losses, epoch_s, seed=seed))
            sides.append(records)
        runs = [learning.runs_to_test_loss(records, TARGET) for records in sides]
        speedup = learning.learning_speedup(*runs)
        whole_epochs = [
            {
                block: math.ceil(time.seconds / epoch_s) * epoch_s
                for block, time in runs_of_side.times.items()
            }
            for runs_of_side, epoch_s in zip(runs, epoch_times, strict=True)
        ]
        whole = pairwise.compare(*whole_epochs).ratio
        truth = true_times[0] / true_times[1]
        estimates.append(speedup.value / truth)
        covered.append(speedup.low < truth < speedup.high)
        covered_with_whole_epochs.append(whole.low < truth < whole.high)
    assert np.mean(covered) >= 0.9
    assert abs(np.mean(estimates) - 1) < 0.02
    assert np.mean(covered_with_whole_epochs) < 0.8
