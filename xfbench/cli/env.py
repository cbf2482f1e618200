"""`xfbench env`: the environments that frameworks run in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from xfbench.base.terminal_text import print_legibly as print
from xfbench.base.terminal_text import say, terminal_width
from xfbench.cli.options import DryRunOption, JsonOption

app = typer.Typer(
    name="env",
    help="Create, list and remove the environments of frameworks, and audit their locks.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Names = Annotated[list[str], typer.Argument(help="Names of frameworks.", show_default=False)]


@app.command()
def create(frameworks: _Names, dry_run: DryRunOption = False) -> None:
    """Create the environments of these frameworks now, instead of at their first run.

    \b
        xfbench env create torch mxnet
    """
    from xfbench.base.errors import UnavailableError
    from xfbench.environments import environment
    from xfbench.model import adapter

    adapters = [adapter.load(name) for name in frameworks]
    has_failed = False
    for framework in adapters:
        if dry_run:
            print(f"{framework.name}: {environment.describe_kind_state_and_folder(framework)}")
            continue
        try:
            created = environment.ensure_environment(framework, say=say)
            print(f"{framework.name} {created.version}: {created.prefix}")
        except UnavailableError as error:
            has_failed = True
            say(f"xfbench: {error}")
    if has_failed:
        raise typer.Exit(1)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the existing environments with their folder and size."""
    from xfbench.environments import environment
    from xfbench.rendering import formats

    environments = environment.describe_existing_environments()
    if as_json:
        print(json.dumps({"environments": environments}))
        return
    folders = [Path(environment_info["prefix"]) for environment_info in environments]
    parents = {folder.parent for folder in folders}
    rows = [
        (
            environment_info["framework"],
            environment_info["version"],
            environment_info["python"],
            environment_info["kind"],
            f"{environment_info['bytes'] / 1e6:,.0f} MB",
            folder.name if len(parents) == 1 else folder,
        )
        for environment_info, folder in zip(environments, folders, strict=True)
    ]
    headers = ("framework", "version", "python", "kind", "size", "folder")
    print(formats.render_listing(headers, rows, terminal_width(), ("kind", "python")))
    if len(parents) == 1:
        print(formats.wrap_line(f"The folders are in {parents.pop()}.", terminal_width()))


@app.command()
def remove(frameworks: _Names, dry_run: DryRunOption = False) -> None:
    """Delete the environments of these frameworks; the next run creates them again."""
    from xfbench.environments import environment
    from xfbench.model import adapter

    for framework in [adapter.load(name) for name in frameworks]:
        if dry_run:
            print(f"{framework.name}: would be removed")
        elif environment.remove_all_environments(framework):
            print(f"{framework.name}: removed")
        else:
            print(f"{framework.name}: no environment to remove")


@app.command()
def audit(
    advisories: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="File of published flaws in OSV's format, JSON or zip (repeatable).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Compare the packages of all locks with published flaws, without a network.

    \b
        xfbench env audit --advisories all.zip
    """
    from xfbench.base.errors import UsageError
    from xfbench.environments import audit
    from xfbench.rendering import formats

    if not advisories:
        raise UsageError("--advisories FILE is missing, so nothing was compared")
    locks = audit.list_locks()
    outcome = audit.compare(locks, advisories)
    rows = [
        (flaw.package.lock, flaw.package.name, flaw.package.version, flaw.advisory, flaw.note)
        for flaw in outcome.flaws
    ]
    if rows:
        headers = ("lock", "package", "version", "advisory", "note")
        print(formats.render_listing(headers, rows, None))
    say(
        f"{len(locks)} locks with {len(outcome.packages):,} packages, compared with "
        f"{outcome.advisories:,} advisories: {len(rows)} flaws"
    )
    for lock in outcome.uncompared:
        say(f"xfbench: {lock}: not compared, the files have no advisories of its ecosystem")
    if rows or outcome.uncompared:
        raise typer.Exit(1)
