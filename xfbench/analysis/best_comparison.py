"""Multiple comparisons with the best (MCB): how much slower is each cell than the best cell?

Which cell is the best is not known. The cell that seems to be the best was also the luckiest. A
comparison with this cell alone looks like a certain difference far too often. MCB compares all
cells with each other and then asks for the best one. So the interval of a slowdown contains the
ratio to the true best cell, whichever cell this is.

These are the unconstrained intervals of Edwards and Hsu, Multiple comparisons with the best
treatment, JASA 78 (1983), 965–971 (see also Hsu, Multiple Comparisons, 1996, chapter 4). They
follow from intervals of all pairs. The constrained intervals of Hsu (1984) are narrower at one end,
but they do not say how much slower a cell is at least.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from xfbench import pairwise
from xfbench.pairwise import Comparison
from xfbench.statistics import CONFIDENCE, Interval, Launches


def slowdowns_against_best(
    families: Sequence[Sequence[Launches]], confidence: float = CONFIDENCE
) -> list[list[Interval]]:
    """Return for each cell the speed of its family's best cell divided by its own speed.

    - `families`: for example, one family per network. Only cells of the same family are compared.
    - `confidence`: holds for all intervals of all families together (Bonferroni).

    A slowdown is at least 1. The slowdown of a single cell is 1 without an interval. There is also
    no interval if the difference to another cell of the family has none (see `pairwise.compare`).
    """
    pairs = [pair for cells in families for pair in itertools.combinations(cells, 2)]
    comparisons = iter(pairwise.compare_all(pairs, confidence=confidence))
    return [_slowdowns_of_family(cells, comparisons) for cells in families]


def _slowdowns_of_family(
    cells: Sequence[Launches], comparisons: Iterator[Comparison]
) -> list[Interval]:
    """Return the slowdowns of the cells. The next comparisons are those of all pairs of cells."""
    ratios: list[list[Interval]] = [[] for _ in cells]  # speed of another cell over that of a cell
    for a, b in itertools.combinations(range(len(cells)), 2):
        ratio = next(comparisons).ratio
        ratios[b].append(ratio)
        ratios[a].append(ratio.inverse())
    return [
        _slowdown(ratios_of_cell, len(cell))
        for ratios_of_cell, cell in zip(ratios, cells, strict=True)
    ]


def _slowdown(ratios: Sequence[Interval], launches: int) -> Interval:
    """Return the largest of the ratios and 1, with its interval."""
    if not ratios:
        return Interval(1.0, None, None, launches)
    value = max(1.0, *(ratio.value for ratio in ratios))
    count = min(ratio.launches for ratio in ratios)
    lows = [ratio.low for ratio in ratios if ratio.low is not None]
    highs = [ratio.high for ratio in ratios if ratio.high is not None]
    if len(lows) < len(ratios) or len(highs) < len(ratios):
        return Interval(value, None, None, count)
    return Interval(value, max(1.0, *lows), max(1.0, *highs), count)
