"""Which frameworks there are, and what each says of itself in its `adapter.toml`.

Discovery is by listing folders: the built-in ones, then those in `XFBENCH_ADAPTERS`.
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
    """Where the framework's interpreter comes from.

    managed: a virtual environment built from `requirements.lock`; debian: packages of a
    Debian release unpacked into a private prefix; own: xfbench's own interpreter. `wheels` is
    a second lock, of wheels whose files a debian prefix gets below `wheels/`; `python` the
    version of its interpreter; `size` what it takes on disk, where people should know before.
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
    """One of the framework's ways to compute, and the variables that select it.

    Where `devices` or `precisions` are given, it has these alone.
    """

    title: str
    variables: dict[str, str] = Field(default_factory=dict)
    devices: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()


class Exclusion(_Table):
    """Cells that the framework cannot do, and why: every field given must match."""

    workload: str = ""
    precision: str = ""
    kernel: str = ""
    device: str = ""
    strategy: str = ""
    options: dict[str, Value] = Field(default_factory=dict)
    reason: str


class Adapter(_Table):
    """What a framework's `adapter.toml` says, and the folder it stands in.

    `mpi` is the folder of an MPICH that its environment brings along; `checkpoint` the format
    of the framework's checkpoints, empty where the adapter saves none; `readers` says by format
    what of the framework's own reads data sets for `--input native`.
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
        """The kernels that `device` has; first the one that is meant where nobody names one."""
        return [
            name
            for name in dict.fromkeys((self.default_kernel, *self.kernels))
            if not self.kernels[name].devices or device in self.kernels[name].devices
        ]

    def strategy(self, name: str) -> Strategy:
        """What it says of one of its strategies; of most there is nothing to say."""
        default_strategy = Strategy(title=name, exchange="halving" if name == "mpi" else "ring")
        return self.together.get(name, default_strategy)

    @property
    def files(self) -> dict[str, bytes]:
        """What it consists of, by its place below the folder that all adapters have in a worker."""
        adapters = [self, *(load(name) for name in self.reuses)]
        return {
            f"{adapter.folder.name}/{name}": content
            for adapter in adapters
            for name, content in digests.files_below(adapter.folder).items()
        }

    @property
    def digest(self) -> str:
        """The digest of its files: what it is, how it is got, the translation."""
        return digests.of_files(self.files)


def find_folders() -> dict[str, Path]:
    """Adapter name to folder; a folder of the user's replaces a built-in one of its name."""
    roots = [paths.package_folder("xfbench.adapters")]
    roots += [Path(root) for root in os.environ.get("XFBENCH_ADAPTERS", "").split(":") if root]
    return {
        file.parent.name: file.parent
        for root in roots
        for file in sorted(root.glob("*/adapter.toml"))
    }


def list_names() -> list[str]:
    """Every adapter's name, in order."""
    return sorted(find_folders())


def load(name: str) -> Adapter:
    """The adapter of that name. Raises UsageError if there is none or its file is wrong."""
    folders_by_name = find_folders()
    if name not in folders_by_name:
        raise errors.unknown_name_error("framework", name, folders_by_name)
    file = folders_by_name[name] / "adapter.toml"
    try:
        return Adapter(**{**toml_files.read(file)[1], "folder": folders_by_name[name]})
    except ValidationError as error:
        first = error.errors()[0]
        field_path = ".".join(str(part) for part in first["loc"])
        raise errors.UsageError(f"{file}: {field_path}: {first['msg']}") from error
