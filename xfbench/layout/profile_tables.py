"""How profiles look: one function per format, leaderboards in, text out.

A table per leaderboard, a line per layer and per kind of layer, a column per configuration that
was profiled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from xfbench.analysis.leaderboard import Row, Table
from xfbench.analysis.profiles import LayerTime, Profile
from xfbench.layout import formats

# So many layers have a line of their own, those in which most time goes; CSV and JSON have all.
MOST_LAYERS = 20
NOTHING = "No launch here was profiled: xfbench run --profile"


def profiled(table: Table) -> list[tuple[Row, Profile]]:
    """The rows that have a profile, ranked or not, the fastest first."""
    return [(row, row.profile) for row in (*table.rows, *table.unranked) if row.profile]


def heaviest(profiles: Sequence[Profile], most: int) -> list[str]:
    """The layers in which most time goes, over all of them, in the network's order."""
    names = list(dict.fromkeys(layer.layer for one in profiles for layer in one.layers))
    spent = {name: sum(_share(one, name) for one in profiles) for name in names}
    kept = set(sorted(names, key=lambda name: -spent[name])[:most])
    return [name for name in names if name in kept]


def of_layer(profile: Profile, name: str) -> LayerTime | None:
    """What the profile says of one layer."""
    return next((one for one in profile.layers if one.layer == name), None)


def milliseconds(seconds: float) -> str:
    """Three digits of them."""
    return f"{1e3 * seconds:.3g}"


def _share(profile: Profile, name: str) -> float:
    layer = of_layer(profile, name)
    return layer.seconds / profile.step_seconds if layer else 0.0


def _name(row: Row) -> str:
    parts = [row.framework, row.kernel, f"{row.threads} thread{'s' if row.threads > 1 else ''}"]
    parts += [f"{row.ranks} ranks"] if row.ranks > 1 else []
    return " · ".join(parts)


def _cell(layer: LayerTime | None) -> str:
    """Forward and backward, and how near to the limit both are together."""
    if layer is None:
        return "–"
    both = f"{milliseconds(layer.forward_seconds)} + {milliseconds(layer.backward_seconds)}"
    return both if layer.share_of_peak is None else f"{both} ({layer.share_of_peak:.0%})"


def _lines(found: Sequence[tuple[Row, Profile]]) -> Iterator[list[str]]:
    profiles = [profile for _, profile in found]
    kept = heaviest(profiles, MOST_LAYERS)
    for name in kept:
        layers = [of_layer(one, name) for one in profiles]
        kind = next(layer.kind for layer in layers if layer)
        yield [name, kind, *map(_cell, layers)]
    rest = [[layer for layer in one.layers if layer.layer not in kept] for one in profiles]
    if count := max(map(len, rest)):
        directions = ("forward_seconds", "backward_seconds")
        spent = [[sum(getattr(layer, d) for layer in own) for d in directions] for own in rest]
        yield [f"{count} more", "", *(" + ".join(map(milliseconds, both)) for both in spent)]
    for kind in _kinds(profiles):
        same = [next((k for k in one.kinds if k.kind == kind), None) for one in profiles]
        yield [next(one.layer for one in same if one), kind, *map(_cell, same)]
    for name, seconds in (
        ("update", [one.update_seconds for one in profiles]),
        ("other operations", [one.other_seconds for one in profiles]),
        ("between operations", [one.unseen_seconds for one in profiles]),
        ("step", [one.step_seconds for one in profiles]),
    ):
        yield [name, "", *map(milliseconds, seconds)]


def _kinds(profiles: Sequence[Profile]) -> list[str]:
    """Of several layers each, those in which most time goes first, over all profiles."""
    spent: dict[str, float] = {}
    for one in profiles:
        for same in one.kinds:
            spent[same.kind] = spent.get(same.kind, 0.0) + same.seconds / one.step_seconds
    return sorted(spent, key=lambda kind: -spent[kind])


def _notes(found: Sequence[tuple[Row, Profile]]) -> Iterator[str]:
    yield (
        "Milliseconds of a step, forward + backward, as each framework's own profiler saw them "
        "after the timed steps; in brackets, of the limit of these cores. It slows steps down, "
        "and what runs at once counts each by itself: not a measure of speed."
    )
    for row, one in found:
        launches = f"{one.launches} launch{'es' if one.launches > 1 else ''}"
        yield f"{_name(row)}: {one.profiler}, {launches}, {one.slowdown:.2f} times a timed step"


def _document(tables: Sequence[Table], into: formats.Format) -> str:
    parts: list[str] = []
    for table in tables:
        if found := profiled(table):
            parts.append(into.above(table.title))
            headers = ["layer", "kind", *(_name(row) for row, _ in found)]
            parts.append(into.table(headers, list(_lines(found))))
            parts += map(into.below, _notes(found))
            parts.append("")
    return "\n".join(parts or [into.below(NOTHING)])


def as_json(tables: Sequence[Table]) -> str:
    """One JSON document, which has all that there is."""
    return json.dumps({"profiles": list(_flat(tables))}, indent=1)


def as_csv(tables: Sequence[Table]) -> str:
    """One line per configuration and layer, numbers in full; nothing runs in a spreadsheet."""
    lines = []
    for told in _flat(tables):
        layers, _ = told.pop("layers"), told.pop("kinds")
        lines += [{**told, **layer} for layer in layers]
    return formats.as_csv(lines)


def _flat(tables: Sequence[Table]) -> Iterator[dict[str, Any]]:
    heads = ("workload", "data", "device", "precision", "scaling", "batch_size", "machine")
    rows = ("framework", "framework_version", "kernel", "threads", "ranks", "strategy", "cell")
    for table in tables:
        for row, one in profiled(table):
            yield {
                **{name: getattr(table, name) for name in heads},
                **{name: getattr(row, name) for name in rows},
                **asdict(one),
                "unseen_seconds": one.unseen_seconds,
                "kinds": [asdict(same) for same in one.kinds],
            }


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {
    **{name: partial(_document, into=into) for name, into in formats.FORMATS.items()},
    "csv": as_csv,
    "json": as_json,
}
