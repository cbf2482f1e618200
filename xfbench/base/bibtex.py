"""Entries of BibTeX: their format, and the one of xfbench itself.

`CITATION.cff` has the same facts for readers of the repository.
"""

from __future__ import annotations

from collections.abc import Mapping

from xfbench.base.version import __version__

TITLE = "xfbench: cross-framework benchmarks of deep-learning training"
AUTHORS = ("The xfbench developers",)


def format_entry(kind: str, key: str, fields: Mapping[str, str]) -> str:
    """Return an entry with a line for each field. Values have the syntax of BibTeX."""
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


def cite_xfbench() -> str:
    """Return the entry of this version of xfbench."""
    fields = {
        "author": " and ".join(f"{{{name}}}" for name in AUTHORS),
        "title": f"{{{TITLE}}}",
        "note": f"Software, version {__version__}",
    }
    return format_entry("misc", "xfbench", fields)
