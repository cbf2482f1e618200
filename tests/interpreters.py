"""Run scripts in a framework's interpreter, as workers do."""

from xfbench.base import processes
from xfbench.environments import environment
from xfbench.model import adapter


def run(framework, script, *arguments, folder, variables=None, limit=300):
    """Run a script in `folder` on one thread and return its output.

    Raises CommandError, with the script's standard error, if it fails.
    """
    framework_adapter = adapter.load(framework)
    python_environment = environment.ensure_environment(framework_adapter)
    return processes.output(
        [str(python_environment.interpreter), "-c", script, *map(str, arguments)],
        environment={
            **python_environment.variables(framework_adapter, framework_adapter.default_kernel, 1),
            **(variables or {}),
        },
        cwd=folder,
        timeout=limit,
    )
