"""`xfbench report`: write a results folder as one HTML page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from xfbench.base.terminal_text import say
from xfbench.cli.options import RecordFilterOption, ResultsOption


def report(
    output: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    where: RecordFilterOption = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
    results: ResultsOption = None,
) -> None:
    """Write a self-contained HTML file with a summary, leaderboards, plots and studies.

    \b
    xfbench report
    xfbench report --results results --output lenet.html --where workload=lenet
    """
    from xfbench.base import atomic_files, errors, paths
    from xfbench.model import certificate
    from xfbench.rendering.report import page
    from xfbench.store import index, selection
    from xfbench.store import published as literature
    from xfbench.store.results_folder import open_existing_store
    from xfbench.studies import page as studies

    folder = paths.results(results)
    conditions = selection.parse_conditions(where or ())
    with index.open_index(open_existing_store(folder), say) as record_index:
        records = [record for _, record in record_index.select(conditions)]
    for line in record_index.damaged:
        say(line)
    if not records:
        raise errors.UsageError(f"{folder} has no record that matches --where")
    certificates = certificate.read_certificates(folder)
    study_sections = studies.build_sections(records, certificates, say)
    text = page.render_report(records, certificates, literature.records(), study_sections).encode()
    try:
        atomic_files.write(output.absolute(), text)
    except OSError as error:
        raise errors.UsageError(f"--output {output}: {error.strerror}") from error
    launches = sum(record.source == "measured" for record in records)
    print(f"{output}: {launches} launches, {len(text) / 1e6:.1f} MB")
    if open_it:
        webbrowser.open(output.absolute().as_uri())
