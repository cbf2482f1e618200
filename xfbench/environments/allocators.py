"""Allocators of memory instead of the C library's, loaded before it, as frameworks' users do.

A framework that gives memory back after every layer has to have it paged in again. Debian's
builds, the same on every machine, are unpacked into the cache once.
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
"""What stands for the C library's own."""

_LOCK = Path(__file__).with_name("allocators.lock")
_SUITE = "bullseye"  # its builds need glibc 2.29, of 2019


@dataclass(frozen=True)
class _Build:
    """A library below the prefix, and what has to be set for it."""

    library: str
    variables: dict[str, str] = field(default_factory=dict)


_BUILDS = {
    # What a framework frees it needs again in the next step: none of it goes back to the system.
    "jemalloc": _Build(
        "libjemalloc.so.2",
        {"MALLOC_CONF": "oversize_threshold:1,dirty_decay_ms:-1,muzzy_decay_ms:-1"},
    ),
    "tcmalloc": _Build("libtcmalloc_minimal.so.4"),
}
NAMES = (SYSTEM, *_BUILDS)


def ensure(name: str, tell: Callable[[str], None] = say) -> Path:
    """The library, fetched if it is missing. Raises UnavailableError, with what to do."""
    library = _library(name)
    if library.is_file():
        return library
    prefix = _prefix()
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with locks.exclusive(Path(f"{prefix}.lock"), "fetches the allocators", tell):
        if not library.is_file():
            partial_prefix = prefix.with_suffix(".part")
            shutil.rmtree(partial_prefix, ignore_errors=True)
            try:
                debian.create(_LOCK, _SUITE, partial_prefix, lambda words: tell(f"{name}: {words}"))
                shutil.rmtree(prefix, ignore_errors=True)
                partial_prefix.replace(prefix)
            except (XfbenchError, OSError) as error:
                shutil.rmtree(partial_prefix, ignore_errors=True)
                raise UnavailableError(str(error)) from error
    return library


def is_there(name: str) -> bool:
    """Whether `ensure` would find it in the cache."""
    return _library(name).is_file()


def variables(name: str | None, before: str = "") -> dict[str, str]:
    """What a process needs to have it; `before` is what was to be preloaded already.

    None, the C library's own, needs nothing. Raises UnavailableError.
    """
    if name is None:
        return {}
    preloaded = ":".join(filter(None, [before, str(ensure(name))]))
    return {**_BUILDS[name].variables, "LD_PRELOAD": preloaded}


def _library(name: str) -> Path:
    return _prefix() / "usr/lib/x86_64-linux-gnu" / _BUILDS[name].library


def _prefix() -> Path:
    return paths.cache() / "allocators" / digests.of_bytes(_LOCK.read_bytes())[7:19]
