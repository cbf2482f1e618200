"""The launches of a study on this machine: plan and skipped cells."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xfbench.analysis.learning import has_diverged
from xfbench.base import errors
from xfbench.base.wording import pluralize
from xfbench.host import machine, sites
from xfbench.model import adapter, facts, training
from xfbench.model.plan import DEFAULT_TIME_LIMIT, Plan, Submission
from xfbench.model.record import Record
from xfbench.model.request import Cell
from xfbench.planning import experiment, pinning, sense
from xfbench.planning.experiment import Experiment
from xfbench.planning.matrix import Matrix
from xfbench.planning.scheduling import launch_order
from xfbench.planning.study_form import BatchSearch, Size
from xfbench.store.lookup import find_records_of_requests
from xfbench.store.results_folder import Store
from xfbench.studies import media
from xfbench.studies.batch_search import CellSearch
from xfbench.workloads import workloads


@dataclass(frozen=True)
class Choices:
    """The options of `study run`. All other settings are in the study's file.

    - `frameworks`, `workloads`: frameworks and networks to run; empty: all of the study.
    - `launches`: number of launches per cell; None: the number in the study's file.
    - `launcher`, `site`: launcher and site of all cells; None: those in the study's file.
    - `pythons`: interpreters by framework.
    - `media`: folders of additional storage media, by the name of the medium.
    - `verify`: whether to verify the networks.
    - `strict`: whether to refuse to run on a noisy machine.
    - `time_limit`: maximum seconds per launch.
    - `resume`: whether to leave out launches whose records exist.
    - `submission`: for launches that are submitted from a login node.
    - `memory_limit`: memory limit in searches for the largest batch, in bytes per rank; None: the
      limit in the study's file.
    """

    frameworks: Sequence[str] = ()
    workloads: Sequence[str] = ()
    launches: int | None = None
    launcher: str | None = None
    site: str | None = None
    pythons: Mapping[str, Path] = field(default_factory=dict)
    media: Mapping[str, Path] = field(default_factory=dict)
    verify: bool = True
    strict: bool = False
    time_limit: float = DEFAULT_TIME_LIMIT
    memory_limit: int | None = None
    resume: bool = False
    submission: Submission = field(default_factory=Submission)


@dataclass(frozen=True)
class StudyPlan:
    """The launches of a study on this machine.

    - `plan`: all launches except those of `searches`.
    - `skipped_cells`: cells that are not launched, each with the reason.
    - `searches`: searches for the largest batch. Their launches are not known in advance, because
      the outcome of each trial decides which batch is tried next.
    - `missing_data`: names of optional data sets that do not exist.
    """

    plan: Plan
    skipped_cells: tuple[tuple[Cell, str], ...]
    searches: tuple[CellSearch, ...] = ()
    missing_data: tuple[str, ...] = ()

    @property
    def cells(self) -> list[Cell]:
        """The cells of all launches and searches."""
        return [cell for cell, _ in self.plan.protocols] + [each.cell for each in self.searches]


def _refuse_unused_names(title: str, matrices: Sequence[Matrix], choices: Choices) -> None:
    """Raise UsageError if a chosen framework or network is unknown, or unused by `matrices`."""
    for kind, chosen in (("framework", choices.frameworks), ("workload", choices.workloads)):
        used = {name for matrix in matrices for name in getattr(matrix, kind)}
        known_names = {"framework": adapter.list_names, "workload": workloads}[kind]()
        for name in chosen:
            if name not in {*known_names, *used}:
                raise errors.unknown_name_error(kind, name, used)
            if name not in used:
                raise errors.UsageError(
                    f"{title} does not use {name}: choose from {', '.join(sorted(used))}"
                )


def plan_study_and_write_data(study: Experiment, size: Size, choices: Choices) -> StudyPlan:
    """Write the study's prepared data, and return its plan for this size.

    Raises UsageError in these cases:

    - The study does not have the size, or does not use a chosen framework or network.
    - All data sets of the study are missing.
    - A medium is unknown, or its folder cannot be written.
    """
    matrices = study.matrices_of_size(size)
    if not matrices:
        sizes = ", ".join(study.sizes)
        raise errors.UsageError(f"{study.name} has no size {size} (sizes: {sizes})")
    _refuse_unused_names(f"{study.name}, size {size},", matrices, choices)
    folders = media.medium_folders(choices.media)
    update = {
        name: value
        for name in ("launches", "launcher", "site")
        if (value := getattr(choices, name)) is not None
    }
    chosen, missing_names = [], {}
    for study_matrix in matrices:
        matrix, missing = media.replace_optional_data_sets_by_folders(study, study_matrix)
        missing_names.update(dict.fromkeys(missing))
        if matrix is None:
            continue
        names = [n for n in matrix.framework if not choices.frameworks or n in choices.frameworks]
        networks = [n for n in matrix.workload if not choices.workloads or n in choices.workloads]
        if names and networks:
            placed_matrix = media.write_prepared_data(study, matrix, folders)
            changes: dict[str, object] = {"framework": names, "workload": networks}
            if choices.memory_limit and isinstance(matrix.batch_size, BatchSearch):
                changes["memory_limit"] = choices.memory_limit
            if matrix.probe and matrix.launcher:
                changes["launcher"] = matrix.launcher
            chosen.append(placed_matrix.model_copy(update={**update, **changes}))
    if not chosen and missing_names:
        raise errors.UsageError(
            f"{study.name}: {media.missing_data_message(next(iter(missing_names)))}"
        )
    if not chosen:
        unused = [*choices.frameworks, *choices.workloads]
        raise errors.UsageError(f"{study.name}, size {size}, does not use {' with '.join(unused)}")
    fixed = [matrix for matrix in chosen if not isinstance(matrix.batch_size, BatchSearch)]
    cells = experiment.expand_matrices(fixed, choices.pythons)
    searches = [
        CellSearch(cell, matrix.batch_size, protocol)
        for matrix in chosen
        if isinstance(matrix.batch_size, BatchSearch)
        for cell, protocol in experiment.expand_matrices([matrix], choices.pythons)
    ]
    all_cells = [*(cell for cell, _ in cells), *(search.cell for search in searches)]
    _refuse_options_without_effect(choices, all_cells, has_searches=bool(searches))
    reasons = [
        (
            cell,
            pinning.misfit_reason(cell)
            or (None if study.crowded else oversubscription_reason(cell))
            or (None if study.crowded else pinning.crowding_warning(cell)),
        )
        for cell in all_cells
    ]
    skipped_cells = tuple((cell, reason) for cell, reason in reasons if reason)
    skipped = {cell for cell, _ in skipped_cells}
    runnable = [(cell, protocol) for cell, protocol in cells if cell not in skipped]
    plan = Plan(
        requests=tuple(launch_order(runnable)),
        protocols=tuple(runnable),
        pythons=dict(choices.pythons),
        verify=choices.verify,
        strict=choices.strict,
        time_limit=choices.time_limit,
        data_folders=experiment.data_folders_by_lookup_key(chosen),
        site_file=experiment.find_site_file(chosen),
        resume=choices.resume,
        submission=choices.submission,
        has_guessed_threads=experiment.has_guessed_threads(chosen),
    )
    return StudyPlan(
        plan,
        skipped_cells,
        tuple(search for search in searches if search.cell not in skipped),
        tuple(missing_names),
    )


def _refuse_options_without_effect(
    choices: Choices, cells: Sequence[Cell], *, has_searches: bool
) -> None:
    """Raise UsageError if an option of `study run` changes no launch of the study."""
    if choices.memory_limit and not has_searches:
        raise errors.UsageError(
            "--memory-limit has no effect here: it needs a study that searches for batch sizes"
        )
    usual = Submission()
    sense.refuse_options_without_effect(
        {
            "account": choices.submission.account or None,
            "job_time": choices.submission.minutes
            if choices.submission.minutes != usual.minutes
            else None,
            "partition": choices.submission.partition,
            "python": choices.pythons,
        },
        cells,
    )


def oversubscription_reason(cell: Cell) -> str | None:
    """Return why a node has too few processors for the cell; None if the node has enough.

    With the launcher "local", the node is this machine. With another launcher, it is a node of the
    cell's site. Return None also if the number of processors is unknown, or if the cell does not
    train on CPUs.
    """
    if cell.device != "cpu":
        return None
    ranks_per_node = cell.ranks // cell.nodes
    if cell.launcher == "local":
        available, subject = len(os.sched_getaffinity(0)), "there are"
    else:
        available, subject = sites.load_site(cell.site).cores_for_ranks(None, 0), "a node has"
    needed = ranks_per_node * cell.threads
    if not available or needed <= available:
        return None
    ranks = f"{ranks_per_node} ranks of " if ranks_per_node > 1 else ""
    threads = pluralize(cell.threads, "thread")
    return f"{ranks}{threads} need {needed} processors, and {subject} {available}"


def is_ok_or_expected_failure(study: Experiment, record: Record) -> bool:
    """Return whether a launch succeeded, or failed in a way that the study expects.

    These failures are expected:

    - An unsupported or unavailable launch.
    - Any failure of a probe.
    - A launch that diverged, if the study has the analysis "diverged".
    """
    if record.status in ("ok", "unsupported", "unavailable"):
        return True
    if record.request and record.request.probe:
        return True
    return has_diverged(record) and any(analysis.name == "diverged" for analysis in study.analysis)


def record_skipped_cells(study_plan: StudyPlan, store: Store) -> None:
    """Store a record of each skipped cell with the reason, so that reports and archives have it.

    A cell that was measured earlier, or has a record with this reason, gets none.
    """
    reasons = {cell.request(1): reason for cell, reason in study_plan.skipped_cells}
    if not reasons:
        return
    store.create_and_check_folders()
    recorded = {
        record.request
        for record in find_records_of_requests(reasons, store)
        if record.request and (record.status == "ok" or record.reason == reasons[record.request])
    }
    for request, reason in reasons.items():
        if request not in recorded:
            # The nodes of a job are not known here.
            here = None if request.launcher == "slurm" else machine.describe_machine()
            workload = facts.workload_facts(training.workload_with_solver_of_cell(request))
            fields = {"request": request, "workload": workload, "machine": here}
            store.add(Record.make(status="unavailable", reason=reason, **fields))


def require_submission(
    study: Experiment, slurm_obstacle: str | None, records: Sequence[Record]
) -> None:
    """Raise UnavailableError if cells were not launched because Slurm cannot be reached.

    - `slurm_obstacle`: why Slurm jobs cannot be submitted, else None.
    - `records`: the new records. Probes do not count, because their answer is "not here".
    """
    requests = [each.request for each in records if each.request and each.status == "unavailable"]
    cells = {each.cell() for each in requests if each.launcher == "slurm" and not each.probe}
    if not slurm_obstacle or not cells:
        return
    launchers = {size: [m.launcher for m in study.matrices_of_size(size)] for size in study.sizes}
    local_sizes = [size for size in study.sizes if "slurm" not in launchers[size]]
    other_size = f", or choose --size {local_sizes[-1]}" if local_sizes else ""
    raise errors.UnavailableError(
        f"{pluralize(len(cells), 'cell')} of {study.name} not launched: {slurm_obstacle}. Run the "
        f"command on a login node of the cluster{other_size}"
    )
