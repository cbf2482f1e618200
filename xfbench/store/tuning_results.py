"""What a search found, as a document: `xfbench.tuning/1`, in `tuned/` of the results folder.

Never changed, and named by its content, as records are. The launches themselves are records.
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
    """A value with its 95 % interval over so many launches; no interval from fewer than two."""

    value: float
    low: float | None
    high: float | None
    launches: int
    label: str

    @classmethod
    def of(cls, interval: Interval) -> Figure:
        return cls(label=interval.label, **vars(interval))


class RungDone(DocumentPart):
    """A rung as it was done: settings launched in it, launches of each, steps of a launch."""

    settings: int
    launches: int
    steps: int


class Loser(DocumentPart):
    """A setting that did not go on after a rung, and why; its speed over the fastest's by then.

    Of those that could not be tried `rung` is null.
    """

    setting: Setting
    rung: int | None
    reason: str
    relative: float | None = None


class Tuning(SealedDocument):
    """One search: where, among how many settings, who was dropped when, the best, how sure it is.

    `best`, `default` (what is measured where nobody chooses) and `runner_up` are cells of usual
    length. `images_per_second` is the best's, and the ratios are of it, both from launches after
    the search alone, which took `search_seconds` of the `machine_seconds` of all `records`.
    They are null where the best is the default itself, or that has no launch that counts, for which
    `default_reason` may say why. `confirmed` is false where the budget left nothing for that.
    `verified`: only what has a certificate was searched.
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
        """Keep it in a results folder, whole or not at all; the file."""
        target = self.file_path(results)
        text = json.dumps(self.document(), indent=1, ensure_ascii=False) + "\n"
        atomic_files.write(target, text.encode())
        return target

    def file_path(self, results: Path) -> Path:
        """Where it lies in a results folder."""
        return results / FOLDER / f"{self.id[7:]}.json"


def read_folder(results: Path, report_error: Callable[[str], None]) -> list[Tuning]:
    """Every search of a results folder, oldest first; `report_error` hears of invalid files."""
    searches = [search for search, _ in read_searches(results, report_error)]
    return sorted(searches, key=lambda search: (search.created, search.id))


def read_searches(
    results: Path, report_error: Callable[[str], None]
) -> Iterator[tuple[Tuning, bytes]]:
    """Each search with its file's bytes: written anew, one of another version has another id."""
    for path in (results / FOLDER).glob("*.json"):
        try:
            content = safe_read.read_bytes(path, MAX_DOCUMENT_BYTES, follow_link=True)
            search = Tuning.read(content)
        except ValidationError as error:
            first_error: Any = error.errors()[0]
            report_error(
                f"{path.name}: no search of `xfbench tune`: {first_error['msg']}; left out"
            )
        except (OSError, ValueError) as error:
            report_error(f"{path.name}: {error}; left out")
        else:
            yield search, content
