"""The Python interface of xfbench: read results and run cells.

This module calls the same functions as the command line, and computes nothing itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xfbench import progress, session
from xfbench.analysis import comparison, leaderboard, ranked
from xfbench.analysis.comparison import CellComparison, Side
from xfbench.analysis.leaderboard import Table
from xfbench.base import paths
from xfbench.base.errors import UnavailableError, UsageError
from xfbench.exchange import exporting
from xfbench.execution.launch import LaunchContext
from xfbench.model import certificate, settings
from xfbench.model.record import Record
from xfbench.model.settings import Setting
from xfbench.planning import plan_builder
from xfbench.store import index, selection
from xfbench.store.results_folder import Store, open_existing_store
from xfbench.store.selection import Condition

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Results:
    """The records in a results folder that meet all `conditions`. Use `load` to create an object.

    Each method reads the folder again, so new records are included. A file in the folder that is
    not a record causes a warning.
    """

    folder: Path
    conditions: tuple[Condition, ...] = ()

    def records(self) -> list[Record]:
        """Return the records, one per launch, oldest first.

        docs/schema.md describes their fields.
        """
        with index.open_index(Store(self.folder), _warn) as record_index:
            records = [record for _, record in record_index.select(self.conditions)]
        for line in record_index.damaged:
            _warn(line)
        return records

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a DataFrame with one row per record and one column per single-value field.

        A column's name is the field's path, as in `xfbench results export FILE.csv`:
        "request.framework", "measurement.build_seconds". Times are in seconds, sizes in bytes. The
        column `images_per_second` is the launch's throughput. It has no value for a launch without
        a throughput. Raises UnavailableError if pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise UnavailableError(
                "to_dataframe needs pandas: python -m pip install pandas"
            ) from error
        rows = [exporting.record_values(record) for record in self.records()]
        return pandas.DataFrame(rows, columns=list(exporting.HEADER))

    def leaderboards(self, accuracy: float = leaderboard.TARGET_ACCURACY) -> list[Table]:
        """Return the leaderboard tables, each with its ranked `rows` and its `unranked` rows.

        - `accuracy`: target accuracy (0 to 1) for the time to accuracy.

        The `images_per_second` of a row is an interval, or None if no launch counts.
        """
        certificates = certificate.read_certificates(self.folder)
        with index.open_index(Store(self.folder), _warn) as record_index:
            ranked_tables = ranked.leaderboard_tables(
                record_index, [self.conditions], certificates, accuracy
            )
        for line in record_index.damaged:
            _warn(line)
        return ranked_tables

    def compare(self, a: str, b: str) -> list[CellComparison]:
        """Compare each cell of side `a` with the matching cell of side `b`.

        A side is a filter, such as "framework=torch,threads=2", or a results folder, as in
        `xfbench compare`. The conditions of these results apply to both sides. Each comparison has
        these attributes:

        - `figures.ratio`: the throughput of `a` divided by the throughput of `b`, as an interval.
        - `verdict`: "faster", "slower" or "not_distinguishable"; None if there is no verdict. The
          confidence of 95 % holds for the verdicts of all cells together.
        - `reason`: why there is no verdict; None if there is one.

        Raises UsageError if a field is unknown, or if a side has no valid launch.
        """
        sides = [Side.parse(text, self.folder, self.conditions) for text in (a, b)]
        return comparison.compare(*sides).comparisons


def load(results: str | Path | None = None, where: str | Sequence[str] = ()) -> Results:
    """Load the results folder `results` (default: XFBENCH_RESULTS, else ./results).

    `where` has conditions, separated by commas or in a list, as in `xfbench results list --where`:
    "framework=torch,threads>=2". A condition may use any field of docs/schema.md. Raises UsageError
    if the folder has no results, or if a condition is malformed or uses an unknown field.

    >>> xfbench.load("results", where="framework=torch").records()
    """
    texts = [where] if isinstance(where, str) else where
    folder = paths.results(Path(results) if results else None)
    return Results(open_existing_store(folder).folder, tuple(selection.parse_conditions(texts)))


def run_with_settings(values: Mapping[str, Any]) -> list[Record]:
    """Measure with these settings by name, and return the records: see `xfbench.run`.

    Raises UsageError if a setting is invalid. A setting that is None is not given.
    """
    given_values = {
        name: _parse_value(settings.BY_NAME[name], value)
        for name, value in values.items()
        if value is not None and not _is_unused_switch(settings.BY_NAME[name], value)
    }
    folder = paths.results(Path(given_values.pop("results")) if "results" in given_values else None)
    adjust = _load_adjustment(folder) if given_values.pop("tuned", False) else None
    plan = plan_builder.build_plan(given_values, adjust)
    store = Store(folder)
    done = session.find_done(plan, store)
    here = session.Session(LaunchContext(store), progress.choose_listener())
    return [*done, *here.run(plan, done)]


def _is_unused_switch(setting: Setting, value: Any) -> bool:
    return setting.is_switch and value == setting.default


def _parse_value(setting: Setting, value: Any) -> Any:
    """Return the value as `build_plan` expects it: parsed if it is a text, and in a list.

    Raises UsageError if the value is invalid.
    """
    if setting.name == "python":
        if not isinstance(value, Mapping):
            raise UsageError("python: expected a mapping, such as {'torch': '/usr/bin/python3'}")
        return {name: plan_builder.resolve_interpreter(name, path) for name, path in value.items()}
    if isinstance(value, str) and setting.type.annotation not in ("str", "str | Path"):
        value = setting.parse(value)
    elif setting.is_list:
        is_single = isinstance(value, str) or not isinstance(value, Iterable)
        value = [value] if is_single else [*value]
    elif setting in settings.RUN_OPTIONS and setting.minimum and value < setting.minimum:
        raise UsageError(f"{setting.name}: give at least {setting.minimum} (got {value})")
    return value


def _load_adjustment(results: Path) -> plan_builder.Adjustment:
    from xfbench.tuning import using  # slow to import, and most runs do not need it

    return using.build_adjustment(results)


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=3)
