"""Verdicts for people and for machines: which cells are verified, and how the answers look.

An answer is the object that `verify --json` prints, whether it was found now or stands in a
certificate that is there already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from xfbench import adapter, experiment
from xfbench.base.errors import UnavailableError
from xfbench.environments import environment
from xfbench.equality import certify
from xfbench.equality.certificate import Certificate
from xfbench.equality.jobs import CheckError
from xfbench.equality.verify import Verdict, Verifier
from xfbench.request import Request
from xfbench.strategy import words
from xfbench.workloads import workloads

FORMATS = ("text", "markdown")


def requests(
    frameworks: Sequence[str],
    networks: Sequence[str],
    kernels: Sequence[str],
    pythons: Mapping[str, Path],
    **settings: Any,
) -> list[Request]:
    """What is to be verified, network by network; "all" stands for all there are.

    Raises UsageError on a wrong name.
    """
    known = list(workloads())
    cells = [
        cell
        for name in frameworks
        for cell, _ in experiment.cells(
            [
                experiment.matrix(
                    framework=[name],
                    workload=known if list(networks) == ["all"] else networks,
                    kernel=_kernels(name, kernels, settings.get("device", ["cpu"])),
                    **settings,
                )
            ],
            pythons,
        )
    ]
    cells.sort(key=lambda cell: known.index(cell.workload))
    return [cell.request(1) for cell in cells]


def _kernels(framework: str, wanted: Sequence[str], devices: Sequence[str]) -> Sequence[str]:
    if list(wanted) == ["all"] and framework in adapter.names():
        described = adapter.load(framework)
        return list(dict.fromkeys(name for one in devices for name in described.kernels_on(one)))
    return wanted


def title(request: Request) -> str:
    """What is verified, in a line."""
    parts = [request.framework, request.workload, request.kernel]
    together = [f"{request.ranks} ranks {request.together}"] if request.ranks > 1 else []
    how = filter(None, [request.solver])
    return " · ".join([*parts, *how, *together, request.device, request.precision])


def verdicts(
    requests: Sequence[Request],
    pythons: Mapping[str, Path],
    seeds: int,
    again: bool,
    time_limit: float,
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """The answer to each request, as soon as it is known.

    A certificate that is there is one, unless it says "different": then it is found out anew
    where and by how much.
    """
    verifier = Verifier(say, time_limit)
    for request in requests:
        described = adapter.load(request.framework)
        try:
            found = environment.ensure(described, pythons.get(request.framework), say, request.site)
        except UnavailableError as error:
            yield _refused(request, str(error), failed=True)
            continue
        have = None if again or seeds > 1 else certify.find(certify.subject(request, found))
        if have and have.verdict == "equal":
            yield _certified(request, have)
            continue
        try:
            answer = None
            for seed in range(seeds):
                verdict = certify.prove(verifier, request, found, seed)
                if seed == 0 or verdict.verdict == "different":
                    made = certify.make(verdict, found, seed)
                    answer = _found(verdict, made, found.version)
                if verdict.verdict != "equal":
                    break
            assert answer is not None
            yield answer
        except CheckError as error:
            yield _refused(request, str(error), failed=True)


def text(answer: Mapping[str, Any]) -> str:
    """One answer for a terminal."""
    name = f"{answer['framework']} {answer['framework_version'] or ''}".strip()
    named = ("workload", "solver", "kernel", "device", "precision")
    parts = [name, *(answer[k] for k in named if answer[k])]
    if answer["ranks"] > 1:
        chosen = words(answer["strategy_options"].items())
        parts.append(f"{answer['ranks']} ranks {answer['strategy']} {chosen}".rstrip())
    lines = [f"{' · '.join(parts):<61} {answer['verdict']}"]
    worst = answer["worst"]
    if answer["verdict"] == "different":
        if worst:
            what = " ".join(filter(None, [worst["quantity"], worst["name"]]))
            step = f", step {worst['step']}" if worst["step"] else ""
            error = worst["relative_error"]
            shown = "not there or not finite" if error is None else f"relative error {error:.1e}"
            lines.append(
                f"  worst tensor         {what}, {shown} "
                f"(rounding allows {worst['tolerance']:.0e}){step}"
            )
        if answer["first_layer"]:
            lines.append(f"  goes wrong first at  {answer['first_layer']}")
        if answer["likely_cause"]:
            lines.append(f"  looks like           {answer['likely_cause']}")
    if answer["reason"] and answer["reason"] != answer["likely_cause"]:
        lines.append(f"  {answer['reason']}")
    if answer["verdict"] == "equal" and answer["checks"]:
        quantities = sum(check["quantities"] for check in answer["checks"])
        # Certificates of an earlier version have null for some that are equal, and no error.
        nearest = max(check["excess"] or 0.0 for check in answer["checks"])
        lines.append(
            f"  {quantities} quantities, none beyond {nearest:.0%} of what it may differ by"
        )
    return "\n".join(lines)


def markdown(answers: Sequence[Mapping[str, Any]]) -> str:
    """A table for the docs: one line per kind of check."""
    lines = []
    for answer in answers:
        network = " · ".join(filter(None, (answer["workload"], answer["solver"])))
        head = [network, f"{answer['framework']} {answer['framework_version'] or ''}"]
        head += [answer["kernel"], answer["verdict"]]
        for check in answer["checks"] or [None]:
            if check is None:
                lines.append([*head, answer["reason"] or "", "", "", "", ""])
                continue
            lines.append(
                [
                    *head,
                    check["kind"],
                    str(check["quantities"]),
                    f"{check['tolerance']:.0e}",
                    f"{check['loosest']:.0e}",
                    "∞" if check["excess"] is None else f"{check['excess']:.2g}",
                ]
            )
            head = [""] * 4
    headers = ["network", "framework", "kernel", "verdict", "check", "quantities"]
    headers += ["tolerance (median)", "loosest", "largest error / tolerance"]
    return tabulate(lines, headers, "github", disable_numparse=True)


def self_test_text(result: Mapping[str, Any]) -> str:
    """The outcome of the planted discrepancies, for a terminal."""
    lines = [
        [
            plant["name"],
            f"{plant['framework']}, {plant['workload']}",
            "caught" if plant["caught"] else "MISSED",
            plant["layer"],
            plant["first_layer"] or "–",
        ]
        for plant in result["planted"]
    ]
    caught = sum(plant["caught"] for plant in result["planted"])
    located = sum(plant["located"] for plant in result["planted"])
    alarms = result["false_alarms"]
    return (
        tabulate(lines, ["planted", "in", "", "at", "found at"], disable_numparse=True)
        + f"\n{caught} of {len(lines)} caught, {located} at their layer; "
        f"{alarms['alarms']} false alarms in {alarms['trials']} trials"
    )


def _found(verdict: Verdict, made: Certificate | None, version: str) -> dict[str, Any]:
    equal = made is not None and verdict.verdict == "equal"
    document = verdict.document(made.id if made and equal else None)
    return {**document, "framework_version": version, "failed": False}


def _certified(request: Request, have: Certificate) -> dict[str, Any]:
    """The answer that stands in a certificate of "equal"."""
    answer = Verdict(request, have.verdict, checks=have.checks).document(have.id)
    return {**answer, "framework_version": have.framework_version, "failed": False}


def _refused(request: Request, reason: str, *, failed: bool) -> dict[str, Any]:
    answer = Verdict(request, "unsupported", reason).document(None)
    return {**answer, "framework_version": None, "failed": failed}
