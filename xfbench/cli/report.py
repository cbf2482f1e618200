"""`xfbench report`: a results folder as one HTML page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from xfbench.base.terminal_text import say
from xfbench.cli.options import Results, Where


def report(
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    where: Where = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show it in a browser.")] = False,
    results: Results = None,
) -> None:
    """Write one HTML file that needs nothing else: summary, leaderboards, figures, studies.

    \b
    xfbench report
    xfbench report --results results --output lenet.html --where workload=lenet
    """
    from xfbench import published as literature
    from xfbench.base import atomic_files, errors, paths
    from xfbench.equality import certificate
    from xfbench.report import page
    from xfbench.results import index, selection
    from xfbench.results.store import existing
    from xfbench.studies import page as studies

    folder = paths.results(results)
    conditions = selection.parse(where or ())
    with index.opened(existing(folder), say) as found:
        records = [record for _, record in found.select(conditions)]
    for line in found.damaged:
        say(line)
    if not records:
        raise errors.UsageError(f"{folder} has no record of what was asked for")
    certificates = certificate.of_folder(folder)
    asked = studies.build_sections(records, certificates, say)
    text = page.html(records, certificates, literature.records(), asked).encode()
    try:
        atomic_files.write(output.absolute(), text)
    except OSError as error:
        raise errors.UsageError(f"--output {output}: {error.strerror}") from error
    launches = sum(one.source == "measured" for one in records)
    print(f"{output}: {launches} launches, {len(text) / 1e6:.1f} MB")
    if open_it:
        webbrowser.open(output.absolute().as_uri())
