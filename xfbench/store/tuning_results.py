"""Outcomes of searches by `xfbench tune`, as documents of the schema `xfbench.tuning/1`.

The documents are files in `tuned/` of the results folder. Like records, they are immutable and
named by the digest of their content. Each launch of a search is a record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from xfbench.base import atomic_files, digests, safe_read, strict_json
from xfbench.base.version import __version__
from xfbench.model.record import Machine
from xfbench.model.request import Cell, Request
from xfbench.model.sealed import MAX_DOCUMENT_BYTES, DocumentPart, SealedDocument, age_key
from xfbench.statistics import CONFIDENCE, Interval

SCHEMA: Literal["xfbench.tuning/1"] = "xfbench.tuning/1"
FOLDER = "tuned"

Setting = dict[str, str | int]


class Figure(DocumentPart):
    """A throughput in images/s or a ratio of throughputs, with its confidence interval.

    - `low`, `high`: limits of the interval. They are null with fewer than two launches.
    - `launches`: number of launches. For a ratio, the smaller of the two cells' numbers.
    - `label`: strength of the evidence, which is "claim", "indicative" or "smoke".
    - `confidence`: confidence of the interval; null if it is the range of few launches.
    """

    value: float
    low: float | None
    high: float | None
    launches: int
    label: str
    confidence: float | None = CONFIDENCE

    @classmethod
    def from_interval(cls, interval: Interval) -> Figure:
        """Convert an interval to a figure."""
        return cls(label=interval.label, **vars(interval))


class RungDone(DocumentPart):
    """A completed rung, which is one round of launches of the settings that remained.

    - `settings`: number of settings.
    - `launches`: number of launches per setting.
    - `steps`: number of timed steps per launch of the best setting.
    - `min_seconds`: minimum duration of these steps; null: none.
    """

    settings: int
    launches: int
    steps: int | None
    min_seconds: float | None = None


class Loser(DocumentPart):
    """A setting that was dropped from the search, with the reason.

    - `rung` is the number of the rung after which the setting was dropped. It is null if the
      setting was excluded before the first rung.
    - `relative` is the speed of the setting, divided by the speed of the fastest setting after that
      rung. It is null if the setting was not dropped for its speed.
    """

    setting: Setting
    rung: int | None
    reason: str
    relative: float | None = None


class Tuning(SealedDocument):
    """One search: the machine, the settings, when each setting was dropped, and the best setting.

    The search ends with the confirmation: launches of the finalists with the usual number of steps.
    A launch counts if its record has the status "ok" and valid step times.

    - `best`: the cell that won. If `confirmed` is false, the fastest cell so far.
    - `untried`: number of settings that the first rung should have launched and did not, because
      the budget ended the search. If it is not 0, no setting is confirmed.
    - `remaining_seconds`: expected duration of the launches that an unfinished search lacks; null
      if a setting is confirmed or the budget did not end the search.
    - `default`: the cell that runs if the user sets no options.
    - `runner_up`: the best finalist other than `best`, or null if there is none.
    - `confirmed`: whether at least one launch of `best` in the confirmation counts.
    - `images_per_second`: throughput of `best` in the confirmation. It is null if `confirmed` is
      false.
    - `over_default`: throughput of `best` divided by the throughput of `default`, both in the
      confirmation. It is null if `best` is `default`, or if no launch of one of them counts.
    - `over_runner_up`: throughput of `best` divided by the throughput of `runner_up`, both in the
      confirmation. It is null if `runner_up` is null, or if no launch of one of them counts.
    - `default_reason`: why `default` could not be compared with `best`, or null.
    - `records`: ids of the records of all launches.
    - `machine_seconds`: total duration of the launches in `records`.
    - `search_seconds`: total duration of those launches before the confirmation.
    - `verified`: whether only settings with a certificate were searched.
    """

    schema_: Literal["xfbench.tuning/1"] = Field(default=SCHEMA, alias="schema")
    machine: Machine
    framework_version: str
    environment_digest: str
    adapter_digest: str
    workload_digest: str
    verified: bool
    space: dict[str, tuple[str | int, ...]]
    settings: int
    seed: int
    budget_seconds: float | None
    rungs: tuple[RungDone, ...]
    dropped: tuple[Loser, ...]
    best: Cell
    default: Cell
    default_reason: str | None
    runner_up: Cell | None
    confirmed: bool
    images_per_second: Figure | None
    over_default: Figure | None
    over_runner_up: Figure | None
    ended_by_budget: bool
    untried: int = 0
    remaining_seconds: float | None = None
    launches: int
    search_seconds: float
    machine_seconds: float
    records: tuple[str, ...]
    xfbench_version: str = __version__

    def write(self, results: Path) -> Path:
        """Write the document atomically to the results folder and return the path of its file."""
        target = self.file_path(results)
        text = json.dumps(self.document(), indent=1, ensure_ascii=False) + "\n"
        atomic_files.write(target, text.encode())
        return target

    def file_path(self, results: Path) -> Path:
        """Return the path of the document in the results folder `results`."""
        return file_path(results, self.id)


def file_path(results: Path, search_id: str) -> Path:
    """Return the path of the search with this id, which starts with "sha256:"."""
    return results / FOLDER / f"{search_id[7:]}.json"


class OpenSearch(DocumentPart):
    """A search that has not confirmed a setting: it runs, was interrupted, or lacked budget.

    - `started`: time of its start, in RFC 3339.
    - `command`: the command line that continues it.
    - `first_launches`: the first launch of each setting that the search begins with; empty if an
      earlier version wrote the file.
    """

    started: str
    command: str
    first_launches: tuple[Request, ...] = ()


def write_open_search(results: Path, subject: Sequence[str], search: OpenSearch) -> Path:
    """Write the open search of this subject to the results folder and return the file's path.

    `subject`: what is tuned, such as the framework, the workload and the machine. A newer search of
    the same subject replaces the file. Delete it once the search has confirmed a setting.
    """
    target = _open_search_path(results, subject)
    atomic_files.write(target, search.model_dump_json().encode())
    return target


def read_open_search(results: Path, subject: Sequence[str]) -> OpenSearch | None:
    """Return the open search of this subject; None if there is none or the file is invalid."""
    path = _open_search_path(results, subject)
    try:
        content = safe_read.read_bytes(path, MAX_DOCUMENT_BYTES, follow_link=True)
        strict_json.parse(content)
        return OpenSearch.model_validate_json(content)
    except (OSError, ValueError, RecursionError):
        return None


def _open_search_path(results: Path, subject: Sequence[str]) -> Path:
    return results / FOLDER / f"{digests.of_json([*subject])[7:23]}.open"


def read_sorted_searches(results: Path, report_error: Callable[[str], None]) -> list[Tuning]:
    """Return all valid searches in the results folder, oldest first.

    `report_error` gets a message for each invalid file.
    """
    searches = [search for search, _ in read_searches_with_content(results, report_error)]
    return sorted(searches, key=age_key)


def read_searches_with_content(
    results: Path, report_error: Callable[[str], None]
) -> Iterator[tuple[Tuning, bytes]]:
    """Yield each valid search in the results folder with the bytes of its file.

    To copy a search, copy these bytes. If another version wrote the search, rewriting it would
    change its id. `report_error` gets a message for each invalid file.
    """
    for path in (results / FOLDER).glob("*.json"):
        try:
            content = safe_read.read_bytes(path, MAX_DOCUMENT_BYTES, follow_link=True)
            search = Tuning.read(content)
        except ValidationError as error:
            first_error: Any = error.errors()[0]
            report_error(
                f"{path.name}: not a search of `xfbench tune`: {first_error['msg']}; left out"
            )
        except (OSError, ValueError) as error:
            report_error(f"{path.name}: {error}; left out")
        else:
            yield search, content
