"""Costs of a result besides the step time, computed from records with known figures."""

import pytest

from xfbench.analysis.costs import costs_of_launches
from xfbench.model.record import Epoch
from xfbench.rendering.tables import first_step_origin_text, time_to_accuracy_text


def build_epochs(*accuracies):
    return tuple(
        Epoch(epoch=n + 1, seconds=10.0, train_loss=1.0, test_loss=1.0, test_accuracy=accuracy)
        for n, accuracy in enumerate(accuracies)
    )


@pytest.fixture
def trained(record):
    """Return a function that makes a launch: 2 s to start, 1 s to build and 10 s per epoch."""

    def make_trained(*accuracies, **measured):
        launch_record = record()
        updates = {"startup_seconds": 2.0, **measured}
        measurement = launch_record.measurement.model_copy(update=updates)
        return launch_record.model_copy(
            update={"measurement": measurement, "learning": build_epochs(*accuracies)}
        )

    return make_trained


def test_solution_time_includes_startup_build_and_all_epochs(trained):
    launch_costs = costs_of_launches([trained(0.5, 0.9, 0.97)], 0.95)
    assert (
        launch_costs.startup_seconds,
        launch_costs.build_seconds,
        launch_costs.first_step_seconds,
    ) == (2, 1, 0.5)
    assert launch_costs.solution_seconds == 33


def test_accuracy_time_is_interpolated_between_evaluations(trained):
    """Start-up and building take 3 s, an epoch 10 s. Within the first epoch, its end counts."""
    launches = [trained(0.9, 1.0, 0.94), trained(0.5, 0.9, 0.97), trained(0.96, 0.9, 0.9)]
    assert costs_of_launches(launches, 0.95).accuracy_seconds == pytest.approx(18)
    assert costs_of_launches(launches[1:2], 0.97).accuracy_seconds == pytest.approx(33)
    assert costs_of_launches(launches[2:], 0.95).accuracy_seconds == pytest.approx(13)
    below = costs_of_launches(launches[1:2], 0.98)
    assert (below.accuracy_seconds, below.accuracy_reached, below.accuracy_runs) == (None, 0, 1)


def test_missed_accuracy_leaves_a_median_if_more_than_half_reached_it(trained):
    reached = [trained(0.9, 1.0), trained(0.94, 0.96), trained(0.9, 0.95), trained(0.8, 0.96)]
    costs = costs_of_launches([*reached, trained(0.9, 0.94)], 0.95)
    assert costs.accuracy_seconds == pytest.approx(3 + 10 + 10 * 0.15 / 0.16)
    assert time_to_accuracy_text(costs) == "22.4 s (4 of 5 runs)"
    half = costs_of_launches([trained(0.9, 0.96), trained(0.9, 0.94)], 0.95)
    assert half.accuracy_seconds is None
    assert time_to_accuracy_text(half) == "– (1 of 2 runs)"
    assert time_to_accuracy_text(costs_of_launches(reached[:2], 0.95)) == "18 s"


def test_diverged_launch_missed_the_accuracy(trained):
    diverged = trained(0.96, losses=(2.3, None))
    diverged = diverged.model_copy(
        update={
            "status": "invalid",
            "request": diverged.request.model_copy(update={"epochs": 1, "steps": None}),
        }
    )
    costs = costs_of_launches([trained(0.9, 0.96), trained(0.9, 0.96), diverged], 0.95)
    assert (costs.accuracy_reached, costs.accuracy_runs) == (2, 3)
    assert costs.accuracy_seconds == pytest.approx(3 + 10 + 10 * 5 / 6)


def test_memory_is_the_peak_and_energy_is_per_image(trained):
    launches = [trained(0.9, peak_rss_bytes=5), trained(0.9, peak_rss_bytes=9)]
    assert costs_of_launches(launches, 0.95).peak_rss_bytes == 9
    assert costs_of_launches(launches, 0.95).joules_per_image is None
    # 80 J in 0.8 s is 100 W; a step of 4 images takes 0.1 s.
    launch = trained(0.9, energy_joules=80.0, energy_seconds=0.8)
    assert costs_of_launches([launch], 0.95).joules_per_image == pytest.approx(100 * 0.1 / 4)


def test_energy_of_the_whole_training_loop_is_not_that_of_timed_steps(trained):
    launch = trained(0.9, energy_joules=80.0, energy_seconds=None)
    assert costs_of_launches([launch], 0.95).joules_per_image is None


@pytest.mark.parametrize(("energy_seconds", "is_known"), [(0.99, False), (1.0, True)])
def test_energy_of_a_gpu_needs_a_second(trained, energy_seconds, is_known):
    launch = trained(0.9, energy_joules=80.0, energy_seconds=energy_seconds)
    on_gpu = launch.model_copy(
        update={"request": launch.request.model_copy(update={"device": "cuda"})}
    )
    assert (costs_of_launches([on_gpu], 0.95).joules_per_image is not None) == is_known


def test_gpu_memory_is_the_peak_if_every_launch_knows_it(trained):
    launches = [trained(0.9, peak_device_bytes=size) for size in (5, 9)]
    assert costs_of_launches(launches, 0.95).peak_device_bytes == 9
    assert costs_of_launches([*launches, trained(0.9)], 0.95).peak_device_bytes is None


def test_gpu_utilization_is_the_mean_over_gpus_if_all_are_known(trained, build_gpu):
    def on_gpus(*shares):
        launch = trained(0.9)
        gpus = tuple(build_gpu("a GPU", utilization=share) for share in shares)
        return launch.model_copy(
            update={"observed": launch.observed.model_copy(update={"gpus": gpus})}
        )

    def utilization_of(*launches):
        return costs_of_launches(launches, 0.95).gpu_utilization

    assert utilization_of(on_gpus(0.5, 0.7)) == pytest.approx(0.6)
    assert utilization_of(on_gpus(0.5), on_gpus(0.8), on_gpus(0.6)) == 0.6
    assert utilization_of(on_gpus(0.5, None)) is None
    assert utilization_of(on_gpus(0.5), on_gpus(None)) is None
    assert utilization_of(trained(0.9)) is None


def test_step_runs_have_no_solution_time_and_failures_no_costs(record):
    step_costs = costs_of_launches([record()], 0.95)
    assert (step_costs.solution_seconds, step_costs.startup_seconds) == (None, None)
    failed_costs = costs_of_launches(
        [record(fields={"status": "failed", "reason": "x", "measurement": None})], 0.95
    )
    assert (failed_costs.build_seconds, failed_costs.peak_rss_bytes) == (None, None)


def test_costs_are_medians_over_launches(trained):
    launches = [trained(0.9, startup_seconds=seconds) for seconds in (1.0, 2.0, 9.0)]
    assert costs_of_launches(launches, 0.95).startup_seconds == 2.0
    assert costs_of_launches(launches, 0.95).solution_seconds == 13.0


def test_invalid_launch_has_no_part_in_costs(trained):
    invalid = trained(0.9, startup_seconds=50.0, peak_rss_bytes=10**9)
    invalid = invalid.model_copy(update={"status": "invalid", "reason": "swap"})
    launch_costs = costs_of_launches([trained(0.9), invalid], 0.95)
    assert (launch_costs.startup_seconds, launch_costs.peak_rss_bytes) == (2.0, 10**8)


@pytest.mark.parametrize(
    ("origins", "share", "words"),
    [
        (("loaded", "loaded"), 1.0, " (loaded)"),
        (("compiled", "loaded"), 0.5, " (some loaded)"),
        (("compiled", None), 0.0, ""),
    ],
)
def test_first_steps_that_loaded_their_program_are_marked(record, origins, share, words):
    def make(number, origin):
        made = record(launch=number)
        observed = made.observed.model_copy(update={"step_program": origin})
        return made.model_copy(update={"observed": observed})

    costs = costs_of_launches([make(n, origin) for n, origin in enumerate(origins, 1)], 0.95)
    assert costs.first_step_loaded == share
    assert first_step_origin_text(costs) == words
