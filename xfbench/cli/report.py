"""`xfbench report`: a results folder as one HTML page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from xfbench.cli.options import Results, say


def report(
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    where: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD=VALUE,...",
            help="Only these records, as in framework=torch,threads=2.",
            show_default=False,
        ),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show it in a browser.")] = False,
    results: Results = None,
) -> None:
    """Write one HTML file that needs nothing else: summary, leaderboards, figures.

    \b
    xfbench report
    xfbench report --results results --output lenet.html --where workload=lenet
    """
    from xfbench import atomic, errors, paths
    from xfbench.comparison import Side
    from xfbench.equality import certificate
    from xfbench.report import page
    from xfbench.store import Store

    folder = paths.results(results)
    if where and "=" not in where:
        raise errors.UsageError(f"--where {where}: the form is FIELD=VALUE, as in framework=torch")
    side = Side.parse(where, folder)
    records = [record for record in Store(folder).records(say) if side.takes(record)]
    if not records:
        raise errors.UsageError(
            f"{folder} has no record of {where or 'anything that was asked for'}"
        )
    text = page.html(records, certificate.of_folder(folder)).encode()
    try:
        atomic.write(output.absolute(), text)
    except OSError as error:
        raise errors.UsageError(f"--output {output}: {error.strerror}") from error
    print(f"{output}: {len(records)} launches, {len(text) / 1e6:.1f} MB")
    if open_it:
        webbrowser.open(output.absolute().as_uri())
