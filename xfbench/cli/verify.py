"""`xfbench verify`: prove that frameworks train the same network."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from xfbench.base.terminal_text import say
from xfbench.cli.options import (
    FRAMEWORKS,
    WORKLOADS,
    DryRun,
    Json,
    Lars,
    LearningRate,
    Pythons,
    RateScaling,
    RateWarmup,
    StrategyOptions,
    choices,
    positive,
    pythons,
    solver,
    words,
)


def verify(
    framework: Annotated[
        str | None, typer.Option(help=f"Frameworks (default: {FRAMEWORKS}).", show_default=False)
    ] = None,
    workload: Annotated[
        str, typer.Option(help="Networks, or all: see `xfbench workload list`.")
    ] = WORKLOADS,
    kernel: Annotated[
        str, typer.Option(help="Kernel libraries, or all of each framework.")
    ] = "default",
    device: Annotated[str, typer.Option(help="cpu, cuda.")] = "cpu",
    precision: Annotated[
        str, typer.Option(help="float32, float64, tf32, bfloat16, float16.")
    ] = "float32",
    ranks: Annotated[
        str, typer.Option(help="Processes that train together: the law that they must keep.")
    ] = "1",
    strategy: Annotated[
        str, typer.Option(help="How they do it (default: the framework's first).")
    ] = "default",
    strategy_options: StrategyOptions = None,
    launcher: Annotated[
        str | None,
        typer.Option(help="local, mpi, slurm (in an allocation): what starts ranks."),
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="The machine's ways: see docs/clusters.md.")
    ] = None,
    lars: Lars = None,
    learning_rate: LearningRate = None,
    rate_scaling: RateScaling = None,
    rate_warmup: RateWarmup = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Verify with so many seeds, from 0; all must be equal.")
    ] = 1,
    again: Annotated[
        bool, typer.Option("--again", help="Also where there is a certificate already.")
    ] = False,
    self_test: Annotated[
        bool,
        typer.Option("--self-test", help="Plant known discrepancies instead: is each one caught?"),
    ] = False,
    only: Annotated[
        str | None, typer.Option(help="With --self-test, only these plants.", show_default=False)
    ] = None,
    python: Pythons = None,
    time_limit: Annotated[
        float, typer.Option(min=1, help="Seconds one framework may take.")
    ] = 3600,
    format: Annotated[str, typer.Option(help="text, markdown.")] = "text",
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Compare with the NumPy oracle: outputs, loss, every gradient, weights after 1, 3, 10 steps.

    The tolerance of each number is ten times what rounding does to it. A framework that is
    equal gets a certificate, without which nothing is ranked; `run` makes one when it is missing.
    Of several ranks the law is proven: weights after 1, 3, 10 steps as one process would have them.

    \b
    xfbench verify
    xfbench verify --framework mxnet --workload caffenet --kernel all
    xfbench verify --framework torch --workload lenet --ranks 1,2,4
    xfbench verify --workload lenet --lars 0.5
    xfbench verify --self-test
    """
    from xfbench.base import errors
    from xfbench.equality import verdicts

    if format not in verdicts.FORMATS:
        raise errors.unknown_name_error("format", format, verdicts.FORMATS)

    if self_test:
        from xfbench.equality import plants

        chosen = plants.select_mutations(words(only, str, "--only"))
        if dry_run:
            for plant in chosen:
                print(f"{plant.name}: {plant.framework}, {plant.workload}, at {plant.layer}")
            return
        result = plants.run_self_test(chosen, seeds, say, time_limit)
        print(json.dumps(result) if as_json else verdicts.format_self_test(result))
        missed = any(not plant["caught"] for plant in result["planted"])
        if missed or result["false_alarms"]["alarms"]:
            raise typer.Exit(1)
        return
    interpreters = pythons(python)
    requests = verdicts.build_requests(
        words(framework or FRAMEWORKS, str, "--framework") or [],
        words(workload, str, "--workload") or [],
        words(kernel, str, "--kernel") or [],
        interpreters,
        device=words(device, str, "--device"),
        precision=words(precision, str, "--precision"),
        ranks=words(ranks, positive, "--ranks"),
        strategy=words(strategy, str, "--strategy"),
        strategy_options=choices(strategy_options) or {},
        scaling="weak",
        **solver(lars, learning_rate, rate_scaling, rate_warmup),
        launcher=launcher,
        site=site,
    )
    if dry_run:
        for request in requests:
            print(verdicts.request_title(request))
        return
    found = []
    for answer in verdicts.verify_requests(requests, interpreters, seeds, again, time_limit, say):
        found.append(answer)
        if not as_json and format == "text":
            print(verdicts.format_text(answer), flush=True)
    if as_json:
        print(json.dumps({"verdicts": found}))
    elif format == "markdown":
        print(verdicts.format_markdown(found))
    if any(answer["verdict"] == "different" or answer["failed"] for answer in found):
        raise typer.Exit(1)
