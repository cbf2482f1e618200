"""Lists the commands that a plan would run, as shell lines for each cell."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from xfbench.base.errors import UnavailableError
from xfbench.environments import allocators, environment
from xfbench.execution import job, launch
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


def _build_shell_lines(request: Request, plan: Plan) -> list[str]:
    if status_and_reason := launch.launch_obstacle(request):
        return [f"# {': '.join(status_and_reason)}"]
    framework_adapter = adapter.load(request.framework, request.revision)
    try:
        python = plan.pythons.get(request.interpreter_key)
        framework_environment = environment.find_environment(
            framework_adapter, python, request.site
        )
        if framework_environment is None:
            return [f"# {environment.describe_kind_state_and_folder(framework_adapter)}"]
        if request.allocator and not allocators.is_downloaded(request.allocator):
            return [f"# {request.allocator} would be downloaded"]
        start, helpers = job.build_start_and_helpers(
            request, framework_adapter, framework_environment, Path()
        )
    except UnavailableError as error:
        return [f"# unavailable: {error}"]
    return [command.to_shell_line() for command in (*helpers, *start.commands)]
