"""The commands that repeat several rows: as few as lists of values allow."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from xfbench.analysis import grouping
from xfbench.base.errors import UsageError
from xfbench.model import adapter, settings
from xfbench.model.record import Record
from xfbench.model.request import Request
from xfbench.planning import experiment
from xfbench.rendering.report import repeat
from xfbench.workloads import workloads

_SETTINGS = (*settings.SETTINGS, settings.BY_NAME["revisions"])
# Options of several ranks: a cell of one rank is the same with any of them.
_STRATEGY_OPTIONS = ("--strategy", "--strategy-options")
_LISTS = tuple(
    each.option for each in _SETTINGS if each.is_list or each.option in _STRATEGY_OPTIONS
)
# One value of each option in `_LISTS`; None: the cell needs the option to be left out.
_Point = tuple[str | None, ...]


@dataclass(frozen=True)
class RepeatCommands:
    """The commands that repeat rows.

    - `lines`: the commands, each as one line.
    - `notes`: sentences about what the commands do not say.
    """

    lines: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Command:
    """A command that measures every combination of the values in `lists`.

    - `fixed`: the options with one value, sorted. The value is True for a switch.
    - `lists`: the values of each option in `_LISTS`.
    """

    fixed: tuple[tuple[str, object], ...]
    lists: tuple[tuple[str | None, ...], ...]

    def points(self) -> set[_Point]:
        """Return what the command measures.

        As `xfbench run` does, leave out kernel libraries that a framework does not have, and
        numbers of nodes that do not divide the number of ranks.
        """
        points = set()
        for values in itertools.product(*self.lists):
            point = dict(zip(_LISTS, values, strict=True))
            kernels = _choose_kernels(
                point["--framework"], self._values("--kernel"), point["--device"]
            )
            if point["--kernel"] not in kernels or int(point["--ranks"] or 1) % int(
                point["--nodes"] or 1
            ):
                continue
            if point["--ranks"] == "1":
                point |= dict.fromkeys(_STRATEGY_OPTIONS)
            points.add(tuple(point.values()))
        return points

    def line(self) -> str:
        """Return the command as one line, without options that have their default."""
        words = ["xfbench run"]
        fixed = dict(self.fixed)
        if "--site" not in fixed and self._values("--ranks") == ("1",):
            fixed = {name: value for name, value in fixed.items() if (name, value) != _NO_PINNING}
        for setting in _SETTINGS:
            option = setting.option
            if option in fixed:
                words.append(option if fixed[option] is True else f"{option} {fixed[option]}")
            elif option in _LISTS and (values := self._values(option)) != _default_texts(option):
                words += [f"{option} {','.join(map(str, values))}"] if any(values) else []
        return " ".join(words)

    def _values(self, option: str) -> tuple[str | None, ...]:
        return self.lists[_LISTS.index(option)]


_NO_PINNING = ("--pinning", "none")


def commands_that_repeat(records: Iterable[Record]) -> RepeatCommands:
    """Return the commands that measure all rows of these records again."""
    rows = [
        launches
        for cells in grouping.group_by_heading_and_cell(records).values()
        for launches in cells.values()
    ]
    repeatable = [row for row in rows if repeat.repeat_command_display_parts(row)]
    commands = min(
        (
            _join_all(
                _build_command(row, with_workload_defaults=explicit, per_node=per_node)
                for row in repeatable
            )
            for per_node in (False, True)
            for explicit in (True, False)
        ),
        key=len,
    )
    launches = [*itertools.chain.from_iterable(repeatable)]
    notes = list(repeat.describe_missing_options(launches))
    if any(record.request and record.request.data_set for record in launches):
        notes.append("Prepare the data sets first: see xfbench data prepare.")
    if nodes := _nodes_of_one_session(launches):
        notes.append(
            f"The launches on 1 to {nodes} nodes took turns in one allocation. To repeat that, put "
            f"this before the command with several --ranks: salloc --nodes={nodes} "
            "--ntasks-per-node=1 --exclusive --hint=nomultithread"
        )
    if missing := len(rows) - len(repeatable):
        notes.append(f"No command repeats {missing} of {len(rows)} rows.")
    return RepeatCommands(tuple(command.line() for command in commands), tuple(notes))


def _nodes_of_one_session(launches: Iterable[Record]) -> int | None:
    """Return the largest number of nodes if one session used several numbers, else None."""
    nodes_by_session: dict[str | None, set[int]] = defaultdict(set)
    for record in launches:
        if record.request and record.request.launcher == "slurm" and record.request.session:
            nodes_by_session[record.request.session].add(record.request.nodes)
    return max((max(nodes) for nodes in nodes_by_session.values() if len(nodes) > 1), default=None)


def _build_command(
    row: Sequence[Record], *, with_workload_defaults: bool, per_node: bool
) -> _Command:
    """Return the command that repeats one row.

    - `with_workload_defaults`: whether the command says what `_remove_workload_defaults` removes.
    - `per_node`: whether the command gives the ranks per node instead of the nodes.
    """
    options = repeat.given_options(row)
    request = row[-1].request
    assert request is not None
    options["--pinning"] = request.affinity
    if per_node:
        options.pop("--nodes", None)
        options["--ranks-per-node"] = str(request.ranks // request.nodes)
    if not with_workload_defaults:
        _remove_workload_defaults(options, request)
    lists: list[tuple[str | None, ...]] = []
    for name in _LISTS:
        text = options.pop(name, None)
        is_of_one_rank = name in _STRATEGY_OPTIONS and request.ranks == 1
        if name == "--strategy-options":
            lists.append((None if is_of_one_rank else str(text or ""),))
        elif is_of_one_rank:
            lists.append((None,))
        else:
            lists.append(tuple(str(text).split(",")) if text is not None else _default_texts(name))
    return _Command(tuple(sorted(options.items())), tuple(lists))


def _remove_workload_defaults(options: dict[str, object], request: Request) -> None:
    """Remove the batch size and the data if they are the workload's own.

    Then workloads that differ in them can share a command. With `--steps`, `xfbench run` chooses
    synthetic data, so the default number of steps is removed too.
    """
    workload = workloads().get(request.workload)
    if workload is None:
        return
    if request.fixed_batch_size == workload.batch_size:
        options.pop("--batch-size", None)
    default_steps = experiment.DEFAULT_STEPS * experiment.WINDOWS[request.device]
    has_minimum = request.min_seconds is not None and request.min_warmup_seconds is not None
    if has_minimum and request.steps == default_steps and request.data == workload.data:
        options.pop("--steps", None)
        options.pop("--data", None)


def _default_texts(option: str) -> tuple[str | None, ...]:
    """Return the text of the default value of a list option; None if there is no such text."""
    [setting] = [each for each in _SETTINGS if each.option == option]
    return tuple(map(setting.format, setting.default or ())) or (None,)


def _join_all(commands: Iterable[_Command]) -> list[_Command]:
    """Join commands as long as possible. Try several orders of the options, and keep the best."""
    groups: dict[object, list[_Command]] = defaultdict(list)
    for command in dict.fromkeys(commands):
        groups[command.fixed].append(command)
    joined: list[_Command] = []
    for group in groups.values():
        places = [
            place for place in range(len(_LISTS)) if len({each.lists[place] for each in group}) > 1
        ]
        orders = [places[start:] + places[:start] for start in range(len(places))] or [[]]
        best: list[_Command] = min((_join_in_order(group, order) for order in orders), key=len)
        joined += best
    return joined


def _join_in_order(commands: Sequence[_Command], order: Sequence[int]) -> list[_Command]:
    """Join commands that differ in one option, in this order of the options, then any others."""
    joined = list(commands)
    for place in order:
        groups: dict[object, list[_Command]] = defaultdict(list)
        for command in joined:
            equal_lists = (*command.lists[:place], *command.lists[place + 1 :])
            groups[equal_lists].append(command)
        joined = [each for group in groups.values() for each in _join_pairs(group)]
    return _join_pairs(joined)


def _join_pairs(commands: Sequence[_Command]) -> list[_Command]:
    """Join any two commands that can be joined, until there are none."""
    remaining = list(commands)
    while pair_and_union := _find_pair(remaining):
        *pair, union = pair_and_union
        remaining = [union, *(each for each in remaining if each not in pair)]
    return remaining


def _find_pair(commands: Sequence[_Command]) -> tuple[_Command, _Command, _Command] | None:
    """Return two commands that can be joined, and the command that joins them."""
    for first, second in itertools.combinations(commands, 2):
        if union := _join(first, second):
            return first, second, union
    return None


def _join(first: _Command, second: _Command) -> _Command | None:
    """Return one command that measures exactly what both measure; None if there is none.

    Both have the same `fixed` options.
    """
    lists: list[tuple[str | None, ...]] = []
    for name, first_values, second_values in zip(_LISTS, first.lists, second.lists, strict=True):
        union = list(dict.fromkeys((*first_values, *second_values)))
        if name in _STRATEGY_OPTIONS and len(union) > 1:
            union = [value for value in union if value is not None]
        if len(union) > 1 and (None in union or name == "--strategy-options"):
            return None
        lists.append(tuple(sorted(union, key=_numbers_by_size)))
    union_command = _Command(first.fixed, tuple(lists))
    is_exact = union_command.points() == first.points() | second.points()
    return union_command if is_exact else None


def _numbers_by_size(text: str | None) -> tuple[int, str]:
    return (int(text) if text and text.isdecimal() else 0, text or "")


@cache
def _choose_kernels(
    framework: str | None, kernels: tuple[str | None, ...], device: str | None
) -> tuple[str | None, ...]:
    """Return which of the kernel libraries `xfbench run` uses for the framework."""
    try:
        described = adapter.load(str(framework))
    except UsageError:  # the records come from another machine with this adapter
        return kernels
    return tuple(described.choose_kernels(map(str, kernels), str(device)))
