"""`xfbench verify`: prove that frameworks train the same network."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from xfbench.base.terminal_text import say
from xfbench.cli.options import (
    FRAMEWORKS,
    WORKLOADS,
    DryRunOption,
    JsonOption,
    LarsOption,
    LearningRateOption,
    PythonsOption,
    RateScalingOption,
    RateWarmupOption,
    StrategyOptionsOption,
    parse_interpreters,
    parse_list,
    parse_strategy_options,
    positive_int,
    solver_settings,
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
    strategy_options: StrategyOptionsOption = None,
    launcher: Annotated[
        str | None,
        typer.Option(help="local, mpi, slurm (in an allocation): what starts ranks."),
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="The machine's ways: see docs/clusters.md.")
    ] = None,
    lars: LarsOption = None,
    learning_rate: LearningRateOption = None,
    rate_scaling: RateScalingOption = None,
    rate_warmup: RateWarmupOption = None,
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
    python: PythonsOption = None,
    time_limit: Annotated[
        float, typer.Option(min=1, help="Seconds one framework may take.")
    ] = 3600,
    format: Annotated[str, typer.Option(help="text, markdown.")] = "text",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
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
        raise errors.unknown("format", format, verdicts.FORMATS)

    if self_test:
        from xfbench.equality import plants

        mutations = plants.chosen(parse_list(only, str, "--only"))
        if dry_run:
            for mutation in mutations:
                print(
                    f"{mutation.name}: {mutation.framework}, {mutation.workload}, at {mutation.layer}"
                )
            return
        report = plants.self_test(mutations, seeds, say, time_limit)
        print(json.dumps(report) if as_json else verdicts.self_test_text(report))
        missed = any(not mutation["caught"] for mutation in report["planted"])
        if missed or report["false_alarms"]["alarms"]:
            raise typer.Exit(1)
        return
    interpreters = parse_interpreters(python)
    requests = verdicts.requests(
        parse_list(framework or FRAMEWORKS, str, "--framework") or [],
        parse_list(workload, str, "--workload") or [],
        parse_list(kernel, str, "--kernel") or [],
        interpreters,
        device=parse_list(device, str, "--device"),
        precision=parse_list(precision, str, "--precision"),
        ranks=parse_list(ranks, positive_int, "--ranks"),
        strategy=parse_list(strategy, str, "--strategy"),
        strategy_options=parse_strategy_options(strategy_options) or {},
        scaling="weak",
        **solver_settings(lars, learning_rate, rate_scaling, rate_warmup),
        launcher=launcher,
        site=site,
    )
    if dry_run:
        for request in requests:
            print(verdicts.title(request))
        return
    answers = []
    for answer in verdicts.verdicts(requests, interpreters, seeds, again, time_limit, say):
        answers.append(answer)
        if not as_json and format == "text":
            print(verdicts.text(answer), flush=True)
    if as_json:
        print(json.dumps({"verdicts": answers}))
    elif format == "markdown":
        print(verdicts.markdown(answers))
    if any(answer["verdict"] == "different" or answer["failed"] for answer in answers):
        raise typer.Exit(1)
