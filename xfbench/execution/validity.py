"""Checks that make a launch invalid: impossible figures, or a state that was not requested.

An invalid launch is stored and shown with its reason, but never ranked.
"""

from __future__ import annotations

from collections.abc import Sequence

from xfbench.execution.canary import Expected
from xfbench.model.record import Checkpoints, Measurement, Observed, OfRank, Storage
from xfbench.model.request import Request
from xfbench.worker.affinity import GROUP_NAMES
from xfbench.worker.protocol import LOSS_SCALE

# Allowances, because the system counts CPU time in ticks and a framework's main thread also uses
# some CPU time.
_CPU_TOLERANCE, _EXTRA_CPUS = 1.05, 0.25
_MAX_MEAN_DIFFERENCE = 8.0  # of pixel values (0 to 255); different images differ by more


def measurement_defect(
    request: Request,
    measurement: Measurement,
    observed: Observed,
    loss: float | None,
    expected: Expected | None,
    share_of_peak: float | None,
) -> str | None:
    """Return one line about the first defect of a launch, or None if the launch has no defect.

    - `loss`: the canary's loss (test mode, first batch, initial weights); None if it is not finite.
    - `expected`: the loss that the oracle expects; None if it is unknown.
    - `share_of_peak`: training operations per second, at least, as a share of the peak; None if
      unknown.
    """
    steps = [
        measurement.first_step_seconds,
        *measurement.warmup_seconds,
        *measurement.step_seconds,
    ]
    if not measurement.step_seconds:
        return "no timed step: request more steps or fewer warm-up steps"
    if min(steps) <= 0:
        return f"a step took {min(steps):g} s: the clock went backwards or stood still"
    if reason := steps_longer_than_wall_time_defect(request, measurement):
        return reason
    window = measurement.window
    for number, of_update in enumerate(measurement.losses):
        if of_update is None:
            return f"the loss of update {number * window + 1} is not finite"
    if reason := _kernel_or_allocator_defect(request, observed):
        return reason
    if reason := peak_defect(share_of_peak):
        return reason
    if reason := _precision_or_loss_scale_defect(request, observed):
        return reason
    if reason := _thread_defect(request, observed):
        return reason
    if reason := _affinity_defect(request, observed):
        return reason
    if loss is None:
        return "the test-mode loss at the initial weights is not finite"
    if expected and not expected.relative_error(loss) <= expected.tolerance:
        return (
            f"the test-mode loss at the initial weights is {loss:.7g}, not {expected.loss:.7g}: "
            "another network, other weights or another input (see xfbench verify)"
        )
    return None


def _precision_or_loss_scale_defect(request: Request, observed: Observed) -> str | None:
    """Return a message if the precision or the loss scale is not as requested, else None."""
    if observed.precision not in (None, request.precision):
        return f"{request.precision} was requested, but {observed.precision} was observed"
    if observed.loss_scale in (None, LOSS_SCALE):
        return None
    return (
        f"updates were skipped: gradients times {LOSS_SCALE:g} are too large for "
        f"{request.precision}, so the loss scale is now {observed.loss_scale:g}"
    )


def _kernel_or_allocator_defect(request: Request, observed: Observed) -> str | None:
    """Return how the observed kernel library or memory allocator differs from the requested one.

    Returns None if both match.
    """
    if observed.kernel != request.kernel:
        return (
            f"kernel {request.kernel} was requested, but {observed.kernel} was observed: "
            f"{'; '.join(observed.kernel_evidence)}"
        )
    if request.allocator is None or request.allocator in (observed.allocator or ""):
        return None
    return f"allocator {request.allocator} was requested, but memory came from {observed.allocator}"


def steps_longer_than_wall_time_defect(request: Request, measurement: Measurement) -> str | None:
    """Return a message if the steps add up to more than the duration of the loop, else None."""
    window = measurement.window
    # The last window of an epoch may be shorter, so each window counts as one update.
    updates_per_window = window if request.steps else 1
    windows = sum(measurement.warmup_seconds) + sum(measurement.step_seconds)
    step_time_s = measurement.first_step_seconds + updates_per_window * windows
    if step_time_s <= measurement.wall_seconds * (1 + 1e-6):
        return None
    return (
        f"the steps add up to {step_time_s:.6g} s, more than "
        f"the {measurement.wall_seconds:.6g} s that passed"
    )


def peak_defect(share_of_peak: float | None) -> str | None:
    """Return a message if the launch exceeds the peak of its cores or GPU, else None."""
    if share_of_peak is None or share_of_peak <= 1:
        return None
    return (
        f"{share_of_peak:.0%} of the peak of this hardware: "
        "the steps did less work than they should, or the clock is wrong"
    )


def mixed_nodes_defect(kinds: Sequence[str]) -> str | None:
    """Return a message if the ranks ran on different kinds of nodes, else None.

    The launch is then invalid, because a record describes only one kind of machine.
    """
    if len(kinds) < 2:
        return None
    return (
        f"the ranks ran on nodes of different kinds ({'; '.join(kinds)}): request one kind, for "
        "example with --constraint in the site's script_options"
    )


def checkpoint_defect(request: Request, checkpoints: Checkpoints | None) -> str | None:
    """Return one line about what is wrong with the checkpoints, or None if nothing is wrong.

    `checkpoints` None: no checkpoint was taken.
    """
    count = len(checkpoints.save_seconds) if checkpoints else 0
    if count != request.checkpoints:
        return f"{request.checkpoints} checkpoints were requested, but {count} were taken"
    if checkpoints is None or checkpoints.equal:
        return None
    first, *more_names = checkpoints.differing
    more = f" and {len(more_names)} more" if more_names else ""
    return f"a checkpoint ({checkpoints.format}) does not read back equal: {first}{more}"


def _affinity_defect(request: Request, observed: Observed) -> str | None:
    """Return a message if a process may run on CPUs that it was not given, else None.

    A launch with pinning to sockets or NUMA nodes is also defective if no CPUs were given to a
    rank, as by workers of earlier revisions, which do not know such pinning.
    """
    for rank_observed in observed.ranks or (observed,):
        if rank_observed.laid_out is None and request.affinity in GROUP_NAMES:
            return f"pinning to {request.affinity} was requested, but the worker was not pinned"
        unexpected_cpus = set(rank_observed.affinity) - set(
            rank_observed.laid_out or rank_observed.affinity
        )
        if unexpected_cpus:
            process_name = (
                f"rank {rank_observed.rank}" if isinstance(rank_observed, OfRank) else "the worker"
            )
            return (
                f"{process_name} was given CPUs {_join_cpus(rank_observed.laid_out or ())}, "
                f"but may run on {_join_cpus(rank_observed.affinity)}"
            )
    return None


def _join_cpus(cpus: Sequence[int]) -> str:
    return ", ".join(map(str, cpus))


def _thread_defect(request: Request, observed: Observed) -> str | None:
    """Return how the threads of a CPU launch differ from the request, or None if they match.

    GPU launches are not checked. Their cells do not depend on CPU threads, and XLA has no CPU
    thread pool on a GPU.
    """
    if request.device != "cpu":
        return None
    for pool, size in observed.pools.items():
        if size != request.threads:
            return f"{request.threads} threads were requested, but {pool} has {size}"
    reading = request.input_threads or 0
    max_cpus = (request.threads + reading) * _CPU_TOLERANCE + _EXTRA_CPUS
    if observed.cpus is not None and observed.cpus > max_cpus:
        requested_threads = (
            f"{request.threads} threads{f' and {reading} for input' if reading else ''}"
        )
        return f"{requested_threads} were requested, but {observed.cpus:.2f} CPUs were busy"
    return None


def reader_mismatch(storage: Storage | None) -> str | None:
    """Return how the samples of the framework's own reader differ from those of xfbench's reader.

    Returns None if the samples match, or if the framework's own reader was not used. Pixel values
    are 0 to 255. Images match if their mean difference is at most 8. Two decoders of the same image
    differ by less, two different images by more.
    """
    reader_check = storage.reader if storage else None
    if reader_check is None:
        return None
    if not reader_check.compared:
        return "the framework's own reader returned no image to compare"
    if not reader_check.labels_equal:
        return "the framework's own reader returned other labels than xfbench's"
    if reader_check.mean_difference > _MAX_MEAN_DIFFERENCE:
        return (
            f"the framework's own reader returned other images than xfbench's: the mean difference "
            f"of one image is {reader_check.mean_difference:.3g} of 255"
        )
    return None


def cache_state_error(storage: Storage | None) -> str | None:
    """Return one line about the first epoch that did not have the requested page cache state.

    Returns None if there is no such epoch.
    """
    for number, epoch in enumerate(storage.epochs if storage else (), 1):
        if epoch.held is False:
            evidence = f"{epoch.device_bytes} of {epoch.bytes} bytes came from the device"
            return f"epoch {number} was not {epoch.page_cache}: {epoch.reason or evidence}"
    return None
