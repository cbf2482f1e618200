"""Captions of tables for papers, in sentences, and their labels.

A reader of a paper knows neither xfbench nor its headings. A caption says what was measured, on
what, and with which versions. A label is the same on every machine, so that references to a table
stay valid when it is measured again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from xfbench.analysis.leaderboard import Row, Table
from xfbench.analysis.slowdown import BEST, Slowdown
from xfbench.model.request import describe_batch_share
from xfbench.rendering.fitting import SETTINGS
from xfbench.rendering.formats import make_latex_label

_SUBJECTS = {
    "throughput": "Training throughput in images/s",
    "steps": "Time of training steps",
    "costs": "Time, memory and energy of training",
    "accuracy": "Test accuracy after training",
    "communication": "Communication between ranks in training",
    "storage": "Input and checkpoints in training",
    "layers": "Time of each layer in a training step",
}
_DEVICES = {"cpu": "CPU", "cuda": "GPU"}
# Settings that a label has if they differ between the tables of one output, and words before them.
_LABEL_SETTINGS = {
    **dict.fromkeys(("solver", "data", "precision", "scaling"), ""),
    "batch_size": "batch",
}
_STARTS_WITH_COUNT = re.compile(r"\d+ ")


def describe_leaderboard(
    table: Table, view: str, readers: Mapping[str, Callable[[Row], str]], shown: Sequence[str]
) -> str:
    """Return what a leaderboard measures, in sentences.

    - `view`: a key of `tables.COLUMNS`, or "layers".
    - `readers`: function that returns a row's text, for each column that the view has.
    - `shown`: names of the columns that the table shows. Settings in other columns are named.
    """
    rows = (*table.rows, *table.unranked)
    hidden = {name: list(map(read, rows)) for name, read in readers.items() if name not in shown}
    sentences = [
        f"{_SUBJECTS[view]}{_describe_training(table)}.",
        describe_machine(table.machine, table.device),
        *_describe_frameworks(rows, hidden),
        *_describe_launches(rows),
    ]
    if table.by:
        sentences.append(f"Each row is the best configuration by {_join_words(table.by)}.")
    return " ".join(sentences)


def describe_slowdown(table: Slowdown) -> str:
    """Return what a table of slowdowns shows, in sentences."""
    reference = "the fastest row of each network" if table.reference == BEST else table.reference
    scaling = f" under {table.scaling} scaling" if table.scaling else ""
    rows = [entry.row for line in table.lines for entry in line.entries if entry.row]
    versions = {"version": [row.framework_version or "–" for row in rows]}
    sentences = [
        f"Slowdown of training in {table.precision}{scaling}: the time for the same number of "
        f"images, divided by that of {reference}.",
        describe_machine(table.machine, table.device),
        *_describe_frameworks(rows, versions),
        *_describe_launches(rows, "figure"),
        f"Each row is the best configuration by {_join_words(table.by)}.",
    ]
    return " ".join(sentences)


def describe_machine(machine: str, device: str) -> str:
    """Return the sentence about the machine and its device. Either may be empty."""
    device_name = _DEVICES.get(device, device)
    if not machine:
        return f"Training ran on the {device_name}." if device else "The machines differ."
    verb = "has" if _STARTS_WITH_COUNT.match(machine) else "is"
    place = f"; training ran on its {device_name}" if device else ""
    return f"The machine {verb} {machine}{place}."


def label_leaderboards(tables: Sequence[Table], view: str) -> list[str]:
    """Return a label for each leaderboard, from its network, view, device and groups."""
    view_name = "" if view == "throughput" else view
    names = [
        (table.workload, view_name, table.device, *(("by", *table.by) if table.by else ()))
        for table in tables
    ]
    return _add_differing_settings(names, [vars(table) for table in tables])


def label_slowdowns(tables: Sequence[Slowdown]) -> list[str]:
    """Return a label for each table of slowdowns."""
    names = [("slowdown", table.device) for table in tables]
    return _add_differing_settings(names, [vars(table) for table in tables])


def _add_differing_settings(
    names: Sequence[tuple[str, ...]], settings: Sequence[Mapping[str, object]]
) -> list[str]:
    """Return a label for each table. Tables of the same name say in what they differ.

    Tables that differ only in their machine have the same label.
    """
    labels = []
    for name, table in zip(names, settings, strict=True):
        namesakes = [values for each, values in zip(names, settings, strict=True) if each == name]
        details = [
            f"{prefix} {table[key] or ''}"
            for key, prefix in _LABEL_SETTINGS.items()
            if len({values.get(key) for values in namesakes}) > 1
        ]
        labels.append(make_latex_label("tab", " ".join([*name, *details])))
    return labels


def _describe_training(table: Table) -> str:
    data = "synthetic images" if table.data == "synthetic" else f"the data set {table.data}"
    images = "image" if table.batch_size == 1 else "images"
    each = describe_batch_share(table.scaling)
    return "".join(
        [
            f" of {table.workload}" if table.workload else "",
            f" on {data}" if table.data else "",
            f" in {table.precision}" if table.precision else "",
            f", with a batch of {table.batch_size} {images}{each}" if table.batch_size else "",
            f", under {table.scaling} scaling" if table.scaling else "",
            f" (solver: {table.solver})" if table.solver else "",
        ]
    )


def _describe_frameworks(rows: Sequence[Row], hidden: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the frameworks with their versions, and the settings that no column shows.

    A setting that differs between rows of one framework is left out: it has a column, unless the
    user chose other ones.
    """
    equal = {
        name: texts[0] for name, texts in hidden.items() if name in SETTINGS and len({*texts}) == 1
    }
    frameworks = []
    for framework in dict.fromkeys(row.framework for row in rows):
        details = {
            name: {
                text
                for row, text in zip(rows, hidden[name], strict=True)
                if row.framework == framework
            }
            for name in ("version", "kernel", "threads")
            if name in hidden and (name == "version" or name not in equal)
        }
        versions = " and ".join(sorted(details.pop("version", {"–"}) - {"–"}))
        settings = [
            _name_setting(name, *texts) for name, texts in details.items() if len(texts) == 1
        ]
        brackets = f" ({', '.join(settings)})" if settings else ""
        frameworks.append(f"{framework}{versions and f' {versions}'}{brackets}")
    common = [
        _name_setting(name, text)
        for name, text in equal.items()
        if name not in ("framework", "version") and text != "–"
    ]
    verb = "framework is" if len(frameworks) == 1 else "frameworks are"
    common_text = f", with {_join_words(common)}" if common else ""
    yield f"The {verb} {_join_words(frameworks)}{common_text}."


def _name_setting(name: str, text: str) -> str:
    if name == "threads":
        return "1 thread" if text == "1" else f"{text} threads"
    if (name, text) == ("reader", "ours"):
        return "the data reader of xfbench"
    return f"kernel library {text}" if name == "kernel" else f"{name} {text}"


def _describe_launches(rows: Sequence[Row], subject: str = "row") -> Iterator[str]:
    counts = [row.images_per_second.launches for row in rows if row.images_per_second]
    if counts:
        low, high = min(counts), max(counts)
        number = f"{low} to {high}" if low < high else str(low)
        plural = "" if high == 1 else "es"
        yield f"Each {subject} has {number} launch{plural} in fresh processes."


def _join_words(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
