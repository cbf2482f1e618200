"""`xfbench run`: measure a matrix of cells, or the built-in experiment `quick`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xfbench.base.errors import UsageError
from xfbench.base.terminal_text import is_interactive, say, terminal_width
from xfbench.base.terminal_text import print_legibly as print
from xfbench.cli.options import parse_options, with_settings
from xfbench.model import settings

if TYPE_CHECKING:
    from xfbench.model.plan import Plan
    from xfbench.model.record import Record
    from xfbench.planning.outline import Outline
    from xfbench.planning.plan_builder import Adjustment
    from xfbench.session import Preview
    from xfbench.store.results_folder import Store

_LONG_RUN_S = 1800.0


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
    show_commands = values.pop("show_commands", False)
    if show_commands and not dry_run:
        raise UsageError("--show-commands needs --dry-run")
    yes, quiet = values.pop("yes", False), values.pop("quiet", False)
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
        _print_dry_run(plan, store, as_json, show_commands=show_commands)
        return
    if not plan.bundle:
        _announce(plan, store, _build_outline(plan, store), quiet=quiet, confirmed=yes)
    records = session.run(plan, store, progress.choose_listener(quiet=quiet))
    done = session.find_done(plan, store)  # also what a job did that was followed from its middle
    if plan.bundle:
        _print_steps_of_bundle(plan.bundle)
    elif records or plan.submission.wait:
        _print_records_exit_if_failed(records, plan, store, as_json, done)


def _print_steps_of_bundle(bundle: Path) -> None:
    """Say what to do with a bundle that was written."""
    print(
        f"{bundle}: copy it to the other machine, run `sh run.sh FRAMEWORK=PYTHON ...`, copy it "
        f"back,\nthen import it: xfbench results import --bundle {bundle}"
    )


def _build_tuned_adjustment(results: Path) -> Adjustment:
    """Return a function that gives a plan's cells the values found by `xfbench tune`.

    - `results`: the results folder with the searches.
    """
    from xfbench.tuning import using  # slow to import, and most runs do not need it

    return using.build_adjustment(results)


def _print_records_exit_if_failed(
    records: Sequence[Record],
    plan: Plan,
    store: Store,
    as_json: bool,
    done: Sequence[Record] = (),
) -> None:
    """Print the leaderboard tables of `done` and `records`, or `records` as JSON.

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
        conclusion.print_leaderboard_and_results_path(records, store, done)
        conclusion.print_compare_commands(plan, store)
    if set(summary) - {"ok", "unsupported"}:
        raise typer.Exit(1)


def _build_outline(plan: Plan, store: Store) -> Outline:
    """Return the outline of what remains of the plan.

    Durations are estimated from the newest launches in the results folder.
    """
    from xfbench import session
    from xfbench.cli import earlier_records
    from xfbench.execution import launch
    from xfbench.planning import outline

    newest = earlier_records.read_newest(store)
    done = session.find_done(plan, store)
    return outline.build_outline(plan, launch.launch_obstacle, newest, done)


def _list_load_warnings(plan: Plan) -> list[str]:
    """Return a warning if this machine is busy and runs the launches itself."""
    from xfbench.execution import job_queue
    from xfbench.host import doctor

    local_plan, _ = job_queue.split_local_and_submitted(plan)
    load = doctor.check_load()
    if not local_plan.requests or load.state == "ok":
        return []
    return [
        f"load {load.detail}: noisy launches support no claim about order; `xfbench doctor` names "
        "the causes, and --strict refuses a busy machine"
    ]


def _print_dry_run(plan: Plan, store: Store, as_json: bool, *, show_commands: bool) -> None:
    """Print what the run would do, and say what it would do before, or why it could not."""
    from xfbench import session
    from xfbench.execution import job_queue

    outline = None if plan.bundle else _build_outline(plan, store)
    if obstacle := outline and job_queue.find_slurm_obstacle(plan.requests):
        say(f"warning: {obstacle}")
    _say_what_is_verified_first(plan, store)
    _print_preview(session.preview(plan, store), outline, as_json, show_commands=show_commands)


def _say_what_is_verified_first(plan: Plan, store: Store) -> None:
    """Say how many certificates are missing for the launches on this machine."""
    from xfbench import session

    if plan.bundle:
        return
    requests = session.list_requests_to_verify(plan, session.find_done(plan, store), store)
    if text := session.count_unproven(requests, plan.pythons).describe():
        say(text)


def _announce(plan: Plan, store: Store, outline: Outline, *, quiet: bool, confirmed: bool) -> None:
    """Say what will be launched. On a terminal, ask if it may take more than _LONG_RUN_S.

    Raises typer.Exit with status 1 if the answer is no.
    """
    needs_answer = outline.most_seconds > _LONG_RUN_S and not confirmed and is_interactive()
    if needs_answer or not quiet:
        say(outline.describe())
        _say_what_is_verified_first(plan, store)
        for warning in (*outline.warnings, *_list_load_warnings(plan)):
            say(f"warning: {warning}")
    if needs_answer and not typer.confirm("Start?", default=True, err=True):
        raise typer.Exit(1)


def _print_preview(
    preview: Preview, outline: Outline | None, as_json: bool, *, show_commands: bool
) -> None:
    """Print the job scripts, or else the outline and its cells. Print commands only on request.

    Warnings are printed on standard error, and so is the outline of job scripts. A bundle has no
    outline, because it runs elsewhere.
    """
    from xfbench.rendering import formats

    for warning in outline.warnings if outline else ():
        say(f"warning: {warning}")
    if outline:
        lines = [outline.describe(), *(cell.describe() for cell in outline.cells)]
    else:
        labels = Counter(request.label() for request in preview.requests)
        lines = [f"{label} · {count} launches" for label, count in labels.items()]
    text = "\n".join(formats.wrap_line(line, terminal_width()) for line in lines)
    if preview.scripts:
        say(text)
        if preview.starts_in_jobs and show_commands:
            say("a job starts its launches one after the other:")
            for start in preview.starts_in_jobs:
                say(f"  {start}")
        document = {"scripts": preview.scripts, "starts_in_jobs": preview.starts_in_jobs}
        print(json.dumps(document) if as_json else "\n".join(preview.scripts))
        return
    if as_json:
        requests = [request.model_dump(mode="json") for request in preview.requests]
        commands = {} if preview.commands is None else {"commands": preview.commands}
        print(json.dumps({"requests": requests, **commands}))
        return
    print(text)
    for label, commands_of_cell in (preview.commands or {}).items() if show_commands else ():
        print(f"\n# {label}", *commands_of_cell, sep="\n")
