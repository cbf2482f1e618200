"""`xfbench results`: brings results in that were made elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from xfbench.cli.options import Json, Results, say

app = typer.Typer(no_args_is_help=True, help="Bring results in.")


@app.callback()
def results() -> None:
    """Bring results in."""


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(help="A folder that `run --carry` has written.")],
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Read a carried run that has come back: its records and certificates.

    \b
    xfbench run --framework torch --workload lenet --launches 5 --carry ./there
    (run ./there/run.sh on the other machine, bring the folder back)
    xfbench results import ./there
    """
    from xfbench import carry, paths, progress
    from xfbench.store import Store

    store = Store(paths.results(results))
    records = list(carry.read(source, store, say))
    if as_json:
        print(json.dumps({"records": [record.document() for record in records]}))
    else:
        progress.conclude(records, store)
    if any(record.status not in ("ok", "unsupported") for record in records):
        raise typer.Exit(1)
