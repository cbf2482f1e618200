"""A benchmark's script run inside a framework's own interpreter, beside our worker's archive."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from xfbench import adapter
from xfbench.base import processes
from xfbench.environments import environment
from xfbench.request import Request
from xfbench.running import job, worker_archive


def answer(
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
    described = adapter.load(framework)
    found, kernel = environment.ensure(described), kernel or described.default_kernel
    request = Request(
        framework=framework,
        environment=found.kind,
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
    archive = worker_archive.worker_archive(framework)
    words = (Path(__file__).with_name(script), archive, framework, kernel, *words)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "worker.pyz").symlink_to(archive)
        start, helpers = job.build_commands(request, described, found, folder)
        # Instead of the worker with its request and its reply.
        ranks_do = [replace(one, argv=(*one.argv[:-3], *map(str, words))) for one in start.commands]
        count = len(ranks_do) + len(helpers)
        outcome = processes.run(
            ranks_do,
            helpers=helpers,
            stdout=[folder / f"stdout.{number}" for number in range(count)],
            stderr=[folder / f"stderr.{number}" for number in range(count)],
            time_limit=3600,
        )
        if outcome.status or outcome.timed_out:
            said = (folder / f"stderr.{outcome.rank}").read_text(errors="replace")
            raise RuntimeError(f"{script} in {framework}: {outcome}: {said[-2000:]}")
        return json.loads((folder / "stdout.0").read_text().splitlines()[-1])
