"""The comparison of two profiled rows, layer by layer: why is one row faster?

The page has all profiles once, as compact JSON (`Comparison.data`). Its script compares the two
rows that the reader chooses. This module compares the first two rows, for readers without scripts.
`page.js` writes the same texts for the same rows.

Layers are matched by name, and only between rows that train the same definition of a network. The
names are those of the workload's layers, because each adapter gives its profile by these names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from itertools import combinations, pairwise
from typing import Any

from xfbench.analysis.profiles import LayerTime, Profile
from xfbench.base.terminal_text import make_legible
from xfbench.base.wording import pluralize
from xfbench.rendering import tables
from xfbench.rendering.profile_tables import describe_profiler_factor
from xfbench.rendering.report.content import Entry, Network
from xfbench.rendering.report.repeat import example_profile_command, profile_command_display_parts

# The page has at most MAX_ROWS rows, and about MAX_TIMES times of their layers.
MAX_ROWS, MAX_TIMES = 200, 40_000
SHOWN_LINES = 20  # lines of a table that are shown at first
# If the steps differ by a smaller share, the difference is not divided among the layers.
LEAST_DIFFERENCE = 0.01
# If the profilers change the difference by a larger share of it, it is not divided either.
MOST_CHANGE = 0.5
_STEP_PARTS = ("update", "other operations", "between operations, less overlap")
_MIN_MICROSECONDS, _MAX_MICROSECONDS, _MAX_PERCENT = 1e-6, 1e9, 9999
_MAX_REFUSALS = 4
_UNKNOWN = "–"


@dataclass(frozen=True)
class LayerGroup:
    """The lines of all rows that train one definition of a network.

    They are the layers of the network and then the other parts of a step.

    - `names`: names of the layers and parts.
    - `kinds`: kind of each layer, such as "Convolution"; "–" if it is unknown or a part.
    - `units`: "FLOP/s", "B/s" or "": what the limit of each line is about.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    units: tuple[str, ...]


@dataclass(frozen=True)
class ProfiledRow:
    """A row that the reader can choose.

    - `board`, `group`: positions of its leaderboard and of its group in the comparison.
    - `images_per_second`: throughput without a profiler; 0 if it is unknown.
    - `is_ranked`: whether its leaderboard ranks the row.
    - `step`: duration of a profiled step, in microseconds per image of all ranks.
    - `times`: the part of `step` of each line of the group. 0: no operation was seen.
    - `limits`: speed of each line in percent of the machine's limit; None if unknown.
    """

    name: str
    details: str
    board: int
    group: int
    images_per_second: float
    is_ranked: bool
    step: float
    times: tuple[float, ...]
    limits: tuple[int | None, ...]

    @property
    def timed_step(self) -> float:
        """Return the duration of a step without a profiler, in µs per image; 0: unknown."""
        return 1e6 / self.images_per_second if self.images_per_second else 0.0


@dataclass(frozen=True)
class Line:
    """A line of a table as texts. `bar` is the length of its bar, "-100.0" to "100.0", or None."""

    fields: tuple[str, ...]
    bar: str | None = None


@dataclass(frozen=True)
class ProfileCommand:
    """The command that profiles a row, as parts. `missing_options`: see `content.Entry`."""

    name: str
    parts: tuple[str, ...]
    missing_options: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """The rows that can be compared, and the comparison of the first two.

    - `boards`: the titles of the leaderboards.
    - `omitted_rows`: number of rows with a profile that are not in `rows`.
    - `first_pair`: positions in `rows` of the two rows that are compared at first, faster row
      first; empty if no network has two profiled rows. Then `commands` profile the missing rows,
      and `refusals` says why other rows have no profile. `example_command` has the parts of a
      command for the case that there are no commands.
    """

    boards: tuple[str, ...] = ()
    groups: tuple[LayerGroup, ...] = ()
    rows: tuple[ProfiledRow, ...] = ()
    first_pair: tuple[int, ...] = ()
    omitted_rows: int = 0
    commands: tuple[ProfileCommand, ...] = ()
    refusals: tuple[str, ...] = ()
    example_command: tuple[str, ...] = ()
    shown_lines: int = SHOWN_LINES

    @property
    def data(self) -> dict[str, Any]:
        """Return the document from which the page's script compares any two rows."""
        return {
            "boards": self.boards,
            "groups": [[group.names, group.kinds, group.units] for group in self.groups],
            "rows": [
                {
                    "name": row.name,
                    "details": row.details,
                    "board": row.board,
                    "group": row.group,
                    "speed": row.images_per_second,
                    "step": row.step,
                    "times": row.times,
                    "limits": row.limits,
                }
                for row in self.rows
            ],
            "pair": self.first_pair,
            "shown": self.shown_lines,
            "least": LEAST_DIFFERENCE,
            "most": MOST_CHANGE,
        }

    @property
    def pair(self) -> tuple[ProfiledRow, ProfiledRow]:
        """Return the two rows that are compared at first."""
        a, b = (self.rows[position] for position in self.first_pair)
        return a, b

    @property
    def notes(self) -> set[str]:
        """Return the names of the notes that apply to the first two rows."""
        a, b = self.pair
        if a.group != b.group:
            return {"unmatched"}
        obstacle = _find_obstacle(a, b)
        return {*(["boards"] if a.board != b.board else []), *([obstacle] if obstacle else [])}

    @property
    def verdict(self) -> str:
        """Return a sentence about the steps of the first two rows, without and with a profiler."""
        a, b = self.pair
        return (
            f"A step takes {_format_time(a.timed_step)} µs per image in A and "
            f"{_format_time(b.timed_step)} µs in B. With a profiler, it takes "
            f"{_format_number(a.step)} µs in A and {_format_number(b.step)} µs in B."
        )

    @property
    def matched_lines(self) -> list[Line]:
        """Return the lines of the first two rows side by side, the largest difference first.

        Return an empty list if their layers cannot be matched.
        """
        a, b = self.pair
        if a.group != b.group:
            return []
        group = self.groups[a.group]
        differences = [time_b - time_a for time_a, time_b in zip(a.times, b.times, strict=True)]
        largest = max(map(abs, differences), default=0.0)
        places = sorted(range(len(differences)), key=lambda place: -abs(differences[place]))
        return [
            Line(
                (
                    group.names[place],
                    group.kinds[place],
                    _format_time(a.times[place]),
                    _format_time(b.times[place]),
                    _format_ratio(a.times[place], b.times[place]),
                    _format_percent(differences[place] / (b.step - a.step))
                    if not _find_obstacle(a, b)
                    else _UNKNOWN,
                    _format_limit(a.limits[place], group.units[place]),
                    _format_limit(b.limits[place], group.units[place]),
                ),
                _format_fixed(100 * differences[place] / largest if largest else 0.0, 1),
            )
            for place in places
        ]

    @property
    def matched_total(self) -> Line:
        """Return the line of the whole step of the first two rows."""
        a, b = self.pair
        share = _UNKNOWN if _find_obstacle(a, b) else "100%"
        ratio = _format_ratio(a.step, b.step)
        fields = ("step", _UNKNOWN, _format_time(a.step), _format_time(b.step), ratio, share)
        return Line((*fields, _UNKNOWN, _UNKNOWN))

    @property
    def separate_lines(self) -> list[list[Line]]:
        """Return the lines of each of the first two rows, the longest time first."""
        return [self._list_lines(row) for row in self.pair]

    def _list_lines(self, row: ProfiledRow) -> list[Line]:
        group = self.groups[row.group]
        places = sorted(range(len(row.times)), key=row.times.__getitem__, reverse=True)
        return [
            Line(
                (
                    group.names[place],
                    group.kinds[place],
                    _format_time(row.times[place]),
                    _format_percent(row.times[place] / row.step),
                    _format_limit(row.limits[place], group.units[place]),
                )
            )
            for place in places
        ]


def build_comparison(networks: Sequence[Network]) -> Comparison:
    """Build the comparison of the profiled rows of these networks.

    It has the rows of the networks in which at least two rows have a profile. The rows of a
    leaderboard are in order of their throughput.
    """
    candidates = [list(_list_profiled_entries(network)) for network in networks]
    comparable = [
        (network, entries)
        for network, entries in zip(networks, candidates, strict=True)
        if len(entries) > 1
    ]
    if not comparable:
        return _explain_how_to_profile(networks)
    most_layers = max(len(profile.layers) for _, entries in comparable for _, _, profile in entries)
    max_rows = min(MAX_ROWS, MAX_TIMES // most_layers) // len(comparable)
    boards: dict[str, int] = {}
    chosen: list[tuple[int, Entry, Profile]] = []
    group_keys: list[tuple[str, ...]] = []
    for network, entries in comparable:
        for conditions, entry, profile in entries[: max(2, max_rows)]:
            title = f"{network.name} · {conditions}"
            chosen.append((boards.setdefault(title, len(boards)), entry, profile))
            # A row without a recorded workload is in a group of its own.
            group_keys.append((network.name, profile.workload_digest or entry.anchor))
    groups, members = _build_groups(group_keys, [profile for _, _, profile in chosen])
    rows = tuple(
        _build_row(entry, profile, board, position, groups[position])
        for (board, entry, profile), position in zip(chosen, members, strict=True)
    )
    return Comparison(
        boards=tuple(map(make_legible, boards)),
        groups=groups,
        rows=rows,
        first_pair=_choose_first_pair(rows, [key[0] for key in group_keys]),
        omitted_rows=sum(len(entries) for _, entries in comparable) - len(rows),
    )


def _list_profiled_entries(network: Network) -> Iterator[tuple[str, Entry, Profile]]:
    """Yield the conditions of the board, the entry and its profile, for all profiled entries."""
    for board in network.boards:
        for entry in [*_sort_by_speed(board.ranked), *_sort_by_speed(board.unranked)]:
            if entry.row.profile:
                yield board.conditions, entry, entry.row.profile


def _sort_by_speed(entries: Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: -_images_per_second(entry))


def _images_per_second(entry: Entry) -> float:
    return entry.row.images_per_second.value if entry.row.images_per_second else 0.0


def _choose_first_pair(
    rows: Sequence[ProfiledRow], network_names: Sequence[str]
) -> tuple[int, int]:
    """Return the positions of two rows of the first leaderboard with two rows.

    They are the fastest ones whose difference can be divided among the layers, or else the two
    fastest. If no leaderboard has two rows, they are rows of the first network.
    """
    board_of_pair = next((a.board for a, b in pairwise(rows) if a.board == b.board), None)
    positions = [
        position
        for position, row in enumerate(rows)
        if (
            network_names[position] == network_names[0]
            if board_of_pair is None
            else row.board == board_of_pair
        )
    ]
    fastest_first = sorted(
        positions,
        key=lambda position: (not rows[position].is_ranked, -rows[position].images_per_second),
    )
    pairs = [*combinations(fastest_first, 2)]
    return next((pair for pair in pairs if _is_explained(rows, pair)), pairs[0])


def _is_explained(rows: Sequence[ProfiledRow], pair: tuple[int, int]) -> bool:
    a, b = (rows[position] for position in pair)
    return a.group == b.group and a.is_ranked == b.is_ranked and not _find_obstacle(a, b)


def _build_groups(
    keys: Sequence[tuple[str, ...]], profiles: Sequence[Profile]
) -> tuple[tuple[LayerGroup, ...], list[int]]:
    """Return the groups of profiles with equal keys, and the position of each profile's group."""
    positions = {key: position for position, key in enumerate(dict.fromkeys(keys))}
    layers_of_groups: list[dict[str, list[LayerTime]]] = [{} for _ in positions]
    for key, profile in zip(keys, profiles, strict=True):
        for layer in profile.layers:
            layers_of_groups[positions[key]].setdefault(layer.layer, []).append(layer)
    groups = tuple(
        LayerGroup(
            names=(*map(make_legible, layers), *_STEP_PARTS),
            kinds=(*(times[0].kind for times in layers.values()), *[_UNKNOWN] * len(_STEP_PARTS)),
            units=(*map(_find_unit, layers.values()), *[""] * len(_STEP_PARTS)),
        )
        for layers in layers_of_groups
    )
    return groups, [positions[key] for key in keys]


def _find_unit(times: Sequence[LayerTime]) -> str:
    if any(time.flops is not None for time in times):
        return "FLOP/s"
    return "B/s" if any(time.bytes_per_second is not None for time in times) else ""


def _build_row(
    entry: Entry, profile: Profile, board: int, group: int, lines: LayerGroup
) -> ProfiledRow:
    layers = {make_legible(layer.layer): layer for layer in profile.layers}
    ordered = [layers.get(name) for name in lines.names[: -len(_STEP_PARTS)]]
    seconds = [
        *(layer.seconds if layer else 0.0 for layer in ordered),
        profile.update_seconds,
        profile.other_seconds,
        profile.step_seconds - profile.operation_seconds,
    ]
    images = max(1, entry.row.global_batch_size)
    launches = pluralize(profile.launches, "launch")
    speed = tables.format_with_interval(entry.row.images_per_second)
    is_ranked = entry.row.reason is None
    rank_text = "" if is_ranked else f", not ranked: {entry.row.reason}"
    return ProfiledRow(
        name=make_legible(entry.name if is_ranked else f"{entry.name} (not ranked)"),
        details=make_legible(
            f"{speed} images/s{rank_text}; profile by {profile.profiler}, {launches}; "
            f"{describe_profiler_factor(profile)}"
        ),
        board=board,
        group=group,
        images_per_second=_round(_images_per_second(entry)),
        is_ranked=is_ranked,
        step=max(_round(1e6 * profile.step_seconds / images), _MIN_MICROSECONDS),
        times=tuple(_round(1e6 * part / images) for part in seconds),
        limits=(
            *(_percent_of_limit(layer) if layer else None for layer in ordered),
            *[None] * len(_STEP_PARTS),
        ),
    )


def _percent_of_limit(layer: LayerTime) -> int | None:
    share = layer.share_of_bandwidth if layer.share_of_peak is None else layer.share_of_peak
    if share is None or not math.isfinite(share):
        return None
    return round(min(100 * share, _MAX_PERCENT))


def _round(value: float) -> float:
    """Return a value with four significant digits, limited to what a page can show."""
    if abs(value) < _MIN_MICROSECONDS:
        return 0.0
    return float(f"{max(-_MAX_MICROSECONDS, min(value, _MAX_MICROSECONDS)):.4g}")


def _explain_how_to_profile(networks: Sequence[Network]) -> Comparison:
    """Return a comparison without rows, with the commands that profile two rows of a network.

    The network is the first one that already has a profiled row, or the first one.
    """
    if not networks:
        return Comparison()
    network = max(networks, key=lambda network: bool(list(_list_profiled_entries(network))))
    missing = 2 - len(list(_list_profiled_entries(network)))
    unprofiled = [
        entry
        for board in network.boards
        for entry in _sort_by_speed([*board.ranked, *board.unranked])
        if not entry.row.profile
    ]
    refused = [entry for entry in unprofiled if (entry.profiler or "").startswith("none")]
    commands = [
        ProfileCommand(entry.name, parts, entry.missing_options)
        for entry in unprofiled
        if entry not in refused and (parts := profile_command_display_parts(entry.command))
    ]
    return Comparison(
        commands=tuple(commands[:missing]),
        refusals=tuple(
            f"{entry.name}: {(entry.profiler or '').removeprefix('none: ')}"
            for entry in refused[:_MAX_REFUSALS]
        ),
        example_command=example_profile_command(network.name),
    )


def _find_obstacle(a: ProfiledRow, b: ProfiledRow) -> str | None:
    """Return the name of the note why the difference is not divided among the layers, or None.

    - "equal": the profiled steps are about equally long.
    - "opposite": without a profiler, the other row is faster.
    - "untimed": the duration of a step without a profiler is unknown.
    - "profilers": the profilers change the difference too much.
    """
    profiled, timed = b.step - a.step, b.timed_step - a.timed_step
    if abs(profiled) < LEAST_DIFFERENCE * max(a.step, b.step):
        return "equal"
    if not (a.timed_step and b.timed_step):
        return "untimed"
    if profiled * timed < 0:
        return "opposite"
    return "profilers" if abs(profiled - timed) > MOST_CHANGE * abs(timed) else None


def _format_time(microseconds: float) -> str:
    return _format_number(microseconds) if microseconds else _UNKNOWN


def _format_ratio(time_a: float, time_b: float) -> str:
    return _format_number(time_b / time_a) if time_a > 0 and time_b > 0 else _UNKNOWN


def _format_limit(percent: int | None, unit: str) -> str:
    return _UNKNOWN if percent is None else f"{percent}% {unit}"


def _format_percent(share: float) -> str:
    return f"{_format_fixed(100 * share, 0)}%"


def _format_number(value: float) -> str:
    """Return a number with three significant digits, rounded as JavaScript's toPrecision does."""
    exact = Decimal(value)
    rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 2), ROUND_HALF_UP)
    return f"{rounded.normalize():,f}"


def _format_fixed(value: float, decimals: int) -> str:
    """Return a number with these decimals, rounded as JavaScript's toFixed does."""
    text = str(Decimal(value).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP))
    return text.removeprefix("-") if not float(text) else text
