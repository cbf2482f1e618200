"""`xfbench env`: the environments that frameworks run in."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from xfbench.base.terminal_text import say
from xfbench.cli.options import DryRun, Json

app = typer.Typer(
    name="env",
    help="The environments frameworks run in: create, list, remove.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Names = Annotated[list[str], typer.Argument(help="Frameworks.", show_default=False)]


@app.command()
def create(frameworks: _Names, dry_run: DryRun = False) -> None:
    """Make the environments of these frameworks now, instead of at their first run.

    \b
    xfbench env create torch mxnet
    """
    from xfbench import adapter
    from xfbench.base.errors import UnavailableError
    from xfbench.environments import environment

    described = [adapter.load(name) for name in frameworks]
    failed = False
    for one in described:
        if dry_run:
            print(f"{one.name}: {environment.plan(one)}")
            continue
        try:
            found = environment.ensure(one, say=say)
            print(f"{one.name} {found.version}: {found.prefix}")
        except UnavailableError as error:
            failed = True
            say(f"xfbench: {error}")
    if failed:
        raise typer.Exit(1)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """The environments that exist, their place and size."""
    from tabulate import tabulate

    from xfbench.environments import environment

    found = environment.existing()
    if as_json:
        print(json.dumps({"environments": found}))
        return
    rows = [
        (
            one["framework"],
            one["version"],
            one["python"],
            one["kind"],
            f"{one['bytes'] / 1e6:,.0f} MB",
            one["prefix"],
        )
        for one in found
    ]
    print(
        tabulate(
            rows,
            ("framework", "version", "python", "kind", "size", "folder"),
            disable_numparse=True,
        )
    )


@app.command()
def remove(frameworks: _Names, dry_run: DryRun = False) -> None:
    """Delete the environments of these frameworks; they are made again when needed."""
    from xfbench import adapter
    from xfbench.environments import environment

    for one in [adapter.load(name) for name in frameworks]:
        if dry_run:
            print(f"{one.name}: would be removed")
        elif environment.remove(one):
            print(f"{one.name}: removed")
        else:
            print(f"{one.name}: there was none")
