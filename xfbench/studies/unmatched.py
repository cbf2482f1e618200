"""Why no record of a results folder or an archive belongs to a study's cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xfbench.model.record import Record
from xfbench.model.strategy import format_options
from xfbench.planning import matching
from xfbench.planning.experiment import Experiment
from xfbench.planning.matrix import Matrix
from xfbench.planning.study_form import Size
from xfbench.studies import cells
from xfbench.studies.wording import join_words

_MAX_VALUES = 4


def explain_unmatched_records(
    study: Experiment, size: Size | None, name: str, records: Sequence[Record]
) -> str | None:
    """Return a sentence that says why none of the records belongs to the study's cells.

    Return None if one does.

    - `size`: size of the study; None: any size.
    - `name`: name of the file or folder with the records.
    """
    matched_sizes = [each for each in study.sizes if cells.select_records(study, each, records)]
    if size in matched_sizes or (size is None and matched_sizes):
        return None
    place = f"{study.name}, size {size}" if size else study.name
    if not records:
        return f"{name} has no record for {place}."
    if matched_sizes:
        sizes_text = join_words(matched_sizes)
        reason = f"its records belong to the size {sizes_text}, which --size chooses"
    else:
        sizes = [size] if size else study.sizes
        matrices = [matrix for each in sizes for matrix in study.matrices_of_size(each)]
        reason = _describe_differences(matrices, records)
    return f"No record of {name} belongs to a cell of {place}: {reason}."


def _describe_differences(matrices: Sequence[Matrix], records: Iterable[Record]) -> str:
    """Return in which settings most records differ from the matrix that they resemble most."""
    catalog = matching.Catalog()
    requests = [each.request for each in records if each.source == "measured" and each.request]
    differences = [
        min((tuple(matching.find_mismatches(m, request, catalog)) for m in matrices), key=len)
        for request in requests
    ]
    if not differences:
        return "its records are figures of other tools or sources"
    names = [tuple(each.setting for each in mismatches) for mismatches in differences]
    most_common, _ = Counter(names).most_common(1)[0]
    similar = [
        each for each, settings in zip(differences, names, strict=True) if settings == most_common
    ]
    phrases = []
    for position, setting in enumerate(most_common):
        values = _list_values(each[position].value for each in similar)
        allowed = _list_values(value for each in similar for value in each[position].allowed)
        contrast = f" (the study has {allowed})" if allowed else ""
        phrases.append(f"{setting.replace('_', ' ')} {values}{contrast}")
    return f"its records have {join_words(phrases)}"


def _list_values(values: Iterable[Any]) -> str:
    """Return the different values, separated by commas; at most `_MAX_VALUES` of them."""
    texts = [*dict.fromkeys(map(_format_value, values))]
    return ", ".join([*texts[:_MAX_VALUES], *(["…"] if len(texts) > _MAX_VALUES else [])])


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):  # options of a strategy
        return format_options(value.items()) or "none"
    return "none" if value is None else str(value)
