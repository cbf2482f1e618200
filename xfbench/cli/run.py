"""`xfbench run`: measure a matrix of cells, or the built-in experiment `quick`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xfbench.cli.options import parse_options, with_settings
from xfbench.model import settings

if TYPE_CHECKING:
    from xfbench.model.plan import Plan
    from xfbench.model.record import Record
    from xfbench.planning.plan_builder import Adjustment
    from xfbench.session import Preview
    from xfbench.store.results_folder import Store


@with_settings((*settings.SETTINGS, *settings.RUN_OPTIONS, *settings.COMMAND_OPTIONS))
def run(job: Annotated[Path | None, typer.Option(hidden=True)] = None, **options: Any) -> None:
    """Measure every combination of the given values in fresh processes.

    Comma-separated values are combined; each combination is a cell. Each cell is launched several
    times. Cells without a certificate are verified first (see `xfbench verify`).

    Without options that describe cells, the experiment `quick` runs. --launches, --until-precision
    and --seed also apply to `quick`.

    \b
    xfbench run
    xfbench run --until-precision 2%
    xfbench run --framework torch,mxnet --workload alexnet --batch-size 16 --threads 1,2
    xfbench run --framework torch --workload lenet --epochs 5 --launches 5
    xfbench run --framework torch --batch-size 512 --lr-scaling linear --lr-warmup 2 --epochs 5
    xfbench run --framework torch,mxnet --workload convnet --until-precision 1%
    xfbench run --framework torch,caffe --ranks 1,2 --scaling strong --launcher mpi
    xfbench run --framework torch --ranks 4 --nodes 2 --scaling weak --launcher slurm
    xfbench run --framework torch,caffe --workload alexnet --checkpoints 4
    xfbench run --workload alexnet --batch-size 16 --profile
    xfbench run --framework tensorflow --data photos-tfrecord --loader xfbench,native
    xfbench run --framework torch --python torch:old=PATH --python torch:new=PATH
    xfbench run --revisions main,working-tree --framework torch --workload lenet --launches 5
    """
    from xfbench import progress, session
    from xfbench.base import paths
    from xfbench.execution import job_queue
    from xfbench.model.plan import Plan
    from xfbench.planning import plan_builder
    from xfbench.store.results_folder import Store

    values = parse_options(options)
    as_json, dry_run = values.pop("json", False), values.pop("dry_run", False)
    store = Store(paths.results(values.pop("results", None)))
    if job:
        with job_queue.write_heartbeat(job.parent):
            events = progress.JsonLines(job.parent / job_queue.EVENTS)
            plan = Plan.read(job)
            records = session.run(plan, store, progress.choose_listener(), events)
            _print_records_exit_if_failed(records, plan, store, as_json)
        return
    adjust = _build_tuned_adjustment(store.folder) if values.pop("tuned", False) else None
    plan = plan_builder.build_plan(values, adjust)
    if dry_run:
        _print_preview(session.preview(plan, store), as_json)
        return
    records = session.run(plan, store, progress.choose_listener())
    if plan.bundle:
        print(
            f"{plan.bundle}: copy it to the other machine, run `sh run.sh FRAMEWORK=PYTHON ...`, "
            "copy it back,"
        )
        print(f"then import it: xfbench results import --bundle {plan.bundle}")
    elif records or plan.submission.wait:
        _print_records_exit_if_failed(records, plan, store, as_json)


def _build_tuned_adjustment(results: Path) -> Adjustment:
    """Return a function that gives a plan's cells the values found by `xfbench tune`.

    - `results`: the results folder with the searches.
    """
    from xfbench.tuning import using  # slow to import, and most runs do not need it

    return using.build_adjustment(results)


def _print_records_exit_if_failed(
    records: Sequence[Record], plan: Plan, store: Store, as_json: bool
) -> None:
    """Print the leaderboard tables of `records`, or JSON.

    Below the tables, print the commands that compare the plan's revisions or interpreters.

    Exit with status 1 if any record has a status other than ok or unsupported.
    """
    from xfbench.cli import conclusion

    summary = dict(Counter(record.status for record in records))
    if as_json:
        print(
            json.dumps({"records": [record.document() for record in records], "summary": summary})
        )
    else:
        conclusion.print_leaderboard_and_results_path(records, store)
        conclusion.print_compare_commands(plan, store)
    if set(summary) - {"ok", "unsupported"}:
        raise typer.Exit(1)


def _print_preview(preview: Preview, as_json: bool) -> None:
    """Print the job scripts, or else the launches and their commands."""
    if preview.scripts:
        scripts = preview.scripts
        print(json.dumps({"scripts": scripts}) if as_json else "\n".join(scripts))
        return
    if as_json:
        requests = [request.model_dump(mode="json") for request in preview.requests]
        commands = {} if preview.commands is None else {"commands": preview.commands}
        print(json.dumps({"requests": requests, **commands}))
        return
    for request in preview.requests:
        batch = f"batch {request.global_batch_size}"
        print(f"{request.label()} · {batch} · launch {request.launch}")
    for label, lines in (preview.commands or {}).items():
        print(f"\n# {label}", *lines, sep="\n")
