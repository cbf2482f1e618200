"""The worker's code as one zip file, which the interpreter of a framework runs.

The archive is built once for each digest of its content, and cached. Its bytes depend only on the
files in it. Every record has the digest of the code that measured it.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import IO

from xfbench.base import atomic_files, digests, paths
from xfbench.model import adapter

_MAIN = """import pathlib, sys
from xfbench.worker.__main__ import main
sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
"""


def worker_digest(framework: str) -> str:
    """Return the digest of all files in the worker's archive for `framework`."""
    return digests.of_files(_collect_contents(framework))


def ensure_worker_archive(framework: str) -> Path:
    """Return the path of the worker's archive for `framework`, built if it is not in the cache.

    Raises UsageError if the framework's adapter is missing or invalid.
    """
    contents = _collect_contents(framework)
    target = paths.cache() / "workers" / f"{digests.of_files(contents)[7:23]}.pyz"
    if not target.exists():
        atomic_files.write(target, lambda file: _write_archive(contents, file))
    return target


def _write_archive(contents: dict[str, bytes], file: IO[bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)


def _collect_contents(framework: str) -> dict[str, bytes]:
    package, files = paths.package_folder("xfbench"), adapter.load(framework).files
    contents = {
        "__main__.py": _MAIN.encode(),
        "xfbench/__init__.py": (package / "__init__.py").read_bytes(),
        "xfbench/adapters/__init__.py": b"",
        "threadpoolctl.py": _read_module_code("threadpoolctl"),
        **{f"xfbench/adapters/{name}": content for name, content in files.items()},
    }
    folders = {
        "xfbench/worker": package / "worker",
        "xfbench/workloads": paths.package_folder("xfbench.workloads"),
    }
    for prefix, folder in folders.items():
        for name, content in digests.read_files_below(folder).items():
            contents[f"{prefix}/{name}"] = content
    return contents


def _read_module_code(name: str) -> bytes:
    """Return the source code of the importable module `name`, which must be a single file.

    The archive includes this code, so the framework's environment does not need the module.
    """
    module_spec = importlib.util.find_spec(name)
    assert module_spec is not None and module_spec.origin is not None
    return Path(module_spec.origin).read_bytes()
