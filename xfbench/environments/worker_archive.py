"""The worker's code as one zip file, which the interpreter of a framework runs.

The archive is built once for each digest of its content, and cached. Its bytes depend only on the
files in it. Every record has the digest of the code that measured it.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO

from xfbench.base import atomic_files, digests, paths, revisions
from xfbench.model import adapter

_MAIN = """import pathlib, sys
from xfbench.worker.__main__ import main
sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
"""


def worker_digest(framework: str, revision: str | None = None) -> str:
    """Return the digest of all files in the worker's archive for `framework`.

    - `revision`: the commit of the worker and the adapter; None: those of the running xfbench.
    """
    return digests.of_files(_collect_contents(framework, revision))


def ensure_worker_archive(framework: str, revision: str | None = None) -> Path:
    """Return the path of the worker's archive for `framework`, built if it is not in the cache.

    - `revision`: the commit of the worker and the adapter; None: those of the running xfbench.

    Raises UsageError if the framework's adapter is missing or invalid.
    """
    contents = _collect_contents(framework, revision)
    target = paths.cache_folder("workers") / f"{digests.of_files(contents)[7:23]}.pyz"
    paths.require_private(target, "remove it")
    if not target.exists():
        atomic_files.write(target, lambda file: _write_archive(contents, file))
    return target


def _write_archive(contents: dict[str, bytes], file: IO[bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)


def read_worker_files(revision: str | None = None) -> dict[str, bytes]:
    """Return the files of the worker package by name, without those of an adapter.

    - `revision`: the commit of the worker; None: the worker of the running xfbench.
    """
    return digests.read_files_below(_find_package_folders(revision)["xfbench/worker"])


def _find_package_folders(revision: str | None) -> dict[str, Path]:
    """Return the folders of the packages in the archive, by their names in the archive."""
    if revision:
        code = revisions.ensure_code(revision)
        return {"xfbench/worker": code / "xfbench/worker", "xfbench/workloads": code / "workloads"}
    return {
        "xfbench/worker": paths.package_folder("xfbench") / "worker",
        "xfbench/workloads": paths.package_folder("xfbench.workloads"),
    }


def _collect_contents(framework: str, revision: str | None) -> dict[str, bytes]:
    folders = _find_package_folders(revision)
    files = adapter.load(framework, revision).files
    contents = {
        "__main__.py": _MAIN.encode(),
        "xfbench/__init__.py": (folders["xfbench/worker"].parent / "__init__.py").read_bytes(),
        "xfbench/adapters/__init__.py": b"",
        "threadpoolctl.py": _read_module_code("threadpoolctl"),
        **{f"xfbench/adapters/{name}": content for name, content in files.items()},
    }
    for name in files:  # a folder in an archive is no package without this file
        contents.setdefault(f"xfbench/adapters/{PurePosixPath(name).parent}/__init__.py", b"")
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
