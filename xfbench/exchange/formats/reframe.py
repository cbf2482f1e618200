"""Run reports of ReFrame: each performance variable of a test case is a figure.

Reports of ReFrame 4.7 and later have `perfvalues`, and earlier reports have `perfvars`. A value
outside the limits of its reference is also imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from xfbench.base.foreign_names import collect_private_names
from xfbench.exchange.formats import (
    Entry,
    File,
    Missed,
    as_list,
    as_object,
    keep_nonempty_text,
    list_keys,
    parse_number,
    parse_positive_integer,
    parse_time,
    quote_value,
    supported_workload_and_framework,
)

TOOL = "ReFrame"
_HARMLESS_PHASES = (
    None,
    "",
    "performance",
    "cleanup",
)  # a failure in these phases does not affect a figure
_FAILURES = ("fail", "failure", "error", "abort")


def is_recognised(file: File) -> bool:
    """Return whether the file has the keys that every report of ReFrame has."""
    document = as_object(file.document)
    return "session_info" in document and "runs" in document


def host_and_user_names(file: File) -> Iterable[str]:
    """Return the names of hosts and users in all fields and names of tests.

    A test that is created once per node has the node's name in its own name. The list of a job's
    nodes is an array, `node[1-3]` or a text, depending on the version of ReFrame.
    """
    return collect_private_names(file.document)


def entries(file: File) -> Iterator[Entry | Missed]:
    """Yield a figure per performance variable. Raises ValueError if the session has no end time."""
    session = as_object(file.document["session_info"])
    report = keep_nonempty_text(session.get("data_version")) or "?"
    version = keep_nonempty_text(session.get("version")) or "(version unknown)"
    title = f"{TOOL} {version}, report {report}"
    ended = parse_time(session.get("time_end_unix")) or parse_time(session.get("time_end"))
    if ended is None:
        raise ValueError("the session has no valid time ('time_end')")
    for place, case in _test_cases_with_places(file.document):
        name = (
            keep_nonempty_text(case.get("display_name"))
            or keep_nonempty_text(case.get("name"))
            or "a test without a name"
        )
        location = f"{place} {name}"
        created = parse_time(case.get("job_completion_time_unix")) or ended
        figures = list(_read_performance_variables(case))
        if not figures:
            phase = keep_nonempty_text(case.get("fail_phase"))
            yield Missed(location, f"no figure: {_explain_no_figure(case)}", fault=bool(phase))
        for variable, value, unit in figures:
            parsed_value = parse_number(value)
            figure_location = f"{location}, {variable}"
            if unit is None:
                yield Missed(figure_location, "not a list of value, reference, limits and unit")
                continue
            if parsed_value is None:
                yield Missed(figure_location, f"the value is not a number: {quote_value(value)}")
                continue
            yield Entry(
                title=title,
                where=figure_location,
                created=created,
                quantity=variable,
                unit=unit,
                value=parsed_value,
                about=_workload_ranks_and_machine(case),
                failed=_failure_that_affects_figure(case),
            )
    if not any(_test_cases_with_places(file.document)):
        has = list_keys(next(iter(as_list(file.document["runs"])), None))
        yield Missed("runs", f"no test case ('testcases'); the first run has {has}", fault=False)
    for index, _ in enumerate(as_list(file.document.get("restored_cases"))):
        reason = "restored from an earlier session: import the report of that session"
        yield Missed(f"restored_cases[{index}]", reason, fault=False)


def _test_cases_with_places(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for run, run_document in enumerate(as_list(document["runs"])):
        for index, case in enumerate(as_list(as_object(run_document).get("testcases"))):
            yield f"runs[{run}].testcases[{index}]", as_object(case)


def _read_performance_variables(case: dict[str, Any]) -> Iterator[tuple[str, Any, str | None]]:
    """Yield the name, value and unit of each performance variable of a test case.

    The unit is None if the variable is not as ReFrame writes it, so that its value is unknown.
    """
    for key, listing in as_object(case.get("perfvalues")).items():
        # Value, reference, lower and upper limit, unit; since report 4.1 also the result.
        fields = as_list(listing)
        is_known = len(fields) >= 5 and isinstance(fields[4], str | None)
        yield key.split(":", 2)[-1], *((fields[0], fields[4] or "") if is_known else (None, None))
    for listing in as_list(case.get("perfvars")):
        variable = as_object(listing)
        name = keep_nonempty_text(variable.get("name")) or "a variable without a name"
        yield name, variable.get("value"), keep_nonempty_text(variable.get("unit")) or ""


def _explain_no_figure(case: dict[str, Any]) -> str:
    if phase := keep_nonempty_text(case.get("fail_phase")):
        return f"the test failed (phase {phase})"
    if case.keys() & {"perfvalues", "perfvars"}:
        return "no performance variable"
    return f"no performance variable ('perfvalues' or 'perfvars'); the test has {list_keys(case)}"


def _workload_ranks_and_machine(case: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of `About` from the parameters and variables of a test case.

    The machine is SYSTEM:PARTITION.
    """
    variables, parameters = as_object(case.get("check_vars")), as_object(case.get("check_params"))
    # Up to ReFrame 4.6, a parameter is "Test.name". Later, parameters are fields of the case.
    parameter_values = {key.rpartition(".")[2]: value for key, value in parameters.items()}
    settings = {**case, **variables, **parameter_values}
    ranks, ranks_per_node = (
        parse_positive_integer(settings.get("num_tasks")),
        parse_positive_integer(settings.get("num_tasks_per_node")),
    )
    places = [keep_nonempty_text(case.get("system")), keep_nonempty_text(case.get("partition"))]
    return {
        **supported_workload_and_framework(settings),
        "ranks": ranks,
        "nodes": -(-ranks // ranks_per_node) if ranks and ranks_per_node else None,
        "machine": ":".join(place for place in places if place) or None,
    }


def _failure_that_affects_figure(case: dict[str, Any]) -> str | None:
    phase, result = case.get("fail_phase"), case.get("result")
    if not phase and result in _FAILURES:
        return f"the test's result is {result}"
    return None if phase in _HARMLESS_PHASES else f"the test failed in phase {phase}"
