"""Memory allocators that replace the C library's allocator through LD_PRELOAD.

If a framework frees memory after every layer, the C library returns the memory to the system. Each
layer must then page it in again. These allocators can keep it.

The builds come from Debian packages, so they are the same on every machine. They are unpacked into
the cache once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from xfbench.base import digests, locks, paths
from xfbench.base.errors import UnavailableError, XfbenchError
from xfbench.base.terminal_text import say
from xfbench.environments import debian

SYSTEM = "system"
"""The name of the C library's allocator."""

_LOCK = Path(__file__).with_name("allocators.lock")
_SUITE = "bullseye"  # the builds of this Debian release need only glibc 2.29, from 2019


@dataclass(frozen=True)
class _Build:
    """The build of one allocator.

    - `library`: name of the library file.
    - `variables`: environment variables that configure the library.
    """

    library: str
    variables: dict[str, str] = field(default_factory=dict)


_BUILDS = {
    # Return no freed memory to the system, because frameworks reuse the memory in the next step.
    "jemalloc": _Build(
        "libjemalloc.so.2",
        {"MALLOC_CONF": "oversize_threshold:1,dirty_decay_ms:-1,muzzy_decay_ms:-1"},
    ),
    "tcmalloc": _Build("libtcmalloc_minimal.so.4"),
}
NAMES = (SYSTEM, *_BUILDS)


def ensure_library(name: str, tell: Callable[[str], None] = say) -> Path:
    """Return the path of the library of allocator `name`, downloaded if it is not in the cache.

    `tell` receives progress lines. Raises UnavailableError if the download fails.
    """
    library = _library_path(name)
    if library.is_file():
        return library
    prefix = _prefix_folder()
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with locks.exclusive(Path(f"{prefix}.lock"), "downloads the allocators", tell):
        if not library.is_file():
            partial_prefix = prefix.with_suffix(".part")
            shutil.rmtree(partial_prefix, ignore_errors=True)
            try:
                debian.create_prefix(
                    _LOCK, _SUITE, partial_prefix, lambda words: tell(f"{name}: {words}")
                )
                shutil.rmtree(prefix, ignore_errors=True)
                partial_prefix.replace(prefix)
            except (XfbenchError, OSError) as error:
                shutil.rmtree(partial_prefix, ignore_errors=True)
                raise UnavailableError(str(error)) from error
    return library


def is_downloaded(name: str) -> bool:
    """Return whether the library of allocator `name` is in the cache."""
    return _library_path(name).is_file()


def ensure_library_preload_variables(name: str | None, ld_preload: str = "") -> dict[str, str]:
    """Return the environment variables that load allocator `name`, downloaded if necessary.

    - `name`: None for the C library's allocator, which needs no variables.
    - `ld_preload`: the value of LD_PRELOAD to which the allocator is added.

    Raises UnavailableError if the download fails.
    """
    if name is None:
        return {}
    ensure_library(name)
    return preload_variables(name, ld_preload)


def preload_variables(name: str, ld_preload: str = "") -> dict[str, str]:
    """Return what `ensure_library_preload_variables` returns, without a download."""
    preloaded = ":".join(filter(None, [ld_preload, str(_library_path(name))]))
    return {**_BUILDS[name].variables, "LD_PRELOAD": preloaded}


def _library_path(name: str) -> Path:
    return _prefix_folder() / "usr/lib/x86_64-linux-gnu" / _BUILDS[name].library


def _prefix_folder() -> Path:
    return paths.cache_folder("allocators", digests.of_bytes(_LOCK.read_bytes())[7:19])
