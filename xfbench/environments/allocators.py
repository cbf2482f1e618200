"""Memory allocators that are preloaded instead of the C library's.

A framework that frees memory after every layer must page the memory in again. The allocators'
builds come from Debian and are the same on every machine. They are unpacked into the cache once.
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
_SUITE = "bullseye"  # this release's builds need only glibc 2.29, from 2019


@dataclass(frozen=True)
class _Build:
    """A library below the prefix, and the environment variables that the library needs."""

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
    """Return the path of an allocator's library. Raises UnavailableError.

    Downloads the library if it is missing.
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
    """Return whether the allocator's library is in the cache."""
    return _library_path(name).is_file()


def preload_variables(name: str | None, ld_preload: str = "") -> dict[str, str]:
    """Return the variables that load the allocator `name`. Raises UnavailableError.

    `name` None: the C library's allocator, which needs no variables. `before` is an existing value
    of LD_PRELOAD.
    """
    if name is None:
        return {}
    preloaded = ":".join(filter(None, [ld_preload, str(ensure_library(name))]))
    return {**_BUILDS[name].variables, "LD_PRELOAD": preloaded}


def _library_path(name: str) -> Path:
    return _prefix_folder() / "usr/lib/x86_64-linux-gnu" / _BUILDS[name].library


def _prefix_folder() -> Path:
    return paths.cache() / "allocators" / digests.of_bytes(_LOCK.read_bytes())[7:19]
