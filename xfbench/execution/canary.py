"""The canary: before a launch is timed, is its network's loss what it must be?

The expected value is the reference's: test mode, the first batch, the initial weights. It
is computed once per workload, data, batch size and seed, and kept in the cache.
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

_MIN_TOLERANCE = 1e-5  # relative: float32 is not more exact, and float64 is judged as it is


class Expected(BaseModel):
    """The loss in float64; in the launch's precision; and with Caffe's floored probability."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    loss: float
    rounded: float
    floored: float

    def relative_error(self, loss: float) -> float:
        """The distance from the nearer of the loss and the floored one."""
        return min(
            abs(loss - expected_loss) / abs(expected_loss)
            for expected_loss in (self.loss, self.floored)
        )

    @property
    def tolerance(self) -> float:
        """How far a sound launch may be, relative."""
        return max(SAFETY * abs(self.rounded - self.loss) / abs(self.loss), _MIN_TOLERANCE)


def compute_expected_loss(
    workload: str,
    data: str,
    batch_size: int,
    seed: int,
    precision: str,
    data_set_location: tuple[PreparedSet, Path] | None = None,
) -> Expected | None:
    """What the loss must be; None where the reference cannot say (it was not able to run).

    `data_set_location` is a prepared data set and where it is.
    """
    framework_adapter = adapter.load("reference")
    request = reference.reference_request(
        workload, batch_size, threads=machine.usable_cores(), data=data, seed=seed
    ).model_copy(update={"precision": "float32" if precision == "float64" else precision})
    code = worker_archive.worker_digest("reference")
    key = [code, workloads()[workload].to_json(), data, batch_size, seed, request.precision]
    key += [data_set_location[0].digest] if data_set_location else []
    target = paths.cache() / "canary" / f"{digests.of_json(key)[7:39]}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    with locks.exclusive(Path(f"{target}.lock"), f"computes what {workload} must give"):
        with suppress(OSError, ValueError):  # not there yet, or damaged
            return Expected.model_validate_json(target.read_bytes())
        with tempfile.TemporaryDirectory(prefix="xfbench-canary-") as scratch:
            reply = job.run_job(
                job.build_document(
                    "canary",
                    request,
                    workloads()[workload],
                    data_folder=data_set_location and str(data_set_location[1]),
                ),
                request,
                framework_adapter,
                environment.ensure(framework_adapter),
                Path(scratch),
                reference.TIME_LIMIT,
            )
        if reply["status"] != "ok":
            return None
        expected_loss = Expected.model_validate(reply["canary"])
        atomic_files.write(target, expected_loss.model_dump_json().encode())
        return expected_loss
