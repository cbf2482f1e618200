"""The outcome of a search as a document, `xfbench.tuning/1`, in `tuned/` of the results folder.

Documents are immutable and named by the digest of their content, like records. The launches of a
search are records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from xfbench.base import atomic_files, safe_read
from xfbench.base.version import __version__
from xfbench.model.record import Machine
from xfbench.model.request import Cell
from xfbench.model.sealed import MAX_DOCUMENT_BYTES, DocumentPart, SealedDocument
from xfbench.statistics import Interval

SCHEMA: Literal["xfbench.tuning/1"] = "xfbench.tuning/1"
FOLDER = "tuned"

Setting = dict[str, str | int]


class Figure(DocumentPart):
    """A value with its 95 % interval. With fewer than two launches there is no interval."""

    value: float
    low: float | None
    high: float | None
    launches: int
    label: str

    @classmethod
    def from_interval(cls, interval: Interval) -> Figure:
        return cls(label=interval.evidence_label, **vars(interval))


class RungDone(DocumentPart):
    """A completed rung: its number of settings, launches of each setting, and steps per launch."""

    settings: int
    launches: int
    steps: int


class Loser(DocumentPart):
    """A setting that was dropped after a rung, with the reason.

    Its speed is relative to the fastest setting so far. If it could not be tried, `rung` is null.
    """

    setting: Setting
    rung: int | None
    reason: str
    relative: float | None = None


class Tuning(SealedDocument):
    """One search: the machine, the settings, when each was dropped, and the best one.

    - `best`, `default` and `runner_up` are cells of usual length. `default` is used if the user
      chooses nothing.
    - `images_per_second` and the ratios are those of `best`, from the launches that confirm it.
    - `machine_seconds` is the duration of all launches in `records`. `search_seconds` is the
      duration of the launches before the confirmation.
    - All three are null if no launch confirms `best`. `over_runner_up` is also null if there is no
      runner-up, or if none of its launches counts.
    - `over_default` is null if `best` is the default, or if no launch of the default counts. In the
      second case `default_reason` may say why.
    - `confirmed` is false if the budget left no time to confirm.
    - `verified` is true if only settings with a certificate were searched.
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
    launches: int
    search_seconds: float
    machine_seconds: float
    records: tuple[str, ...]
    xfbench_version: str = __version__

    def write(self, results: Path) -> Path:
        """Write the document atomically to a results folder and return the file."""
        target = self.file_path(results)
        text = json.dumps(self.document(), indent=1, ensure_ascii=False) + "\n"
        atomic_files.write(target, text.encode())
        return target

    def file_path(self, results: Path) -> Path:
        """Return the path of the document in a results folder."""
        return results / FOLDER / f"{self.id[7:]}.json"


def read_sorted_searches(results: Path, report_error: Callable[[str], None]) -> list[Tuning]:
    """Return all searches of a results folder, oldest first; pass errors to `report_error`."""
    searches = [search for search, _ in read_searches_with_content(results, report_error)]
    return sorted(searches, key=lambda search: (search.created, search.id))


def read_searches_with_content(
    results: Path, report_error: Callable[[str], None]
) -> Iterator[tuple[Tuning, bytes]]:
    """Yield each search with the bytes of its file.

    Callers copy the bytes, because rewriting a search of another version would change its id.
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
