"""A benchmark's script run inside a framework's own interpreter, beside our worker's archive."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from xfbench.base import processes
from xfbench.environments import environment, worker_archive
from xfbench.execution import job
from xfbench.model import adapter
from xfbench.model.request import Request


def run_script(
    script: str,
    framework: str,
    threads: int,
    *words: object,
    kernel: str = "",
    ranks: int = 1,
    strategy: str = "none",
    allocator: str | None = None,
) -> dict:
    """The JSON document that is the last line of the script, or of its first rank.

    Its arguments are the worker's archive, the framework, the kernel (its default), and `words`.
    """
    framework_adapter = adapter.load(framework)
    python_environment, kernel = (
        environment.ensure_environment(framework_adapter),
        kernel or framework_adapter.default_kernel,
    )
    request = Request(
        framework=framework,
        environment=python_environment.kind,
        workload="lenet",
        kernel=kernel,
        threads=threads,
        ranks=ranks,
        strategy=strategy,
        allocator=allocator,
        global_batch_size=ranks,
        batch_size_per_rank=1,
        data="synthetic",
        steps=1,
        launch=1,
    )
    archive = worker_archive.ensure_worker_archive(framework)
    words = (Path(__file__).with_name(script), archive, framework, kernel, *words)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "worker.pyz").symlink_to(archive)
        launch_start, helpers = job.build_start_and_helpers(
            request, framework_adapter, python_environment, folder
        )
        # Instead of the worker with its request and its reply.
        rank_commands = [
            replace(command, argv=(*command.argv[:-3], *map(str, words)))
            for command in launch_start.commands
        ]
        count = len(rank_commands) + len(helpers)
        outcome = processes.run(
            rank_commands,
            helpers=helpers,
            stdout=[folder / f"stdout.{number}" for number in range(count)],
            stderr=[folder / f"stderr.{number}" for number in range(count)],
            time_limit=3600,
        )
        if outcome.status or outcome.timed_out:
            stderr_tail = (folder / f"stderr.{outcome.rank}").read_text(errors="replace")
            raise RuntimeError(f"{script} in {framework}: {outcome}: {stderr_tail[-2000:]}")
        return json.loads((folder / "stdout.0").read_text().splitlines()[-1])
