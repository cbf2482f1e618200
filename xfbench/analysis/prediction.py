"""Throughput on more ranks than there are: a model fitted to a few small runs, with its interval.

A step takes as long as the slowest rank computes, and what of the exchange is not over by then.
Computing is measured, and depends on the images per rank; the slowest of n is the median of the
largest of n draws from what steps took on one rank; the exchange goes by its algorithm, in its
buckets, over a link whose bandwidth and latency are fitted, or told. What the model itself may
be wrong by is in the interval: see docs/prediction.md, where it was tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import scipy  # its parts are loaded where they are used: tables predict nothing

from xfbench import exchange
from xfbench.analysis import statistics
from xfbench.analysis.series import Launch, Series
from xfbench.base.errors import UsageError
from xfbench.exchange import Link

_DRAWS = 400
_LEAST = 1e-12  # seconds that all gradients take at the least
_NOISE, _LEAST_NOISE = 0.01, 0.002  # between launches: where one cannot tell, and at the least
# What a message's latency is thought to be at the most, as a standard deviation in seconds: from
# a few numbers of ranks alone it could be anything, at the cost of the bandwidth.
_LATENCY = 1e-3
# What the model may be wrong by, as standard deviations of a factor: of computing, and of the
# exchange, there and where it was fitted, over a link that was measured or only described.
_OF_COMPUTING, _OF_MEASURED, _OF_DESCRIBED = 0.02, 0.1, 0.3


@dataclass(frozen=True)
class Figure:
    """A value with its 95 % interval; none (None) where every count of ranks had one launch."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Point:
    """What is expected on so many ranks, how many times the most measured; and what was measured.

    `efficiency` is relative to the fewest ranks that were measured.
    """

    ranks: int
    images_per_second: Figure
    efficiency: float
    beyond_data: float
    measured: float | None = None


@dataclass(frozen=True)
class _Parameters:
    """Of one draw: computing is `fixed` + `per_image` · images, in seconds."""

    fixed: float
    per_image: float
    link: Link
    spread: np.ndarray
    of_computing: float = 1.0
    of_exchange: float = 1.0

    def computing(self, images: int) -> float:
        return (self.fixed + self.per_image * images) * self.of_computing


@dataclass(frozen=True)
class Fit:
    """The model of one series: its best parameters, and draws from what they may be as well."""

    series: Series
    described: bool
    best: _Parameters
    draws: Sequence[_Parameters] = field(repr=False)

    def point(self, ranks: int) -> Point:
        """Raises UsageError where the images of an update cannot be shared by so many."""
        values = [self._speed(ranks, one) for one in self.draws]
        fewest = min(n for n, _ in self.series.groups)
        value = self._speed(ranks, self.best)
        baseline = self.series.measured(fewest)
        assert baseline is not None
        return Point(
            ranks,
            _figure(value, values),
            efficiency=value / ranks / (baseline / fewest),
            beyond_data=ranks / self.series.most,
            measured=self.series.measured(ranks),
        )

    def document(self) -> dict[str, Any]:
        """The fit as `predict --json` prints it."""
        series = self.series
        images = sorted({series.images(n) for n, _ in series.groups})
        return {
            "title": series.title,
            "law": series.law,
            "batch_size": series.batch_size,
            "ranks_per_node": series.ranks_per_node,
            "measured_ranks": sorted({n for n, _ in series.groups}),
            "launches": sum(map(len, series.groups.values())),
            "algorithm": series.algorithm,
            "payload_bytes": series.payload,
            "buckets": [asdict(bucket) for bucket in series.buckets],
            "steps_on_one_rank": len(series.spread),
            "link": "described" if self.described else "measured",
            "bandwidth": asdict(self._of(lambda one: one.link.bandwidth)),
            "latency": asdict(self._of(lambda one: one.link.latency)),
            "computing_seconds": {
                str(n): asdict(self._of(lambda one, n=n: one.computing(n))) for n in images
            },
        }

    def _of(self, what: Any) -> Figure:
        return _figure(what(self.best), [what(one) for one in self.draws])

    def _speed(self, ranks: int, one: _Parameters) -> float:
        series = self.series
        images = series.images(ranks)
        computing = one.computing(images)
        # A step of the group is reported by its median, so the slowest's median it is.
        slowest = computing * float(np.quantile(one.spread, 0.5 ** (1 / ranks)))
        shown = one.of_exchange * _exposed(series, ranks, slowest, one.link)
        return ranks * images / (slowest + shown)


def fit(of: Series, link: Link | None = None) -> Fit:
    """The model of a series; with a `link` over that, else over the one that was measured.

    Raises UsageError where what was measured does not say what the link can do.
    """
    exchanged = {
        (ranks, nodes): group
        for (ranks, nodes), group in of.groups.items()
        if nodes > 1 and ranks > 1
    }
    if link is None:
        _check_measured(of, exchanged)
    noise, freedom = _noise(of)
    spread = np.asarray(of.spread or [1.0])

    def parameters(shaken: _Shaken, near: Link | None) -> _Parameters:
        return _Parameters(
            *_computing(of, shaken),
            link or _link(of, exchanged, shaken, near),
            shaken.sample(spread),
            shaken.model(_OF_COMPUTING),
            shaken.model(_OF_DESCRIBED if link else _OF_MEASURED),
        )

    best = parameters(_Shaken(noise, freedom), None)
    rng = np.random.default_rng(0) if freedom else None
    draws = [parameters(_Shaken(noise, freedom, rng), best.link) for _ in range(_DRAWS * bool(rng))]
    return Fit(of, link is not None, best, draws)


class _Shaken:
    """What a draw differs by from what was measured: nothing, without random numbers."""

    def __init__(self, noise: float, freedom: int, rng: np.random.Generator | None = None) -> None:
        self.rng, self.noise, self.freedom = rng, noise, freedom

    def launches(self, count: int) -> float:
        """A factor of the mean of so many launches."""
        if self.rng is None:
            return 1.0
        return float(np.exp(self.rng.standard_t(self.freedom) * self.noise / count**0.5))

    def model(self, deviation: float) -> float:
        """A factor of what the model says."""
        return 1.0 if self.rng is None else float(np.exp(self.rng.normal(0, deviation)))

    def latency(self) -> float:
        """In seconds, as it is thought to be before anything is measured."""
        return 0.0 if self.rng is None else float(self.rng.normal(0, _LATENCY))

    def sample(self, values: np.ndarray) -> np.ndarray:
        return values if self.rng is None else self.rng.choice(values, len(values))


def _check_measured(of: Series, exchanged: Mapping[tuple[int, int], Sequence[Launch]]) -> None:
    counts = {ranks for ranks, _ in exchanged}
    told = "describe the link with --link BANDWIDTH,LATENCY"
    if not counts:
        raise UsageError(f"{of.title}: nothing was measured over a link between nodes: {told}")
    if len(counts) < 2:
        [only] = counts
        raise UsageError(
            f"{of.title}: from {only} ranks alone bandwidth and latency cannot be told apart: "
            f"measure another number of ranks on several nodes, or {told}"
        )


def _noise(of: Series) -> tuple[float, int]:
    """Relative standard deviation of launches of one kind, and its degrees of freedom."""
    freedom = sum(len(group) - 1 for group in of.groups.values())
    if not freedom:
        return _NOISE, 0
    squares = sum(
        float(np.var(np.log([one.step for one in group]), ddof=0)) * len(group)
        for group in of.groups.values()
    )
    return max((squares / freedom) ** 0.5, _LEAST_NOISE), freedom


def _computing(of: Series, shaken: _Shaken) -> tuple[float, float]:
    """Seconds of a step of no image, and of each image: as measured where ranks are as dense."""
    dense = {key: group for key, group in of.groups.items() if key[0] == key[1] * of.ranks_per_node}
    points = []
    for (ranks, _), group in sorted((dense or of.groups).items()):
        mean = statistics.geometric_interval([one.computing for one in group]).value
        points.append((of.images(ranks), mean * shaken.launches(len(group)), len(group)))
    if len({images for images, _, _ in points}) == 1:
        weights = [weight for _, _, weight in points]
        return float(np.average([seconds for _, seconds, _ in points], weights=weights)), 0.0
    rows = [[weight**0.5 / s, weight**0.5 * n / s] for n, s, weight in points]
    found, _ = scipy.optimize.nnls(np.asarray(rows), np.asarray([w**0.5 for _, _, w in points]))
    return float(found[0]), float(found[1])


def _link(
    of: Series,
    exchanged: Mapping[tuple[int, int], Sequence[Launch]],
    shaken: _Shaken,
    near: Link | None,
) -> Link:
    """Bandwidth and latency with which the exchange shows as it did; sought from `near` on."""
    ranks = [n for n, _ in exchanged]
    groups = [*exchanged.values()]
    steps = np.asarray([np.mean([one.step for one in group]) for group in groups])
    shown = np.asarray([np.mean([one.exposed for one in group]) for group in groups])
    counts = [len(group) for group in groups]
    deviations = np.hypot(shaken.noise * steps / np.sqrt(counts), _OF_MEASURED * shown)
    # Computing and exchange were measured as one: what a launch was slower by is in both.
    slower = steps * np.asarray([shaken.launches(count) - 1 for count in counts])
    shown = shown * np.asarray([shaken.model(_OF_MEASURED) for _ in counts]) + slower
    crossings, messages = np.asarray(
        [exchange.crossings_and_messages(of.algorithm, n, of.servers) for n in ranks]
    ).T
    thought = shaken.latency()
    # Seconds of all gradients, and of a message.
    if of.buckets == exchange.SINGLE_BUCKET:
        rows = np.stack([crossings, messages], axis=1) / deviations[:, None]
        rows = np.vstack([rows, [0.0, 1 / _LATENCY]])
        sought = np.append(shown / deviations, thought / _LATENCY)
        whole, latency = scipy.optimize.nnls(rows, sought)[0]
    else:

        def residuals(unknown: np.ndarray) -> np.ndarray:
            link = Link(of.payload / max(unknown[0], _LEAST), unknown[1])
            said = [_exposed(of, n, s, link) for n, s in zip(ranks, steps - shown, strict=True)]
            far = (np.asarray(said) - shown) / deviations
            return np.append(far, (unknown[1] - thought) / _LATENCY)

        longest = float(np.max(steps))
        scale = [longest, longest / 10]
        first = [of.payload / near.bandwidth, near.latency] if near else scale
        solved = scipy.optimize.least_squares(residuals, first, bounds=(0, np.inf), x_scale=scale)
        whole, latency = solved.x
    return Link(of.payload / max(float(whole), _LEAST), float(latency))


def _exposed(of: Series, ranks: int, computing: float, link: Link) -> float:
    costs = [
        exchange.exchange_seconds(of.algorithm, ranks, bucket.share * of.payload, link, of.servers)
        for bucket in of.buckets
    ]
    return exchange.exposed_seconds(of.buckets, computing, costs)


def _figure(value: float, draws: Sequence[float]) -> Figure:
    if not draws:
        return Figure(value, None, None)
    low, high = np.quantile(draws, [0.025, 0.975])
    return Figure(value, float(min(low, value)), float(max(high, value)))
