"""The canary: the network's loss before training, compared with the loss that the oracle expects.

The oracle computes the expected loss for the first batch with the initial weights, in test mode.
The result is cached for each combination of workload, data, batch size, seed and precision.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from xfbench.base import atomic_files, digests, locks, paths
from xfbench.environments import environment, worker_archive
from xfbench.execution import job, reference
from xfbench.host import machine
from xfbench.model import adapter
from xfbench.model.certificate import SAFETY
from xfbench.model.request import PreparedSet
from xfbench.workloads import workloads

_MIN_TOLERANCE = 1e-5  # relative: the accuracy of float32, also used for float64


class Expected(BaseModel):
    """The expected loss, as the oracle computes it.

    - `loss`: computed in float64.
    - `rounded`: computed in the launch's precision, or in float32 if the launch uses float64.
    - `floored`: computed in float64 with Caffe's lower limit on probabilities.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    loss: float
    rounded: float
    floored: float

    def relative_error(self, loss: float) -> float:
        """Return the relative error of `loss`.

        The reference is `self.loss` or `self.floored`, whichever is nearer to `loss`.
        """
        return min(
            abs(loss - expected_loss) / abs(expected_loss)
            for expected_loss in (self.loss, self.floored)
        )

    @property
    def tolerance(self) -> float:
        """Return the relative error up to which a loss counts as equal."""
        return max(SAFETY * abs(self.rounded - self.loss) / abs(self.loss), _MIN_TOLERANCE)


def compute_expected_loss_before_training(
    workload: str,
    data: str,
    batch_size: int,
    seed: int,
    precision: str,
    data_set_location: tuple[PreparedSet, Path] | None = None,
) -> Expected | None:
    """Return the expected loss from the cache, or else from the oracle.

    - `batch_size`: the batch size per rank.
    - `data_set_location`: the prepared data set and its folder; None for other data.

    Returns None if the oracle failed.
    """
    framework_adapter = adapter.load("reference")
    request = reference.build_reference_request(
        workload, batch_size, threads=machine.usable_cores(), data=data, seed=seed
    ).model_copy(update={"precision": "float32" if precision == "float64" else precision})
    code = worker_archive.worker_digest("reference")
    key = [code, workloads()[workload].to_json(), data, batch_size, seed, request.precision]
    key += [data_set_location[0].digest] if data_set_location else []
    target = paths.cache_folder("canary") / f"{digests.of_json(key)[7:39]}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    with locks.exclusive(Path(f"{target}.lock"), f"computes the expected loss of {workload}"):
        with suppress(OSError, ValueError):  # missing or damaged
            return Expected.model_validate_json(target.read_bytes())
        with tempfile.TemporaryDirectory(prefix="xfbench-canary-") as scratch:
            reply = job.run_job(
                job.build_job_document(
                    "canary",
                    request,
                    workloads()[workload],
                    data_folder=data_set_location and str(data_set_location[1]),
                ),
                request,
                framework_adapter,
                environment.ensure_environment(framework_adapter),
                Path(scratch),
                reference.TIME_LIMIT,
            )
        if reply["status"] != "ok":
            return None
        expected_loss = Expected.model_validate(reply["canary"])
        atomic_files.write(target, expected_loss.model_dump_json().encode())
        return expected_loss
