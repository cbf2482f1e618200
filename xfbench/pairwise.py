"""Comparisons of cells by their launches. All comparisons of a table or a command are a family.

The method (docs/method.md, "Comparing cells"):

1. Launches that are far off are moved toward the others of their cell and block
   (`block_model.pull_in_outliers`). Otherwise one launch could hide a difference.
2. Launches of the same block are compared in pairs, as differences of logarithms. So slow changes
   of the machine cancel out.
3. The variances of all pairs that common cells connect say together how much launches vary
   (`block_model.moderate_variances`). Five launches of a single pair say little about that.
4. Student's t-intervals hold together with 95 % (Bonferroni). A verdict is whether the interval
   excludes 1. So a verdict never contradicts the interval that is shown beside it.
"""

from __future__ import annotations

import itertools
import math
import statistics as stdlib_statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import special

from xfbench import block_model
from xfbench.base.wording import pluralize
from xfbench.statistics import (
    CONFIDENCE,
    MIN_SESSIONS,
    Block,
    Interval,
    Launches,
    take_logarithms,
    values_by_session,
)

POWER = 0.8  # probability of detecting the smallest visible difference
# Launches go on if they decide a pair of cells with this probability. docs/measured/intervals.md
# has the costs of other limits.
MIN_PREDICTIVE_POWER = 0.8
_MAX_LOGARITHM = 700.0  # larger logarithms overflow a float


@dataclass(frozen=True)
class Comparison:
    """The ratio of A to B, with its confidence interval.

    - `p`: two-sided probability of a ratio at least as extreme if A and B are equally fast. It is
      not corrected for the other comparisons of the family.
    - `smallest_visible_difference`: relative difference that such launches detect with probability
      `POWER`, at the confidence of the interval.
    - `paired`: whether launches of the same blocks were compared.
    - `is_over_sessions`: whether sessions were compared, in pairs or not. Then `ratio.launches` is
      the number of sessions.

    With too few launches, `p` and `smallest_visible_difference` are None.
    """

    ratio: Interval
    p: float | None
    smallest_visible_difference: float | None
    paired: bool
    is_over_sessions: bool = False

    @property
    def verdict(self) -> Literal["faster", "slower", "not_distinguishable"]:
        """Return what the interval of the ratio says: whether it excludes 1.

        The verdict has the confidence of the interval.
        """
        if self.ratio.low is not None and self.ratio.low > 1:
            return "faster"
        if self.ratio.high is not None and self.ratio.high < 1:
            return "slower"
        return "not_distinguishable"

    def describe_count(self, count: int | None = None) -> str:
        """Return a count of what was compared, by default of this comparison: "3 pairs"."""
        count = self.ratio.launches if count is None else count
        if self.is_over_sessions:
            return pluralize(count, "session")
        return pluralize(count, "pair" if self.paired else "launch")


@dataclass(frozen=True)
class Ranking:
    """The ranks of groups of cells.

    - `ranks`: for each group, its best and its worst possible rank; rank 1 is the fastest.
    - `relative`: for each group, the ratio of its first cell to the first cell of the first group.
      The intervals belong to the family that decides the ranks. It is None for the first group.
    """

    ranks: tuple[tuple[int, int], ...]
    relative: tuple[Interval | None, ...]


@dataclass(frozen=True)
class _Difference:
    """The difference between the mean logarithms of two sets of launches.

    - `error`: standard error of the difference; None if it is unknown.
    - `freedom`: degrees of freedom of `error`.
    - `count`: number of pairs if `paired`, else the number of launches of the smaller set. Of
      several sessions, the number of sessions.
    - `is_over_sessions`: whether sessions are compared.
    """

    centre: float
    error: float | None
    freedom: float
    count: int
    paired: bool
    is_over_sessions: bool = False


def have_comparable_sessions(a: Launches, b: Launches) -> bool:
    """Return whether A and B have a common session, or each has enough sessions to compare."""
    sessions_a, sessions_b = ({block.session for block in side} for side in (a, b))
    return bool(sessions_a & sessions_b) or min(map(len, (sessions_a, sessions_b))) >= MIN_SESSIONS


def compare(a: Launches, b: Launches, *, confidence: float = CONFIDENCE) -> Comparison:
    """Compare A and B, and return the ratio of A to B.

    Only launches of sessions that A and B have in common are compared:

    - In three common sessions or more, the differences within the sessions are compared.
    - In one or two common sessions, launches of the same block are compared in pairs, if there are
      two common blocks or more, and at least four fifths of the blocks of the side with fewer.
      Otherwise Welch's test compares the two sides.
    - Without a common session, or with too few launches in common ones, Welch's test compares the
      means of the sessions, if each side has three sessions or more. With fewer sessions nothing is
      known about the difference between sessions, so there is no interval.

    `confidence` applies to the interval of the ratio. Raises ValueError if a side has no launch.
    """
    [comparison] = compare_all([(a, b)], confidence=confidence)
    return comparison


def compare_all(
    pairs: Sequence[tuple[Launches, Launches]],
    *,
    confidence: float = CONFIDENCE,
    interval_count: int | None = None,
) -> list[Comparison]:
    """Compare A and B of each pair (A, B), as `compare` does, as one family.

    - `confidence`: holds for all intervals of the family together.
    - `interval_count`: number of these intervals, if the family has more than those of the pairs.

    Raises ValueError if a side has no launch.
    """
    differences = _moderate(pairs, _compute_differences(pairs))
    if interval_count is None:
        interval_count = sum(difference.error is not None for difference in differences)
    confidence_of_each = 1 - (1 - confidence) / max(1, interval_count)
    return [_build_comparison(difference, confidence_of_each) for difference in differences]


def rank_cells(cells: Sequence[Launches], confidence: float = CONFIDENCE) -> Ranking:
    """Return the ranks of cells. Cells that are not distinguishable share ranks.

    `confidence` holds for all ranks together.
    """
    return rank_groups([[cell] for cell in cells], confidence)


def rank_groups(groups: Sequence[Sequence[Launches]], confidence: float = CONFIDENCE) -> Ranking:
    """Return the ranks of groups of cells. `confidence` holds for all ranks together.

    The first cell of a group must be the group's fastest cell. Group A is faster than group B if
    the first cell of A is faster than every cell of B. All pairs of cells from different groups are
    one family. Therefore the result is valid although the launches themselves show which cell is
    the fastest.
    """
    cells = [(n, index) for n, group in enumerate(groups) for index in range(len(group))]
    pairs = [(a, b) for a, b in itertools.combinations(cells, 2) if a[0] != b[0]]
    comparisons = compare_all(
        [(groups[a][i], groups[b][j]) for (a, i), (b, j) in pairs], confidence=confidence
    )
    beaten: dict[tuple[int, int], int] = defaultdict(int)
    relative: list[Interval | None] = [None] * len(groups)
    for (a, b), comparison in zip(pairs, comparisons, strict=True):
        if comparison.verdict != "not_distinguishable":
            fast, slow = (a, b) if comparison.verdict == "faster" else (b, a)
            beaten[fast[0], slow[0]] += not fast[1]
        if a == (0, 0) and not b[1]:
            relative[b[0]] = comparison.ratio.inverse()
    better = [0] * len(groups)
    worse = [0] * len(groups)
    for (winner, loser), count in beaten.items():
        if count == len(groups[loser]):
            better[loser] += 1
            worse[winner] += 1
    ranks = [(1 + above, len(groups) - below) for above, below in zip(better, worse, strict=True)]
    return Ranking(tuple(ranks), tuple(relative))


def list_looks(least: int, most: int) -> list[int]:
    """Return after how many launches of each cell `judge_order` is asked, from `least` to `most`.

    Each number is about 1.4 times the one before. Every look has its part of the error, so a look
    after each launch would make all intervals wider. After `most` launches nothing is left to
    decide.
    """
    looks = []
    count = least
    while count < most:
        looks.append(count)
        count = max(count + 1, round(1.4 * count))
    return looks


def judge_order(
    cells: Sequence[Launches], tolerance: float, *, most: int, looks: int = 1
) -> Literal["known", "hidden", "open"]:
    """Return what is known of the order of the cells while launches are added.

    - "known": any two cells differ certainly, or by no more than a share of `tolerance`.
    - "hidden": other pairs remain, but for each of them the probability that `most` launches decide
      it is below `MIN_PREDICTIVE_POWER`.
    - "open": more launches may decide a pair.

    `looks` is how often this is asked. All looks together are wrong in 5 % of cases at most
    (Bonferroni).
    """
    return judge_pairs([*itertools.combinations(cells, 2)], tolerance, most=most, looks=looks)


def judge_pairs(
    pairs: Sequence[tuple[Launches, Launches]], tolerance: float, *, most: int, looks: int = 1
) -> Literal["known", "hidden", "open"]:
    """Return what is known of these pairs of cells (see `judge_order`)."""
    differences = _moderate(pairs, _compute_differences(pairs))
    interval_count = sum(difference.error is not None for difference in differences)
    confidence = 1 - (1 - CONFIDENCE) / looks / max(1, interval_count)
    undecided = [
        difference
        for difference in differences
        if not _is_decided(_build_comparison(difference, confidence), tolerance)
    ]
    if not undecided:
        return "known"
    final_confidence = 1 - (1 - CONFIDENCE) / max(1, interval_count)  # that of the table's ranks
    powers = [
        _predict_power(difference, final_confidence, tolerance, most) for difference in undecided
    ]
    return "hidden" if max(powers) < MIN_PREDICTIVE_POWER else "open"


def _is_decided(comparison: Comparison, tolerance: float) -> bool:
    """Return whether the two cells differ, or are equal but for a share of `tolerance`."""
    low, high = comparison.ratio.low, comparison.ratio.high
    if low is None or high is None:
        return False
    is_small = high <= 1 + tolerance and low >= 1 / (1 + tolerance)
    return is_small or comparison.verdict != "not_distinguishable"


def _predict_power(
    difference: _Difference, confidence: float, tolerance: float, launches: int
) -> float:
    """Return the probability that `launches` launches of both cells decide between the cells.

    This is the predictive power (Spiegelhalter, Freedman and Blackburn 1986). The mean difference
    after `launches` launches is predicted from the present one. It is 1 if nothing can be
    predicted, that is, without a standard error, or over sessions.
    """
    error, count = difference.error, difference.count
    if error is None or difference.is_over_sessions:
        return 1.0
    if launches <= count:
        return 0.0
    quantile = special.stdtrit(difference.freedom + launches - count, (1 + confidence) / 2)
    half_width = float(quantile) * error * math.sqrt(count / launches)
    spread = error * math.sqrt(1 - count / launches)

    def probability_below(limit: float) -> float:
        return float(special.stdtr(difference.freedom, (limit - difference.centre) / spread))

    margin = max(0.0, math.log1p(tolerance) - half_width)
    differs = probability_below(-half_width) + 1 - probability_below(half_width)
    return min(1.0, differs + probability_below(margin) - probability_below(-margin))


def _build_comparison(difference: _Difference, confidence: float) -> Comparison:
    centre, error = difference.centre, difference.error
    if error is None:
        ratio = Interval(_bounded_exp(centre), None, None, difference.count)
        return Comparison(ratio, None, None, False, difference.is_over_sessions)
    t_confidence, t_power = special.stdtrit(difference.freedom, [(1 + confidence) / 2, POWER])
    low, high = (_bounded_exp(centre + sign * t_confidence * error) for sign in (-1, 1))
    # Without variation between launches, the probability is 0 or 1.
    t_value = abs(centre) / error if error else math.copysign(math.inf, abs(centre) - 1e-300)
    p = float(min(1.0, 2 * special.stdtr(difference.freedom, -t_value)))
    visible_difference = math.expm1(min((t_confidence + t_power) * error, _MAX_LOGARITHM))
    ratio = Interval(_bounded_exp(centre), low, high, difference.count, confidence)
    return Comparison(ratio, p, visible_difference, difference.paired, difference.is_over_sessions)


def _bounded_exp(logarithm: float) -> float:
    """Return the exponential of `logarithm`, limited so that it does not overflow."""
    return math.exp(min(logarithm, _MAX_LOGARITHM))


def _compute_differences(pairs: Sequence[tuple[Launches, Launches]]) -> list[_Difference]:
    """Return the difference of each pair, after outliers of all cells were pulled in."""
    cells = {id(cell): cell for pair in pairs for cell in pair}
    if not all(cells.values()):
        raise ValueError("each side needs at least one launch")
    logs = dict(zip(cells, _pull_in_outliers([*cells.values()]), strict=True))
    return [_difference(logs[id(a)], logs[id(b)]) for a, b in pairs]


def _moderate(
    pairs: Sequence[tuple[Launches, Launches]], differences: Sequence[_Difference]
) -> list[_Difference]:
    """Return the differences with moderated standard errors. Unpaired ones are unchanged.

    Only pairs that are connected by common cells say something about the noise of each other. Cells
    of different networks need not be equally noisy.
    """
    moderated = [*differences]
    group_of_cell = _connected_groups(pairs)
    groups: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for n, difference in enumerate(differences):
        if difference.paired:
            groups[group_of_cell[id(pairs[n][0])], difference.is_over_sessions].append(n)
    for chosen in groups.values():
        counts = np.array([differences[n].count for n in chosen])
        errors = np.array([differences[n].error for n in chosen], dtype=float)
        variances, freedoms = block_model.moderate_variances(
            np.square(errors) * counts,
            np.array([differences[n].freedom for n in chosen]),
            _count_independent([pairs[n] for n in chosen]),
        )
        for n, count, variance, freedom in zip(chosen, counts, variances, freedoms, strict=True):
            error = math.sqrt(variance / count)
            moderated[n] = replace(differences[n], error=error, freedom=float(freedom))
    return moderated


def _count_independent(pairs: Sequence[tuple[Launches, Launches]]) -> int:
    """Return how many of the pairs' differences do not follow from the others.

    For example, the difference of A and C follows from those of A and B, and of B and C.
    """
    groups = _connected_groups(pairs)
    return len(groups) - len(set(groups.values()))


def _connected_groups(pairs: Sequence[tuple[Launches, Launches]]) -> dict[int, int]:
    """Return a number for each cell, by `id`. Cells connected by pairs have the same number."""
    group_of_cell = {id(cell): {id(cell)} for pair in pairs for cell in pair}
    for a, b in pairs:
        group_a, group_b = group_of_cell[id(a)], group_of_cell[id(b)]
        if group_a is not group_b:
            group_a |= group_b
            group_of_cell.update(dict.fromkeys(group_b, group_a))
    return {cell: min(group) for cell, group in group_of_cell.items()}


def _pull_in_outliers(cells: Sequence[Launches]) -> list[dict[Block, float]]:
    """Return the logarithms of the launches. In each session, outliers are pulled in."""
    logs = [dict(take_logarithms(cell)) for cell in cells]
    blocks_by_session: dict[str, set[Block]] = defaultdict(set)
    for cell in logs:
        for block in cell:
            blocks_by_session[block.session].add(block)
    for session, unordered_blocks in blocks_by_session.items():
        blocks = sorted(unordered_blocks)
        columns = [cell for cell in logs if any(block.session == session for block in cell)]
        table = np.array([[cell.get(block, np.nan) for cell in columns] for block in blocks])
        for cell, column in zip(columns, block_model.pull_in_outliers(table).T, strict=True):
            cell.update(
                (block, float(value))
                for block, value in zip(blocks, column, strict=True)
                if not np.isnan(value)
            )
    return logs


def _difference(a: Launches, b: Launches) -> _Difference:
    """Return the difference between the mean logarithms of A and B, with its standard error.

    `a` and `b` have the logarithms of the launches, by block. `compare` says what is compared.
    """
    sessions_a, sessions_b = values_by_session(a), values_by_session(b)
    common = sorted(sessions_a.keys() & sessions_b.keys())
    if len(common) >= MIN_SESSIONS:
        centres = [
            _difference_within_sessions(sessions_a[session], sessions_b[session]).centre
            for session in common
        ]
        return replace(_paired_difference(centres), is_over_sessions=True)
    if common:
        difference = _difference_within_sessions(
            {block: value for session in common for block, value in sessions_a[session].items()},
            {block: value for session in common for block, value in sessions_b[session].items()},
        )
        if difference.error is not None:
            return difference
    over_sessions = _difference_of_session_means(sessions_a, sessions_b)
    return over_sessions if over_sessions.error is not None or not common else difference


def _difference_of_session_means(
    sessions_a: Mapping[str, Launches], sessions_b: Mapping[str, Launches]
) -> _Difference:
    """Return the difference of the sessions' means. Its error is unknown for few sessions."""
    means_a, means_b = (
        [stdlib_statistics.fmean(values.values()) for values in sessions.values()]
        for sessions in (sessions_a, sessions_b)
    )
    difference = replace(_unpaired_difference(means_a, means_b), is_over_sessions=True)
    is_known = min(len(means_a), len(means_b)) >= MIN_SESSIONS
    return difference if is_known else replace(difference, error=None)


def _difference_within_sessions(a: Launches, b: Launches) -> _Difference:
    common = a.keys() & b.keys()
    if len(common) >= 2 and 5 * len(common) >= 4 * min(len(a), len(b)):
        return _paired_difference([a[block] - b[block] for block in sorted(common)])
    return _unpaired_difference([*a.values()], [*b.values()])


def _paired_difference(differences: Sequence[float]) -> _Difference:
    centre, variance = _moments(differences)
    count = len(differences)
    return _Difference(centre, math.sqrt(variance / count), count - 1.0, count, True)


def _unpaired_difference(a: Sequence[float], b: Sequence[float]) -> _Difference:
    """Return the difference of two independent means, by Welch."""
    (mean_a, variance_a), (mean_b, variance_b) = _moments(a), _moments(b)
    count = min(len(a), len(b))
    if count < 2:
        return _Difference(mean_a - mean_b, None, 0.0, count, False)
    mean_variances = variance_a / len(a), variance_b / len(b)
    error = math.sqrt(sum(mean_variances))
    weights = mean_variances[0] ** 2 / (len(a) - 1) + mean_variances[1] ** 2 / (len(b) - 1)
    freedom = error**4 / weights if weights else float(count - 1)
    return _Difference(mean_a - mean_b, error, freedom, count, False)


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the variance of `values`. The variance of one value is 0."""
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
