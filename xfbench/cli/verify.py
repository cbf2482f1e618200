"""`xfbench verify`: verify that frameworks train the same network."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xfbench.base.terminal_text import print_legibly as print
from xfbench.base.terminal_text import say
from xfbench.cli.options import (
    FRAMEWORKS,
    WORKLOADS,
    choose_output_format,
    framework_option,
    parse_list,
    parse_options,
    parse_positive_int,
    with_settings,
    workload_option,
)
from xfbench.model import settings

if TYPE_CHECKING:
    from pathlib import Path

    from xfbench.model.request import Request
    from xfbench.store.results_folder import Store

# Values of options that say nothing about what is verified.
_DEFAULTS: dict[str, Any] = {
    **{"workload": WORKLOADS, "kernel": "default", "ranks": "1", "strategy": "default"},
    **{"again": False, "format": "text"},
}
_MAX_SEEDS = 1000

_FrameworkOption = Annotated[
    str | None,
    framework_option(f"Frameworks (default: {FRAMEWORKS})."),
]
_WorkloadOption = Annotated[
    str,
    workload_option(
        "Workloads: see `xfbench workload list`. all: every workload.", show_default=True
    ),
]
_KernelOption = Annotated[
    str, typer.Option(help="Kernel libraries. all: every kernel library of each framework.")
]
_RanksOption = Annotated[
    str,
    typer.Option(
        help="Numbers of ranks. Ranks are processes that train together. Their weights are "
        "compared with those of one process."
    ),
]
_StrategyOption = Annotated[
    str,
    typer.Option(help="Strategies to train on several ranks (default: the framework's first)."),
]
_SeedsOption = Annotated[
    int,
    typer.Option(
        min=1,
        max=_MAX_SEEDS,
        help="Number of seeds: 3 means seeds 0, 1 and 2. Every seed must pass.",
    ),
]
_AgainOption = Annotated[bool, typer.Option("--again", help="Verify even if a certificate exists.")]
_SelfTestOption = Annotated[
    bool,
    typer.Option(
        "--self-test",
        help="Test the verifier instead: plant bugs in adapters and check that each is caught.",
    ),
]
_OnlyOption = Annotated[
    str | None,
    typer.Option(help="Bugs that --self-test plants (default: all).", show_default=False),
]
_FormatOption = Annotated[str, typer.Option(help="Output format: text or markdown.")]


@with_settings(
    (
        *("device", "precision", "strategy_options", "launcher", "site"),
        replace(
            settings.BY_NAME["batch_size"],
            help="Images per rank of further batches, whose gradients are verified too",
            default_words="none",
        ),
        *("threads", "learning_rate", "lars", "lr_scaling", "lr_warmup", "python"),
        replace(
            settings.BY_NAME["time_limit"],
            help="Time limit of one framework, such as 90s or 2h",
            default_words="60m",
        ),
        replace(
            settings.BY_NAME["results"],
            help="Results folder, if there is one, that gets the certificates",
        ),
        *("dry_run", "json"),
    )
)
def verify(
    framework: _FrameworkOption = None,
    workload: _WorkloadOption = WORKLOADS,
    kernel: _KernelOption = "default",
    ranks: _RanksOption = "1",
    strategy: _StrategyOption = "default",
    seeds: _SeedsOption = 1,
    again: _AgainOption = False,
    self_test: _SelfTestOption = False,
    only: _OnlyOption = None,
    format: _FormatOption = "text",
    **options: Any,
) -> None:
    """Verify that frameworks train the same network, by comparison with the NumPy oracle.

    These numbers are compared: outputs, loss, every gradient, and the weights after 1, 3 and 10
    steps. The tolerance of a number is ten times its change by rounding errors. On several ranks,
    the weights after 1, 3 and 10 steps must equal those of one process.

    A configuration that passes gets a certificate, which also covers earlier launches. Leaderboards
    rank only what has a certificate. `xfbench run` verifies automatically.

    The compared batches have 2 or 4 images. With --batch-size, the gradients of larger batches are
    compared too, with the threads of --threads. `xfbench run` does this for the batches it times.

    \b
        xfbench verify
        xfbench verify --framework mxnet --workload caffenet --kernel all
        xfbench verify --framework torch --workload lenet --ranks 1,2,4
        xfbench verify --workload lenet --lars 0.5
        xfbench verify --framework torch --workload alexnet --batch-size 64,256 --threads 2
        xfbench verify --self-test
    """
    from xfbench.base import errors
    from xfbench.equality import verdicts
    from xfbench.execution import reference

    if format not in verdicts.FORMATS:
        raise errors.unknown_name_error("format", format, verdicts.FORMATS)
    values = parse_options(options)
    as_json, dry_run = values.pop("json", False), values.pop("dry_run", False)
    output_format = choose_output_format(as_json, format)
    time_limit = values.pop("time_limit", reference.TIME_LIMIT)
    names = (framework or FRAMEWORKS, workload, kernel)
    chosen = {"framework": framework, "workload": workload, "kernel": kernel, "again": again}
    chosen |= {"ranks": ranks, "strategy": strategy, "format": format}
    _refuse_options_of_the_other_mode(self_test, {**chosen, **values}, only)
    if self_test:
        _run_self_test(parse_list(only, str, "--only"), seeds, time_limit, dry_run, as_json)
        return
    interpreters, store = values.pop("python", {}), _find_store(values.pop("results", None))
    batch_sizes = values.pop("batch_size", None) or ()
    requests = _build_requests(names, interpreters, ranks, strategy, values, batch_sizes)
    if dry_run:
        _print_configurations([verdicts.request_title(each) for each in requests], as_json)
        return
    answers = verdicts.verify_requests(
        requests, interpreters, seeds, again, time_limit, say, store, batch_sizes
    )
    _print_answers_exit_if_different(answers, output_format)


def _print_configurations(titles: Sequence[str], as_json: bool) -> None:
    print(json.dumps({"configurations": titles}) if as_json else "\n".join(titles))


def _refuse_options_of_the_other_mode(
    self_test: bool, chosen: Mapping[str, Any], only: str | None
) -> None:
    """Raise UsageError if --self-test ignores a chosen option, or --only is without --self-test."""
    from xfbench.base import errors

    if not self_test and only is not None:
        raise errors.UsageError("--only has no effect here: it needs --self-test")
    for name, value in chosen.items():
        if self_test and value != _DEFAULTS.get(name):
            option = name.replace("_", "-")
            raise errors.UsageError(f"--{option} has no effect here: leave out --self-test")


def _with_batch_sizes(requests: Sequence[Request], batch_sizes: Sequence[int]) -> list[Request]:
    """Return each request once for each number of images per rank."""
    return [
        request.model_copy(
            update={"batch_size_per_rank": size, "global_batch_size": size * request.ranks}
        )
        for request in requests
        for size in batch_sizes
    ]


def _build_requests(
    names: tuple[str, str, str],
    interpreters: dict[str, Path],
    ranks: str,
    strategy: str,
    values: dict[str, Any],
    batch_sizes: Sequence[int],
) -> list[Request]:
    """Return the requests of the options.

    - `names`: frameworks, workloads and kernels.
    - `batch_sizes`: images per rank of further batches.

    Raises UsageError if an option has no effect, or this machine cannot have its value.
    """
    from xfbench.equality import verdicts
    from xfbench.planning import sense

    options = ("--framework", "--workload", "--kernel")
    frameworks, networks, kernels = (
        parse_list(text, str, option) or [] for text, option in zip(names, options, strict=True)
    )
    strategies = parse_list(strategy, str, "--strategy")
    requests = verdicts.build_requests(
        frameworks,
        networks,
        kernels,
        interpreters,
        ranks=parse_list(ranks, parse_positive_int, "--ranks"),
        strategy=strategies,
        scaling="weak",
        **values,
    )
    sense.refuse_options_without_effect(
        {**values, "strategy": strategies, "python": interpreters}, requests
    )
    sense.refuse_impossible_sizes([*requests, *_with_batch_sizes(requests, batch_sizes)])
    return requests


def _find_store(results: Path | None) -> Store | None:
    """Return the results folder `results`, or the default one. None if there is no default one.

    Raises UsageError if `results` is no results folder.
    """
    from xfbench.base import paths
    from xfbench.store.results_folder import is_results_folder, open_existing_store

    folder = paths.results(results)
    if results is None and not is_results_folder(folder):
        return None
    store = open_existing_store(folder)
    store.require_private()  # certificates are written to it
    return store


def _run_self_test(
    names: list[str] | None, seeds: int, time_limit: float, dry_run: bool, as_json: bool
) -> None:
    """Plant bugs in adapters and print which are caught. A dry run only lists the bugs.

    Exit with status 1 if one is not caught, or if the verifier raises a false alarm.

    - `names`: parts of the bugs' names; None: all.
    - `time_limit`: seconds for one launch.
    """
    from xfbench.equality import plants, verdicts

    planted_bugs = plants.select_planted_bugs(names)
    if dry_run:
        lines = [
            f"{bug.name}: {bug.framework}, {bug.workload}, at {bug.layer}" for bug in planted_bugs
        ]
        print(json.dumps({"planted": lines}) if as_json else "\n".join(lines))
        return
    report = plants.run_self_test(planted_bugs, seeds, say, time_limit)
    print(json.dumps(report) if as_json else verdicts.format_self_test(report))
    missed = any(not outcome["caught"] for outcome in report["planted"])
    if missed or report["false_alarms"]["alarms"]:
        raise typer.Exit(1)


def _print_answers_exit_if_different(answers: Iterator[dict[str, Any]], format: str) -> None:
    """Print the answers: text as soon as each is known, other formats at the end.

    Exit with status 1 if a framework is different or failed.
    """
    from xfbench.equality import verdicts

    known_answers = []
    for answer in answers:
        known_answers.append(answer)
        if format == "text":
            print(verdicts.format_answer_text(answer), flush=True)
    if format == "json":
        print(json.dumps({"verdicts": known_answers}))
    elif format == "markdown":
        print(verdicts.format_answers_markdown(known_answers))
    batches = [batch for answer in known_answers for batch in answer["timed_batches"]]
    if any(
        each["verdict"] == "different" or each.get("failed") for each in (*known_answers, *batches)
    ):
        raise typer.Exit(1)
