"""Throughput on more ranks than were measured: a model fitted to a few small runs, with intervals.

A step takes as long as the slowest rank computes, plus the exposed part of the exchange. Computing
time is measured and depends on the images per rank. The time of the slowest of n ranks is the
median of the largest of n draws from the steps on one rank. The model of the exchange uses its
algorithm, its buckets, and a link with a fitted or given bandwidth and latency. The interval
includes errors of the model itself. docs/prediction.md describes the tests of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import scipy  # loads its submodules on use, so tables do not pay for them

from xfbench import statistics
from xfbench.analysis.series import Launch, Series
from xfbench.base.errors import UsageError
from xfbench.model import communication_cost
from xfbench.model.communication_cost import Link

_DRAWS = 400
_MIN_EXCHANGE_S = 1e-12  # lower limit for exchanging all gradients
# Relative standard deviations between equal launches: if not measurable, and the lower limit.
_DEFAULT_NOISE, _MIN_NOISE = 0.01, 0.002
# Prior standard deviation of a message's latency, in seconds. Few numbers of ranks alone do not
# separate latency from bandwidth.
_LATENCY_DEVIATION_S = 1e-3
# Errors of the model as standard deviations of a factor, for computing and for the exchange over a
# measured or a described link.
_COMPUTING_ERROR, _MEASURED_LINK_ERROR, _DESCRIBED_LINK_ERROR = 0.02, 0.1, 0.3


@dataclass(frozen=True)
class Figure:
    """A value with its 95 % interval. Without repeated launches there is no interval."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Point:
    """The prediction for `ranks`, with the measured speed if there is one.

    `beyond_data` is the ratio to the largest measured number of ranks. `efficiency` is relative to
    the smallest.
    """

    ranks: int
    images_per_second: Figure
    efficiency: float
    beyond_data: float
    measured: float | None = None


@dataclass(frozen=True)
class _Parameters:
    """Parameters of one draw: computing takes `fixed` + `per_image` · images, in seconds."""

    fixed: float
    per_image: float
    link: Link
    relative_steps: np.ndarray
    computing_factor: float = 1.0
    exchange_factor: float = 1.0

    def computing_seconds(self, images: int) -> float:
        return (self.fixed + self.per_image * images) * self.computing_factor


@dataclass(frozen=True)
class Fit:
    """The model of one series: its best parameters, and draws of other plausible parameters."""

    series: Series
    has_described_link: bool
    best: _Parameters
    draws: Sequence[_Parameters] = field(repr=False)

    def predict(self, ranks: int) -> Point:
        """Return the prediction. Raises UsageError if `ranks` cannot share an update evenly."""
        values = [self._predict_images_per_second(ranks, draw) for draw in self.draws]
        fewest = min(n for n, _ in self.series.groups)
        value = self._predict_images_per_second(ranks, self.best)
        baseline = self.series.measured_speed(fewest)
        assert baseline is not None
        return Point(
            ranks,
            _build_figure(value, values),
            efficiency=value / ranks / (baseline / fewest),
            beyond_data=ranks / self.series.max_ranks,
            measured=self.series.measured_speed(ranks),
        )

    def document(self) -> dict[str, Any]:
        """Return the fit as `predict --json` prints it."""
        series = self.series
        images = sorted({series.images_per_rank(n) for n, _ in series.groups})
        return {
            "title": series.title,
            "law": series.law,
            "batch_size": series.batch_size,
            "ranks_per_node": series.ranks_per_node,
            "measured_ranks": sorted({n for n, _ in series.groups}),
            "launches": sum(map(len, series.groups.values())),
            "algorithm": series.algorithm,
            "payload_bytes": series.payload_bytes,
            "buckets": [asdict(bucket) for bucket in series.buckets],
            "steps_on_one_rank": len(series.relative_steps),
            "link": "described" if self.has_described_link else "measured",
            "bandwidth": asdict(
                self._figure_with_interval(lambda parameters: parameters.link.bandwidth)
            ),
            "latency": asdict(
                self._figure_with_interval(lambda parameters: parameters.link.latency)
            ),
            "computing_seconds": {
                str(n): asdict(
                    self._figure_with_interval(
                        lambda parameters, n=n: parameters.computing_seconds(n)
                    )
                )
                for n in images
            },
        }

    def _figure_with_interval(self, get_parameter: Any) -> Figure:
        return _build_figure(get_parameter(self.best), [get_parameter(draw) for draw in self.draws])

    def _predict_images_per_second(self, ranks: int, parameters: _Parameters) -> float:
        series = self.series
        images = series.images_per_rank(ranks)
        computing_seconds = parameters.computing_seconds(images)
        # A group's step is reported by its median, so use the median of the slowest rank.
        slowest_seconds = computing_seconds * float(
            np.quantile(parameters.relative_steps, 0.5 ** (1 / ranks))
        )
        exposed_seconds = parameters.exchange_factor * _exposed_seconds(
            series, ranks, slowest_seconds, parameters.link
        )
        return ranks * images / (slowest_seconds + exposed_seconds)


def fit_scaling_model(series: Series, described_link: Link | None = None) -> Fit:
    """Return the model of a series, over `link` if it is given, else over the measured link.

    Raises UsageError if the measurements do not determine the link.
    """
    multi_node_groups = {
        (ranks, nodes): group
        for (ranks, nodes), group in series.groups.items()
        if nodes > 1 and ranks > 1
    }
    if described_link is None:
        _require_enough_link_measurements(series, multi_node_groups)
    noise, freedom = _launch_noise_and_freedom(series)
    spread = np.asarray(series.relative_steps or [1.0])

    def fit_parameters(perturbation: _Perturbation, start_link: Link | None) -> _Parameters:
        return _Parameters(
            *_fit_fixed_and_per_image_seconds(series, perturbation),
            described_link or _fit_link(series, multi_node_groups, perturbation, start_link),
            perturbation.resample(spread),
            perturbation.model_error_factor(_COMPUTING_ERROR),
            perturbation.model_error_factor(
                _DESCRIBED_LINK_ERROR if described_link else _MEASURED_LINK_ERROR
            ),
        )

    best = fit_parameters(_Perturbation(noise, freedom), None)
    rng = np.random.default_rng(0) if freedom else None
    draws = [
        fit_parameters(_Perturbation(noise, freedom, rng), best.link)
        for _ in range(_DRAWS * bool(rng))
    ]
    return Fit(series, described_link is not None, best, draws)


class _Perturbation:
    """Random factors by which a draw differs from the measurements; 1 without random numbers."""

    def __init__(self, noise: float, freedom: int, rng: np.random.Generator | None = None) -> None:
        self.rng, self.noise, self.freedom = rng, noise, freedom

    def launch_noise_factor(self, launch_count: int) -> float:
        """Return a factor for the mean of `count` launches."""
        if self.rng is None:
            return 1.0
        return float(np.exp(self.rng.standard_t(self.freedom) * self.noise / launch_count**0.5))

    def model_error_factor(self, standard_deviation: float) -> float:
        """Return a factor for an error of the model."""
        return 1.0 if self.rng is None else float(np.exp(self.rng.normal(0, standard_deviation)))

    def draw_prior_latency(self) -> float:
        """Return a draw from the prior of the latency, in seconds."""
        return 0.0 if self.rng is None else float(self.rng.normal(0, _LATENCY_DEVIATION_S))

    def resample(self, values: np.ndarray) -> np.ndarray:
        return values if self.rng is None else self.rng.choice(values, len(values))


def _require_enough_link_measurements(
    series: Series, multi_node_groups: Mapping[tuple[int, int], Sequence[Launch]]
) -> None:
    counts = {ranks for ranks, _ in multi_node_groups}
    advice = "describe the link with --link BANDWIDTH,LATENCY"
    if not counts:
        raise UsageError(f"{series.title}: no launch used a link between nodes: {advice}")
    if len(counts) < 2:
        [ranks] = counts
        raise UsageError(
            f"{series.title}: {ranks} ranks alone do not separate bandwidth from latency: "
            f"measure another number of ranks on several nodes, or {advice}"
        )


def _launch_noise_and_freedom(series: Series) -> tuple[float, int]:
    """Return the relative standard deviation between equal launches, and its degrees of freedom."""
    freedom = sum(len(group) - 1 for group in series.groups.values())
    if not freedom:
        return _DEFAULT_NOISE, 0
    squares = sum(
        float(np.var(np.log([launch.step_seconds for launch in group]), ddof=0)) * len(group)
        for group in series.groups.values()
    )
    return max((squares / freedom) ** 0.5, _MIN_NOISE), freedom


def _fit_fixed_and_per_image_seconds(
    series: Series, perturbation: _Perturbation
) -> tuple[float, float]:
    """Return the fixed seconds of a step and the seconds per image.

    Use the launches with as many ranks per node as the series has, if there are any.
    """
    dense_groups = {
        key: group
        for key, group in series.groups.items()
        if key[0] == key[1] * series.ranks_per_node
    }
    points = []
    for (ranks, _), group in sorted((dense_groups or series.groups).items()):
        mean = statistics.geometric_interval([launch.computing_seconds for launch in group]).value
        points.append(
            (
                series.images_per_rank(ranks),
                mean * perturbation.launch_noise_factor(len(group)),
                len(group),
            )
        )
    if len({images for images, _, _ in points}) == 1:
        weights = [weight for _, _, weight in points]
        return float(np.average([seconds for _, seconds, _ in points], weights=weights)), 0.0
    rows = [[weight**0.5 / s, weight**0.5 * n / s] for n, s, weight in points]
    coefficients, _ = scipy.optimize.nnls(
        np.asarray(rows), np.asarray([w**0.5 for _, _, w in points])
    )
    return float(coefficients[0]), float(coefficients[1])


def _fit_link(
    series: Series,
    multi_node_groups: Mapping[tuple[int, int], Sequence[Launch]],
    perturbation: _Perturbation,
    start_link: Link | None,
) -> Link:
    """Fit the bandwidth and latency that explain the measured exchange. Start at `start_link`."""
    ranks = [n for n, _ in multi_node_groups]
    groups = [*multi_node_groups.values()]
    steps = np.asarray([np.mean([launch.step_seconds for launch in group]) for group in groups])
    exposed_seconds = np.asarray(
        [np.mean([launch.exposed_seconds for launch in group]) for group in groups]
    )
    counts = [len(group) for group in groups]
    deviations = np.hypot(
        perturbation.noise * steps / np.sqrt(counts), _MEASURED_LINK_ERROR * exposed_seconds
    )
    # Computing and exchange are measured together, so a launch's noise affects both.
    slower = steps * np.asarray([perturbation.launch_noise_factor(count) - 1 for count in counts])
    exposed_seconds = (
        exposed_seconds
        * np.asarray([perturbation.model_error_factor(_MEASURED_LINK_ERROR) for _ in counts])
        + slower
    )
    crossings, messages = np.asarray(
        [
            communication_cost.crossings_and_messages(series.algorithm, n, series.servers)
            for n in ranks
        ]
    ).T
    prior_latency = perturbation.draw_prior_latency()
    # The unknowns are the seconds to send all gradients and the seconds per message.
    if series.buckets == communication_cost.SINGLE_BUCKET:
        rows = np.stack([crossings, messages], axis=1) / deviations[:, None]
        rows = np.vstack([rows, [0.0, 1 / _LATENCY_DEVIATION_S]])
        targets = np.append(exposed_seconds / deviations, prior_latency / _LATENCY_DEVIATION_S)
        gradient_seconds, latency = scipy.optimize.nnls(rows, targets)[0]
    else:

        def residuals(guess: np.ndarray) -> np.ndarray:
            link = Link(series.payload_bytes / max(guess[0], _MIN_EXCHANGE_S), guess[1])
            model_seconds = [
                _exposed_seconds(series, n, s, link)
                for n, s in zip(ranks, steps - exposed_seconds, strict=True)
            ]
            deviation = (np.asarray(model_seconds) - exposed_seconds) / deviations
            return np.append(deviation, (guess[1] - prior_latency) / _LATENCY_DEVIATION_S)

        longest = float(np.max(steps))
        scale = [longest, longest / 10]
        start = (
            [series.payload_bytes / start_link.bandwidth, start_link.latency]
            if start_link
            else scale
        )
        solved = scipy.optimize.least_squares(residuals, start, bounds=(0, np.inf), x_scale=scale)
        gradient_seconds, latency = solved.x
    return Link(
        series.payload_bytes / max(float(gradient_seconds), _MIN_EXCHANGE_S), float(latency)
    )


def _exposed_seconds(series: Series, ranks: int, computing_seconds: float, link: Link) -> float:
    bucket_seconds = [
        communication_cost.exchange_seconds(
            series.algorithm, ranks, bucket.share * series.payload_bytes, link, series.servers
        )
        for bucket in series.buckets
    ]
    return communication_cost.exposed_seconds(series.buckets, computing_seconds, bucket_seconds)


def _build_figure(value: float, draws: Sequence[float]) -> Figure:
    if not draws:
        return Figure(value, None, None)
    low, high = np.quantile(draws, [0.025, 0.975])
    return Figure(value, float(min(low, value)), float(max(high, value)))
