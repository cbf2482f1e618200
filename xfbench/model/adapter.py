"""The frameworks' adapters, as their `adapter.toml` files declare them.

The name of an adapter is the name of its folder. The environment variable `XFBENCH_ADAPTERS` lists
folders with more adapters, separated by colons. These adapters replace built-in adapters of the
same name. For another git revision of xfbench, the built-in adapters are those of the revision.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from xfbench.base import digests, errors, paths, revisions, toml_files
from xfbench.model.strategy import Strategy, Value


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EnvironmentSource(_Table):
    """The source of the framework's interpreter.

    - `kind`: "managed" is a virtual environment built from `requirements.lock`. "debian" is
      packages of a Debian release in a private prefix. "own" is xfbench's own interpreter.
    - `python`: version of the interpreter.
    - `suite`: code name of the Debian release.
    - `interpreter`: path of the interpreter in the Debian prefix.
    - `wheels`: name of a second lock, whose wheels are unpacked into `wheels/` of the Debian
      prefix.
    - `size`: space on disk, shown before a large installation.
    - `fallback`: options for the second attempt, if the installation fails.
    - `variables`: environment variables of the worker.
    """

    kind: Literal["managed", "debian", "own"]
    python: str = ""
    suite: str = ""
    interpreter: str = ""
    wheels: str = ""
    size: str = ""
    fallback: tuple[str, ...] = ()
    variables: dict[str, str] = Field(default_factory=dict)


class Kernel(_Table):
    """A kernel library of the framework.

    - `variables`: environment variables that select the library.
    - `devices`, `precisions`: what the library supports; empty: all that the adapter supports.
    """

    title: str
    variables: dict[str, str] = Field(default_factory=dict)
    devices: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()


class Exclusion(_Table):
    """Cells that the framework does not support, and the reason.

    A cell is excluded if it has the value of every non-empty field, and all `options`.
    """

    workload: str = ""
    precision: str = ""
    kernel: str = ""
    device: str = ""
    strategy: str = ""
    options: dict[str, Value] = Field(default_factory=dict)
    reason: str


class AdapterFile(_Table):
    """The content of a framework's `adapter.toml`.

    - `module`: the Python module of the framework.
    - `together`: descriptions of strategies, by name. A strategy without description has defaults.
    - `reuses`: names of adapters whose code this adapter uses.
    - `mpi`: the folder that contains MPICH; empty: no MPICH. "{prefix}" in the name stands for the
      environment's folder.
    - `checkpoint`: format of the framework's checkpoints; empty: the adapter saves no checkpoints.
    - `keeps_programs`: devices on which later processes load the programs that earlier ones
      compiled. The adapter's `train.py` then has the function `keep_programs`.
    - `readers`: the framework's own readers for `--loader native`, by format of the data set.
    - `unsupported`: cells that the framework does not support.
    """

    name: str
    title: str
    module: str
    devices: tuple[str, ...]
    precisions: tuple[str, ...]
    strategies: tuple[str, ...]
    default_kernel: str
    environment: EnvironmentSource
    kernels: dict[str, Kernel]
    together: dict[str, Strategy] = Field(default_factory=dict)
    reuses: tuple[str, ...] = ()
    mpi: str = ""
    checkpoint: str = ""
    keeps_programs: tuple[str, ...] = ()
    readers: dict[str, str] = Field(default_factory=dict)
    variables: dict[str, str] = Field(default_factory=dict)
    unsupported: tuple[Exclusion, ...] = ()


class Adapter(AdapterFile):
    """An adapter: what its file says, and where it comes from.

    - `folder`: the folder that contains `adapter.toml`.
    - `revision`: the commit of xfbench to which the adapter belongs; None: the running xfbench.
    """

    folder: Path
    revision: str | None = None

    def kernels_on(self, device: str) -> list[str]:
        """Return the kernel libraries that support `device`. The default one is first."""
        return [
            name
            for name in dict.fromkeys((self.default_kernel, *self.kernels))
            if not self.kernels[name].devices or device in self.kernels[name].devices
        ]

    def choose_kernels(self, names: Iterable[str], device: str) -> list[str]:
        """Return the kernel libraries that `names` stand for, each once.

        "default" stands for the default library for `device`, and "all" for each that supports it.
        Names that the framework does not have are left out, unless it has none of them.
        """
        on_device = self.kernels_on(device) or [self.default_kernel]
        special = {"default": on_device[:1], "all": on_device}
        kernels = dict.fromkeys(kernel for name in names for kernel in special.get(name, [name]))
        return [kernel for kernel in kernels if kernel in self.kernels] or list(kernels)

    def find_or_build_strategy(self, name: str) -> Strategy:
        """Return the strategy with this name.

        If the adapter does not describe the strategy, return one with default fields.
        """
        default_strategy = Strategy(title=name, exchange="halving" if name == "mpi" else "ring")
        return self.together.get(name, default_strategy)

    @property
    def files(self) -> dict[str, bytes]:
        """The content of this adapter's files, and of the files of the adapters that it reuses.

        The keys are paths relative to the folder that contains the adapters.
        """
        adapters = [self, *(load(name, self.revision) for name in self.reuses)]
        return {
            f"{adapter.folder.name}/{name}": content
            for adapter in adapters
            for name, content in digests.read_files_below(adapter.folder).items()
        }

    @property
    def digest(self) -> str:
        """The digest of `files`: declaration, lock and code."""
        return digests.of_files(self.files)


def find_folders(revision: str | None = None) -> dict[str, Path]:
    """Return the folder of each adapter, by name.

    A user's adapter replaces a built-in one of the same name. `revision` is the full hash of the
    commit whose built-in adapters are used; None: those of the running xfbench.
    """
    roots = [
        revisions.ensure_code(revision) / "adapters"
        if revision
        else paths.package_folder("xfbench.adapters")
    ]
    roots += [Path(root) for root in os.environ.get("XFBENCH_ADAPTERS", "").split(":") if root]
    return {
        file.parent.name: file.parent
        for root in roots
        for file in sorted(root.glob("*/adapter.toml"))
    }


def list_names() -> list[str]:
    """Return the sorted names of all adapters."""
    return sorted(find_folders())


def load(name: str, revision: str | None = None) -> Adapter:
    """Load the adapter `name`, or that of the commit `revision`.

    Raises UsageError if it does not exist or its file is invalid.
    """
    folders_by_name = find_folders(revision)
    if name not in folders_by_name:
        kind = f"framework of revision {revisions.shorten(revision)}" if revision else "framework"
        raise errors.unknown_name_error(kind, name, folders_by_name)
    file = folders_by_name[name] / "adapter.toml"
    text, content = toml_files.read_text_and_content(file)
    description = toml_files.validate(AdapterFile, content, file, text)
    fields = {name: getattr(description, name) for name in AdapterFile.model_fields}
    return Adapter(**fields, folder=folders_by_name[name], revision=revision)
