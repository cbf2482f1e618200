"""`xfbench compare`: compare two sets of launches and print verdicts."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Annotated

import typer

from xfbench.base.errors import UsageError
from xfbench.base.terminal_text import print_legibly as print
from xfbench.base.terminal_text import say, terminal_width
from xfbench.base.wording import pluralize
from xfbench.cli.options import (
    FrameworkFilterOption,
    JsonOption,
    RecordFilterOption,
    ResultsOption,
    WorkloadFilterOption,
    check_listed_names_in_folder,
    parse_record_filters,
    parse_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xfbench.analysis.comparison import CellComparison, Side, SideComparison
    from xfbench.analysis.fail_limits import FailLimit


_AArgument = Annotated[
    str | None,
    typer.Argument(help="Side A: filter or results folder (with --self: default all records)."),
]
_BArgument = Annotated[str | None, typer.Argument(help="Side B: filter or results folder.")]
_AgainstItselfOption = Annotated[
    bool,
    typer.Option(
        "--self",
        help="Compare the launches of A with each other, to test for false verdicts.",
    ),
]
_FailOnOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Exit with status 1 if a cell of A is certainly slower (or faster) than B by this "
        "much or more, such as slower:5%, or if a cell cannot be compared. The last line of "
        "standard error ends in PASS, FAIL or INCONCLUSIVE. Repeat it for both.",
        show_default=False,
        metavar="LIMIT",
    ),
]
_MustFindOption = Annotated[
    str | None,
    typer.Option(
        help="With --fail-on: exit with status 1 also if a change of this size, such as 10%, would "
        "not be found with a probability of 80 %.",
        show_default=False,
        metavar="SHARE",
    ),
]

_MarkdownOption = Annotated[
    bool, typer.Option("--markdown", help="Print a summary in Markdown, for a pull request.")
]


def compare(
    a: _AArgument = None,
    b: _BArgument = None,
    against_itself: _AgainstItselfOption = False,
    fail_on: _FailOnOption = None,
    must_find: _MustFindOption = None,
    markdown: _MarkdownOption = False,
    where: RecordFilterOption = None,
    framework: FrameworkFilterOption = None,
    workload: WorkloadFilterOption = None,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the throughput of A with that of B. Print a verdict for each pair of cells.

    Each side, A and B, is a results folder or a filter. A filter is a list of FIELD=VALUE. The
    fields are machine, revision, results and all settings of a cell. A cell of A is compared with
    the cells of B that are equal in all fields that neither filter names. Seed and site may differ,
    the kernel if a filter names the framework, and the length of launches if no other partner fits.
    --where, --framework and --workload restrict both sides. They are no filters of a side.

    If one `xfbench run` launched both cells, their launches are compared in pairs. Cells that were
    launched in different runs are compared only if each has three runs or more. A verdict is
    faster, slower or not distinguishable: whether the interval excludes 1. The 95 % confidence is
    for all intervals of the command together (Bonferroni).

    \b
        xfbench compare framework=torch framework=mxnet
        xfbench compare framework=mxnet,kernel=onednn framework=mxnet,kernel=native
        xfbench compare after before --fail-on slower:5% --must-find 10%
        xfbench compare framework=torch framework=mxnet --workload lenet --markdown
        xfbench compare --self framework=torch
    """
    from xfbench.analysis import comparison
    from xfbench.base import paths

    if markdown and as_json:
        raise UsageError("--markdown and --json are two forms of output: choose one")
    limits = _parse_limits(fail_on or (), must_find)
    folder = paths.results(results)
    conditions = tuple(parse_record_filters(where, framework, workload))
    if (a is None or b is None) and not against_itself:
        raise UsageError("compare needs two sides, or --self: see xfbench compare --help")
    if b is not None and against_itself:
        raise UsageError("--self compares A with itself: remove B")
    side_a = comparison.Side.parse(a, folder, conditions)
    check_listed_names_in_folder(side_a.folder, conditions)
    if b is None:
        comparisons, gaps = _compare_with_itself_and_print(side_a, as_json), []
    else:
        result = comparison.compare(side_a, comparison.Side.parse(b, folder, conditions))
        comparisons, gaps = result.comparisons, result.gaps
        _require_comparisons(result)
        if markdown:
            _print_markdown_summary(result, limits)
        else:
            _print_comparison(result, limits, as_json)
    if limits:
        _say_limits_exit_unless_passed(limits, comparisons, gaps)


def _parse_limits(texts: Sequence[str], must_find: str | None) -> list[FailLimit]:
    """Return the limits of the two options. Raises UsageError if they are invalid."""
    from xfbench.analysis.fail_limits import FailLimit
    from xfbench.base import quantities

    if must_find is not None and not texts:
        raise UsageError("--must-find needs --fail-on")
    share = parse_text(must_find, quantities.parse_share, "--must-find")
    return [FailLimit.parse(text, share) for text in texts]


def _require_comparisons(result: SideComparison) -> None:
    """Raise UsageError with the gaps if no cell of A can be compared with a cell of B."""
    if not result.comparisons:
        reasons = "".join(f"\n  {gap}" for gap in result.gaps)
        raise UsageError(f"no cell of A can be compared with a cell of B: {_HINT}{reasons}")


def _print_comparison(result: SideComparison, limits: Sequence[FailLimit], as_json: bool) -> None:
    from xfbench.rendering import formats, tables

    if as_json:
        outcomes = [limit.document(result.comparisons, result.gaps) for limit in limits]
        print(json.dumps({**result.document(), "fail_on": outcomes}))
        return
    width = terminal_width()
    for name, text in _describe_sides(result).items():
        print(formats.wrap_line(f"{name}: {text}", width))
    table = tables.comparison_table(result.comparisons, max_width=width)
    print(table)
    if result.mean:
        mean = result.mean
        interval = "" if mean.low is None else f" (95 %: {mean.low:.3f} to {mean.high:.3f})"
        count = sum(row.verdict is not None for row in result.comparisons)
        print(f"Geometric mean of {count} ratios: {mean.value:.3f}{interval}")
    if result.gaps:
        gaps = [formats.wrap_line(f"  {gap}", width) for gap in result.gaps]
        print("Not compared:", *gaps, sep="\n")
    for note in _list_notes(result, table.splitlines()[0]):
        print(formats.FORMATS["text"].render_note(note, width))


def _describe_sides(result: SideComparison) -> dict[str, str]:
    """Return what A and B are, and what both share, by name."""
    sides = dict(zip("AB", result.filters, strict=True))
    shared = " · ".join(result.common_settings)
    return sides | ({"A and B": shared} if shared else {})


def _list_notes(result: SideComparison, header: str) -> Iterator[str]:
    """Yield sentences about the columns in the table's `header`, and what verdicts do not cover."""
    from xfbench.rendering import tables

    differences = [row.figures.smallest_visible_difference for row in result.comparisons]
    if "detectable" in header and any(each is not None for each in differences):
        yield (
            "detectable: a true ratio, or its inverse, that such launches find 4 times out of 5. "
            "Four times as many launches halve its distance from 1."
        )
    if unpaired := sum(row.unpaired for row in result.comparisons):
        verb = "is" if unpaired == 1 else "are"
        yield (
            f"{pluralize(unpaired, 'launch')} without a partner {verb} not counted: the other cell "
            "has no such launch in the same session, because one failed or the run was interrupted."
        )
    if noise := tables.noise_note(result.noisy, result.launches):
        yield f"{noise} On a quiet machine, the result may be another one."
    if idle := tables.idle_threads_note(result.idle_threads):
        yield idle
    if kernels := result.uncompared_kernels:
        texts = (f"{framework} ({', '.join(names)})" for framework, names in kernels.items())
        yield (
            f"Not compared: other kernels of {' and '.join(texts)}. One of them may be faster: see "
            "xfbench run --kernel all."
        )


def _print_markdown_summary(result: SideComparison, limits: Sequence[FailLimit]) -> None:
    """Print the number of verdicts, the versions, the table, and what could not be compared.

    The heading says whether all cells pass all limits. The last list says why one does not.
    """
    from collections import Counter

    from xfbench.analysis.fail_limits import judge_limits
    from xfbench.rendering import formats, tables

    verdicts = Counter((row.verdict or "without a verdict") for row in result.comparisons)
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in verdicts.items())
    escape_field = formats.FORMATS["markdown"].escape_field
    outcome, heading, lines = "", "Not compared:", result.gaps
    if limits:
        goals = ", ".join(limit.text for limit in limits)
        if limits[0].must_find:
            goals += f", must find {limits[0].must_find:.1%}"
        problems = [limit.list_problems(result.comparisons, result.gaps) for limit in limits]
        heading, lines = "Why:", [*dict.fromkeys(itertools.chain(*problems))]
        word = judge_limits(limits, result.comparisons, result.gaps)
        outcome = f"{word} ({escape_field(goals)}): "
    print(f"**Training speed: {outcome}{counts}**\n")
    for name, text in _describe_sides(result).items():
        print(f"- {name}: {escape_field(text)}")
    software = {"A": result.software_of_a, "B": result.software_of_b}
    if result.software_of_a == result.software_of_b:
        software = {"A and B": result.software_of_a}
    for name, versions in software.items():
        print(f"- {name}: {escape_field('; '.join(versions))}")
    for limit in limits:
        if sentence := limit.describe_detectable_change(result.comparisons):
            print(f"- {sentence[0].upper()}{sentence[1:]}.")
    print()
    table = tables.comparison_table(result.comparisons, format_name="markdown")
    print(table)
    for note in _list_notes(result, table.splitlines()[0]):
        print(f"\n{escape_field(note)}")
    if lines:
        items = [f"- {escape_field(line)}" for line in lines]
        print(f"\n{formats.join_markdown_blocks([heading, *items])}")


def _compare_with_itself_and_print(side: Side, as_json: bool) -> Sequence[CellComparison]:
    """Compare the launches of each cell with each other, and return the comparisons.

    Raises UsageError if no cell has two launches or more.
    """
    from xfbench.analysis import comparison
    from xfbench.rendering import tables

    comparisons, trials, false_verdicts = comparison.compare_cells_with_themselves(side)
    if not comparisons:
        raise UsageError("no cell of A has launches enough to compare it with itself")
    if as_json:
        document = {
            "comparisons": [row.document() for row in comparisons],
            "a_a": {"trials": trials, "false_verdicts": false_verdicts},
        }
        print(json.dumps(document))
        return comparisons
    print(tables.comparison_table(comparisons, "95 %", max_width=terminal_width()))
    if trials:
        print(
            f"{false_verdicts} of {trials} verdicts on five pairs of launches are false (5 % "
            "expected)"
        )
    return comparisons


def _say_limits_exit_unless_passed(
    limits: Sequence[FailLimit], comparisons: Sequence[CellComparison], gaps: Sequence[str]
) -> None:
    """Print to standard error what change each limit would have found, and its problems.

    The last line has the outcome in a fixed form, for scripts. Exit with status 1 unless it is
    PASS.
    """
    from xfbench.analysis.fail_limits import judge_limits

    for limit in limits:
        if sentence := limit.describe_detectable_change(comparisons):
            say(f"--fail-on {limit.text}: {sentence}")
        for problem in limit.list_problems(comparisons, gaps):
            say(f"--fail-on {limit.text}: {problem}")
    outcome = judge_limits(limits, comparisons, gaps)
    say(f"--fail-on: {outcome}")
    if outcome != "PASS":
        raise typer.Exit(1)


_HINT = "name the fields that differ on one side (threads=2, kernel=native)"
