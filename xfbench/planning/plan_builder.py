"""The builder of plans from the settings of the command line or of `xfbench.run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xfbench.base import errors
from xfbench.model import adapter
from xfbench.model.plan import DEFAULT_TIME_LIMIT, Plan, Submission
from xfbench.model.request import Cell, Protocol
from xfbench.planning import experiment
from xfbench.planning.matrix import Matrix
from xfbench.planning.scheduling import launch_order

# A function that returns the cells to measure. Its parameters are the cells with the settings as
# given, the names of the given settings, and the interpreters by framework.
Adjustment = Callable[
    [list[tuple[Cell, Protocol]], set[str], Mapping[str, Path]], list[tuple[Cell, Protocol]]
]
_DEFAULT = "quick"
# If these are the only settings, they apply to the experiment `quick`.
_REPETITION_SETTINGS = {"launches", "until_precision", "seed"}


def build_plan(
    settings: Mapping[str, Any],
    *,
    pythons: Mapping[str, Path],
    verify: bool = True,
    strict: bool = False,
    time_limit: float = DEFAULT_TIME_LIMIT,
    checkpoint_dir: Path | None = None,
    resume: bool = False,
    submission: Submission = Submission(),  # noqa: B008
    bundle: Path | None = None,
    adjust: Adjustment | None = None,
) -> Plan:
    """Build the plan for these settings. Raises UsageError if they are invalid.

    If no settings except `launches`, `until_precision` and `seed` are given, the plan has the cells
    of the experiment `quick`. Otherwise, `quick` gives only the default frameworks and workloads.

    - `settings`: values of the fields of `Matrix`, by name. A setting that is None is not given.
    - `pythons`: interpreters that the user chose, by framework.
    - `bundle`: the folder for a bundle. If given, `pythons` is not used: on the other machine, the
      interpreter of each framework is `python3`.
    - `adjust`: function that uses tuned values for the settings that are not given.
    """
    given_settings = {name: value for name, value in settings.items() if value is not None}
    if {"launches", "until_precision"} <= set(given_settings):
        raise errors.UsageError("--launches and --until-precision exclude each other: use only one")
    matrices = _build_matrices_with_quick_defaults({"seed": (0,), **given_settings})
    interpreters = dict(pythons)
    if bundle:
        names = {name for matrix in matrices for name in matrix.framework}
        interpreters = dict.fromkeys(names, Path("python3"))
    cells = experiment.expand_matrices(matrices, interpreters)
    if adjust is not None:
        if bundle:
            raise errors.UsageError(
                "--tuned has values for this machine, but --carry is for another machine: "
                "use only one of these options"
            )
        cells = adjust(cells, set(given_settings), interpreters)
    if checkpoint_dir is not None:
        _validate_checkpoint_dir_option(
            checkpoint_dir,
            given_settings.get("checkpoints"),
            cells,
            for_other_machine=bundle is not None,
        )
    return Plan(
        requests=tuple(launch_order(cells, matrices[0].seed[0])),
        protocols=tuple(cells),
        pythons=interpreters,
        verify=verify,
        strict=strict,
        time_limit=time_limit,
        data_folders=experiment.data_folders_by_lookup_key(matrices),
        checkpoint_dir=checkpoint_dir and checkpoint_dir.absolute(),
        resume=resume,
        submission=submission,
        bundle=bundle,
    )


def resolve_interpreter(framework: str, interpreter_file: str | Path) -> Path:
    """Return the absolute path of the interpreter that `--python` gives for the framework.

    Raises UsageError if the framework is unknown or there is no such file.
    """
    if framework not in adapter.list_names():
        raise errors.unknown_name_error("framework", framework, adapter.list_names())
    interpreter_path = Path(interpreter_file).expanduser().absolute()
    if not interpreter_path.is_file():
        raise errors.UsageError(f"--python {framework}={interpreter_file}: no such file")
    return interpreter_path


def _build_matrices_with_quick_defaults(settings: Mapping[str, Any]) -> list[Matrix]:
    quick = experiment.load(_DEFAULT).matrix
    if set(settings) - _REPETITION_SETTINGS:
        defaults: dict[str, Any] = {
            "framework": list(dict.fromkeys(name for matrix in quick for name in matrix.framework)),
            "workload": list(dict.fromkeys(name for matrix in quick for name in matrix.workload)),
        }
        return [experiment.build_matrix(**{**defaults, **settings})]
    fixed = {} if set(settings) == {"seed"} else {"launches": None}
    return [
        experiment.build_matrix(**{**matrix.model_dump(), **fixed, **settings}) for matrix in quick
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
