"""Whether a record was measured by xfbench, and what of one from elsewhere is taken for true.

A record says of itself where it is from, and its digest holds for whatever it says. So nothing
that only a launch of ours can show is believed of one that says it is no such launch.
"""

from __future__ import annotations

from xfbench.record import Record

_OF_ANY_SOURCE = (
    *("id", "cell", "created", "source", "citation", "figure", "status", "reason"),
    *("request", "workload", "machine"),
)


def not_measured(record: Record) -> str | None:
    """Where the record is from, in a line, if nobody measured it with xfbench; None if one did."""
    if record.source == "measured":
        return None
    cited = record.citation
    return f"{record.source}: {f'{cited.key}, ' if cited else ''}not measured by xfbench"


def as_told(record: Record) -> Record:
    """A record from elsewhere without all that only a launch of ours can show; ours as it is.

    What is left is what it says was asked for, its figure and where that is from.
    """
    if record.source == "measured":
        return record
    kept = {*_OF_ANY_SOURCE, "schema_"}
    return record.model_copy(
        update={name: None for name in Record.model_fields if name not in kept}
    )
