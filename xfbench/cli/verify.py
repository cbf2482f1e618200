"""`xfbench verify`: verify that frameworks train the same network."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any

import typer

from xfbench.base.terminal_text import say
from xfbench.cli.options import (
    FRAMEWORKS,
    WORKLOADS,
    parse_given,
    parse_list,
    parse_positive_int,
    with_settings,
)
from xfbench.model import settings


@with_settings(
    (
        *("device", "precision", "strategy_options", "launcher", "site"),
        *("learning_rate", "lars", "lr_scaling", "lr_warmup", "python"),
        replace(
            settings.BY_NAME["time_limit"],
            help="Time limit of one framework, such as 90s or 2h",
            default_words="60m",
        ),
        *("dry_run", "json"),
    )
)
def verify(
    framework: Annotated[
        str | None, typer.Option(help=f"Frameworks (default: {FRAMEWORKS}).", show_default=False)
    ] = None,
    workload: Annotated[
        str, typer.Option(help="Workloads: see `xfbench workload list`. all: every workload.")
    ] = WORKLOADS,
    kernel: Annotated[
        str, typer.Option(help="Kernel libraries. all: every kernel library of each framework.")
    ] = "default",
    ranks: Annotated[
        str,
        typer.Option(
            help="Numbers of ranks. Ranks are processes that train together. Their weights are "
            "compared with those of one process."
        ),
    ] = "1",
    strategy: Annotated[
        str,
        typer.Option(help="Strategies to train on several ranks (default: the framework's first)."),
    ] = "default",
    seeds: Annotated[
        int,
        typer.Option(
            min=1, help="Number of seeds: 3 means seeds 0, 1 and 2. Every seed must pass."
        ),
    ] = 1,
    again: Annotated[
        bool, typer.Option("--again", help="Verify even if a certificate exists.")
    ] = False,
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test",
            help="Test the verifier instead: apply mutations and check that each is caught.",
        ),
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(help="Mutations of --self-test to apply (default: all).", show_default=False),
    ] = None,
    format: Annotated[str, typer.Option(help="Output format: text or markdown.")] = "text",
    **given: Any,
) -> None:
    """Verify that frameworks train the same network, by comparison with the NumPy oracle.

    These numbers are compared: outputs, loss, every gradient, and the weights after 1, 3 and 10
    steps. The tolerance of a number is ten times its change by rounding errors. On several ranks,
    the weights after 1, 3 and 10 steps must equal those of one process.

    A configuration that passes gets a certificate. Leaderboards rank only configurations with a
    certificate. `xfbench run` verifies automatically.

    \b
    xfbench verify
    xfbench verify --framework mxnet --workload caffenet --kernel all
    xfbench verify --framework torch --workload lenet --ranks 1,2,4
    xfbench verify --workload lenet --lars 0.5
    xfbench verify --self-test
    """
    from xfbench.base import errors
    from xfbench.equality import verdicts
    from xfbench.execution import reference

    if format not in verdicts.FORMATS:
        raise errors.unknown_name_error("format", format, verdicts.FORMATS)

    values = parse_given(given)
    as_json, dry_run = values.pop("json", False), values.pop("dry_run", False)
    time_limit = values.pop("time_limit", reference.TIME_LIMIT)
    if self_test:
        from xfbench.equality import plants

        mutations = plants.select_mutations(parse_list(only, str, "--only"))
        if dry_run:
            for mutation in mutations:
                print(
                    f"{mutation.name}: {mutation.framework}, {mutation.workload}, at "
                    f"{mutation.layer}"
                )
            return
        report = plants.run_self_test(mutations, seeds, say, time_limit)
        print(json.dumps(report) if as_json else verdicts.format_self_test(report))
        missed = any(not mutation["caught"] for mutation in report["planted"])
        if missed or report["false_alarms"]["alarms"]:
            raise typer.Exit(1)
        return
    interpreters = values.pop("python", {})
    requests = verdicts.build_requests(
        parse_list(framework or FRAMEWORKS, str, "--framework") or [],
        parse_list(workload, str, "--workload") or [],
        parse_list(kernel, str, "--kernel") or [],
        interpreters,
        ranks=parse_list(ranks, parse_positive_int, "--ranks"),
        strategy=parse_list(strategy, str, "--strategy"),
        scaling="weak",
        **values,
    )
    if dry_run:
        for request in requests:
            print(verdicts.request_title(request))
        return
    answers = []
    for answer in verdicts.verify_requests(requests, interpreters, seeds, again, time_limit, say):
        answers.append(answer)
        if not as_json and format == "text":
            print(verdicts.format_answer_text(answer), flush=True)
    if as_json:
        print(json.dumps({"verdicts": answers}))
    elif format == "markdown":
        print(verdicts.format_answers_markdown(answers))
    if any(answer["verdict"] == "different" or answer["failed"] for answer in answers):
        raise typer.Exit(1)
