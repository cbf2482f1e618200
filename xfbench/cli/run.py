"""`xfbench run`: measure a matrix of cells, or the built-in experiment `quick`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xfbench.cli.options import (
    FRAMEWORKS,
    DryRunOption,
    JsonOption,
    LarsOption,
    LearningRateOption,
    PythonsOption,
    RateScalingOption,
    RateWarmupOption,
    ResultsOption,
    ResumeOption,
    StrategyOptionsOption,
    TimeLimitOption,
    parse_byte_size,
    parse_fraction,
    parse_interpreters,
    parse_list,
    parse_non_negative_int,
    parse_positive_int,
    parse_solver_settings,
    parse_strategy_options,
)

if TYPE_CHECKING:
    from xfbench.model.record import Record
    from xfbench.planning.plan_builder import Adjustment
    from xfbench.session import Preview
    from xfbench.store.results_folder import Store


def run(
    framework: Annotated[
        str | None, typer.Option(help=f"Frameworks (default: {FRAMEWORKS}).", show_default=False)
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="Workloads: see `xfbench workload list`.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Devices: cpu, cuda (default: cpu).", show_default=False)
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="Precisions: float32, float64, tf32, bfloat16, float16 (default: float32).",
            show_default=False,
        ),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(help="Kernel libraries: see `xfbench framework list`.")
    ] = None,
    threads: Annotated[
        str | None,
        typer.Option(
            help="Threads per rank (default: an even share of the cores).", show_default=False
        ),
    ] = None,
    batch_size: Annotated[
        str | None,
        typer.Option(
            help="Images per update (default: the published batch size).", show_default=False
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Data sets: digits, synthetic, or prepared sets by name or folder: see "
            "`xfbench data list` (default: the workload's).",
            show_default=False,
        ),
    ] = None,
    page_cache: Annotated[
        str | None,
        typer.Option(
            help="Page cache at the start of each epoch. cold: data files are not in memory; warm: "
            "data files are in memory (default: unchanged). Needs a prepared data set.",
            show_default=False,
        ),
    ] = None,
    reading: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="Reader of a prepared data set. ours: xfbench's reader; native: the framework's "
            "own reader (default: ours).",
            show_default=False,
        ),
    ] = None,
    input_threads: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Data-loading threads (default: 1; 0 loads in the training thread).",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Timed steps (default: 20; cuda: 200).", show_default=False),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs to train, each followed by an evaluation.")
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(
            min=0, help="Untimed steps after the first step (default: 3).", show_default=False
        ),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option(
            help="Numbers of ranks, which are processes that train together (default: 1).",
            show_default=False,
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="Strategies to train on several ranks (default: the framework's first).",
            show_default=False,
        ),
    ] = None,
    strategy_options: StrategyOptionsOption = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            help="Scaling. strong: --batch-size is for all ranks together; weak: --batch-size is "
            "for each rank."
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(help="Numbers of nodes for the ranks (default: 1).", show_default=False),
    ] = None,
    launcher: Annotated[
        str | None,
        typer.Option(
            help="Launcher of the ranks: local, mpi or slurm (default: the site's, else local).",
            show_default=False,
        ),
    ] = None,
    site: Annotated[
        str | None,
        typer.Option(help="Site configuration: name or TOML file. See docs/clusters.md."),
    ] = None,
    affinity: Annotated[
        str | None,
        typer.Option(
            help="Pinning. cores: each rank has its own cores; none: no pinning. Default: cores if "
            "several ranks share a node or the site reserves cores; otherwise none.",
            show_default=False,
        ),
    ] = None,
    lars: LarsOption = None,
    learning_rate: LearningRateOption = None,
    rate_scaling: RateScalingOption = None,
    rate_warmup: RateWarmupOption = None,
    window: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Steps between synchronizations with the device (default: 1; cuda: 10).",
            show_default=False,
        ),
    ] = None,
    checkpoints: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of checkpoints to take during the run (default: none).",
            show_default=False,
        ),
    ] = None,
    checkpoint_dir: Annotated[
        Path | None,
        typer.Option(help="Directory for temporary checkpoints (default: in the results folder)."),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Run a few extra steps under the framework's profiler and record the time of each "
            "layer.",
        ),
    ] = False,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Limit for the private memory of a rank, such as 8GB (default: no limit).",
            show_default=False,
        ),
    ] = None,
    allocator: Annotated[
        str | None,
        typer.Option(
            help="Memory allocators: system, jemalloc, tcmalloc (default: system).",
            show_default=False,
        ),
    ] = None,
    launches: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Launches per cell, each in a fresh process (default: see --until-precision).",
            show_default=False,
        ),
    ] = None,
    until_precision: Annotated[
        str | None,
        typer.Option(
            help="Launch each cell 5 to 20 times, until the relative half-width of the confidence "
            "interval is at most this (default: 2%).",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        str,
        typer.Option(
            help="Seeds of weights and data, such as 0,1,2. The leaderboard has one row for all "
            "seeds of a configuration."
        ),
    ] = "0",
    python: PythonsOption = None,
    results: ResultsOption = None,
    time_limit: TimeLimitOption = 1800,
    resume: ResumeOption = False,
    no_verify: Annotated[
        bool,
        typer.Option("--no-verify", help="Do not verify first. Unverified cells are not ranked."),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Refuse to run on a noisy machine, and mark noisy launches as invalid."
        ),
    ] = False,
    tuned: Annotated[
        bool,
        typer.Option(
            "--tuned",
            help="Use the values found by `xfbench tune` for options you don't set.",
        ),
    ] = False,
    queue: Annotated[
        str, typer.Option(help="Slurm partition (default: the site's).", show_default=False)
    ] = "",
    account: Annotated[
        str,
        typer.Option(
            help="Account to charge the job to (default: the site's).", show_default=False
        ),
    ] = "",
    minutes: Annotated[
        int, typer.Option(min=1, help="Time limit in minutes of a job submitted from a login node.")
    ] = 60,
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait",
            help="Submit the job and exit. To collect the records later, repeat the command with "
            "--resume.",
        ),
    ] = False,
    carry: Annotated[
        Path | None,
        typer.Option(
            help="Do not run. Write a self-contained bundle to this folder, to run on a machine "
            "without xfbench."
        ),
    ] = None,
    job: Annotated[Path | None, typer.Option(hidden=True)] = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
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
    xfbench run --framework torch --batch-size 512 --rate-scaling linear --rate-warmup 2 --epochs 5
    xfbench run --framework torch,mxnet --workload convnet --until-precision 1%
    xfbench run --framework torch,caffe --ranks 1,2 --scaling strong --launcher mpi
    xfbench run --framework torch --ranks 4 --nodes 2 --scaling weak --launcher slurm
    xfbench run --framework torch,caffe --workload alexnet --checkpoints 4
    xfbench run --workload alexnet --batch-size 16 --profile
    xfbench run --framework tensorflow --workload alexnet --data photos-tfrecord --input ours,native
    """
    from xfbench import progress, session
    from xfbench.base import paths
    from xfbench.execution import job_queue
    from xfbench.model.plan import Plan, Submission
    from xfbench.planning import plan_builder
    from xfbench.store.results_folder import Store

    store = Store(paths.results(results))
    if job:
        with job_queue.write_heartbeat(job.parent):
            records = session.run(Plan.read(job), store, progress.choose_listener())
            _print_records_exit_if_failed(records, store, as_json)
        return
    target_widths = parse_list(until_precision, parse_fraction, "--until-precision")
    plan = plan_builder.build_plan(
        {
            "framework": parse_list(framework, str, "--framework"),
            "workload": parse_list(workload, str, "--workload"),
            "device": parse_list(device, str, "--device"),
            "precision": parse_list(precision, str, "--precision"),
            "kernel": parse_list(kernel, str, "--kernel"),
            "threads": parse_list(threads, parse_positive_int, "--threads"),
            "batch_size": parse_list(batch_size, parse_positive_int, "--batch-size"),
            "ranks": parse_list(ranks, parse_positive_int, "--ranks"),
            "strategy": parse_list(strategy, str, "--strategy"),
            "nodes": parse_list(nodes, parse_positive_int, "--nodes"),
            "data": parse_list(data, str, "--data"),
            "page_cache": parse_list(page_cache, str, "--page-cache"),
            "input": parse_list(reading, str, "--input"),
            "input_threads": input_threads,
            "steps": steps,
            "epochs": epochs,
            "warmup": warmup,
            "window": window,
            "scaling": scaling,
            "strategy_options": parse_strategy_options(strategy_options),
            "launcher": launcher,
            "site": site,
            "queue": queue or None,
            "affinity": affinity,
            **parse_solver_settings(lars, learning_rate, rate_scaling, rate_warmup),
            "checkpoints": checkpoints,
            "profile": profile or None,
            "memory_limit": parse_byte_size(memory_limit, "--memory-limit"),
            "allocator": parse_list(allocator, str, "--allocator"),
            "launches": launches,
            "until_precision": target_widths[0] if target_widths else None,
            "seed": parse_list(seed, parse_non_negative_int, "--seed"),
        },
        pythons=parse_interpreters(python),
        verify=not no_verify,
        strict=strict,
        time_limit=time_limit,
        checkpoint_dir=checkpoint_dir,
        resume=resume,
        submission=Submission(minutes=minutes, queue=queue, account=account, wait=not no_wait),
        bundle=carry,
        adjust=_build_tuned_adjustment(results) if tuned else None,
    )
    if dry_run:
        _print_preview(session.preview(plan, store), as_json)
        return
    records = session.run(plan, store, progress.choose_listener())
    if carry:
        print(
            f"{carry}: copy it to the other machine, run `sh run.sh FRAMEWORK=PYTHON ...`, copy "
            "it back,"
        )
        print(f"then import it: xfbench results import {carry}")
    elif records or not no_wait:
        _print_records_exit_if_failed(records, store, as_json)


def _build_tuned_adjustment(results: Path | None) -> Adjustment:
    """Return a function that gives a plan's cells the values found by `xfbench tune`.

    `results`: results folder with the searches; None: the default folder.
    """
    from xfbench.base import paths
    from xfbench.tuning import using  # slow to import, and most runs do not need it

    return using.build_adjustment(paths.results(results))


def _print_records_exit_if_failed(records: Sequence[Record], store: Store, as_json: bool) -> None:
    """Print the leaderboard tables of `records`, or JSON.

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
