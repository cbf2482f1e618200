"""What a plan would run, without running it: the commands of each cell, as shell lines."""

from __future__ import annotations

from pathlib import Path

from xfbench import adapter
from xfbench.base.errors import UnavailableError
from xfbench.environments import allocators, environment
from xfbench.plan import Plan
from xfbench.request import Request
from xfbench.running import job, launch


def commands(plan: Plan) -> dict[str, list[str]]:
    """Per cell, by its label, the lines; a comment says why where there are none.

    They run in a launch's own folder, one after another the helpers and what starts the ranks.
    """
    first = {request.cell(): request for request in reversed(plan.requests)}
    return {request.label(): _lines(request, plan) for request in reversed(first.values())}


def _lines(request: Request, plan: Plan) -> list[str]:
    if standing := launch.obstacle(request):
        return [f"# {': '.join(standing)}"]
    described = adapter.load(request.framework)
    try:
        python = plan.pythons.get(request.framework)
        found = environment.find(described, python, request.site)
        if found is None:
            return [f"# {environment.plan(described)}"]
        if request.allocator and not allocators.is_there(request.allocator):
            return [f"# {request.allocator} would be fetched"]
        start, helpers = job.prepared(request, described, found, Path())
    except UnavailableError as error:
        return [f"# unavailable: {error}"]
    return [one.to_shell_line() for one in (*helpers, *start.commands)]
