"""The canary: before a launch is timed, is its network's loss what it must be?

The expected value is the reference's: test mode, the first batch, the initial weights. It
is computed once per workload, data, batch size and seed, and kept in the cache.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import filelock
from pydantic import BaseModel, ConfigDict

from xfbench import adapter, digest, environment, job, machine, paths, worker_archive
from xfbench.request import Request
from xfbench.workloads import workloads

# Against ten times what rounding did to the reference, and never sharper than float32 is.
_SAFETY = 10.0
_SHARPEST = 1e-5
_TIME_LIMIT = 3600.0


class Expected(BaseModel):
    """The loss in float64; in float32; and as Caffe has it, which floors a probability."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    loss: float
    float32: float
    floored: float

    def relative_error(self, loss: float) -> float:
        """The distance from the nearer of the loss and the floored one."""
        return min(abs(loss - value) / abs(value) for value in (self.loss, self.floored))

    @property
    def tolerance(self) -> float:
        """How far a sound launch may be, relative."""
        return max(_SAFETY * abs(self.float32 - self.loss) / abs(self.loss), _SHARPEST)


def expected(workload: str, data: str, batch_size: int, seed: int) -> Expected | None:
    """What the loss must be; None where the reference cannot say (it was not able to run)."""
    described = adapter.load("reference")
    request = Request(
        framework="reference",
        environment="own",
        workload=workload,
        precision="float64",
        kernel=described.default_kernel,
        threads=machine.usable_cores(),
        global_batch_size=batch_size,
        batch_size_per_rank=batch_size,
        data=data,
        steps=1,
        seed=seed,
        launch=1,
    )
    code = worker_archive.worker_digest("reference")
    key = [code, workloads()[workload].to_json(), data, batch_size, seed]
    target = paths.cache() / "canary" / f"{digest.of_json(key)[7:39]}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{target}.lock"):
        if target.is_file():
            return Expected.model_validate_json(target.read_bytes())
        with tempfile.TemporaryDirectory(prefix="xfbench-canary-") as scratch:
            reply = job.work(
                job.document("canary", request, workloads()[workload]),
                request,
                described,
                environment.ensure(described),
                Path(scratch),
                _TIME_LIMIT,
            )
        if reply["status"] != "ok":
            return None
        found = Expected.model_validate(reply["canary"])
        partial = target.with_suffix(".partial")
        partial.write_text(json.dumps(reply["canary"]), encoding="utf-8")
        partial.replace(target)
        return found
