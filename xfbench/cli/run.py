"""`xfbench run`: measure a matrix of cells, or the built-in experiment `quick`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xfbench.base.terminal_text import say
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
    non_negative_int,
    parse_fraction,
    parse_interpreters,
    parse_list,
    parse_size,
    parse_strategy_options,
    positive_int,
    solver_settings,
)

if TYPE_CHECKING:
    from xfbench.asked import Adjustment
    from xfbench.plan import Plan
    from xfbench.records.record import Record
    from xfbench.results.store import Store
    from xfbench.running.queued import Jobs


def run(
    framework: Annotated[
        str | None, typer.Option(help=f"Frameworks (default: {FRAMEWORKS}).", show_default=False)
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="Networks: see `xfbench workload list`.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda (default: cpu).", show_default=False)
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="float32 (default), float64, tf32, bfloat16, float16.", show_default=False
        ),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(help="Kernel libraries: see `xfbench framework list`.")
    ] = None,
    threads: Annotated[
        str | None, typer.Option(help="Threads per rank (default: the cores).", show_default=False)
    ] = None,
    batch_size: Annotated[
        str | None,
        typer.Option(help="Images per update (default: the published).", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="digits, synthetic, or prepared sets by name or folder: see `xfbench data list` "
            "(default: the workload's).",
            show_default=False,
        ),
    ] = None,
    page_cache: Annotated[
        str | None,
        typer.Option(
            help="cold, warm: how each epoch of a prepared set finds it in memory (default: as "
            "it is).",
            show_default=False,
        ),
    ] = None,
    reading: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="ours, native: who reads a prepared set, we or the framework's own reader "
            "(default: ours).",
            show_default=False,
        ),
    ] = None,
    input_threads: Annotated[
        int | None,
        typer.Option(
            min=0, help="That read and decode beside training (default: 1).", show_default=False
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Timed steps (default: 20).", show_default=False)
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Whole epochs with an evaluation after each.")
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(min=0, help="Untimed steps after the first (default: 3).", show_default=False),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option(help="Processes that train together (default: 1).", show_default=False),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help="How they do it (default: the framework's first).", show_default=False),
    ] = None,
    strategy_options: StrategyOptionsOption = None,
    scaling: Annotated[
        str | None,
        typer.Option(help="strong: --batch-size is that of all ranks; weak: that of each."),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(help="Nodes that the ranks are spread over (default: 1).", show_default=False),
    ] = None,
    launcher: Annotated[
        str | None,
        typer.Option(
            help="local, mpi, slurm: what starts ranks (default: the site's, else local).",
            show_default=False,
        ),
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="The machine's ways, by name or file: see docs/clusters.md.")
    ] = None,
    affinity: Annotated[
        str | None,
        typer.Option(
            help="cores: each rank has its own; none (default: cores for several on a node).",
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
            help="Steps between two waits for the device (default: 1; cuda: 10).",
            show_default=False,
        ),
    ] = None,
    checkpoints: Annotated[
        int | None,
        typer.Option(
            min=1, help="So many, spread over the timed steps, or the epochs.", show_default=False
        ),
    ] = None,
    checkpoint_dir: Annotated[
        Path | None,
        typer.Option(help="Where each lies for a while (default: with the results)."),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="A few steps more under the framework's own profiler: where the time goes, "
            "layer by layer.",
        ),
    ] = False,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Private memory that each rank gets at most, as in 8GB (default: no limit).",
            show_default=False,
        ),
    ] = None,
    allocator: Annotated[
        str | None,
        typer.Option(
            help="system, jemalloc, tcmalloc: who gives memory (default: system).",
            show_default=False,
        ),
    ] = None,
    launches: Annotated[
        int | None,
        typer.Option(min=1, help="So many fresh processes per cell.", show_default=False),
    ] = None,
    until_precision: Annotated[
        str | None,
        typer.Option(
            help="Launch until the interval is this narrow: 5 to 20 times (default: 2%).",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        str,
        typer.Option(help="Of weights and data; several, as in 0,1,2, are launches of one row."),
    ] = "0",
    python: PythonsOption = None,
    results: ResultsOption = None,
    time_limit: TimeLimitOption = 1800,
    resume: ResumeOption = False,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Prove nothing first: new cells are not ranked.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse a noisy machine; what is disturbed does not count."),
    ] = False,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="What is not chosen here, as `xfbench tune` found it.")
    ] = False,
    queue: Annotated[
        str, typer.Option(help="Slurm's partition (default: the site's).", show_default=False)
    ] = "",
    account: Annotated[
        str, typer.Option(help="Whom the job is charged to.", show_default=False)
    ] = "",
    minutes: Annotated[
        int, typer.Option(min=1, help="How long a job submitted from a login node may take.")
    ] = 60,
    no_wait: Annotated[
        bool,
        typer.Option("--no-wait", help="Submit and leave; the same with --resume picks it up."),
    ] = False,
    carry: Annotated[
        Path | None,
        typer.Option(help="Write it all to this folder, to be run where nothing of ours is."),
    ] = None,
    job: Annotated[Path | None, typer.Option(hidden=True)] = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure: every combination of the lists given is a cell, every launch a fresh process.

    With no framework, workload or other setting, the experiment `quick`, as often as
    --launches or --until-precision say. What is measured is first proven to be the same
    network (see `xfbench verify`), unless a certificate is there.

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
    xfbench run --framework tensorflow --data photos-tfrecord --input ours,native
    """
    from xfbench import asked
    from xfbench.base import errors, paths
    from xfbench.plan import Plan
    from xfbench.results import lookup
    from xfbench.results.store import Store
    from xfbench.running import queued
    from xfbench.running.progress import measure

    if job:
        store = Store(paths.results(results))
        with queued.counting(job.parent):
            _print_records(measure(Plan.read(job), store), store, as_json)
        return
    target_widths = parse_list(until_precision, parse_fraction, "--until-precision")
    plan = asked.plan(
        {
            "framework": parse_list(framework, str, "--framework"),
            "workload": parse_list(workload, str, "--workload"),
            "device": parse_list(device, str, "--device"),
            "precision": parse_list(precision, str, "--precision"),
            "kernel": parse_list(kernel, str, "--kernel"),
            "threads": parse_list(threads, positive_int, "--threads"),
            "batch_size": parse_list(batch_size, positive_int, "--batch-size"),
            "ranks": parse_list(ranks, positive_int, "--ranks"),
            "strategy": parse_list(strategy, str, "--strategy"),
            "nodes": parse_list(nodes, positive_int, "--nodes"),
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
            **solver_settings(lars, learning_rate, rate_scaling, rate_warmup),
            "checkpoints": checkpoints,
            "profile": profile or None,
            "memory_limit": parse_size(memory_limit, "--memory-limit"),
            "allocator": parse_list(allocator, str, "--allocator"),
            "launches": launches,
            "until_precision": target_widths[0] if target_widths else None,
            "seed": parse_list(seed, non_negative_int, "--seed"),
        },
        pythons=parse_interpreters(python),
        verify=not no_verify,
        strict=strict,
        time_limit=time_limit,
        checkpoint_dir=checkpoint_dir,
        carried=carry is not None,
        adjust=_load_adjustment(results) if tuned else None,
    )
    store = Store(paths.results(results))
    if carry:
        _write_bundle(plan, carry, dry_run, as_json)
        return
    done = lookup.done(plan.requests, store) if resume else []
    if queued.wanted(plan):
        jobs = queued.prepare(plan, store, minutes, queue, account)
        _submit_jobs(jobs, store, done, wait=not no_wait, dry_run=dry_run, as_json=as_json)
    elif no_wait:
        raise errors.UsageError("--no-wait is for --launcher slurm on a login node")
    elif dry_run:
        _print_commands(plan.without(done), as_json)
    else:
        _print_records(measure(plan, store, done), store, as_json)


def _load_adjustment(results: Path | None) -> Adjustment:
    """Return what sets the values that `xfbench tune` found."""
    from xfbench.base import paths
    from xfbench.tuning import using  # which takes a while to load, and most runs need none

    return using.adjustment(paths.results(results))


def _submit_jobs(
    jobs: Jobs, store: Store, done: Sequence[Record], *, wait: bool, dry_run: bool, as_json: bool
) -> None:
    """From a login node; a dry run prints the scripts."""
    from xfbench.running import queued

    if dry_run:
        scripts = queued.scripts(jobs)
        print(json.dumps({"scripts": scripts}) if as_json else "\n".join(scripts))
    elif records := queued.measure(jobs, store, done, wait=wait):
        _print_records(records, store, as_json)


def _write_bundle(plan: Plan, folder: Path, dry_run: bool, as_json: bool) -> None:
    """Write it down for another machine; a dry run says what, since commands are known there."""
    from xfbench.running import carry

    if dry_run:
        _print_requests(plan, as_json)
        return
    carry.write(plan, folder, say)
    print(f"{folder}: take it there, run `sh run.sh FRAMEWORK=PYTHON ...`, bring it back, and")
    print(f"read it with: xfbench results import {folder}")


def _print_records(records: Sequence[Record], store: Store, as_json: bool) -> None:
    """Print what came of it; the exit status says whether all held."""
    from xfbench.cli import conclusion

    summary = dict(Counter(record.status for record in records))
    if as_json:
        print(
            json.dumps({"records": [record.document() for record in records], "summary": summary})
        )
    else:
        conclusion.print_conclusion(records, store)
    if set(summary) - {"ok", "unsupported"}:
        raise typer.Exit(1)


def _print_commands(plan: Plan, as_json: bool) -> None:
    """The launches that may be needed and exactly what would run; none is done."""
    from xfbench.running import dry

    commands = dry.commands(plan)
    _print_requests(plan, as_json, commands=commands)
    if not as_json:
        for label, lines in commands.items():
            print(f"\n# {label}", *lines, sep="\n")


def _print_requests(plan: Plan, as_json: bool, **extra: object) -> None:
    if as_json:
        requests = [request.model_dump(mode="json") for request in plan.requests]
        print(json.dumps({"requests": requests, **extra}))
        return
    for request in plan.requests:
        batch = f"batch {request.global_batch_size}"
        print(f"{request.label()} · {batch} · launch {request.launch}")
