"""`xfbench tune`: find the best setting of a framework for a workload, with few launches."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xfbench.base.terminal_text import print_legibly as print
from xfbench.base.terminal_text import say, terminal_width
from xfbench.base.wording import pluralize
from xfbench.cli.options import (
    framework_option,
    parse_list,
    parse_options,
    parse_positive_int,
    parse_text,
    with_settings,
    workload_option,
)
from xfbench.model import settings

if TYPE_CHECKING:
    from xfbench.model.request import Cell, Request
    from xfbench.planning.durations import Estimate
    from xfbench.store.results_folder import Store
    from xfbench.store.tuning_results import Figure, OpenSearch, Tuning
    from xfbench.tuning.searching import SearchOptions
    from xfbench.tuning.space import Space, SpaceRequest

# What a search is about: framework, workload, device and precision.
Subject = tuple[str, str, str, str]
_SUBJECT_FIELDS = ("framework", "workload", "device", "precision")

_MAX_LAUNCHES = 10_000

_FrameworkOption = Annotated[
    str,
    framework_option("Framework to tune."),
]
_WorkloadOption = Annotated[
    str,
    workload_option("Workload: see `xfbench workload list`."),
]
_OverOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE,...",
        help="Values to try for one setting: kernel, threads, pinning, allocator, ranks or "
        "strategy (repeatable). All ranks run on this node and share the batch. Default: one "
        "rank; all kernels and allocators; pinning none and cores; threads 1, 2, 4 and so on "
        "up to the number of cores.",
        show_default=False,
    ),
]
_BatchSizeOption = Annotated[
    str | None,
    typer.Option(
        help="Images per update (default: the published batch size). If you give several "
        "values, all are tried. The batch size changes what is trained, not only the speed.",
        show_default=False,
    ),
]
_DeviceOption = Annotated[str, typer.Option(help="Device: cpu or cuda.")]
_PrecisionOption = Annotated[
    str, typer.Option(help="Precision: float32, float64, tf32, bfloat16 or float16.")
]
_LaunchesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=_MAX_LAUNCHES,
        help="Launches per setting in the final comparison (default: 5, then more until the "
        "difference is clear, at most 20). By default, launches also end when tuning has taken "
        "a quarter of the time of an exhaustive search.",
        show_default=False,
    ),
]
_BudgetOption = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Total time of new launches, such as 600s or 10m (default: no limit). Verification "
        "comes on top. --dry-run says how much all settings need; a smaller budget stops early.",
        show_default=False,
    ),
]
_SeedOption = Annotated[int, typer.Option(min=0, help="Seed for the random order of launches.")]

_ShowOption = Annotated[
    bool,
    typer.Option(
        "--show",
        help="Search nothing: show the last result as a command, as lines of a modulefile and as "
        "TOML.",
    ),
]


@with_settings(
    (
        replace(settings.BY_NAME["data"], is_list=False),
        replace(settings.BY_NAME["steps"], help="Timed steps of a full-length launch"),
        *("warmup", "time_limit", "resume"),
        replace(settings.BY_NAME["verify"], help="Also try kernels that are not verified"),
        *("python", "strict", "results", "dry_run", "json"),
    )
)
def tune(
    framework: _FrameworkOption,
    workload: _WorkloadOption,
    over: _OverOption = None,
    batch_size: _BatchSizeOption = None,
    device: _DeviceOption = "cpu",
    precision: _PrecisionOption = "float32",
    launches: _LaunchesOption = None,
    budget: _BudgetOption = None,
    seed: _SeedOption = 0,
    show: _ShowOption = False,
    **options: Any,
) -> None:
    """Find the best setting for a workload here and save it for `xfbench run --tuned`.

    The search has several rounds. The first round has short launches of all settings, or of half
    of them if there are more than eight. Only the fastest settings go on to the next round, which
    has more and longer launches. Rounds are added if the launches are too noisy to decide. At most
    two settings remain.

    Then full-length launches compare these two settings with the default of `xfbench run`. The
    results folder keeps a record of every launch.

    \b
        xfbench tune --framework torch --workload lenet
        xfbench tune --framework torch --workload alexnet --over threads=1,2 --over kernel=onednn
        xfbench tune --framework mxnet --workload convnet --budget 10m
        xfbench tune --framework torch --workload lenet --show
        xfbench run --framework torch --workload lenet --tuned
    """
    from xfbench import progress
    from xfbench.base import paths
    from xfbench.store.results_folder import Store
    from xfbench.tuning import searching, space

    values = parse_options(options)
    as_json = values.get("json", False)
    store = Store(paths.results(values.get("results")))
    subject = framework, workload, device, precision
    if show:
        _refuse_options_of_a_search(values, over, batch_size, launches, budget)
        _show_last_search(store, subject, as_json)
        return
    tuning_request = _build_space_request(
        options, values, framework, workload, device, precision, batch_size, over or ()
    )
    choices = _build_search_options(values, launches, budget, seed)
    search_space = space.build_space(tuning_request, values.get("python", {}))
    _check_space(tuning_request, values, search_space)
    _warn_of_batch_sizes_and_budget(tuning_request, search_space, choices, store)
    if values.get("dry_run"):
        _print_plan(search_space, choices, store, as_json)
        return
    with _mark_as_open(store.folder, subject, search_space) as update_note:
        messages = progress.Messages()
        tuning = searching.find_and_confirm_best_setting(search_space, choices, store, messages)
        file = tuning.write(store.folder)
        update_note(tuning)
    show_command = _build_show_command(subject, values.get("results"))
    _print_tuning_exit_if_not_confirmed(tuning, file, show_command, as_json)


def _refuse_options_of_a_search(
    values: Mapping[str, Any],
    over: Sequence[str] | None,
    batch_size: str | None,
    launches: int | None,
    budget: str | None,
) -> None:
    """Raise UsageError if an option is given that --show ignores."""
    from xfbench.base import errors

    chosen = {"over": over, "batch_size": batch_size, "launches": launches, "budget": budget}
    for name, value in {**chosen, **values}.items():
        if value is not None and name not in ("results", "json"):
            option = settings.BY_NAME[name].option if name in settings.BY_NAME else f"--{name}"
            raise errors.UsageError(f"{option} has no effect here: leave out --show")


def _check_space(
    tuning_request: SpaceRequest, values: Mapping[str, Any], search_space: Space
) -> None:
    """Raise UsageError if an option changes nothing, has an impossible value, or none is left."""
    from xfbench.base import errors
    from xfbench.planning import sense

    cells = [
        search_space.default,
        *search_space.cells,
        *(cell for cell, _ in search_space.left_out),
    ]
    if "strategy" in tuning_request.over and all(cell.ranks == 1 for cell in cells):
        raise errors.UsageError(
            "--over strategy has no effect here: it needs --over ranks with 2 or more"
        )
    sense.refuse_interpreters_without_effect(values.get("python", {}), cells)
    sense.refuse_impossible_sizes(cells)
    if not search_space.cells:
        raise errors.UsageError(f"no settings to try: {search_space.left_out[0][1]}")


def _build_space_request(
    options: Mapping[str, Any],
    values: Mapping[str, Any],
    framework: str,
    workload: str,
    device: str,
    precision: str,
    batch_size: str | None,
    over: Sequence[str],
) -> SpaceRequest:
    from xfbench.base import errors
    from xfbench.tuning import space

    for option, text in (("framework", framework), ("workload", workload)):
        if "," in text:
            raise errors.UsageError(f"--{option} {text}: a search has one {option}: run one each")
    return space.SpaceRequest(
        framework=framework,
        workload=workload,
        device=replace(settings.BY_NAME["device"], is_list=False).parse(device),
        precision=precision,
        batch_sizes=parse_list(batch_size, parse_positive_int, "--batch-size") or (),
        data=options["data"],
        over=_parse_over_option(over),
        steps=values.get("steps"),
        warmup=values.get("warmup", settings.BY_NAME["warmup"].default),
    )


@contextmanager
def _mark_as_open(
    results: Path, subject: Subject, search_space: Space
) -> Iterator[Callable[[Tuning], None]]:
    """Note in the results folder that a search of this subject is open, and how to continue it.

    Call the yielded function with the result of the search. It deletes the note if a setting is
    confirmed, and else notes the budget that the search needs. If the search fails, the note is
    deleted, because the search cannot be continued. If it is interrupted, the note stays.
    """
    from xfbench.base.errors import XfbenchError
    from xfbench.host import machine
    from xfbench.model.machines import machine_class
    from xfbench.model.sealed import utc_now
    from xfbench.store import tuning_results
    from xfbench.tuning import searching

    key = (*subject, machine_class(machine.describe_machine()))
    started, words = utc_now(), ["xfbench", *sys.argv[1:]]
    words += [] if "--resume" in words else ["--resume"]

    def write_note(words: Sequence[str]) -> Path:
        search = tuning_results.OpenSearch(
            started=started,
            command=shlex.join(words),
            first_launches=tuple(searching.first_launches(search_space)),
        )
        return tuning_results.write_open_search(results, key, search)

    def update_note(tuning: Tuning) -> None:
        if tuning.confirmed:
            note.unlink(missing_ok=True)
        elif budget := _suggest_budget(tuning):
            write_note([*_without_option("--budget", words), *budget])

    note = write_note(words)
    try:
        yield update_note
    except XfbenchError:
        note.unlink(missing_ok=True)
        raise


def _without_option(option: str, words: Sequence[str]) -> list[str]:
    """Return the words of a command line without an option and its value."""
    return [
        word
        for previous, word in zip(["", *words], words, strict=False)
        if option not in (previous, word) and not word.startswith(f"{option}=")
    ]


def _suggest_budget(tuning: Tuning) -> list[str]:
    """Return the option with the budget that an unfinished search needs; empty if unknown."""
    seconds = tuning.remaining_seconds
    return [] if seconds is None else ["--budget", f"{math.ceil(seconds / 60)}m"]


def _build_command(subject: Subject, *more: str) -> str:
    """Return the command line of `xfbench tune` for this subject, with more words at its end."""
    framework, workload, device, precision = subject
    words = ["xfbench", "tune", "--framework", framework, "--workload", workload]
    words += ["--device", device] if device != "cpu" else []
    words += ["--precision", precision] if precision != "float32" else []
    return shlex.join([*words, *more])


def _build_show_command(subject: Subject, results: Path | None) -> str:
    """Return the command line that shows the last search of this subject in `results`."""
    return _build_command(subject, *(["--results", str(results)] if results else []), "--show")


def _show_last_search(store: Store, subject: Subject, as_json: bool) -> None:
    """Print the last confirmed search of this kind of machine for these settings.

    Say whether a newer search is open. If no search is confirmed, print what the last one knows,
    and exit with status 1. Raises NoMatchError if there is no search.
    """
    from xfbench.base.errors import NoMatchError
    from xfbench.host import machine
    from xfbench.model import origins
    from xfbench.model.machines import machine_class
    from xfbench.store import tuning_results
    from xfbench.tuning import reuse, using

    machine_kind = machine_class(machine.describe_machine())
    searches = [
        search
        for search in tuning_results.read_sorted_searches(store.folder, say)
        if tuple(getattr(search.best, name) for name in _SUBJECT_FIELDS) == subject
        and machine_class(search.machine) == machine_kind
    ]
    confirmed = [search for search in searches if search.confirmed]
    open_search = tuning_results.read_open_search(store.folder, (*subject, machine_kind))
    if open_search:
        say(
            f"{'a newer' if confirmed else 'the'} search, started {open_search.started}, is not "
            f"finished; if it does not run any more, continue it: {open_search.command}"
        )
    if confirmed:
        known_origins = origins.read(store.folder)
        if reason := using.find_foreign_reason(confirmed[-1], known_origins, store):
            say(f"`run --tuned` does not use this search: {reason}")
        if as_json:
            print(json.dumps(confirmed[-1].document()))
        else:
            print(*reuse.describe_for_reuse(confirmed[-1]), sep="\n")
        return
    if open_search and not (searches and searches[-1].created > open_search.started):
        _print_interrupted(open_search, subject, store, as_json)
    elif searches:
        print(json.dumps(searches[-1].document())) if as_json else _print_unconfirmed(searches[-1])
    else:
        raise NoMatchError(
            f"{store.folder} has no confirmed result of `{_build_command(subject)}` for this kind "
            "of machine: give another results folder with --results"
        )
    raise typer.Exit(1)


def _print_interrupted(
    open_search: OpenSearch, subject: Subject, store: Store, as_json: bool
) -> None:
    """Print how many settings a search without a result has tried, and the fastest of them."""
    from xfbench import statistics
    from xfbench.store import lookup

    first_launches = open_search.first_launches
    records = lookup.find_ok_or_invalid_records(first_launches, store)
    tried = {record.request for record in records}
    fastest = max(
        (record for record in records if record.status == "ok"),
        key=statistics.launch_throughput,
        default=None,
    )
    best = fastest and fastest.request and fastest.request.cell()
    if as_json:
        document = {
            "confirmed": False,
            "settings": len(first_launches),
            "untried": len(first_launches) - len(tried),
            "best": best and best.model_dump(mode="json"),
            "command": open_search.command,
        }
        print(json.dumps(document))
        return
    framework, workload, *_ = subject
    print(
        f"{workload} · {framework}: unfinished: {len(tried)} of {len(first_launches)} planned "
        "settings tried, none confirmed; continue with --resume"
    )
    if best:
        _print_fastest_so_far(best)


def _build_search_options(
    values: Mapping[str, Any], launches: int | None, budget: str | None, seed: int
) -> SearchOptions:
    from xfbench.base import quantities
    from xfbench.model.plan import DEFAULT_TIME_LIMIT
    from xfbench.model.request import Protocol
    from xfbench.tuning import searching

    usual_protocol = Protocol()
    return searching.SearchOptions(
        pythons=values.get("python", {}),
        budget_seconds=parse_text(budget, quantities.parse_duration, "--budget"),
        seed=seed,
        verify=values.get("verify", True),
        strict=values.get("strict", False),
        resume=values.get("resume", False),
        time_limit=values.get("time_limit", DEFAULT_TIME_LIMIT),
        min_launches=launches or usual_protocol.least,
        max_launches=launches or usual_protocol.most,
    )


def _warn_of_batch_sizes_and_budget(
    tuning_request: SpaceRequest, search_space: Space, choices: SearchOptions, store: Store
) -> None:
    """Warn of several batch sizes, and of a budget that is too short for the first rung."""
    from xfbench.cli.earlier_records import read_newest
    from xfbench.planning.durations import estimate_duration
    from xfbench.tuning import searching

    if len(tuning_request.batch_sizes) > 1:
        say("several batch sizes: another one is different training, not a faster setting")
    if choices.budget_seconds is None:
        return
    requests = searching.first_rung_requests(search_space)
    estimate = estimate_duration(requests, read_newest(store))
    need_s = estimate.seconds + estimate.unknown_seconds
    if choices.budget_seconds < need_s:
        say(
            f"warning: --budget {choices.budget_seconds:g}s is too short to try every setting: the "
            f"{pluralize(len(requests), 'launch')} of the first rung take about {need_s:.0f} s"
        )


def _parse_over_option(pairs: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each setting, by its name, from pairs such as `threads=1,2`.

    Raises UsageError if a pair has another form or repeats a name.
    """
    from xfbench.base.errors import UsageError

    values_by_name: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, values = (part.strip() for part in pair.partition("="))
        value_list = [value.strip() for value in values.split(",")]
        if not name or not equals or not all(value_list) or name in values_by_name:
            raise UsageError(
                f"--over {pair}: expected NAME=VALUE,... such as threads=1,2, each name once"
            )
        values_by_name[name] = value_list
    return values_by_name


def _print_plan(search_space: Space, choices: SearchOptions, store: Store, as_json: bool) -> None:
    """Print the settings to try, the planned rungs (rounds) and the maximum number of launches."""
    from xfbench.cli.earlier_records import read_newest
    from xfbench.planning.durations import estimate_duration
    from xfbench.tuning import halving, searching
    from xfbench.tuning.space import build_setting

    requests = searching.smallest_search_requests(search_space, choices)
    needed = estimate_duration(requests, read_newest(store))
    rungs = [
        {
            "settings": planned_rung.settings,
            "launches": planned_rung.launches,
            "steps": searching.shorten(search_space.cells[0], planned_rung).steps,
            "min_seconds": searching.shorten(search_space.cells[0], planned_rung).min_seconds,
        }
        for planned_rung in searching.planned_rungs(search_space)
    ]
    max_launches = searching.max_launches(search_space, choices)
    if as_json:
        document = {
            "settings": [build_setting(cell) for cell in search_space.cells],
            "left_out": [
                {"setting": build_setting(cell), "reason": reason}
                for cell, reason in search_space.left_out
            ],
            "default": build_setting(search_space.default),
            "rungs": rungs,
            "further_rungs_at_most": halving.MAX_EXTRA_RUNGS if rungs else 0,
            "confirmation": {
                "launches": [choices.min_launches, choices.max_launches],
                "steps": search_space.default.steps,
                "min_seconds": search_space.default.min_seconds,
            },
            "launches_at_most": max_launches,
            "needed_seconds": _sum_known_seconds(needed),
        }
        print(json.dumps(document))
        return
    from xfbench.rendering import formats

    size = f"{len(search_space.cells)} settings, at most {max_launches} launches"
    time_lines = _describe_needed_time(requests, needed)
    for line in (size, *time_lines, *_describe_plan(search_space, choices, rungs)):
        print(formats.wrap_line(line, terminal_width()))


def _describe_length(steps: int | None, min_seconds: float | None) -> str:
    return f"steps: {steps}" + (f" or more, for {min_seconds:g} s" if min_seconds else "")


def _describe_needed_time(requests: Sequence[Request], needed: Estimate) -> Iterator[str]:
    """Yield how many launches the search has at least, and the smallest useful budget."""
    yield f"time: at least {len(requests)} launches; verification comes on top, with --budget too"
    seconds = _sum_known_seconds(needed)
    if seconds is None:
        yield "budget: what all settings need is unknown: no earlier launches are like these"
        return
    amount = "at least" if needed.unknown else "about"
    yield (
        f"budget: all settings need {amount} {math.ceil(seconds / 60)} min. A smaller budget stops "
        "early, perhaps before a setting is confirmed: --over tries fewer settings"
    )


def _sum_known_seconds(estimate: Estimate) -> float | None:
    """Return the estimated seconds of all launches; None if some launches may take any time."""
    if estimate.unknown and not estimate.unknown_seconds:
        return None
    return estimate.seconds + estimate.unknown_seconds


def _describe_plan(
    search_space: Space,
    choices: SearchOptions,
    rungs: Sequence[Mapping[str, Any]],
) -> Iterator[str]:
    """Yield the rungs of a search and its settings, one line each."""
    from xfbench.tuning import halving, repeating
    from xfbench.tuning.space import describe_setting

    for number, rung in enumerate(rungs, 1):
        yield (
            f"rung {number}: {rung['settings']} settings, "
            f"launches per setting: {rung['launches']}, "
            f"{_describe_length(rung['steps'], rung['min_seconds'])}"
        )
    if rungs:
        yield (
            "more rungs if launches differ too much to decide: "
            f"at most {halving.MAX_EXTRA_RUNGS}, "
            f"with at most {rungs[-1]['settings']} settings, launches per setting: 1"
        )
    launch_counts = (
        f"{choices.min_launches} to {choices.max_launches}"
        if choices.min_launches < choices.max_launches
        else choices.max_launches
    )
    default = search_space.default
    yield (
        f"confirmation: launches per setting: {launch_counts}, "
        f"{_describe_length(default.steps, default.min_seconds)}"
    )
    yield (
        f"repeats: at most {repeating.MAX_REPEATS} of each launch of a rung "
        "that has a high core-to-core latency"
    )
    has_several_batches = len({cell.global_batch_size for cell in search_space.cells}) > 1
    for cell in search_space.cells:
        yield (
            describe_setting(cell)
            + (f" · batch {cell.global_batch_size}" if has_several_batches else "")
        )
    for cell, reason in search_space.left_out:
        yield f"left out: {describe_setting(cell)}: {reason}"


def _print_tuning_exit_if_not_confirmed(
    tuning: Tuning, file: Path, show_command: str, as_json: bool
) -> None:
    """Print the outcome of a search. Exit with status 1 if the budget ended it too early."""
    if as_json:
        print(json.dumps({**tuning.document(), "file": str(file)}))
    else:
        _print_tuning(tuning, file, show_command)
    if not tuning.confirmed:
        raise typer.Exit(1)


def _print_tuning(tuning: Tuning, file: Path, show_command: str) -> None:
    """Print the best setting, its throughput, the cost of the search, and the saved file."""

    if tuning.confirmed:
        _print_best(tuning)
    else:
        _print_unconfirmed(tuning)
    print(
        f"  settings: {tuning.settings}, launches: {tuning.launches}, "
        f"{tuning.machine_seconds:.0f} s, of which {tuning.search_seconds:.0f} s for the search"
        + (", ended by the budget" if tuning.ended_by_budget else "")
    )
    usage = "it is used by" if tuning.confirmed else "after confirmation it is used by"
    print(f"Saved in {file}; {usage} `xfbench run --tuned`")
    if tuning.confirmed:
        print(f"To use it elsewhere: {show_command}")


def _print_unconfirmed(tuning: Tuning) -> None:
    """Print why an unfinished search has no best setting, and how to continue it."""
    best = tuning.best
    budget = _suggest_budget(tuning)
    resume = " ".join(["continue with --resume", *budget])
    resume += f" ({budget[1].removesuffix('m')} min more)" if budget else ""
    if tuning.untried:
        count = tuning.rungs[0].settings
        scope = " of the first rung" if count < tuning.settings else ""
        problem = f"{count - tuning.untried} of {count} settings{scope} tried: no best is known"
    else:
        cause = "the rest of the budget is too short to confirm one"
        tried = tuning.rungs[0].settings if tuning.rungs else tuning.settings
        scope = f"{tried} of {tuning.settings}" if tried < tuning.settings else "all"
        problem = (
            f"{scope} settings tried, but "
            f"{cause if tuning.ended_by_budget else 'none is confirmed'}"
        )
    print(
        f"{best.workload} · {best.framework} · batch {best.global_batch_size}: {problem}; {resume}"
    )
    _print_fastest_so_far(best)


def _print_fastest_so_far(best: Cell) -> None:
    from xfbench.tuning import reuse
    from xfbench.tuning.space import describe_setting

    print(f"  fastest so far: {describe_setting(best)}")
    print(f"  as a command, not confirmed: {reuse.build_run_command(best)}")


def _print_best(tuning: Tuning) -> None:
    """Print the best setting, its throughput and its gain."""
    from xfbench.tuning.space import describe_setting

    best, default = tuning.best, describe_setting(tuning.default)
    if tuning.default.global_batch_size != best.global_batch_size:
        default += f" · batch {tuning.default.global_batch_size}"
    print(
        f"{best.workload} · {best.framework} · batch {best.global_batch_size}: "
        f"{describe_setting(best)}"
    )
    if tuning.images_per_second:
        print(f"  {_format_figure(tuning.images_per_second)} images/s")
    if tuning.over_default:
        print(f"  {_format_figure(tuning.over_default)} times the default ({default})")
    elif best == tuning.default:
        print("  the best setting is the default")
    elif tuning.default_reason:
        print(f"  not compared with the default ({default}): {tuning.default_reason}")
    runner_up = tuning.runner_up
    if tuning.over_runner_up and runner_up and runner_up != tuning.default:
        print(f"  {_format_figure(tuning.over_runner_up)} times {describe_setting(runner_up)}")


def _format_figure(figure: Figure) -> str:
    from xfbench.rendering.formats import format_number

    value = format_number(figure.value, 4)
    if figure.low is None or figure.high is None:
        return f"{value} ({figure.label})"
    low, high = (format_number(end, 4) for end in (figure.low, figure.high))
    return f"{value} ({low} to {high}, {figure.launches} launches)"
