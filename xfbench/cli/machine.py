"""`xfbench machine` and `doctor`: what this host is, and what would disturb a measurement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from xfbench.cli.options import JsonOption

_MIB = 2**20


def machine(
    read: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Instead: what this folder lies on, and how fast it can be read (a minute).",
            show_default=False,
        ),
    ] = None,
    size_mib: Annotated[
        int, typer.Option("--read-size", min=8, metavar="MIB", help="MiB to read in a round.")
    ] = 256,
    as_json: JsonOption = False,
) -> None:
    """What this host is: processor, cores, memory, accelerators, libraries, limits.

    With --read, a data set's own files are read; in any other folder one that is written for it
    and is gone afterwards.
    """
    if read is not None:
        _print_storage(read, size_mib * _MIB, as_json)
        return
    from xfbench.host import machine as machine_facts

    facts = {
        **machine_facts.describe().model_dump(mode="json"),
        "libraries": machine_facts.libraries(),
    }
    if as_json:
        print(json.dumps(facts))
        return
    for key, value in facts.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        print(f"{key:22}{'–' if text in (None, '') else text}")


def _print_storage(folder: Path, size_bytes: int, as_json: bool) -> None:
    from xfbench.host import media

    medium, reads = media.describe(folder), media.measure(folder, size_bytes)
    if as_json:
        print(json.dumps(media.document(medium, reads)))
        return
    for line in media.lines(medium, reads):
        print(line)


def doctor(
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 on a warning too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """What would keep a measurement here from being good, and how to mend it.

    Exit status 1 if something is bad.
    """
    from dataclasses import asdict

    from xfbench.host import doctor as machine_checks

    findings = machine_checks.examine()
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
