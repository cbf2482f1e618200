"""Tests of what makes a launch invalid, just below and just above each limit."""

import math

import pytest

from xfbench.execution import validity
from xfbench.execution.canary import Expected
from xfbench.model.record import Checkpoints, EpochReading, Medium, ReaderCheck, Storage

# The tolerance has its minimum, 1e-5.
EXPECTED = Expected(loss=2.0, rounded=2.0, floored=2.0)


@pytest.fixture
def find_defect(record):
    """Return a function that returns the defect of a launch with these changed fields."""

    def check_launch(loss=2.0, share_of_peak=None, observed=None, request=None, **measured):
        launch = record()
        return validity.measurement_defect(
            launch.request.model_copy(update=request or {}),
            launch.measurement.model_copy(update=measured),
            launch.observed.model_copy(update=observed or {}),
            loss,
            EXPECTED,
            share_of_peak,
        )

    return check_launch


def test_a_sound_launch_has_no_defect(find_defect):
    assert find_defect() is None


@pytest.mark.parametrize(
    "measured",
    [
        {"first_step_seconds": 0.0},
        {"warmup_seconds": (0.1, -0.1)},
        {"step_seconds": (0.1, 0.0, 0.1)},
    ],
)
def test_a_step_that_took_no_time_is_invalid(find_defect, measured):
    assert "the clock went backwards or stood still" in find_defect(**measured)


def test_a_launch_without_a_timed_step_is_invalid(find_defect):
    assert "no timed step" in find_defect(step_seconds=())


def test_the_first_update_with_an_infinite_loss_is_named(find_defect):
    losses = (2.3, 2.3, None)
    assert find_defect(losses=losses) == "the loss of update 3 is not finite"
    # The third window of five updates begins with update 11.
    reason = find_defect(losses=losses, window=5, wall_seconds=99.0)
    assert reason == "the loss of update 11 is not finite"


@pytest.mark.parametrize(
    ("request_fields", "wall_seconds", "valid"),
    [
        # Three windows of two steps of 0.1 s, after a first step of 0.5 s.
        ({}, 1.1, True),
        ({}, 1.099, False),
        # With epochs each window counts as one step, because the last may be shorter.
        ({"steps": None, "epochs": 1}, 0.8, True),
        ({"steps": None, "epochs": 1}, 0.799, False),
    ],
)
def test_steps_take_no_longer_than_the_launch(find_defect, request_fields, wall_seconds, valid):
    reason = find_defect(request=request_fields, window=2, wall_seconds=wall_seconds)
    assert (reason is None) == valid, reason


@pytest.mark.parametrize(("share", "valid"), [(None, True), (1.0, True), (1.01, False)])
def test_a_launch_is_invalid_beyond_the_peak(find_defect, share, valid):
    assert (find_defect(share_of_peak=share) is None) == valid


@pytest.mark.parametrize(
    ("loss", "valid"),
    [(2.0, True), (2.000019, True), (2.000021, False), (1.999979, False), (math.nan, False)],
)
def test_a_first_loss_beyond_the_tolerance_is_invalid(find_defect, loss, valid):
    reason = find_defect(loss)
    assert (reason is None) == valid
    assert valid or "the test-mode loss at the initial weights" in reason


def test_a_first_loss_that_is_missing_is_invalid(find_defect):
    assert "is not finite" in find_defect(loss=None)


# Limit: 2 * 1.05 + 0.25 for two threads, 3 * 1.05 + 0.25 with an input thread.
@pytest.mark.parametrize(
    ("request_fields", "cpus", "valid"),
    [
        ({}, 2.34, True),
        ({}, 2.36, False),
        ({"input_threads": 1}, 3.39, True),
        ({"input_threads": 1}, 3.41, False),
        ({"device": "cuda"}, 9.0, True),
        ({}, None, True),
    ],
)
def test_more_busy_cpus_than_threads_are_invalid(find_defect, request_fields, cpus, valid):
    reason = find_defect(request={"threads": 2, **request_fields}, observed={"cpus": cpus})
    assert (reason is None) == valid, reason


@pytest.mark.parametrize("size", [1, 3])
def test_a_thread_pool_of_another_size_is_invalid(find_defect, size):
    reason = find_defect(request={"threads": 2}, observed={"pools": {"openmp": size}})
    assert reason == f"2 threads were requested, but openmp has {size}"


@pytest.mark.parametrize("pinning", ["sockets", "numa"])
def test_a_launch_without_the_requested_socket_or_numa_node_is_invalid(find_defect, pinning):
    """A worker of an earlier revision ignores such pinning."""
    request = {"affinity": pinning}
    assert find_defect(request=request) == (
        f"pinning to {pinning} was requested, but the worker was not pinned"
    )
    assert find_defect(request=request, observed={"laid_out": (0, 1)}) is None
    assert find_defect(request={"affinity": "cores"}) is None
    reason = find_defect(request=request, observed={"laid_out": (1,)})
    assert reason == "the worker was given CPUs 1, but may run on 0"


def test_thread_pools_of_a_gpu_launch_are_not_compared(find_defect):
    request_fields = {"framework": "jax", "device": "cuda", "threads": 2}
    assert find_defect(request=request_fields, observed={"pools": {"XLA": 0}}) is None


def test_ranks_on_two_kinds_of_nodes_are_invalid():
    assert validity.mixed_nodes_defect([]) is validity.mixed_nodes_defect(["a"]) is None
    assert "different kinds (a; b)" in validity.mixed_nodes_defect(["a", "b"])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_checkpoints_is_invalid(record, count):
    request = record(checkpoints=2).request
    checkpoints = Checkpoints(
        format="a",
        file_system="b",
        bytes=1,
        save_seconds=(0.1,) * count,
        load_seconds=(0.1,) * count,
        wall_seconds=1.0,
        equal=True,
    )
    words = f"2 checkpoints were requested, but {count} were taken"
    assert validity.checkpoint_defect(request, checkpoints if count else None) == words
    two_saves = checkpoints.model_copy(update={"save_seconds": (0.1,) * 2})
    assert validity.checkpoint_defect(request, two_saves) is None
    different = two_saves.model_copy(update={"equal": False, "differing": ("w", "b")})
    assert validity.checkpoint_defect(request, different).endswith("equal: w and 1 more")


MEDIUM = Medium.model_construct()
READ = ReaderCheck(
    compared=4, differing=4, largest_difference=9, mean_difference=8.0, labels_equal=True
)


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ({}, None),
        ({"mean_difference": 8.01}, "other images than xfbench's"),
        ({"compared": 0}, "no image to compare"),
        ({"labels_equal": False}, "other labels than xfbench's"),
    ],
)
def test_reader_with_different_samples_is_invalid(update, words):
    reader = READ.model_copy(update=update)
    reason = validity.reader_mismatch(Storage.model_construct(medium=MEDIUM, reader=reader))
    assert reason is None if words is None else words in reason
    assert validity.reader_mismatch(None) is None


def test_epoch_that_was_not_cold_is_named():
    def epoch(held):
        return EpochReading(
            page_cache="cold",
            bytes=100,
            resident_before=0,
            resident_of=100,
            device_bytes=7,
            held=held,
        )

    def reason(*epochs):
        return validity.cache_state_error(Storage.model_construct(medium=MEDIUM, epochs=epochs))

    assert reason(epoch(True), epoch(None)) is None
    words = "epoch 2 was not cold: 7 of 100 bytes came from the device"
    assert reason(epoch(True), epoch(False)) == words
