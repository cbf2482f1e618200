"""Options that several commands share, and the functions that parse their values.

The options of settings are built from their declarations (`xfbench/model/settings.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from xfbench.base.errors import NoMatchError, UsageError
from xfbench.base.terminal_text import say
from xfbench.cli import completion
from xfbench.model import settings
from xfbench.model.settings import Setting

if TYPE_CHECKING:
    from xfbench.store.index import Index
    from xfbench.store.selection import Condition

T = TypeVar("T")

# The default frameworks and workloads: those of the experiment `quick`.
FRAMEWORKS = settings.BY_NAME["framework"].default_words
WORKLOADS = settings.BY_NAME["workload"].default_words

ResultsOption = Annotated[
    Path | None,
    typer.Option(help=settings.BY_NAME["results"].full_help, show_default=False, metavar="DIR"),
]
JsonOption = Annotated[bool, typer.Option("--json", help=settings.BY_NAME["json"].full_help)]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help=settings.BY_NAME["dry_run"].full_help)
]
RecordFilterOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=VALUE",
        help="Use only records that meet this condition, such as framework=torch, threads>=2 or "
        "machine.cpu_model~xeon (repeatable). Operators: =, !=, >=, <=, >, < and ~ (contains).",
        show_default=False,
    ),
]


def framework_option(help_text: str) -> Any:
    """Return the option `--framework` of a command that takes it outside a plan."""
    return typer.Option(
        "--framework",
        "-f",
        help=help_text,
        show_default=False,
        autocompletion=completion.complete_frameworks,
    )


def workload_option(help_text: str, *, show_default: bool = False) -> Any:
    """Return the option `--workload` of a command that takes it outside a plan."""
    return typer.Option(
        "--workload",
        "-w",
        help=help_text,
        show_default=show_default,
        autocompletion=completion.complete_workloads,
    )


FrameworkFilterOption = Annotated[
    str | None, framework_option("Use only records of these frameworks, such as torch,mxnet.")
]
WorkloadFilterOption = Annotated[
    str | None, workload_option("Use only records of these workloads, such as lenet,convnet.")
]

FiguresOption = Annotated[
    Path | None,
    typer.Option(
        "--figures",
        metavar="DIR",
        help="Also write the figures to this folder, for a paper. Needs matplotlib: "
        "python -m pip install matplotlib.",
    ),
]
FigureFormatOption = Annotated[
    str | None,
    typer.Option(
        "--figure-format",
        metavar="FORMAT[,FORMAT]",
        help="Formats of --figures: pdf, svg, png, pgf (default: all that can be written). pgf "
        "needs LaTeX: Debian's texlive-xetex.",
    ),
]


def prepare_figures(folder: Path | None, format_names: str | None) -> list[str]:
    """Return the formats in which figures are written to `folder`, and create it if it is given.

    Its parent folder is not created. Raises UsageError if a format is unknown, if there is a format
    without a folder, or if the folder or a program cannot be used.
    """
    from xfbench.rendering import plots

    if folder is None:
        if format_names is not None:
            raise UsageError("--figure-format needs --figures")
        return []
    formats = plots.choose_formats(parse_list(format_names, str, "--figure-format"))
    check_parent_folder(folder, "--figures ")
    plots.create_folder_and_check_matplotlib(folder)
    return formats


def parse_record_filters(
    where: Sequence[str] | None, framework: str | None, workload: str | None
) -> list[Condition]:
    """Return the conditions of `--where`, `--framework` and `--workload`.

    Raises UsageError if a condition is malformed or names an unknown field.
    """
    from xfbench.store import selection

    conditions = selection.parse_conditions(where or ())
    for option, text in (("framework", framework), ("workload", workload)):
        if names := parse_list(text, str, f"--{option}"):
            conditions.append(selection.one_of_condition(f"request.{option}", names))
    return conditions


def fail_without_match(record_index: Index, conditions: Sequence[Condition]) -> NoReturn:
    """Raise NoMatchError with the reason why no record meets the conditions.

    Messages about damaged records are printed before.
    """
    for line in record_index.damaged:
        say(line)
    mismatch = record_index.describe_mismatch(conditions)
    raise NoMatchError(f"{record_index.folder}: {mismatch}")


def check_listed_names(record_index: Index, conditions: Sequence[Condition]) -> None:
    """Check that each name in a list of `--framework` or `--workload` has a record.

    Raises NoMatchError if a name without a record is unknown to xfbench. For any other name without
    a record, a line is printed.
    """
    from xfbench.model import adapter
    from xfbench.store import selection
    from xfbench.workloads import workloads

    known_names = {"request.framework": adapter.list_names, "request.workload": workloads}
    for condition in filter(_is_list_of_names, conditions):
        for name in dict.fromkeys(condition.value.split(",")):
            alone = [selection.equal_condition(condition.field, name)]
            if record_index.count_preselected(alone):
                continue
            if name not in known_names[condition.field]():
                fail_without_match(record_index, alone)
            say(f"{record_index.folder}: {record_index.describe_mismatch(alone)}")


def check_listed_names_in_folder(folder: Path, conditions: Sequence[Condition]) -> None:
    """Check each name in a list, as `check_listed_names` does, in a results folder."""
    from xfbench.store import index
    from xfbench.store.results_folder import open_existing_store

    if any(map(_is_list_of_names, conditions)):
        with index.open_index(open_existing_store(folder), lambda _: None) as record_index:
            check_listed_names(record_index, conditions)


def _is_list_of_names(condition: Condition) -> bool:
    return condition.comparison == "in" and "," in condition.value


def with_settings(
    chosen: Sequence[Setting | str],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command the options of these settings, in their order.

    - `chosen`: settings, or their names.

    The command gets them as keyword arguments, and passes them to `parse_options`. Its own options
    come first in the help.
    """
    declared = [settings.BY_NAME[item] if isinstance(item, str) else item for item in chosen]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own_parameters = [
            parameter
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.kind is not parameter.VAR_KEYWORD
        ]
        parameters = [*own_parameters, *map(_parameter, declared)]
        setattr(command, "__signature__", inspect.Signature(parameters))  # noqa: B010
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


def _parameter(setting: Setting) -> inspect.Parameter:
    """Return the parameter of a command from which typer makes the setting's option."""
    kind: Any = str
    more: dict[str, Any] = {}
    if setting.is_switch:
        kind = bool
    elif setting.type is settings.INTERPRETERS:
        kind = list[str]
    elif setting.type is settings.FOLDER:
        kind = Path
    elif setting.type is settings.WHOLE_NUMBER and not setting.is_list:
        kind, more = int, {"min": setting.minimum}
    option = typer.Option(
        *filter(None, [setting.option, setting.short]),
        autocompletion=_choose_completion(setting),
        help=setting.full_help,
        show_default=False,
        metavar=None if setting.is_switch else setting.metavar,
        rich_help_panel=setting.panel,
        **more,
    )
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if setting.is_switch else None,
        annotation=Annotated[kind if setting.is_switch else kind | None, option],
    )


def _choose_completion(setting: Setting) -> Callable[[str], list[str]] | None:
    """Return the function that completes values of the setting in a shell."""
    if setting.choices:
        return completion.complete_names(lambda: setting.choices)
    return {
        "framework": completion.complete_frameworks,
        "workload": completion.complete_workloads,
        "site": completion.complete_sites,
    }.get(setting.name)


def parse_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the settings that were given, by name.

    - `options`: the keyword arguments that a command with `with_settings` gets.

    Raises UsageError if a value is invalid. The message names the option.
    """
    values: dict[str, Any] = {}
    for name, value in options.items():
        setting = settings.BY_NAME[name]
        if setting.is_switch:
            if value:
                values[name] = not setting.default
        elif value not in (None, [], ()):
            values[name] = setting.parse(value) if isinstance(value, str) else value
    if "python" in values:
        values["python"] = parse_interpreters(values["python"])
    return values


class GroupedCommand(typer.core.TyperCommand):
    """A command that launches. Its help groups its options by `rich_help_panel`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError if an option has another one in place of a value.

        Without this check, `--results --dry-run` would launch everything.
        """
        options = {name: each for each in self.get_params(ctx) for name in each.opts}
        for name, value in pairwise(args):
            takes_value = name in options and not getattr(options[name], "is_flag", True)
            if takes_value and value.partition("=")[0] in options and value.startswith("--"):
                raise UsageError(f"{name} needs a value, but {value} is an option")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options, each group below its title."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record:
                default = "Arguments" if parameter.param_type_name == "argument" else "Options"
                panel = getattr(parameter, "rich_help_panel", None) or default
                groups.setdefault(panel, []).append(record)
        first = "Options" if len(groups.get("Options", ())) > 1 else ""  # more than --help
        for title in dict.fromkeys(("Arguments", first, *settings.PANELS, "Options")):
            if title in groups:
                with formatter.section(title):
                    formatter.write_dl(groups[title])


def parse_list(text: str | None, convert: Callable[[str], T], option: str) -> list[T] | None:
    """Return the values of a comma-separated list; None if `text` is None.

    - `convert`: converts the text of one value. Raises ValueError if the text is invalid.
    - `option`: name of the option, for the error message.

    Raises UsageError if a value is invalid.
    """
    if text is None:
        return None
    try:
        return [convert(item.strip()) for item in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error


def parse_text(text: str | None, convert: Callable[[str], T], option: str) -> T | None:
    """Return the value of an option; None if `text` is None.

    Raises UsageError if `convert` raises ValueError. The message names `option`.
    """
    try:
        return None if text is None else convert(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error


def parse_positive_int(text: str) -> int:
    """Parse a whole number of one or more."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a whole number of one or more")
    return int(text)


def parse_interpreters(pairs: list[str] | None) -> dict[str, Path]:
    """Return the interpreter of each framework from pairs such as `torch=/usr/bin/python3`.

    Several interpreters of a framework have names, as in `torch:old=/usr/bin/python3`. Raises
    UsageError if a pair has another form or is repeated, a framework is unknown or a file does not
    exist.
    """
    from xfbench.planning import plan_builder

    interpreters = {}
    for pair in pairs or ():
        name, equals, path = pair.partition("=")
        if not equals or not path:
            raise UsageError(f"--python {pair}: expected NAME=PATH, such as torch=/usr/bin/python3")
        if name in interpreters:
            raise UsageError(
                f"--python {pair}: {name} has an interpreter already: give both a name, such as "
                f"{name}:old=PATH and {name}:new=PATH"
            )
        interpreters[name] = plan_builder.resolve_interpreter(name, path)
    return interpreters


def choose_output_format(as_json: bool, format_name: str) -> str:
    """Return the format of --json and --format. Raises UsageError if they contradict each other."""
    if as_json and format_name not in ("text", "json"):
        raise UsageError(f"--json and --format {format_name} are two forms of output: choose one")
    return "json" if as_json else format_name


def check_output_file(output: Path, suffixes: Sequence[str]) -> None:
    """Raise UsageError unless the file has one of the suffixes, and its folder exists."""
    if output.suffix not in suffixes:
        names = " or ".join(f"FILE{suffix}" for suffix in suffixes)
        raise UsageError(f"--output {output}: expected {names}")
    check_parent_folder(output, "--output ")


def check_parent_folder(path: Path, option: str = "") -> None:
    """Raise UsageError unless the folder exists in which `path` will be written.

    `option`: the option that has the path, and a space; empty for an argument.
    """
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{option}{path}: no such folder: {path.parent}")
