"""Lists the commands that a plan would run, as shell lines for each cell."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from xfbench.base.errors import UnavailableError
from xfbench.base.processes import Command
from xfbench.environments import allocators, environment
from xfbench.execution import job, launch
from xfbench.host import sites
from xfbench.model import adapter
from xfbench.model.plan import Plan
from xfbench.model.request import Request


def list_commands_by_cell(plan: Plan) -> dict[str, list[str]]:
    """Return the shell lines of each cell. The keys are the cells' long labels.

    If cells have the same label, the further ones have a number.

    The lines would run in the run folder: first the helpers, then the commands that start the
    ranks. If there are no commands for a cell, its only line is a comment with the reason.
    """
    request_by_cell = {request.cell(): request for request in reversed(plan.requests)}
    lines_by_label: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for request in reversed(request_by_cell.values()):
        label = request.long_label()
        counts[label] += 1
        number = f" ({counts[label]})" if counts[label] > 1 else ""
        lines_by_label[f"{label}{number}"] = _build_shell_lines(request, plan)
    return lines_by_label


def list_starts_in_jobs(plan: Plan) -> list[str]:
    """Return the shell lines that start launches inside a job, each once.

    They are shortened for readers: without the variables that each launch gets. A line begins with
    the framework's modules, if the site has some.
    """
    lines = []
    for request in {request.cell(): request for request in reversed(plan.requests)}.values():
        commands, reason = _build_commands(request, plan)
        modules = sites.load_site(request.site).modules
        names = modules.frameworks.get(request.framework, ()) if modules else ()
        load = [f"module load {shlex.join(names)}"] if names else []
        starts = [shlex.join(_drop_variables(command.argv)) for command in commands]
        lines.append(f"# {request.framework}: {reason}" if reason else "; ".join([*load, *starts]))
    return list(dict.fromkeys(lines))


def _drop_variables(words: Sequence[str]) -> list[str]:
    """Return the words of a command without `env` and its arguments."""
    remaining, rest = [], [*words]
    while rest:
        word = rest.pop(0)
        if word != "env":
            remaining.append(word)
            continue
        while rest and (rest[0].startswith("-") or "=" in rest[0]):
            del rest[: 2 if rest[0] == "-u" else 1]
    return remaining


def _build_shell_lines(request: Request, plan: Plan) -> list[str]:
    commands, reason = _build_commands(request, plan)
    return [f"# {reason}"] if reason else [command.to_shell_line() for command in commands]


def _build_commands(request: Request, plan: Plan) -> tuple[list[Command], str]:
    """Return the commands of a launch, helpers first, or why there are none."""
    if status_and_reason := launch.launch_obstacle(request):
        return [], ": ".join(status_and_reason)
    framework_adapter = adapter.load(request.framework, request.revision)
    try:
        python = plan.pythons.get(request.interpreter_key)
        framework_environment = environment.find_environment(
            framework_adapter, python, request.site
        )
        if framework_environment is None:
            return [], environment.describe_kind_state_and_folder(framework_adapter)
        if request.allocator and not allocators.is_downloaded(request.allocator):
            return [], f"{request.allocator} would be downloaded"
        start, helpers = job.build_start_and_helpers(
            request, framework_adapter, framework_environment, Path()
        )
    except UnavailableError as error:
        return [], f"unavailable: {error}"
    return [*helpers, *start.commands], ""
