"""`xfbench compare`: compare two sets of launches and print verdicts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from xfbench.cli.options import JsonOption, ResultsOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xfbench.analysis.comparison import CellComparison


_AArgument = Annotated[str, typer.Argument(help="Side A: filter or results folder.")]
_BArgument = Annotated[str | None, typer.Argument(help="Side B: filter or results folder.")]
_AgainstItselfOption = Annotated[
    bool,
    typer.Option(
        "--self",
        help="Compare the launches of A with each other, to test for false verdicts.",
    ),
]
_FailOnOption = Annotated[
    str | None,
    typer.Option(
        help="Exit with status 1 if A is slower (or faster) than B by this much or more, "
        "such as slower:5%.",
        show_default=False,
    ),
]


def compare(
    a: _AArgument,
    b: _BArgument = None,
    against_itself: _AgainstItselfOption = False,
    fail_on: _FailOnOption = None,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the throughput of A with that of B. Print a verdict for each pair of cells.

    Each side, A and B, is a results folder or a filter. A filter is a list of FIELD=VALUE. The
    fields are framework, kernel, workload, threads, precision, machine, revision, results and all
    other settings of a cell. A cell of A is compared with the cells of B that are equal in all
    fields that neither filter names. Seed, site and length of the launches may differ.

    If one `xfbench run` launched both cells, their launches are compared in pairs. A verdict is
    faster, slower or not distinguishable. The 95 % confidence is for all verdicts of the command
    together (Holm's method).

    \b
    xfbench compare framework=torch framework=mxnet
    xfbench compare framework=mxnet,kernel=onednn framework=mxnet,kernel=native
    xfbench compare after before --fail-on slower:5%
    xfbench compare --self framework=torch
    """
    from xfbench.analysis import comparison
    from xfbench.base import errors, paths

    is_failure = comparison.parse_fail_limit(fail_on) if fail_on else None
    folder = paths.results(results)
    side_a = comparison.Side.parse(a, folder)
    trials = false_verdicts = 0
    if against_itself:
        if b is not None:
            raise errors.UsageError("--self compares A with itself: remove B")
        comparisons, trials, false_verdicts = comparison.compare_cells_with_themselves(side_a)
    elif b is None:
        raise errors.UsageError("compare needs two sides, or --self: see xfbench compare --help")
    else:
        comparisons = comparison.compare(side_a, comparison.Side.parse(b, folder))
    if not comparisons:
        raise errors.UsageError(
            "no cell of A can be compared with a cell of B: "
            + ("too few launches" if against_itself else _HINT)
        )
    mean = None if against_itself else comparison.geometric_mean_of_comparable_ratios(comparisons)
    _print_comparisons(comparisons, mean, (trials, false_verdicts), against_itself, as_json)
    if is_failure and any(map(is_failure, comparisons)):
        raise typer.Exit(1)


def _print_comparisons(
    comparisons: Sequence[CellComparison],
    mean: float | None,
    trials_and_false_verdicts: tuple[int, int],
    against_itself: bool,
    as_json: bool,
) -> None:
    """Print the table of the comparisons, or JSON.

    - `mean`: the geometric mean of the ratios; None if there is none.
    - `trials_and_false_verdicts`: counts of a comparison of A with itself.
    """
    from xfbench.rendering import tables

    trials, false_verdicts = trials_and_false_verdicts
    document: dict[str, object] = {"comparisons": [row.document() for row in comparisons]}
    if against_itself:
        document["a_a"] = {"trials": trials, "false_verdicts": false_verdicts}
    else:
        document["geometric_mean"] = mean
    print(json.dumps(document) if as_json else tables.comparison_table(comparisons))
    if mean is not None and not as_json:
        print(f"Geometric mean of these ratios: {mean:.3f}")
    if against_itself and not as_json and trials:
        print(
            f"{false_verdicts} of {trials} verdicts on five pairs of launches are false (5 % "
            "expected)"
        )


_HINT = "name the fields that differ on one side (threads=2, kernel=native)"
