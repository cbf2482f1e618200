"""What several commands ask for in the same words: lists, interpreters, the results folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from xfbench.base.errors import UsageError

T = TypeVar("T")

# What is measured and proven where nothing is named: the experiment `quick`.
FRAMEWORKS = "caffe,mxnet,tensorflow,torch"
WORKLOADS = "lenet,convnet"

ResultsOption = Annotated[
    Path | None,
    typer.Option(
        help="Results folder (default: $XFBENCH_RESULTS, else ./results).", show_default=False
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output.")
]
RecordFilterOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=VALUE",
        help="Only such records, by any field (repeatable; also !=, >=, <=, >, <, ~ for text "
        "that has it in it): framework=torch, threads>=2, machine.cpu_model~xeon.",
        show_default=False,
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
]
TimeLimitOption = Annotated[float, typer.Option(min=1, help="Seconds one launch may take.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Leave out launches already done.")]
StrategyOptionsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=VALUE,...",
        help="What may be chosen about it, as in servers=2,bucket_size=1MB: see docs/clusters.md.",
        show_default=False,
    ),
]
PythonsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--python", metavar="NAME=PATH", help="Use this interpreter for a framework (repeatable)."
    ),
]


# What may be otherwise than published about the solver: see `running/training.py`.
LarsOption = Annotated[
    str | None,
    typer.Option(
        help="Trust coefficients of LARS, 0 for none (default: none).", show_default=False
    ),
]
LearningRateOption = Annotated[
    str | None, typer.Option(help="Base rates (default: the network's).", show_default=False)
]
RateScalingOption = Annotated[
    str | None,
    typer.Option(help="linear: the rate grows with the batch; none (default).", show_default=False),
]
RateWarmupOption = Annotated[
    str | None,
    typer.Option(
        help="Epochs in which the rate grows to what it is to be (default: none).",
        show_default=False,
    ),
]


def solver_settings(
    lars: str | None, learning_rate: str | None, rate_scaling: str | None, rate_warmup: str | None
) -> dict[str, Any]:
    """These options as settings. Raises UsageError that names the option."""
    return {
        "lars": parse_list(lars, float, "--lars"),
        "learning_rate": parse_list(learning_rate, float, "--learning-rate"),
        "rate_scaling": parse_list(rate_scaling, str, "--rate-scaling"),
        "rate_warmup": parse_list(rate_warmup, non_negative_int, "--rate-warmup"),
    }


def parse_list(text: str | None, convert: Callable[[str], T], option: str) -> list[T] | None:
    """A comma-separated list, each item converted. Raises UsageError that names the option."""
    if text is None:
        return None
    try:
        return [convert(item.strip()) for item in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error


def parse_strategy_options(text: str | None) -> dict[str, str] | None:
    """From `servers=2,bucket_size=1MB`. Raises UsageError on another form, or a name twice."""
    if text is None:
        return None
    value_by_name: dict[str, str] = {}
    for pair in text.split(","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not name or not equals or not value or name in value_by_name:
            raise UsageError(
                f"--strategy-options {text}: the form is NAME=VALUE,..., as in servers=2, "
                "each name once"
            )
        value_by_name[name] = value
    return value_by_name


def positive_int(text: str) -> int:
    """A whole number of one or more."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a whole number of one or more")
    return int(text)


def non_negative_int(text: str) -> int:
    """A whole number, as seeds are."""
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def parse_fraction(text: str) -> float:
    """A share of one: "2%" or "0.02"."""
    fraction = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 < fraction < 1:
        raise ValueError(f"{text!r} is not between 0 and 100 %")
    return fraction


def parse_size(text: str | None, option: str) -> int | None:
    """Bytes, from 8GB or 512MiB. Raises UsageError that names the option."""
    from xfbench.strategy import in_bytes

    try:
        return None if text is None else in_bytes(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error


def parse_interpreters(pairs: list[str] | None) -> dict[str, Path]:
    """From `torch=/usr/bin/python3` and the like. Raises UsageError, also on a missing file."""
    from xfbench import asked

    interpreters = {}
    for pair in pairs or ():
        name, equals, path = pair.partition("=")
        if not equals or not path:
            raise UsageError(
                f"--python {pair}: the form is NAME=PATH, as in torch=/usr/bin/python3"
            )
        interpreters[name] = asked.interpreter(name, path)
    return interpreters


def parse_run_command(arguments: Sequence[str]) -> Mapping[str, Any]:
    """What `xfbench run` makes of these words, and would do. Raises UsageError for a wrong one."""
    from xfbench import cli

    command = typer.main.get_command(cli.app)
    try:
        context = getattr(command, "commands")["run"].make_context("run", list(arguments))  # noqa: B009
    except cli.ParseError as error:
        raise UsageError(" ".join(str(error).split())) from error
    parameters: Mapping[str, Any] = context.params
    return parameters
