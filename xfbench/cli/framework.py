"""`xfbench framework list`: the frameworks, and whether each can be used on this machine."""

from __future__ import annotations

import json

import typer

from xfbench.base.terminal_text import print_legibly as print
from xfbench.cli.options import JsonOption

app = typer.Typer(
    name="framework", help="Frameworks: list.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List frameworks with their state: installed, available or unavailable.

    An available framework is installed when it is first needed.
    """
    from dataclasses import asdict

    from xfbench.base.terminal_text import terminal_width
    from xfbench.environments import inventory
    from xfbench.rendering import formats

    frameworks = inventory.list_framework_states()
    if as_json:
        print(json.dumps({"frameworks": [asdict(framework) for framework in frameworks]}))
        return
    rows = [
        [
            framework.name,
            framework.state,
            framework.version or "",
            ", ".join(framework.kernels),
            ", ".join(
                f"{device} (untested)" if device in framework.untested_devices else device
                for device in framework.devices
            ),
            ", ".join(framework.precisions),
            ", ".join(
                f"{strategy} (asynchronous)" if strategy in framework.asynchronous else strategy
                for strategy in framework.strategies
                if strategy != "none"
            ),
            framework.reason or "",
        ]
        for framework in frameworks
    ]
    headers = ["name", "state", "version", "kernels", "devices", "precisions", "strategies", ""]
    if not any(framework.reason for framework in frameworks):
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    less_important = ("precisions", "version", "strategies")
    print(formats.render_listing(headers, rows, terminal_width(), less_important))
