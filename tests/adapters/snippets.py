"""Run a few lines of Python in a framework's interpreter, with the adapters on its path."""

from xfbench.base import processes
from xfbench.environments import environment, worker_archive
from xfbench.model import adapter


def run_snippet(framework, code, folder, **variables):
    """Run `code` in the framework's interpreter and return the words of its last line."""
    framework_adapter = adapter.load(framework)
    framework_environment = environment.ensure_environment(framework_adapter)
    kernel = framework_adapter.default_kernel
    all_variables = {
        **framework_environment.variables(framework_adapter, kernel, 1),
        "PYTHONPATH": str(worker_archive.ensure_worker_archive(framework)),
        **variables,
    }
    all_variables.pop("CUDA_VISIBLE_DEVICES", None)
    command = [str(framework_environment.interpreter), "-c", code]
    output = processes.output(command, environment=all_variables, cwd=folder, timeout=300)
    return output.splitlines()[-1].split()
