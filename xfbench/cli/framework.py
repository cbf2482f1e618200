"""`xfbench framework list`: which adapters there are, and which can be used here and now."""

from __future__ import annotations

import json

import typer

from xfbench.cli.options import Json

app = typer.Typer(
    name="framework", help="The frameworks: list.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Every framework: installed, available (made when first needed), or unavailable and why."""
    from dataclasses import asdict

    from tabulate import tabulate

    from xfbench.environments import inventory

    found = inventory.frameworks()
    if as_json:
        print(json.dumps({"frameworks": [asdict(one) for one in found]}))
        return
    rows = [
        (
            one.name,
            one.state,
            one.version or "",
            ", ".join(one.kernels),
            ", ".join(one.devices),
            ", ".join(one.precisions),
            ", ".join(
                f"{name} (asynchronous)" if name in one.asynchronous else name
                for name in one.strategies
                if name != "none"
            ),
            one.reason or "",
        )
        for one in found
    ]
    headers = ("name", "state", "version", "kernels", "devices", "precisions", "strategies", "")
    print(tabulate(rows, headers, disable_numparse=True))
