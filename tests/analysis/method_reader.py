"""Compute the figures of tables and comparisons from the JSON of records, as docs/method.md says.

The functions follow the sections "Throughput and its interval", "Comparing cells", "Ranks", "The
best of each" and "Slowdown" of that page. They use nothing of xfbench, so that a test with them
compares the program with its documentation.

The **launches** of a cell are a dictionary: y, the logarithm of a launch's throughput in images
per second, by block. A block is (session, seed, number, repetition); the repetition is 1 unless
the cell has several launches with the same session, seed and number. Cells are dictionaries of
launches, by the cell's name.
"""

import itertools
import json
import math
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, special, stats

# Launches of one row may differ in these fields of the request.
FIELDS_WITHIN_ROW = {"seed", "launch", "session", "position", "profile"}


# Records


def read_documents(folder):
    """Return the records of a results folder as documents, in the order of creation."""
    documents = [json.loads(path.read_text()) for path in folder.glob("records/*/*.json")]
    return sorted(documents, key=lambda document: document["created"])


def group_by_row(documents):
    """Return lists of documents, one for each row: a cell with all its seeds."""
    rows = defaultdict(list)
    for document in documents:
        request = document["request"]
        fields = {name: value for name, value in request.items() if name not in FIELDS_WITHIN_ROW}
        rows[json.dumps(fields, sort_keys=True)].append(document)
    return list(rows.values())


def throughput_of_launch(document):
    """Return a launch's throughput in images per second."""
    request, measurement = document["request"], document["measurement"]
    if measurement["rank_step_seconds"]:
        batch = request["batch_size_per_rank"]
        return sum(batch / statistics.median(s) for s in measurement["rank_step_seconds"])
    return request["global_batch_size"] / statistics.median(measurement["step_seconds"])


def read_launches(documents):
    """Return the "ok" launches of a row."""
    launches, counts = {}, Counter()
    for document in documents:
        if document["status"] != "ok":
            continue
        request = document["request"]
        session, seed, number = request["session"], request["seed"], request["launch"]
        day_on_machine = (document["machine"]["hostname_hash"], document["created"][:10])
        counted = (session or day_on_machine, seed, number)
        counts[counted] += 1
        if session is None:  # a record of an earlier version
            block = ((*day_on_machine, counts[counted]), seed, number, 1)
        else:
            block = (session, seed, number, counts[counted])
        launches[block] = math.log(throughput_of_launch(document))
    return launches


def values_by_session(launches):
    """Return the values of each session's launches."""
    sessions = defaultdict(list)
    for (session, *_), y in launches.items():
        sessions[session].append(y)
    return sessions


def is_ranked(documents):
    """Return whether at most a fifth of a row's launches, all with certificates, is not ok."""
    return 5 * sum(document["status"] != "ok" for document in documents) <= len(documents)


# Throughput and its interval


def throughput_of_cell(launches):
    """Return the figure of a cell, as a row's JSON has it."""
    values, sessions = list(launches.values()), values_by_session(launches)
    middle, confidence = statistics.median(values), 0.95
    if len(sessions) >= 3:
        medians = [statistics.median(values) for values in sessions.values()]
        middle = statistics.fmean(medians)
        t = stats.t.ppf(0.975, len(medians) - 1)
        half_width = t * statistics.stdev(medians) / math.sqrt(len(medians))
        low, high = middle - half_width, middle + half_width
    elif len(values) >= 5:
        blocks = sorted(launches, key=lambda block: (block[0], block[2], block[3], block[1]))
        low, high = interval_of_median([launches[block] for block in blocks])
    else:
        low, high, confidence = min(values), max(values), None
    if len(values) >= 5 and len(sessions) != 2 and math.exp(high - low) <= 1.25**2:
        label = "claim"
    else:
        label = "smoke" if len(values) < 3 else "indicative"
    return {
        "value": math.exp(middle),
        "low": math.exp(low),
        "high": math.exp(high),
        "launches": len(values),
        "confidence": confidence,
        "label": label,
    }


def interval_of_median(values):
    """Return the ends of the 95 % interval of the median of five values or more."""
    r = neighbour_correlation(values)
    values, count = sorted(values), len(values)

    def coverage(d):
        return 1 - 2 * stats.binom.cdf(d - 1, count, 0.5)

    d = max([1, *(d for d in range(1, count // 2 + 1) if coverage(d) >= 0.95)])
    q = (coverage(d) - 0.95) / (coverage(d) - coverage(d + 1))
    w = (count - d) * q / (d + (count - 2 * d) * q)
    ends = (1 - w) * values[d - 1] + w * values[d], (1 - w) * values[-d] + w * values[-d - 1]
    median = statistics.median(values)
    return [median + math.sqrt((1 + r) / (1 - r)) * (end - median) for end in ends]


def neighbour_correlation(values):
    """Return the correlation of neighbouring launches, of values in their order."""
    n, ranks = len(values), stats.rankdata(values)
    ranks = ranks - ranks.mean()
    a = sum(ranks[1:] * ranks[:-1]) / sum(ranks**2) if sum(ranks**2) else 0
    r1 = a + (1 + 3 * max(a, 0)) / n
    return min(max((n * r1 + 10 * 0.15) / (n + 10), 0), 0.7)


def spread(launches):
    """Return the standard deviation of ln of the throughput, and its interval."""
    count, deviation = len(launches), statistics.stdev(launches.values())
    low, high = (
        deviation * math.sqrt((count - 1) / stats.chi2.ppf(p, count - 1)) for p in (0.975, 0.025)
    )
    return {"value": deviation, "low": low, "high": high}


def describe_steps(documents):
    """Return what a row's JSON has of the steps of its "ok" launches of one rank."""
    documents = [document for document in documents if document["status"] == "ok"]
    steps = [document["measurement"]["step_seconds"] for document in documents]

    def median_percentile(share, least):
        values = [sorted(s)[math.ceil(share * len(s)) - 1] for s in steps if len(s) >= least]
        return statistics.median(values) if values else None

    return {
        "median_seconds": statistics.median(map(statistics.median, steps)),
        "p95_seconds": median_percentile(0.95, 20),
        "p99_seconds": median_percentile(0.99, 100),
        "sustained_images_per_second": statistics.median(
            document["request"]["global_batch_size"] * len(s) / sum(s)
            for document, s in zip(documents, steps, strict=True)
        ),
        "two_modes": sum(map(has_two_modes, steps)),
    }


def has_two_modes(seconds):
    """Return whether steps form two groups."""
    if len(seconds) < 20:
        return False
    left_out = len(seconds) // 20
    logs = np.sort(np.log(seconds))[left_out : len(seconds) - left_out]
    least = max(4, len(logs) / 10)
    splits = [(logs[:at], logs[at:]) for at in range(1, len(logs))]
    splits = [split for split in splits if min(map(len, split)) >= least]
    fast, slow = min(splits, key=lambda split: sum(len(g) * np.var(g) for g in split))
    distance = slow.mean() - fast.mean()
    return distance > math.log(1.05) and distance >= 6 * math.sqrt(
        (np.var(fast) + np.var(slow)) / 2
    )


def count_far_off(launches):
    """Return how many launches are far off."""
    values = list(launches.values())
    if len(values) < 5:
        return 0
    middle = statistics.median(values)
    deviations = [abs(value - middle) for value in values]
    return sum(0.6745 * d > 3.5 * statistics.median(deviations) for d in deviations)


# Comparing cells


@dataclass(frozen=True)
class Difference:
    """The mean difference of ln of two cells' throughputs.

    `kind` is "blocks" or "sessions" for pairs, else "unpaired". `count` is the number of pairs, or
    of the values of the cell that has fewer. `variance` is `count` times the square of the mean's
    standard error, so that of the differences if there are pairs; None if it is unknown.
    """

    kind: str
    mean: float
    count: int
    variance: float | None = None
    freedom: float = math.nan  # degrees of freedom

    @property
    def squared_error(self):
        """The square of the mean's standard error."""
        return self.variance / self.count


@dataclass(frozen=True)
class Comparison:
    """The ratio of two cells' throughputs. Without an interval, the last figures are None."""

    difference: Difference
    ratio: float
    low: float | None = None
    high: float | None = None
    verdict: str | None = None
    could_be_seen: float | None = None
    p: float | None = None


def compare_family(cells, pairs, interval_count=None):
    """Return the comparisons of one family, by pair of names.

    `interval_count` is the number of intervals in the family, if it has more than the pairs have.
    """
    differences = family_differences(cells, pairs)
    known = {pair: value for pair, value in differences.items() if value.variance is not None}
    moderated = {}
    for kind in ("blocks", "sessions", "unpaired"):
        same_kind = {pair: value for pair, value in known.items() if value.kind == kind}
        if kind == "unpaired":
            moderated |= same_kind
            continue
        for group in connected_groups(pairs):
            moderated |= moderate_variances(
                {pair: value for pair, value in same_kind.items() if pair[0] in group}
            )
    return {
        pair: compare(moderated[pair], confidence=1 - 0.05 / (interval_count or len(known)))
        if pair in known
        else Comparison(differences[pair], math.exp(differences[pair].mean))
        for pair in pairs
    }


def family_differences(cells, pairs):
    """Return the differences of a family's pairs, before variances are moderated (steps 1 to 3)."""
    family = pull_in_outliers({name: cells[name] for pair in pairs for name in pair})
    return {(a, b): difference_of_cells(family[a], family[b]) for a, b in pairs}


def compare(difference, confidence):
    """Return a comparison with an interval of this confidence (step 5)."""
    error = math.sqrt(difference.squared_error)
    t = stats.t.ppf((1 + confidence) / 2, difference.freedom)
    low, high = difference.mean - t * error, difference.mean + t * error
    return Comparison(
        difference,
        ratio=math.exp(difference.mean),
        low=math.exp(low),
        high=math.exp(high),
        verdict="faster" if low > 0 else "slower" if high < 0 else "not_distinguishable",
        could_be_seen=math.expm1((t + stats.t.ppf(0.8, difference.freedom)) * error),
        p=2 * stats.t.sf(abs(difference.mean) / error, difference.freedom) if error else None,
    )


# Step 1


def pull_in_outliers(cells):
    """Return the cells of a family with outliers pulled in."""
    results = {name: dict(launches) for name, launches in cells.items()}
    blocks_by_session = defaultdict(set)
    for block in itertools.chain(*cells.values()):
        blocks_by_session[block[0]].add(block)
    for session, blocks in blocks_by_session.items():
        names = [name for name in cells if session in values_by_session(cells[name])]
        if len(blocks) < 6:
            continue
        places = list(itertools.product(enumerate(blocks), enumerate(names)))
        table = np.full((len(blocks), len(names)), math.nan)
        for (row, block), (column, name) in places:
            table[row, column] = cells[name].get(block, math.nan)
        table = pull_in_table(table)
        for (row, block), (column, name) in places:
            if block in cells[name]:
                results[name][block] = table[row, column]
    return results


def pull_in_table(y):
    """Return a table with outliers pulled in: rows are blocks, columns are cells.

    NaN stands for a launch that is missing.
    """
    residuals = y.copy()
    for _ in range(3):
        residuals -= np.nanmedian(residuals, axis=0)
        residuals -= np.nanmedian(residuals, axis=1)[:, None]
    launches, (blocks, cells) = np.isfinite(y).sum(), y.shape
    freedom = launches - blocks - cells + 1
    if freedom <= 0:
        return y
    d = 1.4826 * abs(residuals) * math.sqrt(launches / freedom)
    if np.nanmedian(d) == 0:
        return y
    limits = 3.5 * np.maximum(np.nanmedian(d), 1.5 * np.nanmedian(d, axis=0))

    fit = y - residuals
    for _ in range(30):
        clipped = np.clip(y - fit, -limits, limits)
        cell_means, block_means = np.nanmean(clipped, axis=0), np.nanmean(clipped, axis=1)
        fit = fit + cell_means + block_means[:, None] - np.nanmean(clipped)
    residuals = y - fit
    share = (abs(residuals) <= limits).sum(axis=0) / np.isfinite(y).sum(axis=0)
    pseudo_values = fit + np.clip(residuals, -limits, limits) / np.maximum(share, 0.5)
    return np.where(share < 1, pseudo_values, y)


# Steps 2 and 3


def difference_of_cells(a, b):
    """Return the difference of two cells' launches."""
    common = values_by_session(a).keys() & values_by_session(b).keys()
    means_a, means_b = (
        [statistics.fmean(values) for values in values_by_session(launches).values()]
        for launches in (a, b)
    )
    over_sessions = unpaired_difference(means_a, means_b, least=3)
    if not common:
        return over_sessions
    a = {block: y for block, y in a.items() if block[0] in common}
    b = {block: y for block, y in b.items() if block[0] in common}
    if len(common) >= 3:
        return paired_difference("sessions", [session_difference(a, b, name) for name in common])
    differences = block_differences(a, b)
    if differences:
        return paired_difference("blocks", differences)
    within = unpaired_difference(list(a.values()), list(b.values()), least=2)
    is_better_known = within.variance is None and over_sessions.variance is not None
    return over_sessions if is_better_known else within


def block_differences(a, b):
    """Return the differences block by block; none if the launches are not in the same blocks."""
    common = a.keys() & b.keys()
    if len(common) < 2 or 5 * len(common) < 4 * min(len(a), len(b)):
        return []
    return [a[block] - b[block] for block in common]


def session_difference(a, b, session):
    """Return the mean difference of two cells within one session."""
    a = {block: y for block, y in a.items() if block[0] == session}
    b = {block: y for block, y in b.items() if block[0] == session}
    differences = block_differences(a, b)
    if differences:
        return statistics.fmean(differences)
    return statistics.fmean(a.values()) - statistics.fmean(b.values())


def paired_difference(kind, values):
    """Return the mean of paired differences."""
    mean, variance = statistics.fmean(values), statistics.variance(values)
    return Difference(kind, mean, len(values), variance, len(values) - 1)


def unpaired_difference(a, b, least):
    """Return the difference of two means, by Welch's test if both have `least` values."""
    mean, count = statistics.fmean(a) - statistics.fmean(b), min(len(a), len(b))
    if count < least:
        return Difference("unpaired", mean, count)
    part_a, part_b = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
    squared_error = part_a + part_b
    freedom = squared_error**2 / (part_a**2 / (len(a) - 1) + part_b**2 / (len(b) - 1))
    return Difference("unpaired", mean, count, squared_error * count, freedom)


# Step 4


def moderate_variances(differences):
    """Return paired differences of one kind with moderated variances, by pair."""
    v = np.array([difference.variance for difference in differences.values()])
    f = np.array([float(difference.freedom) for difference in differences.values()])
    if len(v) < 2 or (v == 0).any():
        return differences
    e = np.log(v) - special.psi(f / 2) + np.log(f / 2)
    excess = e.var(ddof=1) - special.polygamma(1, f / 2).mean()
    if excess > 0:
        f0 = 2 * inverse_trigamma(excess)
        v0 = math.exp(e.mean() + special.psi(f0 / 2) - math.log(f0 / 2))
        v, freedom = (f0 * v0 + f * v) / (f0 + f), f0 + f
    else:
        v, freedom = np.full_like(v, math.exp(e.mean())), np.full_like(v, math.inf)
    most = f.mean() * count_independent(differences)
    freedom = np.maximum(np.minimum(freedom, most), f)
    return {
        pair: replace(difference, variance=variance, freedom=degrees)
        for (pair, difference), variance, degrees in zip(
            differences.items(), v, freedom, strict=True
        )
    }


def inverse_trigamma(value):
    """Return the positive z with trigamma(z) = value."""
    ln_z = optimize.brentq(lambda ln_z: special.polygamma(1, math.exp(ln_z)) - value, -40, 40)
    return math.exp(ln_z)


def connected_groups(pairs):
    """Return the sets of names that chains of pairs connect."""
    groups = []
    for pair in pairs:
        connected = [group for group in groups if group & {*pair}]
        groups = [group for group in groups if not group & {*pair}]
        groups.append({*pair}.union(*connected))
    return groups


def count_independent(pairs):
    """Return the number of pairs that do not follow from others."""
    names = list({name for pair in pairs for name in pair})
    signs = [[(name == a) - (name == b) for name in names] for a, b in pairs]
    return int(np.linalg.matrix_rank(signs))


# Means over ratios, and comparisons that are no part of a larger family


def geometric_mean(comparisons):
    """Return the geometric mean of ratios. The squares of their half-widths are added."""
    comparisons = list(comparisons)
    mean = statistics.fmean(math.log(comparison.ratio) for comparison in comparisons)
    below, above = (
        math.hypot(*half_widths) / len(comparisons)
        for half_widths in (
            [math.log(comparison.ratio / comparison.low) for comparison in comparisons],
            [math.log(comparison.high / comparison.ratio) for comparison in comparisons],
        )
    )
    return {
        "value": math.exp(mean),
        "low": math.exp(mean - below),
        "high": math.exp(mean + above),
    }


def compare_pair(a, b):
    """Return the comparison of two cells that are a family by themselves."""
    return compare_family({"a": a, "b": b}, [("a", "b")])["a", "b"]


def compare_with_itself(launches):
    """Return the comparison of a cell's own launches, which are in the order of creation."""
    values = list(launches.values())
    a, b = {}, {}
    for number, pair in enumerate(zip(values[::2], values[1::2], strict=False)):
        y_a, y_b = pair if number % 2 == 0 else pair[::-1]
        block = ("one session", 0, number, 1)
        a[block], b[block] = y_a, y_b
    return compare_pair(a, b)


# Ranks, and the best of each


def compare_groups(cells, groups):
    """Return the comparisons of all pairs of cells of different groups, both ways.

    `groups` are lists of names. In a table of all cells, each cell is a group of its own.
    """
    pairs = [
        pair
        for group, competitor in itertools.combinations(groups, 2)
        for pair in itertools.product(group, competitor)
    ]
    comparisons = compare_family(cells, pairs)
    for (a, b), comparison in list(comparisons.items()):
        comparisons[b, a] = invert(comparison)
    return comparisons


def invert(comparison):
    """Return the comparison of B with A from that of A with B."""
    if comparison.low is None:
        return replace(comparison, ratio=1 / comparison.ratio)
    opposite = {"faster": "slower", "slower": "faster"}
    return replace(
        comparison,
        ratio=1 / comparison.ratio,
        low=1 / comparison.high,
        high=1 / comparison.low,
        verdict=opposite.get(comparison.verdict, comparison.verdict),
    )


def choose_best(cells, group):
    """Return the name of a group's best cell, of names of ranked cells."""
    candidates = [name for name in group if len(cells[name]) >= 3] or group
    return choose_fastest(cells, candidates)


def choose_fastest(cells, names):
    """Return the name of the fastest of these cells."""
    return max(names, key=lambda name: throughput_of_cell(cells[name])["value"])


def rank_groups(cells, groups):
    """Return the first and the last possible rank of each group's best cell."""
    comparisons = compare_groups(cells, groups)

    def is_certainly_faster(group, competitor):
        best = choose_best(cells, group)
        return all(comparisons[best, name].verdict == "faster" for name in competitor)

    ranks = []
    for group in groups:
        others = [other for other in groups if other is not group]
        faster = sum(is_certainly_faster(other, group) for other in others)
        slower = sum(is_certainly_faster(group, other) for other in others)
        ranks.append([1 + faster, len(groups) - slower])
    return ranks
