"""xfbench: which framework trains this network fastest here, and how sure are we?

From Python, `load` reads a results folder and `run` measures. Both are imported on first use, so
that `import xfbench` is fast. See docs/python.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xfbench.api import Results, load
    from xfbench.base.errors import UnavailableError, UsageError, XfbenchError
    from xfbench.base.version import __version__ as __version__
    from xfbench.running import run

__all__ = ["Results", "UnavailableError", "UsageError", "XfbenchError", "load", "run"]

_MODULE_BY_NAME = {
    **dict.fromkeys(("Results", "load"), "api"),
    "run": "running",
    **dict.fromkeys(("UnavailableError", "UsageError", "XfbenchError"), "base.errors"),
    "__version__": "base.version",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module 'xfbench' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"xfbench.{_MODULE_BY_NAME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_BY_NAME})
