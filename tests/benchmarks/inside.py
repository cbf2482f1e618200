"""A benchmark's script run inside a framework's own interpreter, beside our worker's archive."""

import json
import tempfile
from pathlib import Path

from xfbench import adapter, command, environment, worker_archive


def answer(script: str, framework: str, threads: int, *words: object, kernel: str = "") -> dict:
    """The JSON document that the script's last line is.

    Its arguments are the worker's archive, the framework, the kernel (its default), and `words`.
    """
    described = adapter.load(framework)
    found, kernel = environment.ensure(described), kernel or described.default_kernel
    path, archive = Path(__file__).with_name(script), worker_archive.worker_archive(framework)
    with tempfile.TemporaryDirectory() as scratch:
        printed = command.output(
            [str(word) for word in (found.interpreter, path, archive, framework, kernel, *words)],
            environment=found.variables(described, kernel, threads),
            cwd=Path(scratch),
            timeout=3600,
        )
    return json.loads(printed.splitlines()[-1])
