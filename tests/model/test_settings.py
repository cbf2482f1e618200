"""The declarations of settings, and everything that follows from them."""

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import xfbench
from tests.command_runner import parse_run_command
from xfbench import api
from xfbench.base.errors import UsageError
from xfbench.cli.options import parse_options
from xfbench.model import settings
from xfbench.model.request import Cell
from xfbench.model.settings import Setting
from xfbench.planning import experiment, plan_builder
from xfbench.planning.matrix import Matrix
from xfbench.rendering import setting_files

ROOT = Path(__file__).parents[2]
# For each setting, a text of the command line, and the value in TOML and Python.
EXAMPLES = {
    "framework": ("torch,jax", ["torch", "jax"]),
    "workload": ("alexnet", ["alexnet"]),
    "device": ("cpu,cuda", ["cpu", "cuda"]),
    "precision": ("float64", ["float64"]),
    "kernel": ("native", ["native"]),
    "steps": ("30", 30),
    "epochs": ("2", 2),
    "warmup": ("0", 0),
    "min_time": ("1.5m", 90.0),
    "warmup_time": ("0.5", 0.5),
    "launches": ("7", 7),
    "until_precision": ("1%", 0.01),
    "until_ranked": ("", True),
    "seed": ("0,3", [0, 3]),
    "threads": ("1,2", [1, 2]),
    "ranks": ("1,2", [1, 2]),
    "nodes": ("2", [2]),
    "ranks_per_node": ("2", 2),
    "strategy": ("ddp", ["ddp"]),
    "strategy_options": ("servers=2", {"servers": "2"}),
    "scaling": ("weak", "weak"),
    "launcher": ("mpi", "mpi"),
    "pinning": ("cores", "cores"),
    "site": ("stampede2", "stampede2"),
    "partition": ("skx-dev", "skx-dev"),
    "data": ("digits,synthetic", ["digits", "synthetic"]),
    "page_cache": ("cold,warm", ["cold", "warm"]),
    "loader": ("xfbench,native", ["xfbench", "native"]),
    "loader_threads": ("0", 0),
    "batch_size": ("16,32", [16, 32]),
    "learning_rate": ("0.1", [0.1]),
    "lars": ("0,0.5", [0, 0.5]),
    "lr_scaling": ("none,linear", ["none", "linear"]),
    "lr_warmup": ("0,5", [0, 5]),
    "allocator": ("system,jemalloc", ["system", "jemalloc"]),
    "memory_limit": ("8GB", 8_000_000_000),
    "sync_every": ("5", 5),
    "checkpoints": ("2", 2),
    "profile": ("", True),
}
NEW_SETTING = """    Setting(
        name="niceness",
        panel="Machine",
        help="Priorities of the processes",
        type=WHOLE_NUMBER,
        minimum=2,
        is_list=True,
        is_stored=True,
    ),
"""
# Runs where the setting is declared: prints where it was found.
FIND = """
import inspect, json, sys
import typer
import xfbench
from xfbench import cli
from xfbench.cli.options import parse_options
from xfbench.model.record import Record
from xfbench.planning import experiment
from xfbench.rendering.report import repeat

def cells(**values):
    matrix = experiment.build_matrix(framework="reference", workload="lenet", **values)
    return [cell for cell, _ in experiment.expand_matrices([matrix])]

usual, other = cells(niceness=[3]) + cells()
run = typer.main.get_command(cli.app).commands["run"]
given = run.make_context("run", ["--niceness", "3,4", "--steps", "5"]).params
given = {name: value for name, value in given.items() if name != "job"}
print(json.dumps({
    "command line": parse_options(given)["niceness"],
    "TOML": [usual.niceness, other.niceness],
    "Python": "niceness" in inspect.signature(xfbench.run).parameters,
    "documented": "niceness" in xfbench.run.__doc__,
    "repeat": repeat.setting_options(usual.request(1))["--niceness"],
    "left out": repeat.setting_options(other.request(1))["--niceness"],
    "old digests": "niceness" not in other.request(1).cell_digest_fields(),
    "new digests": usual.request(1).cell_digest_fields()["niceness"],
}))
"""


def cell_settings(name, text):
    """Return the matrix of a command line with one option."""
    option = settings.BY_NAME[name].option
    given = parse_run_command([option, *filter(None, [text])])
    values = parse_options({key: value for key, value in given.items() if key != "job"})
    return build_matrix(values)


def build_matrix(values):
    return experiment.build_matrix(**{"framework": ["torch"], "workload": ["lenet"], **values})


def test_generated_files_are_up_to_date():
    for path, text in setting_files.build_files().items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path}: run `make settings`"


def test_every_setting_has_an_example_here():
    assert list(EXAMPLES) == [setting.name for setting in settings.SETTINGS]


@pytest.mark.parametrize("name", EXAMPLES)
def test_command_line_toml_and_python_accept_the_same_settings(name, monkeypatch):
    text, value = EXAMPLES[name]
    built = []
    monkeypatch.setattr(plan_builder, "build_plan", lambda values, _: built.append(values) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        xfbench.run(**{name: value})
    from_python = {key: each for key, each in built[0].items() if key in EXAMPLES}
    expected = build_matrix({name: value})
    assert getattr(expected, name) == value
    assert cell_settings(name, text) == build_matrix(from_python) == expected
    assert expected != build_matrix({})


def test_command_line_toml_and_python_have_the_same_defaults():
    given = parse_run_command([])
    given.pop("job")
    assert parse_options(given) == {}
    python_defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(xfbench.run).parameters.items()
    }
    for setting in settings.SETTINGS:
        assert python_defaults[setting.name] == (False if setting.is_switch else None)
        if setting.name not in ("framework", "workload", "strategy_options"):
            assert Matrix.model_fields[setting.name].default == setting.default
    for option in settings.RUN_OPTIONS:
        assert python_defaults[option.name] == (option.default if option.is_switch else None)


def test_defaults_are_accepted_by_their_own_types():
    matrix = build_matrix({})
    assert build_matrix(matrix.model_dump()) == matrix


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"job_time": 0}, "job_time: give at least 60"),
        ({"time_limit": -1}, "time_limit: give at least 1"),
        ({"time_limit": "0s"}, "--time-limit 0s: '0s' is less than 1 s"),
        ({"python": "torch=/x"}, "python: expected a mapping"),
        ({"threads": ()}, "no threads was given"),
    ],
)
def test_invalid_values_are_refused_in_python(values, words):
    with pytest.raises(UsageError) as caught:
        xfbench.run("torch", "lenet", **values)
    assert str(caught.value).startswith(words)


def test_any_iterable_of_values_is_a_list_in_python(monkeypatch):
    built = []
    monkeypatch.setattr(plan_builder, "build_plan", lambda values, _: built.append(values) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        xfbench.run(dict(torch=1), (name for name in ["lenet"]), warmup=3, verify=True)  # noqa: C408
    assert built == [{"framework": ["torch"], "workload": ["lenet"], "warmup": 3}]


def test_quantities_may_be_texts_in_python(monkeypatch):
    built = []
    monkeypatch.setattr(plan_builder, "build_plan", lambda values, _: built.append(values) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        xfbench.run(memory_limit="1GiB", until_precision="5%", time_limit="2m", job_time="1.5h")
    assert built == [
        {"memory_limit": 2**30, "until_precision": 0.05, "time_limit": 120.0, "job_time": 5400.0}
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("threads", "0", "--threads 0: '0' is less than 1"),
        ("threads", "2,x", "--threads 2,x: 'x' is not a whole number"),
        ("threads", "1,powers", "--threads 1,powers: powers must be the only value"),
        ("device", "tpu", "unknown --device"),
        ("until_precision", "120%", "--until-precision 120%: '120%' is not a share"),
        ("memory_limit", "8 GX", "--memory-limit 8 GX: give a size"),
        ("time_limit", "2 days", "--time-limit 2 days: '2 days' is not a duration"),
        ("strategy_options", "servers", "--strategy-options servers: expected NAME=VALUE"),
        ("learning_rate", "fast", "--learning-rate fast: 'fast' is not a number"),
    ],
)
def test_an_invalid_value_is_refused_with_the_option_as_typed(name, text, words):
    with pytest.raises(UsageError) as caught:
        settings.BY_NAME[name].parse(text)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("setting", settings.SETTINGS, ids=lambda setting: setting.name)
def test_a_formatted_value_is_parsed_again(setting):
    text, value = EXAMPLES[setting.name]
    if setting.type is settings.OPTIONS or setting.is_switch:
        return
    assert setting.parse(text) == value
    assert setting.parse(setting.format(value)) == value
    for choice, stored in setting.choices.items():
        assert setting.to_stored(choice) == stored
        assert setting.format_stored(stored) == choice


def test_every_stored_setting_is_a_field_of_cells():
    stored = [setting for setting in settings.SETTINGS if setting.is_stored]
    assert len(stored) == 5 and {each.cell_field for each in stored} <= set(Cell.model_fields)


def test_options_of_the_command_line_only_are_not_in_python():
    parameters = inspect.signature(xfbench.run).parameters
    assert not {option.name for option in settings.COMMAND_OPTIONS} & set(parameters)
    with pytest.raises(KeyError):
        api.run_with_settings({"speed": 1})


def test_names_and_options_are_unique():
    everything = [*settings.SETTINGS, *settings.RUN_OPTIONS, *settings.COMMAND_OPTIONS]
    assert len(everything) == len(settings.BY_NAME)
    assert len({setting.option for setting in everything}) == len(everything)
    assert {setting.panel for setting in everything} == set(settings.PANELS)
    assert all(isinstance(setting, Setting) for setting in everything)


def test_a_new_setting_is_one_declaration(tmp_path):
    """It is on the command line, in TOML, in Python, in repeat commands and on the page."""
    package = tmp_path / "xfbench"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "xfbench", package, ignore=ignored)
    for name in ("adapters", "workloads", "launchers"):
        shutil.copytree(ROOT / name, package / name, ignore=ignored)
    before = {path: path.read_bytes() for path in package.rglob("*.py")}
    declarations = package / "model" / "settings.py"
    text = declarations.read_text()
    first = '    Setting(\n        name="allocator",'
    assert first in text
    declarations.write_text(text.replace(first, NEW_SETTING + first, 1))

    def run(*arguments):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    run("-m", "xfbench.rendering.setting_files")
    changed = {path for path, content in before.items() if path.read_bytes() != content}
    generated = {tmp_path / path for path in setting_files.build_files()}
    assert declarations in changed and changed - {declarations} <= generated
    assert json.loads(run("-c", FIND)) == {
        "command line": [3, 4],
        "TOML": [3, None],
        "Python": True,
        "documented": True,
        "repeat": "3",
        "left out": None,
        "old digests": True,
        "new digests": 3,
    }
    assert "--niceness N,...      Priorities of the processes" in run("-m", "xfbench", "run", "-h")
    assert "`niceness`" in (tmp_path / "docs" / "reference" / "settings.md").read_text()
    shown = json.loads(
        run(
            *("-m", "xfbench", "run", "--framework", "reference", "--workload", "lenet"),
            *("--niceness", "7", "--launches", "1", "--dry-run", "--json"),
        )
    )
    assert [request["niceness"] for request in shown["requests"]] == [7]


def test_durations_are_more_than_zero_unless_their_minimum_is_zero():
    durations = [each for each in settings.BY_NAME.values() if each.type is settings.DURATION]
    assert {each.name for each in durations if each.minimum == 0} == {"min_time", "warmup_time"}
    for each in durations:
        assert each.minimum is not None  # `DURATION` accepts zero
        if each.minimum:
            with pytest.raises(UsageError, match="less than"):
                each.parse("0s")
