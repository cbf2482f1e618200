"""`xfbench tune`: the best setting of a framework for a network, found with few launches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xfbench.base.terminal_text import say
from xfbench.cli.options import (
    DryRun,
    Json,
    Pythons,
    Results,
    Resume,
    TimeLimit,
    positive,
    pythons,
    words,
)

if TYPE_CHECKING:
    from xfbench.tuning.saved import Figure, Tuning
    from xfbench.tuning.searching import Choices
    from xfbench.tuning.space import Space


def tune(
    framework: Annotated[str, typer.Option(help="One framework.", show_default=False)],
    workload: Annotated[
        str, typer.Option(help="One network: see `xfbench workload list`.", show_default=False)
    ],
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="Try these of kernel, threads, affinity, allocator, ranks (on this node, sharing "
            "the batch), strategy (repeatable; default: all kernels, powers of two up to the "
            "cores, both affinities, all allocators, one rank).",
            show_default=False,
        ),
    ] = None,
    batch_size: Annotated[
        str | None,
        typer.Option(
            help="Images per update (default: the published). Several are tried as well, but "
            "another batch is different training.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda.")] = "cpu",
    precision: Annotated[
        str, typer.Option(help="float32, float64, tf32, bfloat16, float16.")
    ] = "float32",
    data: Annotated[
        str | None,
        typer.Option(help="As in `xfbench run` (default: the workload's).", show_default=False),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, help="Timed steps of a launch of usual length (default: 20).", show_default=False
        ),
    ] = None,
    warmup: Annotated[int, typer.Option(min=0, help="Untimed steps after the first.")] = 3,
    launches: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of each setting that the confirmation compares (default: 5 to 20, until it "
            "is clear, or has taken a quarter of launching everything).",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds that launches may take together (default: no limit)."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="The same in minutes.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the launches' order.")] = 0,
    python: Pythons = None,
    results: Results = None,
    time_limit: TimeLimit = 1800,
    resume: Resume = False,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Try kernels too that are not proven equal.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a noisy machine.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Find the best setting for a network here, and keep it for `xfbench run --tuned`.

    Short launches of all settings take turns, of many of every other; the better part goes on to
    more and longer ones, until two are left, the more the more launches differ. Launches of usual
    length then compare the better of these with the other, and with what `run` does where nobody
    chooses. All launches are records as any others.

    \b
    xfbench tune --framework torch --workload lenet
    xfbench tune --framework torch --workload alexnet --over threads=1,2 --over kernel=onednn
    xfbench tune --framework mxnet --workload convnet --budget 600
    xfbench run --framework torch --workload lenet --tuned
    """
    from xfbench.base import errors, paths
    from xfbench.host import doctor
    from xfbench.request import Protocol
    from xfbench.results.store import Store
    from xfbench.tuning import searching, space

    if budget is not None and minutes is not None:
        raise errors.UsageError("--budget and --minutes: only one of them")
    interpreters, usual = pythons(python), Protocol()
    asked = space.SpaceRequest(
        framework=framework,
        workload=workload,
        device=device,
        precision=precision,
        batch_sizes=words(batch_size, positive, "--batch-size") or (),
        data=data,
        over=_over(over or ()),
        steps=steps,
        warmup=warmup,
    )
    choices = searching.Choices(
        pythons=interpreters,
        budget_seconds=budget if minutes is None else 60 * minutes,
        seed=seed,
        verify=not no_verify,
        strict=strict,
        resume=resume,
        time_limit=time_limit,
        least=launches or usual.least,
        most=launches or usual.most,
    )
    searched = space.build_space(asked, interpreters)
    if not searched.cells:
        raise errors.UsageError(f"there is nothing to try: {searched.left_out[0][1]}")
    if len(asked.batch_sizes) > 1:
        say("several batch sizes: another batch is different training, not the same made faster")
    if dry_run:
        _foresee(searched, choices, as_json)
        return
    if strict:
        doctor.insist()
    store = Store(paths.results(results))
    found = searching.search(searched, choices, store, say)
    file = found.write(store.folder)
    if as_json:
        print(json.dumps({**found.document(), "file": str(file)}))
    else:
        _tell(found, file)
    if not found.confirmed:
        raise typer.Exit(1)


def _over(pairs: Sequence[str]) -> dict[str, list[str]]:
    """From `threads=1,2` and the like. Raises UsageError on another form, or a name twice."""
    from xfbench.base.errors import UsageError

    found: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, values = (part.strip() for part in pair.partition("="))
        several = [one.strip() for one in values.split(",")]
        if not name or not equals or not all(several) or name in found:
            raise UsageError(
                f"--over {pair}: the form is NAME=VALUE,..., as in threads=1,2, each name once"
            )
        found[name] = several
    return found


def _foresee(searched: Space, choices: Choices, as_json: bool) -> None:
    """The settings, the rungs, and launches at most; nothing is done."""
    from xfbench.tuning import halving, repeating, searching
    from xfbench.tuning.space import describe_setting, setting

    rungs = [
        {
            "settings": one.settings,
            "launches": one.launches,
            "steps": searching.steps(searched.cells[0], one),
        }
        for one in searching.planned(searched)
    ]
    most = searching.most_launches(searched, choices)
    if as_json:
        document = {
            "settings": [setting(one) for one in searched.cells],
            "left_out": [
                {"setting": setting(one), "reason": why} for one, why in searched.left_out
            ],
            "default": setting(searched.default),
            "rungs": rungs,
            "further_rungs_at_most": halving.MAX_EXTRA_RUNGS if rungs else 0,
            "confirmation": {
                "launches": [choices.least, choices.most],
                "steps": searched.default.steps,
            },
            "launches_at_most": most,
        }
        print(json.dumps(document))
        return
    print(f"{len(searched.cells)} settings, {most} launches at most")
    for number, rung in enumerate(rungs, 1):
        print(
            f"rung {number}: {rung['settings']} settings, launches of each: {rung['launches']}, "
            f"steps: {rung['steps']}"
        )
    if rungs:
        print(
            "further rungs, while launches differ too much to tell: "
            f"{halving.MAX_EXTRA_RUNGS} at most, "
            f"of {rungs[-1]['settings']} settings at most, launches of each: 1"
        )
    often = f"{choices.least} to {choices.most}" if choices.least < choices.most else choices.most
    print(f"confirmation: launches of each: {often}, steps: {searched.default.steps}")
    print(f"again, {repeating.AGAIN} times each at most: launches while the cores lay apart")
    several = len({one.global_batch_size for one in searched.cells}) > 1
    for cell in searched.cells:
        print(describe_setting(cell) + (f" · batch {cell.global_batch_size}" if several else ""))
    for cell, why in searched.left_out:
        print(f"left out: {describe_setting(cell)}: {why}")


def _tell(found: Tuning, file: Path) -> None:
    """For a person: the best, how sure that is, what it cost, how to use it."""
    from xfbench.tuning.space import describe_setting

    best, default = found.best, describe_setting(found.default)
    if found.default.global_batch_size != best.global_batch_size:
        default += f" · batch {found.default.global_batch_size}"
    print(
        f"{best.workload} · {best.framework} · batch {best.global_batch_size}: "
        f"{describe_setting(best)}"
    )
    if found.images_per_second:
        print(f"  {_figure(found.images_per_second)} images/s")
    else:
        print("  not confirmed: go on with --resume, and a larger budget")
    if found.over_default:
        print(f"  {_figure(found.over_default)} times the default ({default})")
    elif best == found.default:
        print("  that is the default")
    elif found.default_reason:
        print(f"  not compared with the default ({default}): {found.default_reason}")
    other = found.runner_up
    if found.over_runner_up and other and other != found.default:
        print(f"  {_figure(found.over_runner_up)} times {describe_setting(other)}")
    print(
        f"  settings: {found.settings}, launches: {found.launches}, "
        f"{found.machine_seconds:.0f} s, of which {found.search_seconds:.0f} s the search"
        + (", ended by the budget" if found.ended_by_budget else "")
    )
    used = "used by" if found.confirmed else "when it is confirmed, it is used by"
    print(f"Kept in {file}; {used} `xfbench run --tuned`")


def _figure(one: Figure) -> str:
    if one.low is None or one.high is None:
        return f"{one.value:.4g} ({one.label})"
    return f"{one.value:.4g} ({one.low:.4g} to {one.high:.4g}, {one.launches} launches)"
