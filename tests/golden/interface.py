"""Golden values of what people type and read: commands, TOML keys, variables, exit codes, schemas.

Everything is taken from the program itself: options from the command parser, keys of TOML files
from the models that parse them, variables from the syntax trees of the sources.
"""

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer

import xfbench
from tests.golden import archives, form
from xfbench import cli, pytest_plugin
from xfbench.analysis import best, comparison
from xfbench.benchmarks import architectures
from xfbench.datasets import manifest
from xfbench.environments import allocators
from xfbench.equality import plants, verdicts
from xfbench.host import roofline, sites
from xfbench.launchers.resources import LAUNCHERS
from xfbench.model import adapter, certificate, features, record, settings
from xfbench.planning import experiment
from xfbench.rendering import schema_page, tables
from xfbench.store import selection, tuning_results
from xfbench.store.published import Source
from xfbench.studies import answer
from xfbench.tuning import space
from xfbench.workloads import workloads

ROOT = Path(__file__).parents[2]
SOURCES = ("xfbench", "adapters", "launchers", "workloads", "docs/reframe")
_VARIABLE = re.compile(r"_?[A-Z][A-Z0-9]*(_[A-Z0-9]*)*")
_XFBENCH_VARIABLE = re.compile(r"XFBENCH_[A-Z_]+")


def commands() -> dict[str, Any]:
    """Return every command with its arguments and options, and the options of the plugin."""
    inventory = dict(_commands(typer.main.get_command(cli.app), "xfbench"))
    return {**inventory, "pytest": dict(_plugin_options())}


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, {_spellings(item): _parameter(item) for item in command.params}
    for inner, item in getattr(command, "commands", {}).items():
        yield from _commands(item, f"{name} {inner}")


def _spellings(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    return " ".join([*parameter.opts, *parameter.secondary_opts])


def _parameter(parameter: Any) -> dict[str, Any]:
    """Return what can be given; facts that are false or empty, and not zero, are left out."""
    kind = parameter.type_descriptor
    facts = {
        "argument": parameter.param_type_name == "argument",
        "type": _type_name(kind.annotation),
        "metavar": parameter.metavar,
        "choices": [*map(str, kind.choices)] if kind.is_choice else [],
        "least": parameter.min,
        "most": parameter.max,
        "default": parameter.default,
        "variable": parameter.envvar,
        "required": parameter.required,
        "repeatable": parameter.multiple or parameter.nargs == -1,
        "hidden": parameter.hidden,
    }
    return {
        key: item
        for key, item in facts.items()
        if item is not None and item is not False and item not in ([], ())
    }


def _type_name(annotation: Any) -> str:
    """Return the name of the type of one value: `list[Path]` is a Path that can be repeated."""
    inner = typing.get_args(annotation)
    return str((inner[0] if inner else annotation).__name__)


def _plugin_options() -> Iterator[tuple[str, Any]]:
    options: list[tuple[tuple[str, ...], dict[str, Any]]] = []
    group = SimpleNamespace(addoption=lambda *names, **settings: options.append((names, settings)))
    pytest_plugin.pytest_addoption(SimpleNamespace(getgroup=lambda *_: group))  # type: ignore[arg-type]
    for names, values in options:
        kind = values.pop("type", str).__name__.lstrip("_")
        yield " ".join(names), {"type": kind, **{k: v for k, v in values.items() if k != "help"}}


def values() -> dict[str, list[str]]:
    """Return the values that options and TOML keys take, where these are plain text."""
    return {
        "adapters": adapter.list_names(),
        "allocators": [*allocators.NAMES],
        "analyses": sorted(answer.ANALYSES),
        "compare fields": [*comparison.FIELDS],
        "devices": [*settings.BY_NAME["device"].choices],
        "experiments": experiment.list_names(),
        "features of HPC systems": [*features.FEATURES],
        "kernels": [
            f"{name} {kernel}"
            for name in adapter.list_names()
            for kernel in adapter.load(name).kernels
        ],
        "launchers": [*LAUNCHERS],
        "leaderboard --by": [best.ROW, *best.FIELDS],
        "leaderboard --view": [*tables.COLUMNS],
        "leaderboard --format": [*tables.FORMATS],
        "precisions": [*settings.BY_NAME["precision"].choices],
        "sites": sites.list_site_names(),
        "strategies": [
            " ".join([name, strategy, *adapter.load(name).find_or_build_strategy(strategy).options])
            for name in adapter.list_names()
            for strategy in adapter.load(name).strategies
        ],
        "tune --over": [*space.OVER_NAMES],
        "verify --format": [*verdicts.FORMATS],
        "where fields": [*selection.record_fields()],
        "workloads": [*workloads()],
        "xfbench-arch": architectures.list_machine_profile_names(),
    }


def toml_keys() -> dict[str, Any]:
    """Return the keys of every TOML file that is read, by what reads it.

    Most are a model's fields. Nothing declares those of the published peaks, nor those of the
    meanings, by classes of a record: they are what is in the file.
    """
    adapters = form.schema_fields(adapter.Adapter.model_json_schema())
    del adapters["folder"]  # the place of the file
    del adapters["revision"]  # that of the place
    peaks = tomllib.loads(Path(roofline.__file__).with_name("peaks.toml").read_text("utf-8"))
    meanings = schema_page.load_extra_meanings()
    return {
        "adapter.toml": adapters,
        "architectures.toml": form.schema_fields(architectures.Architecture.model_json_schema()),
        "experiment": form.schema_fields(experiment.Experiment.model_json_schema()),
        "meanings.toml": {name: " ".join(sorted(fields)) for name, fields in meanings.items()},
        "peaks.toml": {
            key: "table" if isinstance(item, dict) else type(item).__name__
            for machine in peaks.values()
            for key, item in machine.items()
        },
        "plants.toml": form.schema_fields(plants.PlantedBug.model_json_schema()),
        "published": form.schema_fields(Source.model_json_schema()),
        "site": form.schema_fields(sites.Site.model_json_schema()),
    }


def schemas() -> dict[str, Any]:
    """Return the fields of every JSON document that is kept, by its schema's name."""
    return {
        "xfbench.certificate/1": _fields_of(certificate.Certificate),
        "xfbench.data/1": _fields_of(manifest.Manifest),
        "xfbench.tuning/1": _fields_of(tuning_results.Tuning),
    }


def record_schema() -> dict[str, Any]:
    """Return the fields of a record."""
    return form.schema_fields(record.json_schema())


def _fields_of(model: Any) -> dict[str, Any]:
    return form.schema_fields(model.model_json_schema(by_alias=True))


def python() -> dict[str, str]:
    """Return the signatures of what `import xfbench` gives."""
    signatures = {}
    for name in xfbench.__all__:
        item = getattr(xfbench, name)
        if not inspect.isclass(item):
            signatures[name] = _signature(item)
        elif issubclass(item, Exception):
            signatures[name] = "class " + " ".join(
                base.__name__ for base in item.__mro__ if base.__module__.startswith("xfbench")
            )
        else:
            signatures |= {
                f"{name}.{method}": _signature(function)
                for method, function in inspect.getmembers(item, inspect.isfunction)
                if not method.startswith("_")
            }
    return signatures


def _signature(function: Any) -> str:
    """Return names, kinds and defaults of parameters; annotations name internal types."""
    signature = inspect.signature(function)
    plain = [item.replace(annotation=item.empty) for item in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def variables() -> dict[str, list[str]]:
    """Return the environment variables in the sources, which are scanned as syntax trees.

    `prefixed` are the names XFBENCH_* in any string. `read` are the names by which `os.environ` is
    read, or which a constant lists in a module that reads it; * stands for any ending.
    """
    prefixed: set[str] = set()
    read: set[str] = set()
    for folder in SOURCES:
        for file in sorted((ROOT / folder).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            if "environ" not in text and "XFBENCH_" not in text:
                continue
            tree = ast.parse(text)
            nodes = [*ast.walk(tree)]
            prefixed |= {item for item in _strings(nodes) if _XFBENCH_VARIABLE.fullmatch(item)}
            if any(map(_is_environment, nodes)):
                read |= {*_listed_variables(tree), *_looked_up_variables(tree, nodes)}
    return {"prefixed": sorted(prefixed), "read": sorted(read)}


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    return {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _strings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _listed_variables(tree: ast.Module) -> Iterator[str]:
    """Yield the strings of each constant of the module that looks like a list of variables."""
    for value in _constants(tree).values():
        names = [*_strings(ast.walk(value))]
        if all(map(_VARIABLE.fullmatch, names)) and any("_" in item for item in names):
            yield from (f"{item}*" if item.endswith("_") else item for item in names)


def _looked_up_variables(tree: ast.Module, nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield each key of the environment that is a text, a constant or has a fixed beginning."""
    constants = _constants(tree)
    for node in nodes:
        for key in _keys(node):
            value = constants.get(key.id, key) if isinstance(key, ast.Name) else key
            if isinstance(value, ast.JoinedStr):
                parts = value.values
                yield "".join(str(p.value) if isinstance(p, ast.Constant) else "*" for p in parts)
            elif isinstance(value, ast.Constant):
                yield str(value.value)


def _keys(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Subscript) and _is_environment(node.value):
        if isinstance(node.ctx, ast.Load):
            yield node.slice
    elif isinstance(node, ast.Compare) and any(map(_is_environment, node.comparators)):
        yield node.left
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        looks_up = node.func.attr in ("get", "pop", "setdefault")
        if node.func.attr == "getenv" or (looks_up and _is_environment(node.func.value)):
            yield node.args[0]


def _is_environment(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "environ"


# Run for real, in a folder with the results folders `intact` and `damaged`.
COMMAND_LINES = (
    "--version",
    "run --help",
    "frobnicate",
    "run --frobnicate",
    "run --framework frobnicate",
    "leaderboard --results nowhere",
    "results validate damaged",
    "compare framework=torch framework=reference --results intact --fail-on faster:1%",
    "compare framework=torch framework=reference --results intact --fail-on slower:1%",
)
# Every line, and every way in which a command can end, in a process of its own that is forked from
# one that has loaded xfbench. The ways are raised in a command that stands beside the others.
_EXIT_STATUS_SCRIPT = """
import json, os, signal, sys, time
import typer
from xfbench import UnavailableError, UsageError, XfbenchError, cli
from xfbench.planning import experiment
from xfbench.analysis import comparison
from xfbench.exchange import audit
from xfbench.workloads import WorkloadError

def send(number):
    def interrupt():
        os.kill(os.getpid(), number)
        time.sleep(60)
    return interrupt

def send_sigterm_twice():
    try:
        send(signal.SIGTERM)()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        raise typer.Exit(7)  # the cleanup was not interrupted

def failing(error):
    def fail():
        raise error
    return fail

ENDS = {
    "returns": lambda: None,
    "XfbenchError": failing(XfbenchError("")),
    "UnavailableError": failing(UnavailableError("")),
    "UsageError": failing(UsageError("")),
    "WorkloadError": failing(WorkloadError("")),
    "typer.Exit(1)": failing(typer.Exit(1)),
    "typer.BadParameter": failing(typer.BadParameter("")),
    "typer.Abort": failing(typer.Abort()),
    "OSError: disk full": failing(OSError(28, "full")),
    "OSError: permission denied": failing(OSError(13, "denied")),
    "BrokenPipeError": failing(BrokenPipeError()),
    "RuntimeError": failing(RuntimeError("")),
    "SIGINT": send(signal.SIGINT),
    "SIGTERM": send(signal.SIGTERM),
    "SIGTERM twice": send_sigterm_twice,
}

def status(arguments):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.argv[1:] = arguments
    try:
        cli.main()
    except SystemExit as end:
        os._exit(end.code or 0)  # as the interpreter would, which takes longer to end

signal.signal(signal.SIGINT, signal.default_int_handler)
statuses = {"ends": {}}
statuses["commands"] = {line: status(line.split()) for line in json.loads(sys.argv[1])}
cli.app.registered_groups.clear()  # to parse them takes longer than to end
for name, end in ENDS.items():
    cli.app.registered_commands.clear()
    cli.app.command("end")(end)
    statuses["ends"][name] = status(["end"])
with open("statuses.json", "w") as file:
    json.dump(statuses, file)
"""


def exit_codes() -> dict[str, Any]:
    """Return the exit statuses of real command lines, and of each way a command can end."""
    intact, damaged = archives.results(archives.COLUMNS), archives.damaged_results()
    with tempfile.TemporaryDirectory(prefix="xfbench-golden-") as name:
        folder = Path(name)
        (folder / "intact").symlink_to(intact)
        (folder / "damaged").symlink_to(damaged)
        completed = subprocess.run(
            [sys.executable, "-c", _EXIT_STATUS_SCRIPT, json.dumps(COMMAND_LINES)],
            cwd=folder,
            env={**os.environ, "TMPDIR": name},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr
        statuses: dict[str, Any] = json.loads((folder / "statuses.json").read_text())
    return statuses
