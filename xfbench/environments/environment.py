"""Environments: interpreters that can import a framework.

An environment has one of these kinds:

- "managed": a virtual environment with exactly the packages of the adapter's lock.
- "debian": a private prefix of unpacked Debian packages.
- "own": xfbench's own interpreter.
- "python": an interpreter that the user names.
- "modules": the interpreter that a site's modules provide.

xfbench creates environments of the kinds "managed" and "debian" once, in the cache, for all runs.
While one process creates an environment, others wait. An incomplete environment is never used.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from xfbench.base import atomic_files, digests, locks, paths, processes
from xfbench.base.errors import UnavailableError, XfbenchError
from xfbench.base.process_variables import Purpose, select_variables
from xfbench.base.shared_files import write_file
from xfbench.environments import debian, installer, worker_archive
from xfbench.host import modules, sites
from xfbench.model.adapter import Adapter
from xfbench.model.worker_reply import WRONG, read_reply
from xfbench.worker import observe

_COMPLETE = "environment.json"
_LOCK = "requirements.lock"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Environment:
    """An interpreter with a framework.

    - `kind`: "managed", "debian", "own", "python" or "modules".
    - `prefix`: the folder of the environment; it replaces "{prefix}" in the adapter's variables.
    - `version`: version of the framework.
    - `python`: version of Python.
    - `packages`: version of each installed package, by name.
    - `digest`: digest of the kind, the versions and the packages.
    - `loaded`: environment variables that the site's modules set; empty unless the kind is
      "modules".
    """

    framework: str
    kind: str
    interpreter: Path
    prefix: Path
    version: str
    python: str
    packages: dict[str, str]
    digest: str
    loaded: dict[str, str] = field(default_factory=dict)

    def variables(self, adapter: Adapter, kernel: str, threads: int) -> dict[str, str]:
        """Return all environment variables for a worker that uses `kernel` and `threads` threads.

        - Variables of this process that a worker inherits, for example PATH. An interpreter that
          the user named inherits LD_LIBRARY_PATH too, because its framework may need it.
        - Variables in `loaded`.
        - Variables that the adapter declares, with "{threads}" and "{prefix}" replaced.
        """
        purpose = Purpose.RANK_OF_USER if self.kind == "python" else Purpose.RANK
        chosen = {
            **adapter.environment.variables,
            **adapter.variables,
            **adapter.kernels[kernel].variables,
        }
        if self.kind in ("python", "modules"):  # `adapter.environment` does not describe these
            chosen = {**adapter.variables, **adapter.kernels[kernel].variables}
        return {
            **select_variables(purpose),
            **self.loaded,
            "PYTHONHASHSEED": "0",
            "PYTHONNOUSERSITE": "1",
            **{
                key: value.replace("{threads}", str(threads)).replace("{prefix}", str(self.prefix))
                for key, value in chosen.items()
            },
        }


def determine_kind(adapter: Adapter, python: Path | None = None, site: str | None = None) -> str:
    """Return the kind of environment that a run of the framework would use.

    - `python`: interpreter that the user named; None if none was named.
    - `site`: name or TOML file of a site; None: a site without modules.
    """
    if python:
        return "python"
    return "modules" if _find_site_modules(adapter, site) else adapter.environment.kind


def _find_site_modules(adapter: Adapter, site: str | None) -> tuple[str, ...]:
    return sites.load_site(site).modules.frameworks.get(adapter.name, ())


def find_environment(
    adapter: Adapter, python: Path | None = None, site: str | None = None
) -> Environment | None:
    """Return the framework's environment without creating it.

    - Returns None if the kind is "managed" or "debian" and the environment does not exist.
    - If the kind is "own", "python" or "modules", the interpreter is started to inspect it.

    Raises UnavailableError if the inspection fails, or if a lock is needed and missing.
    """
    if determine_kind(adapter, python, site) in ("own", "python", "modules"):
        return ensure_environment(adapter, python, site=site)
    return _read_environment(_environment_folder(adapter) / _COMPLETE)


def ensure_environment(
    adapter: Adapter,
    python: Path | None = None,
    say: Say = lambda _: None,
    site: str | None = None,
) -> Environment:
    """Return the framework's environment, and create it if it does not exist.

    - `python`: an interpreter to use, so that no environment is created; None if the user named
      none.
    - `say`: receives progress lines.
    - `site`: if this site has modules for the framework, they provide the interpreter.

    Raises UnavailableError if the environment cannot be created, or its packages have changed.
    """
    if python:
        return _inspect_environment(adapter, "python", python, python.parent.parent)
    if names := _find_site_modules(adapter, site):
        of_site = sites.load_site(site).modules
        loaded = modules.load_variables_changed_by_modules(of_site.init, of_site.path, names)
        interpreter = modules.find_interpreter(loaded, of_site.python)
        return _inspect_environment(
            adapter, "modules", interpreter, interpreter.parent.parent, loaded
        )
    if adapter.environment.kind == "own":
        return _inspect_environment(adapter, "own", Path(sys.executable), Path(sys.prefix))
    folder = _environment_folder(adapter)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locks.exclusive(Path(f"{folder}.lock"), f"creates {adapter.name}'s environment", say):
        if there := _read_environment(folder / _COMPLETE):
            return _require_unchanged_package_versions(there)
        shutil.rmtree(folder, ignore_errors=True)
        started = time.monotonic()
        try:
            environment = _install_and_inspect_environment(adapter, folder, say)
        except (XfbenchError, OSError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise UnavailableError(_shorten_to_line(f"{adapter.name}: {error}")) from error
        atomic_files.write(
            folder / _COMPLETE, json.dumps(_environment_document(environment), indent=1).encode()
        )
        say(f"{adapter.name} {environment.version}: ready in {time.monotonic() - started:.0f} s")
        return environment


def remove_all_environments(adapter: Adapter) -> bool:
    """Delete the framework's environments in the cache, and return whether there were any.

    Environments of older locks are deleted too, and the programs that the framework compiled.
    """
    own_name = re.compile(rf"{re.escape(adapter.name)}-[0-9a-f]{{12}}")
    folders = [
        path
        for path in _environments_root().glob(f"{adapter.name}-*")
        if path.is_dir() and own_name.fullmatch(path.name)
    ]
    for folder in folders:
        with locks.exclusive(Path(f"{folder}.lock"), f"creates {adapter.name}'s environment"):
            shutil.rmtree(folder)
    for programs in compiled_programs_folder().glob(f"{adapter.name}-*"):
        if own_name.fullmatch(programs.name):
            shutil.rmtree(programs, ignore_errors=True)
    return bool(folders)


def compiled_programs_folder() -> Path:
    """Return the folder of the programs that frameworks compile and keep."""
    return paths.cache_folder("programs")


def describe_existing_environments() -> list[dict[str, Any]]:
    """Return each environment in the cache as a JSON value, with its size in bytes."""
    documents = []
    for complete in sorted(_environments_root().glob(f"*/{_COMPLETE}")):
        files = (path.lstat() for path in complete.parent.rglob("*") if not path.is_dir())
        if environment := _read_environment(complete):
            documents.append(
                {
                    **_environment_document(environment),
                    "bytes": sum(status.st_size for status in files),
                }
            )
    return documents


def describe_kind_state_and_folder(adapter: Adapter) -> str:
    """Return one line with the kind of the environment, whether it exists, and its folder.

    Raises UnavailableError if a lock is needed and missing.
    """
    if adapter.environment.kind == "own":
        return f"runs in {sys.executable}; nothing to create"
    folder = _environment_folder(adapter)
    state = "exists" if (folder / _COMPLETE).is_file() else "would be created"
    return f"{adapter.environment.kind} environment, {state}: {folder}"


def _environments_root() -> Path:
    return paths.cache_folder("environments")


def _environment_folder(adapter: Adapter) -> Path:
    if not (adapter.folder / _LOCK).is_file():
        raise UnavailableError(
            f"{adapter.folder} has no {_LOCK} with the packages to install: "
            f"add one, or name an interpreter with --python {adapter.name}=PATH"
        )
    content = {
        "kind": adapter.environment.kind,
        "source": adapter.environment.model_dump(mode="json"),
        "lock": digests.of_bytes((adapter.folder / _LOCK).read_bytes()),
        "wheels": _wheels_lock_digest(adapter),
        "machine": platform.machine(),
    }
    name = f"{adapter.name}-{digests.of_json(content)[7:19]}"
    return paths.cache_folder("environments", name)


def _wheels_lock_digest(adapter: Adapter) -> str:
    wheels = adapter.environment.wheels
    return digests.of_bytes((adapter.folder / wheels).read_bytes()) if wheels else ""


def _environment_document(environment: Environment) -> dict[str, Any]:
    return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(environment).items()}


def _read_environment(environment_file: Path) -> Environment | None:
    """Return the environment that `environment_file` describes.

    Returns None if the file is missing or invalid, or if the interpreter cannot be executed.
    """
    try:
        document = json.loads(environment_file.read_text(encoding="utf-8"))
        places = {key: Path(document[key]) for key in ("interpreter", "prefix")}
        environment = Environment(**{**document, **places})
    except (OSError, *WRONG):
        return None
    return environment if os.access(environment.interpreter, os.X_OK) else None


def _require_unchanged_package_versions(environment: Environment) -> Environment:
    """Return `environment` unchanged. Raises UnavailableError if its installed packages differ.

    Only environments of the kind "managed" are checked.
    """
    folders = [str(path) for path in environment.prefix.glob("lib/python3*/site-packages")]
    if environment.kind != "managed" or not folders:
        return environment
    there = observe.installed_packages(folders)
    for name in sorted({*there, *environment.packages}):
        recorded_version, installed_version = environment.packages.get(name), there.get(name)
        if recorded_version != installed_version:
            raise UnavailableError(
                f"{environment.framework}: its environment has changed: {name} was "
                f"{recorded_version or 'missing'} and is now {installed_version or 'missing'}; run "
                f"`xfbench env remove {environment.framework}`, and the next run creates it again"
            )
    return environment


def _install_and_inspect_environment(adapter: Adapter, folder: Path, say: Say) -> Environment:
    source = adapter.environment
    if source.kind == "debian":
        debian.create_prefix(adapter.folder / _LOCK, source.suite, folder, say)
        if source.wheels:
            wheels = adapter.folder / source.wheels
            installer.unpack_wheels(wheels, source.python, folder / "wheels", say)
        return _inspect_environment(adapter, "debian", folder / source.interpreter, folder)
    installer.create_virtual_environment(adapter, folder, adapter.folder / _LOCK, say)
    return _inspect_environment(adapter, "managed", folder / "bin" / "python", folder)


def _inspect_environment(
    adapter: Adapter,
    kind: str,
    interpreter: Path,
    prefix: Path,
    loaded: dict[str, str] | None = None,
) -> Environment:
    """Return the environment of `interpreter`, which is started to import the framework.

    Raises UnavailableError if the import fails.
    """
    draft = Environment(adapter.name, kind, interpreter, prefix, "", "", {}, "", loaded or {})
    with tempfile.TemporaryDirectory(prefix="xfbench-") as scratch:
        folder = Path(scratch)
        job, reply = folder / "job.json", folder / "reply.json"
        job_content = json.dumps({"action": "inspect", "module": adapter.module}).encode()
        write_file(job, job_content)
        archive = worker_archive.ensure_worker_archive(adapter.name, adapter.revision)
        try:
            processes.output(
                [str(interpreter), str(archive), str(job), str(reply)],
                environment=draft.variables(adapter, adapter.default_kernel, 1),
                cwd=folder,
                timeout=300,
            )
            answer = read_reply(reply, digests.of_bytes(job_content))
            if answer["status"] == "ok":
                return complete_draft(answer, draft)
        except (processes.CommandError, OSError, *WRONG) as error:
            raise UnavailableError(_shorten_to_line(f"{interpreter}: {error}")) from error
    raise UnavailableError(f"{interpreter} cannot import {adapter.module}: {answer['reason']}")


def complete_draft(inspect_reply: dict[str, Any], draft: Environment) -> Environment:
    """Return `draft` with its versions, packages and digest filled in.

    `inspect_reply` is the worker's reply to the action "inspect". Raises KeyError if it is invalid.
    """
    inspected_fields = {name: inspect_reply[name] for name in ("version", "python", "packages")}
    if not isinstance(inspected_fields["packages"], dict):
        raise KeyError("packages")
    return replace(
        draft, **inspected_fields, digest=digests.of_json({"kind": draft.kind, **inspected_fields})
    )


def _shorten_to_line(text: str) -> str:
    """Return the text as one line. If it is longer than 400 characters, cut out its middle.

    The end is kept because installers give the reason there.
    """
    words = " ".join(text.split())
    return words if len(words) <= 400 else f"{words[:150]} … {words[-240:]}"
