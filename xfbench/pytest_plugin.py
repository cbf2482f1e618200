"""The pytest plugin: options and fixtures for the benchmarks in `benchmarks/test_cells.py`.

If xfbench is installed, pytest loads the plugin into every session. To keep other sessions fast,
the plugin imports the rest of xfbench only when benchmarks are requested.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pytest import Config

if TYPE_CHECKING:
    from xfbench.benchmarks.architectures import Architecture
    from xfbench.exchange.replay import ReplayTimer
    from xfbench.model.request import Cell
    from xfbench.session import Session

_WORKLOADS = "lenet,convnet"
_STEPS = 10
_SESSION: pytest.StashKey[Session] = pytest.StashKey()
_SELECTION: pytest.StashKey[tuple[Architecture, list[Cell]]] = pytest.StashKey()
# Each of these options requests benchmarks. A plain `pytest` runs only tests.
_BENCHMARK_OPTIONS = (
    *(f"benchmark_{name}" for name in ("only", "enable", "disable", "json", "save", "autosave")),
    *("benchmark_compare", "benchmark_histogram"),
    *(f"xfbench_{name}" for name in ("arch", "framework", "workload", "steps", "results")),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add xfbench's options to pytest. The value of an option that is not given is None."""
    group = parser.getgroup("xfbench", "xfbench: training benchmarks")
    group.addoption(
        "--xfbench-arch",
        metavar="NAME",
        help="Machine profile that selects the cells: host (default), knl, skx, k40, p100, v100. "
        "If this machine does not match the profile, its cells are skipped.",
    )
    group.addoption(
        "--xfbench-framework",
        metavar="NAMES",
        help="Frameworks, comma-separated; missing frameworks are installed. "
        "Default: the installed frameworks and the reference.",
    )
    group.addoption(
        "--xfbench-workload",
        metavar="NAMES",
        help=f"Networks, comma-separated. Default: {_WORKLOADS}.",
    )
    group.addoption(
        "--xfbench-steps",
        metavar="N",
        type=_positive,
        help=f"Timed steps per launch. Default: {_STEPS}.",
    )
    group.addoption(
        "--xfbench-results",
        metavar="FOLDER",
        type=Path,
        help="Results folder for records. Default: $XFBENCH_RESULTS, else ./results.",
    )


def pytest_configure(config: Config) -> None:
    """Check the options of xfbench before tests are collected. Without such options, do nothing.

    Raises pytest.UsageError if an option names something unknown.
    """
    if any(
        config.getoption(name) is not None
        for name in _BENCHMARK_OPTIONS
        if name.startswith("xfbench")
    ):
        _select_profile_and_cells(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Generate one benchmark per cell, each with its own timer.

    Without a request for benchmarks, generate one skipped test instead.
    """
    if "xfbench_cell" not in metafunc.fixturenames:
        return
    from xfbench.benchmarks import names

    config = metafunc.config
    if not _is_benchmark_session(config):
        reason = "training launches are benchmarks: run them with --benchmark-only"
        skip = pytest.mark.skip(reason=reason)
        skipped_case = pytest.param(*names.PARAMETERS, id="cells", marks=skip)
        metafunc.parametrize(names.PARAMETERS, [skipped_case])
        return
    from xfbench.base.terminal_text import make_encodable
    from xfbench.exchange.replay import ReplayTimer
    from xfbench.host import machine

    architecture, cells = _select_profile_and_cells(config)
    mismatch = architecture.mismatch_reason(machine.describe_machine())
    parameters = []
    for cell in cells:
        # pytest would escape the whole heading of a group.
        group = make_encodable(names.format_group(cell), sys.__stdout__)
        marks = [pytest.mark.benchmark(group=group, timer=ReplayTimer())]
        if mismatch:
            marks.append(pytest.mark.skip(reason=mismatch))
        values = names.list_parameters(cell)
        parameters.append(pytest.param(*values, id=names.format_id(cell), marks=marks))
    metafunc.parametrize(names.PARAMETERS, parameters)


@pytest.fixture
def xfbench_cell(
    workload: str, framework: str, kernel: str, device: str, threads: int, pytestconfig: Config
) -> Cell:
    """Return the selected cell that has these parameters."""
    from xfbench.benchmarks import names

    parameters = (workload, framework, kernel, device, threads)
    _, cells = _select_profile_and_cells(pytestconfig)
    return next(cell for cell in cells if names.list_parameters(cell) == parameters)


@pytest.fixture
def xfbench_session(framework: str, pytestconfig: Config) -> Session:
    """Return the session of xfbench, after preparing the framework's environment.

    If the framework is unavailable, `context.unavailable` has the reason.
    """
    from xfbench.base import paths
    from xfbench.base.terminal_text import make_encodable
    from xfbench.execution.launch import LaunchContext
    from xfbench.session import Listener, Session
    from xfbench.store.results_folder import Store

    if _SESSION not in pytestconfig.stash:
        reporter = pytestconfig.pluginmanager.getplugin("terminalreporter")

        class Reporter(Listener):
            """Prints lines between pytest's own lines."""

            def message(self, text: str) -> None:
                if reporter is not None:
                    reporter.ensure_newline()
                    # pytest captures `sys.stdout`, and would escape the whole line.
                    reporter.write_line(make_encodable(f"xfbench: {text}", sys.__stdout__))

        results = paths.results(pytestconfig.getoption("xfbench_results"))
        pytestconfig.stash[_SESSION] = Session(LaunchContext(Store(results)), Reporter())
    session = pytestconfig.stash[_SESSION]
    session.prepare([framework])
    return session


@pytest.fixture
def xfbench_replay(request: pytest.FixtureRequest) -> ReplayTimer:
    """Return the timer of the benchmark that requests this fixture."""
    replay: ReplayTimer = request.node.get_closest_marker("benchmark").kwargs["timer"]
    return replay


def _is_benchmark_session(config: Config) -> bool:
    """Return whether an option or a path on the command line requests benchmarks."""
    if any(config.getoption(name, None) for name in _BENCHMARK_OPTIONS):
        return True
    invocation, folder = config.invocation_params, Path(__file__).resolve().parent / "benchmarks"
    test_paths = [invocation.dir / str(arg).partition("::")[0] for arg in invocation.args]
    return any(place.resolve().is_relative_to(folder) for place in test_paths)


def _select_profile_and_cells(config: Config) -> tuple[Architecture, list[Cell]]:
    """Return the machine profile and the cells that the options select.

    Both are computed once per session. Raises pytest.UsageError if an option is invalid.
    """
    if _SELECTION not in config.stash:
        from xfbench.base.errors import UsageError
        from xfbench.benchmarks import architectures

        try:
            architecture = architectures.load(config.getoption("xfbench_arch") or "host")
            frameworks, workloads = (
                config.getoption(f"xfbench_{name}") for name in ("framework", "workload")
            )
            cells = architectures.build_cells(
                architecture,
                architectures.installed_frameworks()
                if frameworks is None
                else _parse_list(frameworks),
                _parse_list(_WORKLOADS if workloads is None else workloads),
                config.getoption("xfbench_steps") or _STEPS,
            )
        except UsageError as error:
            raise pytest.UsageError(f"xfbench: {error}") from error
        config.stash[_SELECTION] = architecture, cells
    return config.stash[_SELECTION]


def _positive(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a positive integer")
    return int(value)


def _parse_list(value: str) -> list[str]:
    return [word.strip() for word in value.split(",")]
