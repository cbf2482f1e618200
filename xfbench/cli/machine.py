"""`xfbench machine` and `xfbench doctor`: show facts about this host, and check it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from xfbench.base.errors import UsageError
from xfbench.base.terminal_text import print_legibly as print
from xfbench.base.terminal_text import terminal_width
from xfbench.cli.options import JsonOption

_MIB = 2**20
_READ_SIZE_MIB = 256


def machine(
    read: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Show the storage and read speed of this folder instead (takes a minute).",
            show_default=False,
        ),
    ] = None,
    size_mib: Annotated[
        int,
        typer.Option(
            "--read-size",
            min=8,
            metavar="MIB",
            help="MiB to read in each round of --read.",
        ),
    ] = _READ_SIZE_MIB,
    links: Annotated[
        bool,
        typer.Option(
            "--links",
            help="Show the bandwidth between NUMA nodes, CPUs and GPUs instead.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show this host: processor, sockets, NUMA nodes, caches, memory, accelerators and libraries.

    With --links, measure copies between the memory of NUMA nodes, between CPUs and GPUs, and
    between GPUs. This takes some seconds for each pair.

    With --read, show the storage of a folder instead. If the folder has a data set, its files are
    read. In any other folder a temporary file is written, read and deleted.
    """
    if read is not None and links:
        raise UsageError("--read and --links measure different things: choose one")
    if read is None and size_mib != _READ_SIZE_MIB:
        raise UsageError("--read-size has no effect here: it needs --read")
    if read is not None:
        _measure_and_print_read_speed(read, size_mib * _MIB, as_json)
    elif links:
        _measure_and_print_links(as_json)
    else:
        _print_machine(as_json)


def _print_machine(as_json: bool) -> None:
    from dataclasses import asdict

    from xfbench.host import machine as machine_facts
    from xfbench.host import topology
    from xfbench.rendering import formats

    layout = topology.read_topology()
    facts = {
        **machine_facts.describe_machine().model_dump(mode="json"),
        "libraries": machine_facts.list_blas_openmp_mpi_cuda_libraries(),
    }
    if as_json:
        print(json.dumps({**facts, "topology": asdict(layout)}))
        return
    texts = {
        key: ", ".join(map(str, value)) if isinstance(value, list) else value
        for key, value in {**topology.describe(layout), **facts}.items()
    }
    shown = {key: "–" if text in (None, "") else text for key, text in texts.items()}
    print(formats.render_facts(shown, 22, terminal_width()))


def _measure_and_print_read_speed(folder: Path, max_round_bytes: int, as_json: bool) -> None:
    from xfbench.host import media

    medium, reads = (
        media.describe_medium(folder),
        media.evict_and_measure_reads_by_pattern(folder, max_round_bytes),
    )
    if as_json:
        print(json.dumps(media.build_storage_document(medium, reads)))
        return
    for line in media.format_storage_lines(medium, reads):
        print(line)


def _measure_and_print_links(as_json: bool) -> None:
    from xfbench.execution import link_bandwidth

    speeds, notes = link_bandwidth.measure_links()
    if as_json:
        print(json.dumps(link_bandwidth.build_document(speeds, notes)))
        return
    for line in link_bandwidth.format_lines(speeds, notes):
        print(line)


def doctor(
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with status 1 also for the state warn."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check this host for problems that affect measurements, and show how to fix them.

    Each check has the state ok, warn or bad. The exit status is 1 if a check is bad.
    """
    from dataclasses import asdict

    from xfbench.host import doctor as machine_checks

    findings = machine_checks.run_all_checks()
    if as_json:
        print(json.dumps({"findings": [asdict(finding) for finding in findings]}))
    else:
        for finding in findings:
            print(f"{finding.state:5}{finding.check:14}{finding.detail}")
            if finding.mend:
                print(f"     {'':14}→ {finding.mend}")
    states = {finding.state for finding in findings}
    if "bad" in states or (strict and "warn" in states):
        raise typer.Exit(1)
