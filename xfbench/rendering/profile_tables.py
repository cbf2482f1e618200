"""Text formats of layer profiles, with one function per format.

Each leaderboard has one table. Its lines are layers, kinds of layers and parts of a step. Each
profiled configuration has a column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from xfbench.analysis.leaderboard import Row, Table
from xfbench.analysis.profiles import LayerTime, Profile
from xfbench.base.wording import pluralize
from xfbench.rendering import captions, formats

# Only the layers that take the most time have their own line. CSV and JSON have all layers.
MAX_LAYERS = 20
# Above this ratio of their factors, two profilers slow steps down too differently to compare.
UNEQUAL_PROFILERS = 1.1
NO_PROFILE = "No launch has a profile: use xfbench run --profile"


def profiled_rows(table: Table) -> list[tuple[Row, Profile]]:
    """Return pairs of a row and its profile, for the rows that have one. Ranked rows are first."""
    return [(row, row.profile) for row in (*table.rows, *table.unranked) if row.profile]


def heaviest_layers_in_network_order(profiles: Sequence[Profile], max_layers: int) -> list[str]:
    """Return the names of the `max_layers` layers that take the most time, in network order.

    The layers are compared by their share of the step's time, summed over all profiles.
    """
    names = list(dict.fromkeys(layer.layer for profile in profiles for layer in profile.layers))
    total_shares = {
        name: sum(_layer_share_of_step(profile, name) for profile in profiles) for name in names
    }
    heaviest = set(sorted(names, key=lambda name: -total_shares[name])[:max_layers])
    return [name for name in names if name in heaviest]


def find_layer(profile: Profile, name: str) -> LayerTime | None:
    """Return the times of the layer `name`, or None if the profile has no such layer."""
    return next((layer for layer in profile.layers if layer.layer == name), None)


def format_milliseconds(seconds: float) -> str:
    """Return seconds as milliseconds with three significant digits, without the unit."""
    return f"{1e3 * seconds:.3g}"


def describe_profiler_factor(profile: Profile) -> str:
    """Return how many times as long as a timed step a profiled step takes, as a clause.

    No profiler makes a step faster. A factor far below 1 comes from a disturbance.
    """
    clause = f"a profiled step takes {profile.slowdown:.2f} times as long as a timed one"
    if profile.slowdown * UNEQUAL_PROFILERS < 1:
        clause += " (less than 1: disturbed, repeat it)"
    return clause


def _layer_share_of_step(profile: Profile, layer_name: str) -> float:
    layer = find_layer(profile, layer_name)
    return layer.seconds / profile.step_seconds if layer else 0.0


def _configuration_name(row: Row) -> str:
    parts = [row.framework, row.kernel, pluralize(row.threads, "thread")]
    parts += [f"{row.ranks} ranks"] if row.ranks > 1 else []
    return " · ".join(parts)


def _format_times_and_peak_share(layer: LayerTime | None) -> str:
    """Return the forward and the backward time in milliseconds, such as "1.2 + 2.3 (45%)".

    The percentage is the layer's speed relative to a matrix product on the same device. The text
    leaves out a percentage that is not known. For None, return "–".
    """
    if layer is None:
        return "–"
    both = (
        f"{format_milliseconds(layer.forward_seconds)} + "
        f"{format_milliseconds(layer.backward_seconds)}"
    )
    return both if layer.share_of_peak is None else f"{both} ({layer.share_of_peak:.0%})"


def _lines_of_layers_kinds_and_step_parts(
    row_profiles: Sequence[tuple[Row, Profile]],
) -> Iterator[list[str]]:
    profiles = [profile for _, profile in row_profiles]
    heaviest_names = heaviest_layers_in_network_order(profiles, MAX_LAYERS)
    for name in heaviest_names:
        layers = [find_layer(profile, name) for profile in profiles]
        kind = next(layer.kind for layer in layers if layer)
        yield [name, kind, *map(_format_times_and_peak_share, layers)]
    other_layers = [
        [layer for layer in profile.layers if layer.layer not in heaviest_names]
        for profile in profiles
    ]
    if count := max(map(len, other_layers)):
        directions = ("forward_seconds", "backward_seconds")
        other_seconds = [
            [sum(getattr(layer, d) for layer in group) for d in directions]
            for group in other_layers
        ]
        yield [
            f"{count} more",
            "",
            *(" + ".join(map(format_milliseconds, both)) for both in other_seconds),
        ]
    for kind in _multi_layer_kinds_by_time(profiles):
        kind_layers = [
            next((k for k in profile.multi_layer_kind_totals if k.kind == kind), None)
            for profile in profiles
        ]
        yield [
            next(layer.layer for layer in kind_layers if layer),
            kind,
            *map(_format_times_and_peak_share, kind_layers),
        ]
    for name, seconds in (
        ("update", [profile.update_seconds for profile in profiles]),
        ("other operations", [profile.other_seconds for profile in profiles]),
        (
            "rest of the step",
            [profile.step_seconds - profile.operation_seconds for profile in profiles],
        ),
        ("step", [profile.step_seconds for profile in profiles]),
    ):
        yield [name, "", *map(format_milliseconds, seconds)]


def _multi_layer_kinds_by_time(profiles: Sequence[Profile]) -> list[str]:
    """Return the kinds of layer of which a network has several layers, slowest kind first.

    The kinds are compared by their share of the step's time, summed over all profiles.
    """
    share_by_kind: dict[str, float] = {}
    for profile in profiles:
        for layer in profile.multi_layer_kind_totals:
            share_by_kind[layer.kind] = (
                share_by_kind.get(layer.kind, 0.0) + layer.seconds / profile.step_seconds
            )
    return sorted(share_by_kind, key=lambda kind: -share_by_kind[kind])


def _notes_under_table(row_profiles: Sequence[tuple[Row, Profile]]) -> Iterator[str]:
    yield (
        "Milliseconds of a step, forward + backward, from each framework's own profiler after the "
        "timed steps. In brackets: the share of a matrix product's speed on the same cores. "
        "A profiler slows steps down and counts concurrent work separately, so these times do not "
        "measure speed."
    )
    for row, profile in row_profiles:
        launches = pluralize(profile.launches, "launch")
        yield (
            f"{_configuration_name(row)}: {profile.profiler}, {launches}, "
            f"{describe_profiler_factor(profile)}"
        )
    noisy = [row.framework for row, _ in row_profiles if row.noisy]
    if noisy:
        yield f"Launches of {', '.join(dict.fromkeys(noisy))} were noisy: repeat the profile."
    names = _shortest_names(row_profiles)
    for name, (_, profile) in zip(names, row_profiles, strict=True):
        overlap = profile.operation_seconds / profile.step_seconds
        if overlap > UNEQUAL_PROFILERS:
            yield (
                f"{name}: its operations add up to {overlap:.2f} times its step, because they ran "
                "at the same time or were timed separately. Its layers may not be compared with "
                "those of others."
            )
    yield from _list_incomparable_columns(names, [profile for _, profile in row_profiles])


def _shortest_names(row_profiles: Sequence[tuple[Row, Profile]]) -> list[str]:
    """Return the framework of each column, with its settings if another column has the same."""
    frameworks = [row.framework for row, _ in row_profiles]
    return [
        row.framework if frameworks.count(row.framework) == 1 else _configuration_name(row)
        for row, _ in row_profiles
    ]


def _list_incomparable_columns(names: Sequence[str], profiles: Sequence[Profile]) -> Iterator[str]:
    """Yield sentences that say which columns differ too much in the factors of their profilers.

    The first sentence is about the column with most partners. Each pair is named once.
    """
    factors = [profile.slowdown for profile in profiles]
    partners = {
        n: [
            m
            for m in range(len(names))
            if max(factors[n], factors[m]) > UNEQUAL_PROFILERS * min(factors[n], factors[m])
        ]
        for n in range(len(names))
    }
    while any(partners.values()):
        column = max(partners, key=lambda n: len(partners[n]))
        unequal = partners.pop(column)
        partners = {n: [m for m in each if m != column] for n, each in partners.items()}
        yield (
            f"{names[column]} may not be compared with {', '.join(names[n] for n in unequal)}: "
            f"these factors differ by more than {100 * (UNEQUAL_PROFILERS - 1):.0f} %."
        )


def _render(
    tables: Sequence[Table],
    max_width: int | None = None,
    caption: str | None = None,
    label: str | None = None,
    *,
    table_format: formats.Format,
) -> str:
    """Return the layers as text.

    If a table is wider than `max_width` characters, in LaTeX points, its configurations are divided
    among several tables. `caption` and `label` replace those of a table in LaTeX.
    """
    parts: list[str] = []
    tables = [table for table in tables if profiled_rows(table)]
    labels = [label] * len(tables) if label else captions.label_leaderboards(tables, "layers")
    for table, table_label in zip(tables, labels, strict=True):
        row_profiles = profiled_rows(table)
        parts.append(table_format.render_heading(table.title, max_width))
        headers = ["layer", "kind", *(_configuration_name(row) for row, _ in row_profiles)]
        lines = list(_lines_of_layers_kinds_and_step_parts(row_profiles))
        title = f"Layers: {table.title}"
        description = captions.describe_leaderboard(table, "layers", {}, ())
        parts += table_format.render_tables_that_fit(
            headers,
            lines,
            max_width,
            2,
            title,
            caption or formats.make_latex_caption(description),
            table_label,
        )
        parts += [
            table_format.render_note(note, max_width) for note in _notes_under_table(row_profiles)
        ]
        parts.append("")
    return table_format.join(parts or [table_format.render_note(NO_PROFILE, max_width)])


def to_json(
    tables: Sequence[Table],
    ignored_max_width: int | None = None,
    ignored_caption: str | None = None,
    ignored_label: str | None = None,
) -> str:
    """Return one JSON document with all layers.

    All functions of `FORMATS` have the same parameters. Here, the others have no effect.
    """
    return json.dumps({"profiles": list(_profile_documents(tables))}, indent=1)


def to_csv(
    tables: Sequence[Table],
    ignored_max_width: int | None = None,
    ignored_caption: str | None = None,
    ignored_label: str | None = None,
) -> str:
    """Return one CSV line per configuration and layer, with all digits.

    The other parameters have no effect.
    """
    lines = []
    for columns in _profile_documents(tables):
        layers, _ = columns.pop("layers"), columns.pop("kinds")
        lines += [{**columns, **layer} for layer in layers]
    return formats.to_csv(lines)


def _profile_documents(tables: Sequence[Table]) -> Iterator[dict[str, Any]]:
    heads = ("workload", "data", "device", "precision", "scaling", "batch_size", "machine")
    rows = ("framework", "framework_version", "kernel", "threads", "ranks", "strategy", "cell")
    for table in tables:
        for row, profile in profiled_rows(table):
            yield {
                **{name: getattr(table, name) for name in heads},
                **{name: getattr(row, name) for name in rows},
                **asdict(profile),
                "unseen_seconds": profile.outside_all_operations_seconds,
                "kinds": [asdict(layer) for layer in profile.multi_layer_kind_totals],
            }


FORMATS: dict[str, Callable[..., str]] = {
    **formats.renderers_by_format(_render),
    "csv": to_csv,
    "json": to_json,
}
