"""The figure of the time per layer, for the first profiled rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xfbench.analysis.leaderboard import Row, Table
from xfbench.analysis.profiles import LayerTime, Profile
from xfbench.rendering.profile_tables import (
    find_layer,
    format_milliseconds,
    heaviest_layers_in_network_order,
    profiled_rows,
)
from xfbench.rendering.report.figures import MOST_BARS, MOST_NAMED, Bar, Figure, row_name

_HEADERS = (
    *("configuration", "layer", "kind", "forward ms", "backward ms"),
    *("of the step", "GFLOP/s", "of the limit", "profiler"),
)


def build_layer_time_figures(table: Table, max_rows: int = MOST_BARS) -> list[Figure]:
    """Return a list with one figure: the times of the layers that take the most time.

    The figure and its data show the first `max_rows` rows with a profile (at most MOST_BARS).
    Return an empty list if no row has a profile.
    """
    all_profiled = profiled_rows(table)
    profiled = all_profiled[:max_rows]
    if not profiled:
        return []
    profiles = [profile for _, profile in profiled]
    names = heaviest_layers_in_network_order(profiles, max(1, MOST_BARS // len(profiled)))
    bars = [
        Bar(f"{layer} · {row_name(row)}", 1e3 * layer_time.seconds)
        for layer in names
        for row, profile in profiled
        if (layer_time := find_layer(profile, layer))
    ]
    slowest_layers = [
        (row_name(row), max(profile.layers, key=lambda layer: layer.seconds))
        for row, profile in profiled
    ]
    sentences = [
        f"{label}: slowest layer {layer.layer}, {format_milliseconds(layer.seconds)} ms"
        for label, layer in slowest_layers[:MOST_NAMED]
    ]
    count = max(len(profile.layers) for profile in profiles)
    notes = []
    if len(names) < count:
        notes.append(
            f"Shows the {len(names)} of {count} layers that take the most time; all are in the "
            "data table."
        )
    if len(profiled) < len(all_profiled):
        notes.append(
            f"Shows the first {len(profiled)} of {len(all_profiled)} rows with a profile; "
            "xfbench leaderboard --view layers has all."
        )
    return [
        Figure(
            title="Time per layer",
            description=(
                "Milliseconds of a step by layer, forward plus backward, from each framework's "
                "own profiler after the timed steps. A profiler slows steps down. "
                f"{'; '.join(sentences)}."
            ),
            y="ms of a step",
            headers=_HEADERS,
            data=tuple(
                line
                for row, profile in profiled
                for line in _layer_and_step_part_rows(row, profile)
            ),
            bars=tuple(bars[:MOST_BARS]),
            note=" ".join(notes),
        )
    ]


def _layer_and_step_part_rows(row: Row, profile: Profile) -> Iterator[tuple[str, ...]]:
    for layer in profile.layers:
        yield _layer_row(row, profile, layer)
    other_parts: Sequence[tuple[str, float]] = (
        ("update", profile.update_seconds),
        ("other operations", profile.other_seconds),
        ("between operations", profile.outside_all_operations_seconds),
    )
    for part, seconds in other_parts:
        share = f"{seconds / profile.step_seconds:.1%}"
        milliseconds = format_milliseconds(seconds)
        yield row_name(row), part, "–", milliseconds, "–", share, "–", "–", profile.profiler


def _layer_row(row: Row, profile: Profile, layer: LayerTime) -> tuple[str, ...]:
    return (
        row_name(row),
        layer.layer,
        layer.kind,
        format_milliseconds(layer.forward_seconds),
        format_milliseconds(layer.backward_seconds),
        f"{layer.seconds / profile.step_seconds:.1%}",
        "–" if layer.flops is None else f"{layer.flops / 1e9:.3g}",
        "–" if layer.share_of_peak is None else f"{layer.share_of_peak:.0%}",
        profile.profiler,
    )
