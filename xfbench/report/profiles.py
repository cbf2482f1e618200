"""The figure of where a step's time goes: layer by layer, framework against framework."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xfbench.analysis.leaderboard import Row, Table
from xfbench.analysis.profiles import LayerTime, Profile
from xfbench.layout.profile_tables import (
    find_layer,
    format_milliseconds,
    heaviest_layers,
    profiled_rows,
)
from xfbench.report.figures import MOST_BARS, MOST_NAMED, Bar, Figure, name

_HEADERS = (
    *("configuration", "layer", "kind", "forward ms", "backward ms"),
    *("of the step", "GFLOP/s", "of the limit", "profiler"),
)


def figures(table: Table) -> list[Figure]:
    """Seconds of the layers in which most time goes, of all rows that were profiled."""
    found = profiled_rows(table)
    if not found:
        return []
    profiles = [profile for _, profile in found]
    names = heaviest_layers(profiles, max(1, MOST_BARS // len(found)))
    bars = [
        Bar(f"{layer} · {name(row)}", 1e3 * seen.seconds)
        for layer in names
        for row, profile in found
        if (seen := find_layer(profile, layer))
    ]
    most = [(name(row), max(one.layers, key=lambda layer: layer.seconds)) for row, one in found]
    sentences = [
        f"{label}: most in {layer.layer}, {format_milliseconds(layer.seconds)} ms"
        for label, layer in most[:MOST_NAMED]
    ]
    count = max(len(one.layers) for one in profiles)
    less = f"Drawn are the {len(names)} of {count} layers in which most time goes; all are in "
    return [
        Figure(
            title="Where the time goes",
            description=(
                "Milliseconds of a step by layer, forward and backward together, as each "
                "framework's own profiler saw them after the timed steps, which it slows down. "
                f"{'; '.join(sentences)}."
            ),
            y="ms of a step",
            headers=_HEADERS,
            data=tuple(line for row, profile in found for line in _lines(row, profile)),
            bars=tuple(bars[:MOST_BARS]),
            note=f"{less}the data." if len(names) < count else "",
        )
    ]


def _lines(row: Row, profile: Profile) -> Iterator[tuple[str, ...]]:
    for layer in profile.layers:
        yield _line(row, profile, layer)
    rest: Sequence[tuple[str, float]] = (
        ("update", profile.update_seconds),
        ("other operations", profile.other_seconds),
        ("between operations", profile.unseen_seconds),
    )
    for part, seconds in rest:
        share = f"{seconds / profile.step_seconds:.1%}"
        spent = format_milliseconds(seconds)
        yield name(row), part, "–", spent, "–", share, "–", "–", profile.profiler


def _line(row: Row, profile: Profile, layer: LayerTime) -> tuple[str, ...]:
    return (
        name(row),
        layer.layer,
        layer.kind,
        format_milliseconds(layer.forward_seconds),
        format_milliseconds(layer.backward_seconds),
        f"{layer.seconds / profile.step_seconds:.1%}",
        "–" if layer.flops is None else f"{layer.flops / 1e9:.3g}",
        "–" if layer.share_of_peak is None else f"{layer.share_of_peak:.0%}",
        profile.profiler,
    )
