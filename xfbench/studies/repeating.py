"""The options with which `study run` repeats the cells of given records."""

from __future__ import annotations

from collections.abc import Sequence

from xfbench.model.record import Record
from xfbench.planning import matching
from xfbench.planning.matrix import Matrix


def list_repeat_options(matrices: Sequence[Matrix], records: Sequence[Record]) -> tuple[str, ...]:
    """Return the options that restrict a study to the cells and launches of `records`.

    - `matrices`: the matrices of the study's size.
    - `records`: records of these matrices.

    An option is left out if the study file alone gives its value.
    """
    requests = [record.request for record in records if record.request]
    options: list[str] = []
    for option, field in (("--framework", "framework"), ("--workload", "workload")):
        names = dict.fromkeys(name for matrix in matrices for name in getattr(matrix, field))
        used = {getattr(request, field) for request in requests}
        if used and used != set(names):
            options += [option, ",".join(name for name in names if name in used)]
    if launches := _find_other_launches(matrices, records):
        options += ["--launches", str(launches)]
    return tuple(options)


def _find_other_launches(matrices: Sequence[Matrix], records: Sequence[Record]) -> int | None:
    """Return the fixed number of launches that differs from the study file; None if none does."""
    catalog = matching.Catalog()
    fixed = [
        (record.request, record.protocol.most)
        for record in records
        if record.request and record.protocol and record.protocol.precision is None
    ]
    numbers = [
        number
        for request, number in fixed
        if number
        not in [m.launches for m in matrices if matching.is_in_matrix(m, request, catalog)]
    ]
    return max(numbers, default=None)
