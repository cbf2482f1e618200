"""The frameworks' adapters, as declared in their `adapter.toml`.

An adapter has the name of its folder. A folder in `XFBENCH_ADAPTERS` replaces a built-in one of the
same name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from xfbench.base import digests, errors, paths, toml_files
from xfbench.model.strategy import Strategy, Value


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EnvironmentSource(_Table):
    """The source of the framework's interpreter.

    managed: a virtual environment built from `requirements.lock`. debian: packages of a
    Debian release, unpacked into a private prefix. own: xfbench's own interpreter. `wheels` is
    a second lock; a debian prefix gets the files of its wheels below `wheels/`. `python` is the
    version of the interpreter. `size` is the space on disk, shown before a large installation.
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
    """A kernel library of the framework, and the variables that select it.

    If `devices` or `precisions` are given, it supports only these.
    """

    title: str
    variables: dict[str, str] = Field(default_factory=dict)
    devices: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()


class Exclusion(_Table):
    """Cells that the framework does not support, and the reason. All given fields must match."""

    workload: str = ""
    precision: str = ""
    kernel: str = ""
    device: str = ""
    strategy: str = ""
    options: dict[str, Value] = Field(default_factory=dict)
    reason: str


class Adapter(_Table):
    """The content of a framework's `adapter.toml`, and the folder of that file.

    `mpi` is the folder of the MPICH that its environment includes. `checkpoint` is the format
    of the framework's checkpoints, empty if the adapter saves none. `readers` names, by data set
    format, the framework's own reader that `--input native` uses.
    """

    folder: Path
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
    readers: dict[str, str] = Field(default_factory=dict)
    variables: dict[str, str] = Field(default_factory=dict)
    unsupported: tuple[Exclusion, ...] = ()

    def kernels_on(self, device: str) -> list[str]:
        """Return the kernel libraries available on `device`, the default first."""
        return [
            name
            for name in dict.fromkeys((self.default_kernel, *self.kernels))
            if not self.kernels[name].devices or device in self.kernels[name].devices
        ]

    def strategy_or_default(self, name: str) -> Strategy:
        """Return the strategy of that name; one that the adapter does not describe has defaults."""
        default_strategy = Strategy(title=name, exchange="halving" if name == "mpi" else "ring")
        return self.together.get(name, default_strategy)

    @property
    def files(self) -> dict[str, bytes]:
        """Return the content of the adapter's files by path relative to the adapters folder."""
        adapters = [self, *(load(name) for name in self.reuses)]
        return {
            f"{adapter.folder.name}/{name}": content
            for adapter in adapters
            for name, content in digests.read_files_below(adapter.folder).items()
        }

    @property
    def digest(self) -> str:
        """Return the digest of its files: declaration, lock and code."""
        return digests.of_files(self.files)


def find_folders() -> dict[str, Path]:
    """Return each adapter's folder by name; the user's replaces a built-in of the same name."""
    roots = [paths.package_folder("xfbench.adapters")]
    roots += [Path(root) for root in os.environ.get("XFBENCH_ADAPTERS", "").split(":") if root]
    return {
        file.parent.name: file.parent
        for root in roots
        for file in sorted(root.glob("*/adapter.toml"))
    }


def list_names() -> list[str]:
    """Return the sorted names of all adapters."""
    return sorted(find_folders())


def load(name: str) -> Adapter:
    """Load the adapter of that name. Raises UsageError if it is missing or its file is invalid."""
    folders_by_name = find_folders()
    if name not in folders_by_name:
        raise errors.unknown_name_error("framework", name, folders_by_name)
    file = folders_by_name[name] / "adapter.toml"
    try:
        return Adapter(
            **{**toml_files.read_text_and_content(file)[1], "folder": folders_by_name[name]}
        )
    except ValidationError as error:
        first = error.errors()[0]
        field_path = ".".join(str(part) for part in first["loc"])
        raise errors.UsageError(f"{file}: {field_path}: {first['msg']}") from error
