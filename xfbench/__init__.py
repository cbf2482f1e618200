"""xfbench: which framework trains this network fastest here, and how sure are we?

From Python: `load` reads a results folder, `run` measures. Both come when they are first asked
for, so that importing this costs nothing. See docs/python.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xfbench.base.errors import UnavailableError, UsageError, XfbenchError
    from xfbench.notebook import Results, load, run

    __version__: str

__all__ = ["Results", "UnavailableError", "UsageError", "XfbenchError", "load", "run"]

_PLACES = {"Results": "notebook", "load": "notebook", "run": "notebook"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from xfbench.base.version import VERSION

        return VERSION
    if name not in __all__:
        raise AttributeError(f"module 'xfbench' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"xfbench.{_PLACES.get(name, 'base.errors')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
