"""Site configuration: one TOML file per site. The user's files have precedence.

A site's file defines how ranks are started, the queues, modules and cores, and the options that the
scheduler forbids. `unverified` lists what could not be checked.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from xfbench.base import errors, paths, toml_files


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Queue(_Table):
    """A queue's limits.

    `cores` and `reserved_cores` describe the queue's nodes if they differ from the site's.
    """

    max_nodes: int | None = Field(default=None, ge=1)
    max_minutes: int | None = Field(default=None, ge=1)
    cores: int | None = Field(default=None, ge=1)
    reserved_cores: int | None = Field(default=None, ge=0)
    note: str = ""


class Modules(_Table):
    """How modules are loaded, and which modules provide each framework.

    - `init`: the module system's start-up file for bash.
    - `path`: additional folders with modules.
    - `frameworks`: the modules of each framework.
    - `python`: the name of the interpreter.
    """

    init: str = "/usr/share/lmod/lmod/init/bash"
    path: tuple[str, ...] = ()
    frameworks: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    python: str = "python3"


class Site(_Table):
    """One site. "{ranks}", "{nodes}", "{per_node}" and "{threads}" are replaced by numbers.

    - `start`: a start command that replaces mpirun and its options.
    - `start_options`: options added to the start command.
    - `script_options`: options added to the job script.
    - `forbidden`: options that `start_options` and `script_options` must not contain.
    - `cores`: a node's number of cores.
    - `reserved_cores`: how many of a node's cores are reserved for the system.
    - `variables`: variables set in every rank.
    - `mpi_plugin`: srun's plugin for strategy mpi.
    - `mpi_library`: the ranks' MPI library for strategy mpi, if it is not xfbench's own MPICH.
    """

    title: str
    extends: str = ""
    launcher: Literal["local", "mpi", "slurm", "lsf"] = "local"
    start: tuple[str, ...] = ()
    start_options: tuple[str, ...] = ()
    script_options: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    interface: str = ""
    cores: int | None = Field(default=None, ge=1)
    reserved_cores: int = Field(default=0, ge=0)
    queue: str = ""
    account: str = ""
    queues: dict[str, Queue] = Field(default_factory=dict)
    modules: Modules = Modules()
    variables: dict[str, str] = Field(default_factory=dict)
    mpi_plugin: str = "pmi2"
    mpi_library: str = ""
    file_systems: dict[str, str] = Field(default_factory=dict)
    memory_modes: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    unverified: tuple[str, ...] = ()

    def cores_for_ranks(self, queue: str | None, default_cores: int) -> int:
        """Return how many cores of a node in this queue ranks may use.

        `queue` None: the site's default queue. `otherwise` is a node's number of cores if neither
        the queue nor the site defines that number.
        """
        there = self.queues.get(queue or self.queue, Queue())
        reserved = self.reserved_cores if there.reserved_cores is None else there.reserved_cores
        return max(0, (there.cores or self.cores or default_cores) - reserved)


def user_sites_folder() -> Path:
    """Return the folder of the user's site files."""
    return platformdirs.user_config_path("xfbench") / "sites"


def site_files() -> dict[str, Path]:
    """Return the file of each site. A user's site replaces a built-in site of the same name."""
    built_in = paths.package_folder("xfbench.launchers.sites")
    files = [
        file for root in (built_in, user_sites_folder()) for file in sorted(root.glob("*.toml"))
    ]
    return {file.stem: file for file in files}


def list_site_names() -> list[str]:
    """Return the sorted names of all sites."""
    return sorted(site_files())


@cache
def load_site(name_or_file: str | None) -> Site:
    """Load the site with this name or TOML file. Raises UsageError.

    `name` None: a site with default values.
    """
    if not name_or_file:
        return Site(title="this machine")
    file = Path(name_or_file) if name_or_file.endswith(".toml") else site_files().get(name_or_file)
    if file is None:
        raise errors.unknown_name_error("site", name_or_file, list_site_names())
    return _read_site(file, ())


def _read_site(file: Path, children: tuple[Path, ...]) -> Site:
    text, content = toml_files.read_text_and_content(file)
    base: dict[str, Any] = {}
    if extends := content.get("extends"):
        parent = site_files().get(str(extends))
        if parent == file:  # a user's file may extend the built-in site of the same name
            parent = paths.package_folder("xfbench.launchers.sites") / file.name
        if parent is None or parent in children or not parent.is_file():
            raise errors.UsageError(
                f"{_format_location(file, text, 'extends')}: no such site: {extends}"
            )
        base = _read_site(parent, (*children, file)).model_dump(exclude_unset=True)
    try:
        site = Site.model_validate(_merge_tables(base, content))
    except ValidationError as error:
        first_error = error.errors()[0]
        key = str(
            next((part for part in reversed(first_error["loc"]) if isinstance(part, str)), "")
        )
        message = first_error["msg"]
        if first_error["type"] == "extra_forbidden":
            message = str(errors.unknown_name_error("key", key, _known_keys(first_error["loc"])))
        raise errors.UsageError(f"{_format_location(file, text, key)}: {message}") from error
    for option in (*site.start_options, *site.script_options):
        if any(option == word or option.startswith(f"{word}=") for word in site.forbidden):
            raise errors.UsageError(
                f"{_format_location(file, text, option)}: {option} is not allowed there: remove it"
            )
    return site


def _merge_tables(base: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """Merge, table by table, `content` over `base`: a site's settings over those it extends."""
    merged = dict(base)
    for key, value in content.items():
        old_value = merged.get(key)
        if isinstance(value, dict) and isinstance(old_value, dict):
            merged[key] = _merge_tables(old_value, value)
        else:
            merged[key] = value
    return merged


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    tables: dict[str, type[_Table]] = {"queues": Queue, "modules": Modules}
    model = tables.get(str(location[0]) if len(location) > 1 else "", Site)
    return sorted(model.model_fields)


def _format_location(file: Path, text: str, word: str) -> str:
    """Format the file and the number of the line where `word` first occurs as a key or value."""
    pattern = re.compile(rf"""(^|[\s."'\[]){re.escape(word)}($|[\s."'=\]])""")
    number = next(
        (
            line_number
            for line_number, line in enumerate(text.splitlines(), 1)
            if pattern.search(line)
        ),
        None,
    )
    return f"{file}, line {number}" if number else str(file)
