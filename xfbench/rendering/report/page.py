"""Rendering of the report as one HTML page that loads nothing and runs only its own script.

Three measures keep texts from records harmless. The template escapes every value, and
`xfbench/base/terminal_text.py` escapes invisible characters. The page's Content-Security-Policy
allows only its own style and script. The page's second script element is data, which no browser
runs.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from xfbench.analysis.leaderboard import Certificates
from xfbench.base import paths
from xfbench.base.terminal_text import make_legible, shorten_and_wrap_to_field_length
from xfbench.model.origins import NOTHING_IMPORTED, Origins
from xfbench.model.record import Record
from xfbench.rendering import external_figures
from xfbench.rendering.report import content, layer_comparison, slowdowns, svg
from xfbench.rendering.report.studies import Study


def render_report(
    records: Sequence[Record],
    certificates: Certificates,
    literature: Sequence[Record] = (),
    studies: Sequence[Study] = (),
    known_origins: Origins = NOTHING_IMPORTED,
) -> str:
    """Return the report about these records as an HTML page.

    - `certificates`: for each certificate id, the certificate or a text that says what is wrong.
    - `literature`: records of published figures.
    - `studies`: the sections about studies.
    - `known_origins`: where the records came from.
    """
    report = content.build_report(records, certificates, literature, known_origins)
    return render_template(
        "page.html",
        report=report,
        studies=studies,
        comparison=layer_comparison.build_comparison(report.networks),
        slowdowns=slowdowns.build_tables(board.table for board in report.boards),
        most_slowdowns=slowdowns.MAX_TABLES,
        many=content.MANY_ROWS,
        at_once=content.AT_ONCE,
        others_headers=external_figures.HEADERS,
    )


def render_template(template_name: str, **values: Any) -> str:
    """Render a template of this folder with the values.

    The template also gets the page's style sheet, script and Content-Security-Policy.
    """
    folder = paths.package_folder("xfbench.rendering.report")
    style, script = (
        Markup((folder / name).read_text(encoding="utf-8")) for name in ("page.css", "page.js")
    )
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        finalize=_make_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.get_template(template_name).render(
        policy=_build_policy(style, script),
        style=style,
        script=script,
        draw=svg.draw_figure,
        legend=svg.build_legend,
        pieces=shorten_and_wrap_to_field_length,
        interval_bar=svg.draw_interval_bar,
        **values,
    )


def _make_printable(value: Any) -> Any:
    """Return a text with invisible characters escaped. Other values stay unchanged.

    Markup stays unchanged too, because xfbench itself wrote it.
    """
    if isinstance(value, str) and not isinstance(value, Markup):
        return make_legible(value)
    return value


def _build_policy(style: str, script: str) -> str:
    """Return the page's Content-Security-Policy.

    The policy allows only this style sheet and this script, which it identifies by their digests.
    """
    rules = {
        "default-src": "'none'",
        "style-src": _hash_source(style),
        "script-src": _hash_source(script),
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash_source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
