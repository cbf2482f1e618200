"""Site configuration: one TOML file per site. The user's files have precedence.

A site's file defines how ranks are started. It also defines the queues, the modules, the cores of a
node, and the options that the scheduler forbids.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from xfbench.base import errors, paths, toml_files

# Absolute paths of site files that are not in `site_files`. See `register_file`.
_file_by_name: dict[str, Path] = {}


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Queue(_Table):
    """A queue's limits.

    - `max_nodes`: the maximum number of nodes of a job. None: no limit.
    - `max_minutes`: the maximum duration of a job in minutes. None: no limit.
    - `cores`, `reserved_cores`: as in `Site`, for the queue's nodes. None: the site's values.
    - `note`: a remark for readers of the file.
    """

    max_nodes: int | None = Field(default=None, ge=1)
    max_minutes: int | None = Field(default=None, ge=1)
    cores: int | None = Field(default=None, ge=1)
    reserved_cores: int | None = Field(default=None, ge=0)
    note: str = ""


class Modules(_Table):
    """A site's module system, and the modules that provide each framework.

    - `init`: the module system's start-up file for bash.
    - `path`: additional folders with modules.
    - `frameworks`: for each framework, the modules to load, in order.
    - `python`: the name of the interpreter that the modules provide.
    """

    init: str = "/usr/share/lmod/lmod/init/bash"
    path: tuple[str, ...] = ()
    frameworks: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    python: str = "python3"


class Site(_Table):
    """The configuration of one site.

    - `title`: the name for people; default: the name of the file.
    - `extends`: the name of a site whose values this site inherits.
    - `launcher`: the default launcher.
    - `start`: a start command that replaces srun or mpirun and their options. "{ranks}", "{nodes}",
      "{per_node}" and "{threads}" in it are replaced by numbers.
    - `start_options`: options added to the start command.
    - `script_options`: options added to the job script.
    - `forbidden`: options that the other lists of options must not contain.
    - `hosts`: the hosts on which the launcher mpi starts ranks. Empty: mpirun chooses the hosts.
    - `interface`: the network interface of the ranks. "": the ranks use the address of the host
      name, or else the address of any interface.
    - `cores`: a node's number of cores.
    - `reserved_cores`: how many of a node's cores are reserved for the system.
    - `gpu_options`: options added to the job script if the ranks train on GPUs. They may contain
      the placeholders of `start`. The default is left out if it is forbidden, or if
      `script_options` ask for GPUs.
    - `gpus`: a node's number of GPUs. None: unknown, except on this machine.
    - `share_gpus`: whether ranks of a node may train on the same GPU.
    - `queue`, `account`: the default queue and account.
    - `variables`: environment variables set in every rank.
    - `mpi_plugin`: srun's MPI plugin (`--mpi`) for the strategy mpi.
    - `mpi_library`: the file of the ranks' MPI library for the strategy mpi. "": xfbench finds it.
    - `file_systems`, `memory_modes`: facts for readers of the file.
    - `unverified`: which of the site's values could not be checked.
    """

    title: str = ""
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
    # Not --gpus-per-task: it hides the other ranks' GPUs, so that NCCL cannot copy directly.
    gpu_options: tuple[str, ...] = ("--gpus-per-node={per_node}",)
    gpus: int | None = Field(default=None, ge=1)
    share_gpus: bool = False
    queue: str = ""
    account: str = ""
    queues: dict[str, Queue] = Field(default_factory=dict)
    modules: Modules = Modules()
    variables: dict[Annotated[str, Field(pattern=r"^[^=\s]+$")], str] = Field(default_factory=dict)
    mpi_plugin: str = "pmi2"
    mpi_library: str = ""
    file_systems: dict[str, str] = Field(default_factory=dict)
    memory_modes: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    unverified: tuple[str, ...] = ()

    def check_queue(self, queue: str) -> None:
        """Raise UsageError if the site lists its queues, and `queue` is not one of them."""
        if self.queues and queue and queue not in self.queues:
            raise errors.unknown_name_error("partition", queue, self.queues)

    def gpu_options_for(self, device: str) -> tuple[str, ...]:
        """Return the options of sbatch and salloc that ask for the GPUs of ranks on `device`."""
        is_default = "gpu_options" not in self.model_fields_set
        if device != "cuda" or (is_default and any(map(_asks_for_gpus, self.script_options))):
            return ()
        return tuple(option for option in self.gpu_options if not self.forbids(option))

    def forbids(self, option: str) -> bool:
        """Return whether the site forbids the option, alone or with "=" and a value."""
        return any(option == word or option.startswith(f"{word}=") for word in self.forbidden)

    def cores_for_ranks(self, queue: str | None, default_cores: int) -> int:
        """Return how many cores of a node ranks may use.

        - `queue`: the queue of the node. None: the site's default queue.
        - `default_cores`: a node's number of cores, used if neither the queue nor the site defines
          this number.
        """
        there = self.queues.get(queue or self.queue, Queue())
        cores = there.cores or self.cores or default_cores
        return max(0, cores - self.reserved_cores_in(queue))

    def reserved_cores_in(self, queue: str | None) -> int:
        """Return how many cores of a node are reserved for the system.

        `queue`: the queue of the node. None: the site's default queue.
        """
        there = self.queues.get(queue or self.queue, Queue())
        return self.reserved_cores if there.reserved_cores is None else there.reserved_cores

    def reserved_cores_here(self) -> int:
        """Return `reserved_cores_in` the queue of the Slurm job that this process runs in.

        Outside of a job, the site's default queue counts.
        """
        return self.reserved_cores_in(os.environ.get("SLURM_JOB_PARTITION"))


def user_sites_folder() -> Path:
    """Return the folder of the user's site files."""
    return paths.user_config() / "sites"


def site_files() -> dict[str, Path]:
    """Return the file of each site, by site name.

    A user's file replaces the file of a built-in site with the same name.
    """
    built_in = paths.package_folder("xfbench.launchers.sites")
    files = [
        file for root in (built_in, user_sites_folder()) for file in sorted(root.glob("*.toml"))
    ]
    return {file.stem: file for file in files}


def list_site_names() -> list[str]:
    """Return the sorted names of all built-in sites and user's sites."""
    return sorted(site_files())


@cache
def load_site(name_or_file: str | None) -> Site:
    """Load a site. Raises UsageError if there is no such site or its file is invalid.

    `name_or_file`: the name of a site, or a path that ends in ".toml", or what `register_file`
    returned for such a path. None: a site with default values.
    """
    if not name_or_file:
        return Site(title="this machine")
    file = (
        _file_by_name.get(name_or_file, Path(name_or_file))
        if name_or_file.endswith(".toml")
        else site_files().get(name_or_file)
    )
    if file is None:
        raise errors.unknown_name_error("site", name_or_file, list_site_names())
    return _read_site(file, ())


def absolute_file(name_or_file: str | None) -> Path | None:
    """Return the absolute path of a site that is given as a file; None if it is not.

    A relative path would be another file in a batch job, which runs in another folder.
    """
    is_file = name_or_file and name_or_file.endswith(".toml")
    return Path(name_or_file).absolute() if name_or_file and is_file else None


def register_file(name_or_file: str | None) -> str | None:
    """Return the name of a site, or the name of its file without the folder.

    Records contain this name, because the path of a file may name a user. From now on, this process
    finds the file by this name.
    """
    file = absolute_file(name_or_file)
    if file is None:
        return name_or_file
    if _file_by_name.get(file.name) != file:
        _file_by_name[file.name] = file
        load_site.cache_clear()
    return file.name


def _read_site(file: Path, children: tuple[Path, ...]) -> Site:
    text, content = toml_files.read_text_and_content(file)
    if not content:
        raise errors.UsageError(f"{file}: it has no key of a site")
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
    named_content = {"title": file.stem, **_merge_tables(base, content)}
    site = toml_files.validate(Site, named_content, file, text)
    gpu_options = site.gpu_options if "gpu_options" in site.model_fields_set else ()
    for option in (*site.start_options, *site.script_options, *gpu_options):
        if site.forbids(option):
            raise errors.UsageError(
                f"{_format_location(file, text, option)}: {option} is forbidden at this site: "
                "remove it"
            )
    return site


def _asks_for_gpus(option: str) -> bool:
    return option.startswith(("--gpus", "--gres=gpu", "-G"))


def _merge_tables(base: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `content`. Tables are merged, other values are replaced."""
    merged = dict(base)
    for key, value in content.items():
        old_value = merged.get(key)
        if isinstance(value, dict) and isinstance(old_value, dict):
            merged[key] = _merge_tables(old_value, value)
        else:
            merged[key] = value
    return merged


def _format_location(file: Path, text: str, word: str) -> str:
    """Return the file's path and the number of the line where `word` first is a key or value.

    If no line has `word`, return the path alone.
    """
    number = toml_files.find_line_of_word(text, word)
    return f"{file}, line {number}" if number else str(file)
