"""Scripts in a framework's own interpreter, as a worker runs there."""

from xfbench.base import processes
from xfbench.environments import environment
from xfbench.model import adapter


def run(framework, script, *arguments, folder, variables=None, limit=300):
    """What the script prints, with `folder` as its working directory and one thread.

    Raises CommandError, with what it wrote to standard error, if it fails.
    """
    framework_adapter = adapter.load(framework)
    python_environment = environment.ensure(framework_adapter)
    return processes.output(
        [str(python_environment.interpreter), "-c", script, *map(str, arguments)],
        environment={
            **python_environment.variables(framework_adapter, framework_adapter.default_kernel, 1),
            **(variables or {}),
        },
        cwd=folder,
        timeout=limit,
    )
