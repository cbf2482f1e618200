"""The builder of plans from the settings of the command line or of `xfbench.run`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xfbench.base import errors, paths, revisions
from xfbench.environments import environment
from xfbench.model import adapter, settings
from xfbench.model.plan import Plan, Submission
from xfbench.model.request import INTERPRETER_NAME, Cell, Protocol
from xfbench.planning import experiment, pinning, sense
from xfbench.planning.matrix import Matrix
from xfbench.planning.scheduling import launch_order

# A function that returns the cells to measure. Its parameters are the cells with the settings as
# given, the cell fields of the given settings, and the interpreters by framework.
Adjustment = Callable[
    [list[tuple[Cell, Protocol]], set[str], Mapping[str, Path]], list[tuple[Cell, Protocol]]
]
_DEFAULT = "quick"
# If these are the only settings, they apply to the experiment `quick`.
_REPETITION_SETTINGS = {"launches", "until_precision", "until_ranked", "seed"}


def build_plan(values: Mapping[str, Any], adjust: Adjustment | None = None) -> Plan:
    """Build the plan for these settings. Raises UsageError if they are invalid.

    If no settings of cells except those in `_REPETITION_SETTINGS` are given, the plan has the cells
    of the experiment `quick`. Otherwise, `quick` gives only the default frameworks and
    workloads.

    - `values`: values of settings and of options of a run, by name. Settings that are not given are
      None or missing.
    - `adjust`: function that uses tuned values for the settings that are not given.

    In a plan for a bundle, the interpreter of each framework is `python3`. Otherwise, the plan has
    each cell once for each named interpreter of its framework, and for each git revision.
    """
    cell_settings = {
        setting.name: values[setting.name]
        for setting in settings.SETTINGS
        if values.get(setting.name) is not None
    }
    options = {setting.name: setting.default for setting in settings.RUN_OPTIONS} | dict(values)
    bundle: Path | None = values.get("bundle")
    for name in ("until_precision", "until_ranked"):
        if {"launches", name} <= set(cell_settings):
            option = settings.BY_NAME[name].option
            raise errors.UsageError(f"--launches and {option} exclude each other: use only one")
    for setting in settings.RUN_OPTIONS:
        setting.check_maximum(options[setting.name])
    matrices = _build_matrices_with_quick_defaults({"seed": (0,), **cell_settings})
    interpreters: dict[str, Path] = dict(options["python"] or {})
    named_interpreters = {key for key in interpreters if ":" in key}
    if bundle:
        _refuse_options_of_this_machine(options, is_tuned=adjust is not None)
        names = {name for matrix in matrices for name in matrix.framework}
        interpreters = dict.fromkeys(names, Path("python3"))
    cells = experiment.expand_matrices(
        matrices, {key: interpreters[key] for key in interpreters.keys() - named_interpreters}
    )
    if adjust is not None:
        if named_interpreters:
            raise errors.UsageError(
                "--tuned has values for one interpreter of a framework: leave out --tuned, or the "
                "names of interpreters"
            )
        fields = {settings.BY_NAME[name].cell_field for name in cell_settings}
        cells = adjust(cells, fields, interpreters)
    sense.refuse_options_without_effect(values, [cell for cell, _ in cells])
    if not bundle:
        pinning.refuse_misfits(cell for cell, _ in cells)
        sense.refuse_impossible_sizes(cell for cell, _ in cells)
    cells = _repeat_for_named_interpreters(cells, interpreters)
    if options["revisions"]:
        commits = revisions.resolve_revisions(options["revisions"])
        cells = _repeat_for_revisions(cells, commits, interpreters)
    checkpoint_dir = options["checkpoint_dir"] and Path(options["checkpoint_dir"])
    if checkpoint_dir is not None:
        _validate_checkpoint_dir_option(
            checkpoint_dir,
            cell_settings.get("checkpoints"),
            cells,
            for_other_machine=bundle is not None,
        )
    return Plan(
        requests=tuple(launch_order(cells)),
        protocols=tuple(cells),
        pythons=interpreters,
        verify=options["verify"],
        strict=options["strict"],
        time_limit=options["time_limit"],
        data_folders=experiment.data_folders_by_lookup_key(matrices),
        site_file=experiment.find_site_file(matrices),
        checkpoint_dir=checkpoint_dir and checkpoint_dir.absolute(),
        resume=options["resume"],
        submission=Submission.from_settings(options),
        bundle=bundle,
        has_guessed_threads=adjust is None and experiment.has_guessed_threads(matrices),
    )


def _refuse_options_of_this_machine(options: Mapping[str, Any], *, is_tuned: bool) -> None:
    """Raise UsageError if an option has no meaning for a bundle."""
    if is_tuned:
        raise errors.UsageError(
            "--tuned has values for this machine, but --bundle is for another machine: "
            "use only one of these options"
        )
    if any(":" in key for key in options["python"] or ()):
        raise errors.UsageError(
            "--bundle has one interpreter for each framework, which run.sh gets on the other "
            "machine: leave out --python"
        )
    if options["revisions"]:
        raise errors.UsageError(
            "--bundle has only the code of the running xfbench: check out each revision and write "
            "a bundle there, or leave out --revisions"
        )


def _repeat_for_named_interpreters(
    cells: Sequence[tuple[Cell, Protocol]], interpreters: Mapping[str, Path]
) -> list[tuple[Cell, Protocol]]:
    """Return each cell once for each interpreter of its framework, if interpreters have names."""
    repeated: list[tuple[Cell, Protocol]] = []
    for cell, protocol in cells:
        keys = [key for key in interpreters if key.partition(":")[0] == cell.framework]
        names = [key.partition(":")[2] or None for key in keys]
        update = {"environment": "python"} if keys else {}
        repeated += [
            (cell.model_copy(update={**update, "python": name}), protocol)
            for name in names or [None]
        ]
    return repeated


def _repeat_for_revisions(
    cells: Sequence[tuple[Cell, Protocol]],
    commits: Sequence[str],
    interpreters: Mapping[str, Path],
) -> list[tuple[Cell, Protocol]]:
    """Return each cell once for each revision. The order of the revisions stays.

    The cells of all revisions have the same settings, even if the defaults of a revision's adapter
    differ. Only the kind of environment is that of the revision's adapter.
    """

    def build_cell(cell: Cell, commit: str) -> Cell:
        kind = environment.determine_kind(
            adapter.load(cell.framework, commit), interpreters.get(cell.interpreter_key), cell.site
        )
        return cell.model_copy(update={"revision": commit, "environment": kind})

    return [(build_cell(cell, commit), protocol) for cell, protocol in cells for commit in commits]


def resolve_interpreter(key: str, interpreter_file: str | Path) -> Path:
    """Return the absolute path of the interpreter that `--python` gives for a framework.

    - `key`: the framework, or the framework and a name of the interpreter, such as "torch:old".

    Raises UsageError if the framework is unknown, the name is invalid or there is no such file.
    """
    framework, has_name, name = key.partition(":")
    if framework not in adapter.list_names():
        raise errors.unknown_name_error("framework", framework, adapter.list_names())
    if has_name and not re.match(INTERPRETER_NAME, name):
        raise errors.UsageError(
            f"--python {key}={interpreter_file}: a name has letters, digits, '.', '-' and '_'"
        )
    interpreter_path = paths.expand_user(interpreter_file).absolute()
    if not interpreter_path.is_file():
        raise errors.UsageError(f"--python {key}={interpreter_file}: no such file")
    return interpreter_path


def _build_matrices_with_quick_defaults(values: Mapping[str, Any]) -> list[Matrix]:
    quick = experiment.load(_DEFAULT).matrix
    if set(values) - _REPETITION_SETTINGS:
        defaults: dict[str, Any] = {
            "framework": list(dict.fromkeys(name for matrix in quick for name in matrix.framework)),
            "workload": list(dict.fromkeys(name for matrix in quick for name in matrix.workload)),
        }
        return [experiment.build_matrix(**{**defaults, **values})]
    fixed = {} if set(values) == {"seed"} else {"launches": None}
    return [
        experiment.build_matrix(**{**matrix.model_dump(), **fixed, **values}) for matrix in quick
    ]


def _validate_checkpoint_dir_option(
    folder: Path,
    checkpoint_count: int | None,
    cells: Sequence[tuple[Cell, Protocol]],
    *,
    for_other_machine: bool,
) -> None:
    """Raise UsageError if no checkpoints are requested, or if `folder` does not exist.

    `folder` may be missing if the plan is for another machine, or if a cell is launched by Slurm.
    """
    if not checkpoint_count:
        raise errors.UsageError(f"--checkpoint-dir {folder} needs --checkpoints N")
    elsewhere = for_other_machine or any(cell.launcher == "slurm" for cell, _ in cells)
    if not elsewhere and not folder.is_dir():
        raise errors.UsageError(f"--checkpoint-dir {folder}: no such folder")
