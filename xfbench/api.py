"""The Python interface of xfbench: read results and run cells.

This module calls the same functions as the command line, and computes nothing itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from xfbench import progress, session
from xfbench.analysis import comparison, leaderboard, ranked
from xfbench.analysis.comparison import CellComparison, Side
from xfbench.analysis.leaderboard import Table
from xfbench.base import paths
from xfbench.base.errors import UnavailableError
from xfbench.exchange import exporting
from xfbench.model import certificate
from xfbench.model.plan import DEFAULT_TIME_LIMIT, Submission
from xfbench.model.record import Record
from xfbench.model.strategy import Value
from xfbench.planning import plan_builder
from xfbench.store import index, selection
from xfbench.store.results_folder import Store, open_existing_store
from xfbench.store.selection import Condition

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")
Names: TypeAlias = str | Sequence[str] | None
Numbers: TypeAlias = int | Sequence[int] | None
Rates: TypeAlias = float | Sequence[float] | None


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
        return comparison.compare(*sides)


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


def run(
    framework: Names = None,
    workload: Names = None,
    *,
    device: Names = None,
    precision: Names = None,
    kernel: Names = None,
    threads: Numbers = None,
    batch_size: Numbers = None,
    ranks: Numbers = None,
    nodes: Numbers = None,
    strategy: Names = None,
    strategy_options: Mapping[str, Value] | None = None,
    scaling: str | None = None,
    data: Names = None,
    page_cache: Names = None,
    input: Names = None,
    input_threads: int | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    warmup: int | None = None,
    window: int | None = None,
    affinity: str | None = None,
    allocator: Names = None,
    lars: Rates = None,
    learning_rate: Rates = None,
    rate_scaling: Names = None,
    rate_warmup: Numbers = None,
    checkpoints: int | None = None,
    checkpoint_dir: str | Path | None = None,
    profile: bool = False,
    launches: int | None = None,
    until_precision: float | None = None,
    seed: Numbers = None,
    launcher: str | None = None,
    site: str | None = None,
    queue: str | None = None,
    account: str | None = None,
    minutes: int = 60,
    python: Mapping[str, str | Path] | None = None,
    results: str | Path | None = None,
    time_limit: float = DEFAULT_TIME_LIMIT,
    resume: bool = False,
    verify: bool = True,
    strict: bool = False,
    tuned: bool = False,
) -> list[Record]:
    """Measure with the options and defaults of `xfbench run`, and return the records.

    Every combination of the given lists is a cell. Every launch is a fresh process. Progress is
    printed to standard error.

    - `launches`: number of launches per cell (default: 5 to 20).
    - `until_precision`: relative half-width of the confidence interval to reach, such as 0.02.
    - `time_limit`: time limit of one launch in seconds.
    - `minutes`: time limit in minutes of a Slurm job submitted from a login node.
    - `python`: path of each framework's interpreter, by framework name.
    - `resume`: don't repeat finished launches; return their records too.
    - `tuned`: for options that you don't set, use the values that `xfbench tune` stored in
      `results`.

    If an option is invalid, raises UsageError before any launch. A failed launch raises no
    exception. Instead, the `status` of its record is not "ok", and the `reason` says why.

    >>> records = xfbench.run("torch", "lenet", steps=20, launches=3, results="results")
    """
    folder = paths.results(Path(results) if results else None)
    plan = plan_builder.build_plan(
        {
            "framework": _as_list(framework),
            "workload": _as_list(workload),
            "device": _as_list(device),
            "precision": _as_list(precision),
            "kernel": _as_list(kernel),
            "threads": _as_list(threads),
            "batch_size": _as_list(batch_size),
            "ranks": _as_list(ranks),
            "nodes": _as_list(nodes),
            "strategy": _as_list(strategy),
            "strategy_options": strategy_options,
            "scaling": scaling,
            "data": _as_list(data),
            "page_cache": _as_list(page_cache),
            "input": _as_list(input),
            "input_threads": input_threads,
            "steps": steps,
            "epochs": epochs,
            "warmup": warmup,
            "window": window,
            "affinity": affinity,
            "allocator": _as_list(allocator),
            "lars": _as_list(lars),
            "learning_rate": _as_list(learning_rate),
            "rate_scaling": _as_list(rate_scaling),
            "rate_warmup": _as_list(rate_warmup),
            "checkpoints": checkpoints,
            "profile": profile or None,
            "launches": launches,
            "until_precision": until_precision,
            "seed": _as_list(seed),
            "launcher": launcher,
            "site": site,
            "queue": queue,
        },
        pythons={
            name: plan_builder.resolve_interpreter(name, path)
            for name, path in (python or {}).items()
        },
        verify=verify,
        strict=strict,
        time_limit=time_limit,
        checkpoint_dir=Path(checkpoint_dir) if checkpoint_dir else None,
        resume=resume,
        submission=Submission(minutes=minutes, queue=queue or "", account=account or ""),
        adjust=_load_adjustment(folder) if tuned else None,
    )
    store = Store(folder)
    done = session.find_done(plan, store)
    return [*done, *session.run(plan, store, progress.choose_listener())]


def _load_adjustment(results: Path) -> plan_builder.Adjustment:
    from xfbench.tuning import using  # slow to import, and most runs do not need it

    return using.build_adjustment(results)


def _as_list(setting: T | Sequence[T] | None) -> list[T] | None:
    if setting is None:
        return None
    return [setting] if isinstance(setting, str | int | float) else [*setting]  # type: ignore[misc]


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=3)
