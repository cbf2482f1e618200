"""Records as text for a terminal: a table of several records, or all fields of one record.

Control characters and changes of writing direction in a record's text are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xfbench.base.terminal_text import make_legible
from xfbench.launchers import slurm
from xfbench.model.origins import NOTHING_IMPORTED, WORDS, Origins
from xfbench.model.provenance import impossible_number, unmeasured_source
from xfbench.model.record import Record
from xfbench.rendering import formats
from xfbench.statistics import launch_throughput
from xfbench.store.results_folder import Place, Store

_MAX_CHARACTERS = 160  # shown characters of a value
# Columns of a table that a narrow terminal leaves out, the first ones first.
_LESS_IMPORTANT = ("launch", "ranks", "batch", "created", "threads", "kernel")
_MAX_ELEMENTS = 12  # shown elements of a list


def format_table(
    records: Sequence[Record],
    max_width: int | None = None,
    known_origins: Origins = NOTHING_IMPORTED,
) -> str:
    """Return a table with a row per record.

    If a record has an external figure, the table also has columns for the figure and its source.
    The least important columns are left out if lines would have more than `max_width` characters
    (None: never), and a last line names them.
    """
    headers = [
        *("record", "created", "status", "origin", "workload", "framework", "kernel"),
        *("ranks", "threads", "batch", "launch", "images/s"),
    ]
    lines = []
    kinds = {known_origins.of_record(record) for record in records}
    for record in records:
        request = record.request
        speed = valid_images_per_second(record)
        settings: list[Any] = ["–"] * 7
        if request:
            settings = [
                *(request.workload, request.framework, request.kernel, request.ranks),
                *(request.threads, request.global_batch_size, request.launch),
            ]
        elif record.figure and record.figure.about:
            about = record.figure.about
            values = [about.workload, about.framework, about.kernel, about.ranks, about.threads]
            settings = [
                "–" if value is None else value
                for value in (*values, about.global_batch_size, None)
            ]
        line = [
            *(record.id[7:19], record.created[:19], record.status),
            *(WORDS[known_origins.of_record(record)], *settings),
            "–" if speed is None else formats.format_number(speed, 4),
        ]
        if any(listed.figure for listed in records):
            line += [
                external_figure_text(record) or "–",
                record.citation.key if record.citation else "–",
            ]
        lines.append([make_legible(str(cell), 40) for cell in line])
    if any(listed.figure for listed in records):
        headers += ["figure", "from"]
    # Where records came from is left out only if that is the same for all.
    less_important = (("origin",) if kinds <= {"measured"} else ()) + _LESS_IMPORTANT
    return formats.render_listing(headers, lines, max_width, less_important)


def external_figure_text(record: Record) -> str | None:
    """Return the record's external figure as text, such as "time per call (median) 0.0123 s".

    Return None if the record has no external figure.
    """
    figure = record.figure
    if figure is None:
        return None
    value = "" if figure.value is None else f"{figure.value:.4g}"
    limits = ["?" if limit is None else f"{limit:.4g}" for limit in (figure.low, figure.high)]
    if not value and limits != ["?", "?"]:
        value = "–".join(limits)
    return f"{figure.quantity} {value} {figure.unit}".strip()


def valid_images_per_second(record: Record) -> float | None:
    """Return the throughput of the record's launch in images/s.

    Return None if the record is not a valid measurement by xfbench.
    """
    if record.status != "ok" or record.measurement is None or record.request is None:
        return None
    if unmeasured_source(record) or impossible_number(record):
        return None
    return launch_throughput(record) or None


def format_fields(record: Record) -> str:
    """Return all fields of a record, one line per field with a value.

    Long values and lists are shortened.
    """
    return "\n".join(
        f"{path}  {make_legible(value, _MAX_CHARACTERS)}"
        for path, value in _field_lines("", record.document())
    )


def format_record(
    record: Record, place: Place, store: Store, known_origins: Origins = NOTHING_IMPORTED
) -> str:
    """Return all fields of a record as `format_fields` does, and where it is.

    The last lines name the record's file (`place`) and its run folder in `store`.
    """
    speed = valid_images_per_second(record)
    lines = [format_fields(record)]
    lines.append(f"origin  {make_legible(known_origins.describe(record), _MAX_CHARACTERS)}")
    for name in ("certificate", "batch_certificate"):
        if note := known_origins.certificates.get(getattr(record, name) or ""):
            lines.append(f"origin of {name}  {WORDS[note.origin]}")
    if speed is not None:
        lines.append(f"images per second  {formats.format_number(speed, 5)} (by the median step)")
    position = f" at byte {place.offset}" if place.length is not None else ""
    lines.append(f"file  {make_legible(str(place.path), 4096)}{position}")
    run = store.run_folder(record)
    if run.is_dir():
        request = record.request
        command = "command.sh"
        if request and request.launcher == "slurm":
            resources = request.nodes, request.ranks, request.threads
            command = f"`{slurm.allocation_command(*resources)} sh command.sh`"
        lines.append(f"run  {make_legible(str(run), 4096)} (run {command} there to repeat it)")
    return "\n".join(lines)


def _field_lines(parent: str, value: Any) -> Iterator[tuple[str, str]]:
    if value is None or value in ([], {}):
        return
    if isinstance(value, dict):
        for name, element in value.items():
            path = f"{parent}.{name}" if parent else name
            yield from _field_lines(make_legible(path, _MAX_CHARACTERS), element)
    elif isinstance(value, list) and any(isinstance(element, dict | list) for element in value):
        for number, element in enumerate(value[:_MAX_ELEMENTS], 1):
            yield from _field_lines(f"{parent}[{number}]", element)
        if len(value) > _MAX_ELEMENTS:
            yield parent, f"… {len(value)} in all"
    elif isinstance(value, list):
        words = ", ".join(
            make_legible(_format_value(element), _MAX_CHARACTERS)
            for element in value[:_MAX_ELEMENTS]
        )
        yield parent, words if len(value) <= _MAX_ELEMENTS else f"{words}, … ({len(value)} in all)"
    else:
        yield parent, _format_value(value)


def _format_value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
