"""The plan of one `xfbench run`, which executes it here or in a submitted job."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from xfbench.base import digests, errors, safe_read, strict_json
from xfbench.model import settings, worker_reply
from xfbench.model.record import Record
from xfbench.model.request import Cell, Protocol, Request

DEFAULT_TIME_LIMIT = 1800.0  # seconds per launch


class Submission(BaseModel):
    """How the launches of a plan are submitted to Slurm from a login node.

    - `minutes`: time limit of each job. If the partition has a lower one, that applies.
    - `partition`, `account`: if empty, the site's partition and account.
    - `wait`: whether to wait until the jobs end.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    minutes: int = Field(default=60, ge=1)
    partition: str = ""
    account: str = ""
    wait: bool = True

    @classmethod
    def from_settings(cls, values: Mapping[str, Any]) -> Self:
        """Return the submission that settings describe, by their names."""
        seconds = values.get("job_time", settings.BY_NAME["job_time"].default)
        return cls(
            minutes=math.ceil(seconds / 60),
            partition=values.get("partition") or "",
            account=values.get("account") or "",
            wait=values.get("wait", True),
        )


class Plan(BaseModel):
    """The launches of one run, and their settings.

    - `requests`: the launches that may be needed, in order.
    - `protocols`: the cells, each with its number of launches.
    - `pythons`: interpreters by framework, or by `Cell.interpreter_key` if they have names.
    - `verify`: whether to verify the networks.
    - `strict`: whether to refuse to run on a noisy machine, and to discard noisy launches.
    - `time_limit`: maximum seconds per launch.
    - `data_folders`: folders of prepared data sets, by `PreparedSet.folder_lookup_key`.
    - `site_file`: absolute path of the site's file; None: the site is found by its name.
    - `checkpoint_dir`: parent folder of checkpoints; None: the run's folder.

    These fields say how to do the launches. Files of a plan do not contain them.

    - `resume`: whether to leave out launches whose records exist.
    - `submission`: for launches that are submitted from a login node.
    - `bundle`: a folder for a bundle, which is written instead of doing the launches; or None.
    - `has_guessed_threads`: whether no number of threads was given, so that it follows from the
      cores of the site or of this host.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: tuple[Request, ...]
    protocols: tuple[tuple[Cell, Protocol], ...]
    pythons: dict[str, Path]
    verify: bool
    strict: bool
    time_limit: float
    data_folders: dict[str, Path] = Field(default_factory=dict)
    site_file: Path | None = None
    checkpoint_dir: Path | None = None
    resume: bool = Field(default=False, exclude=True)
    submission: Submission = Field(default=Submission(), exclude=True)
    bundle: Path | None = Field(default=None, exclude=True)
    has_guessed_threads: bool = Field(default=False, exclude=True)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a plan from a file. Raises UsageError if the file is unreadable or invalid."""
        try:
            content = safe_read.read_bytes(path, worker_reply.LONGEST, follow_link=True)
            strict_json.parse(content)
            return cls.model_validate_json(content)
        except RecursionError as error:
            raise errors.UsageError(f"{path}: it is nested too deeply") from error
        except (OSError, ValueError) as error:
            raise errors.UsageError(f"{path}: {str(error).splitlines()[0]}") from error

    def job_name(self) -> str:
        """Return the name of the plan's job. Plans that differ only in order have the same name."""
        document = self.model_dump(mode="json", exclude={"requests"})
        document["requests"] = sorted(request.digest for request in self.requests)
        return f"xfbench-{digests.of_json(document)[7:19]}"

    def without_recorded(self, records: Sequence[Record]) -> Self:
        """Return the plan without the requests that have a record."""
        recorded_requests = {record.request for record in records}
        remaining_requests = tuple(
            request for request in self.requests if request not in recorded_requests
        )
        return self.model_copy(update={"requests": remaining_requests})

    def missing_requests(self, records: Sequence[Record]) -> list[Request]:
        """Return the requests that must have a record but have none in `records`.

        A cell needs only the minimum number of launches in its protocol. A cell that is unsupported
        or unavailable needs only one record.
        """
        recorded_requests = {record.request for record in records}
        impossible = {
            record.request.cell()
            for record in records
            if record.request and record.status in ("unsupported", "unavailable")
        }
        min_launches = {cell: protocol.least for cell, protocol in self.protocols}
        return [
            request
            for request in self.requests
            if request not in recorded_requests
            and request.cell() not in impossible
            and request.launch <= min_launches.get(request.cell(), 1)
        ]

    @property
    def revisions(self) -> list[str]:
        """The revisions of the cells, in the order in which the user gave them."""
        return list(dict.fromkeys(cell.revision for cell, _ in self.protocols if cell.revision))

    @property
    def interpreter_names(self) -> list[str]:
        """The names of the cells' interpreters, in the order in which the user gave them."""
        return list(dict.fromkeys(cell.python for cell, _ in self.protocols if cell.python))

    def for_environments(self, keys: Collection[str]) -> Self:
        """Return the plan with only the requests for environments with these keys.

        The keys are `Cell.environment_key`.
        """
        requests = tuple(request for request in self.requests if request.environment_key in keys)
        return self.model_copy(update={"requests": requests})

    def split_by_nodes(self) -> list[Self]:
        """Return one plan per number of nodes, so that no job holds nodes it does not use."""
        groups: dict[int, list[Request]] = defaultdict(list)
        for request in self.requests:
            groups[request.nodes].append(request)
        return [
            self.model_copy(
                update={
                    "requests": tuple(group),
                    "protocols": tuple(pair for pair in self.protocols if pair[0].nodes == nodes),
                }
            )
            for nodes, group in sorted(groups.items())
        ]
