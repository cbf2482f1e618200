"""ReFrame's run reports: a performance variable of a test case is a figure.

Reports of ReFrame 4.7 and later have `perfvalues`, earlier ones `perfvars`. A value that is outside
its reference is a figure like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from xfbench.results.foreign import (
    Entry,
    File,
    Missed,
    count,
    listed,
    mapping,
    moment,
    number,
    ours,
    text,
)

TOOL = "ReFrame"
_AFTER = (None, "", "performance", "cleanup")  # phases whose failure does not touch a figure


def recognised(file: File) -> bool:
    """By the two parts that a report has always had."""
    document = mapping(file.document)
    return "session_info" in document and "runs" in document


def private(file: File) -> Iterable[str]:
    """Whose session it was, where it was started and which nodes had jobs."""
    session = mapping(file.document["session_info"])
    yield from (str(session.get(name) or "") for name in ("hostname", "user"))
    for _, case in _cases(file.document):
        nodes = [case.get("job_nodelist"), *listed(case.get("nodelist"))]
        yield from (one for node in nodes if (one := text(node)))


def entries(file: File) -> Iterator[Entry | Missed]:
    """A figure per performance variable. Raises ValueError where the session says no time."""
    session = mapping(file.document["session_info"])
    report = text(session.get("data_version")) or "?"
    title = f"{TOOL} {text(session.get('version')) or '(version unknown)'}, report {report}"
    ended = moment(session.get("time_end_unix")) or moment(session.get("time_end"))
    if ended is None:
        raise ValueError("its session has no time ('time_end') that can be read")
    for place, case in _cases(file.document):
        name = text(case.get("display_name")) or text(case.get("name")) or "a test without a name"
        where = f"{place} {name}"
        created = moment(case.get("job_completion_time_unix")) or ended
        found = list(_figures(case))
        if not found:
            phase = text(case.get("fail_phase"))
            why = f"it failed (phase {phase})" if phase else "it has no performance variable"
            yield Missed(where, f"no figure: {why}", fault=bool(phase))
        for variable, value, unit in found:
            known = number(value)
            here = f"{where}, {variable}"
            if known is None:
                yield Missed(here, "its value is no number")
                continue
            yield Entry(
                title=title,
                where=here,
                created=created,
                quantity=variable,
                unit=unit,
                value=known,
                about=_about(case),
                failed=_failed(case),
            )
    for index, _ in enumerate(listed(file.document.get("restored_cases"))):
        why = "it was restored from an earlier session: import that one's report"
        yield Missed(f"restored_cases[{index}]", why, fault=False)


def _cases(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for run, one in enumerate(listed(document["runs"])):
        for index, case in enumerate(listed(mapping(one).get("testcases"))):
            yield f"runs[{run}].testcases[{index}]", mapping(case)


def _figures(case: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Each variable's name, value and unit."""
    for key, one in mapping(case.get("perfvalues")).items():
        value, *limits = listed(one) or [None]  # its reference, lower and upper limit, the unit
        yield key.split(":", 2)[-1], value, text(dict(enumerate(limits)).get(3)) or ""
    for one in listed(case.get("perfvars")):
        found = mapping(one)
        name = text(found.get("name")) or "a variable without a name"
        yield name, found.get("value"), text(found.get("unit")) or ""


def _about(case: dict[str, Any]) -> dict[str, Any]:
    """What the test's parameters and variables say; `system:partition` as the machine."""
    variables, parameters = mapping(case.get("check_vars")), mapping(case.get("check_params"))
    # Up to 4.6 a parameter is "Test.name", and later all of them are the case's own fields.
    given = {key.rpartition(".")[2]: value for key, value in parameters.items()}
    said = {**case, **variables, **given}
    ranks, each = count(said.get("num_tasks")), count(said.get("num_tasks_per_node"))
    places = [text(case.get("system")), text(case.get("partition"))]
    return {
        **ours(said),
        "ranks": ranks,
        "nodes": -(-ranks // each) if ranks and each else None,
        "machine": ":".join(one for one in places if one) or None,
    }


def _failed(case: dict[str, Any]) -> str | None:
    phase = case.get("fail_phase")
    return None if phase in _AFTER else f"the test failed in its phase {phase}"
