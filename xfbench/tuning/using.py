"""`run --tuned`: cells get the settings that a search found on the same kind of machine.

Only searches that ran here count: their launches were measured in the same results folder. Whoever
sends another search would otherwise decide how launches run on this machine.

Tuned values are ordinary fields of the cell, so records show them. An option that the user sets is
never replaced by a tuned value. Some options, such as the number of threads, decide how ranks share
the machine. If the user sets such an option, a tuned number of ranks is not used.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from xfbench.base import errors
from xfbench.base.errors import UnavailableError
from xfbench.base.terminal_text import say
from xfbench.environments import environment
from xfbench.execution import job_queue
from xfbench.host import machine
from xfbench.model import adapter, facts, origins
from xfbench.model.machines import machine_class
from xfbench.model.origins import WORDS, Origins
from xfbench.model.request import Cell, Protocol
from xfbench.planning import pinning
from xfbench.planning.plan_builder import Adjustment
from xfbench.store.results_folder import Store
from xfbench.store.tuning_results import Tuning, read_sorted_searches
from xfbench.studies import running
from xfbench.tuning.space import describe_setting
from xfbench.workloads import workloads

Say = Callable[[str], None]

_PLACEMENT_FIELDS = ("kernel", "threads", "affinity", "allocator")
_STRATEGY_FIELDS = ("strategy", "strategy_options")
# Options that decide how ranks share the machine. If the user sets one of them, a tuned number of
# ranks is not used.
_RANK_FIELDS = ("ranks", "nodes", "threads", "scaling", *_STRATEGY_FIELDS)


def build_adjustment(results: Path) -> Adjustment:
    """Return a function for `plan_builder.build_plan` that applies the tuning in `results`.

    `results` is the results folder. The returned function prints the tuned values of each cell to
    standard error.
    """

    def adjust(
        cells: list[tuple[Cell, Protocol]], user_set_names: set[str], pythons: Mapping[str, Path]
    ) -> list[tuple[Cell, Protocol]]:
        return apply_tuning(cells, user_set_names, results, pythons, say)

    return adjust


def apply_tuning(
    cells: Sequence[tuple[Cell, Protocol]],
    user_set_names: Collection[str],
    results: Path,
    pythons: Mapping[str, Path],
    say: Say,
) -> list[tuple[Cell, Protocol]]:
    """Return the cells, each with the tuned values that the results folder has for it.

    - `user_set_names`: names of the settings that the user set. Their values do not change.
    - `results`: the results folder.
    - `pythons`: interpreters by framework.
    - `say`: prints one line per cell: its tuned values, or the command that finds them.

    Raises UsageError if a Slurm job would be submitted, because it would train on another machine.
    """
    if any(cell.launcher == "slurm" for cell, _ in cells) and not job_queue.is_inside_allocation():
        raise errors.UsageError(
            "--tuned applies to this machine, but submitted jobs run on others: leave out --tuned"
        )
    searches = read_sorted_searches(results, say)
    foreign_searches = _ForeignSearches(results, say)
    versions: dict[str, str | None] = {}
    tuned_cells: dict[Cell, Protocol] = {}
    for cell, protocol in cells:
        if cell.framework not in versions:
            versions[cell.framework] = _framework_version(cell, pythons)
        version = versions[cell.framework]
        newest = next(
            (
                search
                for search in reversed(searches)
                if is_applicable(search, cell, version, user_set_names)
                and not foreign_searches.say_if_foreign(search)
            ),
            None,
        )
        if newest:
            tuned_cell = build_tuned_cell(newest, cell, user_set_names)
            say(
                f"tuned: {_describe_workload_framework_batch(cell)}: {describe_setting(tuned_cell)}"
                f"{_describe_gain(newest)}"
            )
        else:
            tuned_cell = cell
            say(
                f"not tuned: {_describe_workload_framework_batch(cell)}: "
                f"{_describe_remedy(cell, version, results)}"
            )
        tuned_cells.setdefault(tuned_cell, protocol)
    return list(tuned_cells.items())


class _ForeignSearches:
    """The searches in a results folder that did not run here. `say` gets one line about each."""

    def __init__(self, results: Path, say: Say) -> None:
        self._store, self._say = Store(results), say
        self._origins = origins.read(results)
        self._is_foreign: dict[str, bool] = {}

    def say_if_foreign(self, search: Tuning) -> bool:
        """Return whether the search did not run here, and say so once."""
        if search.id not in self._is_foreign:
            reason = find_foreign_reason(search, self._origins, self._store)
            self._is_foreign[search.id] = reason is not None
            if reason:
                self._say(f"search {search.id[7:19]} is not used: {reason}")
        return self._is_foreign[search.id]


def find_foreign_reason(search: Tuning, known_origins: Origins, store: Store) -> str | None:
    """Return why a search in the results folder `store` may have run elsewhere; None: it ran here.

    - `known_origins`: those of the results folder.
    """
    if note := known_origins.searches.get(search.id):
        return f"{WORDS[note.origin]} (from {note.source})"
    if foreign := {known_origins.of(each) for each in search.records} - {"measured"}:
        return (
            f"the origin of its launches is: {', '.join(sorted(WORDS[each] for each in foreign))}"
        )
    try:
        missing = store.find_missing(search.records)
    except OSError as error:
        return f"its launches cannot be read: {error.strerror}"
    if not search.records:
        return "it names no launches"
    if missing:
        return f"{store.folder} lacks {len(missing)} of its {len(search.records)} launches"
    return None


def is_applicable(
    search: Tuning, cell: Cell, version: str | None, user_set_names: Collection[str]
) -> bool:
    """Return whether the result of a search applies to the cell on this machine.

    - `version`: the installed version of the framework; None: unknown.
    - `user_set_names`: names of the settings that the user set. If they contain one of
      _RANK_FIELDS, a result with another number of ranks does not apply.
    """
    best = search.best
    matched_fields = ("framework", "workload", "device", "precision", "global_batch_size")
    if not search.confirmed or search.framework_version != version:
        return False
    if any(getattr(best, name) != getattr(cell, name) for name in matched_fields):
        return False
    if machine_class(search.machine) != machine_class(machine.describe_machine()):
        return False
    if search.workload_digest != facts.workload_facts(workloads()[cell.workload]).digest:
        return False
    if best.kernel not in adapter.load(cell.framework).kernels:
        return False
    if running.oversubscription_reason(best):
        return False
    if best.ranks == cell.ranks:
        fits = best.ranks == 1 or (cell.nodes == 1 and cell.scaling == best.scaling)
    else:
        # Ranks that share the batch do the same training, but they read a data set differently.
        has_free_ranks = not any(name in user_set_names for name in _RANK_FIELDS)
        fits = has_free_ranks and cell.ranks == 1 and cell.data_set is None
    return fits and not pinning.misfit_reason(build_tuned_cell(search, cell, user_set_names))


def build_tuned_cell(search: Tuning, cell: Cell, user_set_names: Collection[str]) -> Cell:
    """Return the cell with the best setting of the search.

    Settings that are named in `user_set_names` do not change.
    """
    best = search.best
    update: dict[str, Any] = {
        name: getattr(best, name) for name in _PLACEMENT_FIELDS if name not in user_set_names
    }
    if best.ranks > 1 and not any(name in user_set_names for name in _STRATEGY_FIELDS):
        update |= {name: getattr(best, name) for name in _STRATEGY_FIELDS}
    if best.ranks != cell.ranks:
        names = ("ranks", "nodes", "scaling", "batch_size_per_rank")
        update |= {name: getattr(best, name) for name in names}
    return Cell(**{**cell.model_dump(), **update})


def _framework_version(cell: Cell, pythons: Mapping[str, Path]) -> str | None:
    """Return the version of the cell's framework; None if the framework has no environment."""
    try:
        framework_adapter = adapter.load(cell.framework)
        framework_environment = environment.find_environment(
            framework_adapter, pythons.get(cell.framework), cell.site
        )
    except UnavailableError:
        return None
    return framework_environment.version if framework_environment else None


def _describe_workload_framework_batch(cell: Cell) -> str:
    return f"{cell.workload} · {cell.framework} · batch {cell.global_batch_size}"


def _describe_gain(search: Tuning) -> str:
    if search.best == search.default:
        return ", which is the default"
    ratio = search.over_default
    return f", {ratio.value:.2f} times the default" if ratio else ""


def _describe_remedy(cell: Cell, version: str | None, results: Path) -> str:
    """Return a text that says why the cell has no tuning, and which command helps."""
    if version is None:
        return f"it has no environment: xfbench env create {cell.framework}"
    words = ["xfbench", "tune", "--framework", cell.framework, "--workload", cell.workload]
    if cell.device != "cpu":
        words += ["--device", cell.device]
    if cell.precision != "float32":
        words += ["--precision", cell.precision]
    if cell.global_batch_size != workloads()[cell.workload].batch_size:
        words += ["--batch-size", str(cell.global_batch_size)]
    if cell.ranks > 1:
        words += ["--over", f"ranks={cell.ranks}"]
    if results != Path("results").absolute():
        words += ["--results", str(results)]
    return f"no tuning of {cell.framework} {version} on this machine: {shlex.join(words)}"
