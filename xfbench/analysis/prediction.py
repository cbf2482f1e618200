"""Prediction of the throughput on more ranks than were measured, with an interval.

A model is fitted to a few small runs. In the model, a step has two parts: the computing time of the
slowest rank, and the exposed part of the exchange.

- The computing time of a rank is fitted to measurements. It depends on the images per rank.
- Each of n ranks takes a random step from the measured steps on one rank. The largest of these n
  steps is the slowest rank's, and the model uses the median of this largest step.
- The exchange depends on its algorithm, its buckets, and a link. The bandwidth and latency of the
  link are fitted, or the user describes them.

The interval includes errors of the model itself. docs/measured/prediction.md describes how the
model was tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import scipy  # scipy loads submodules on first use, so leaderboards do not load them

from xfbench import statistics
from xfbench.analysis.series import Launch, Series
from xfbench.base.errors import UsageError
from xfbench.model import communication_cost
from xfbench.model.communication_cost import Link

_DRAWS = 400
_MIN_EXCHANGE_S = 1e-12  # lower limit for the time to send all gradients
# Relative standard deviation between repeated launches: its value if unknown, and its lower limit.
_DEFAULT_NOISE, _MIN_NOISE = 0.01, 0.002
# Standard deviation of the prior of a message's latency. Without a prior, few numbers of ranks
# would not separate latency from bandwidth.
_LATENCY_DEVIATION_S = 1e-3
# Relative errors of the model, as standard deviations: of computing, of the exchange over a link
# that was measured, and of the exchange over a link that the user describes.
_COMPUTING_ERROR, _MEASURED_LINK_ERROR, _DESCRIBED_LINK_ERROR = 0.02, 0.1, 0.3


# Share of the intervals that contained what was measured later: 24 of 30
# (docs/measured/prediction.md).
COVERAGE = 0.8


@dataclass(frozen=True)
class Figure:
    """A fitted or predicted value with its interval, whose coverage is `COVERAGE`.

    `low`, `high`: the ends of the interval; None if no launch was repeated.
    """

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class StepPart:
    """A part of a predicted step.

    - `seconds`, `share`: duration, and its share of the step; None if the part cannot be told.
    - `reason`: why the part cannot be told, or does not follow from measurements alone; None if it
      does.
    """

    seconds: float | None
    share: float | None
    reason: str | None = None


@dataclass(frozen=True)
class PredictedStep:
    """A predicted step. Its parts follow each other, so their shares add up to 1.

    - `seconds`: duration of the step.
    - `computing`: the median step that a rank does alone.
    - `exchange`: exposed part of the exchange of gradients.
    - `waiting`: time that the slowest rank takes longer than `computing`.
    """

    seconds: float
    computing: StepPart
    exchange: StepPart
    waiting: StepPart


@dataclass(frozen=True)
class Point:
    """The prediction for one number of ranks.

    - `step`: the predicted step and its parts.
    - `efficiency`: predicted speed per rank, relative to the speed per rank that was measured on
      the fewest ranks.
    - `beyond_data`: `ranks` divided by the largest measured number of ranks.
    - `measured`: measured images per second on `ranks`; None if not measured.
    """

    ranks: int
    images_per_second: Figure
    step: PredictedStep
    efficiency: float
    beyond_data: float
    measured: float | None = None


@dataclass(frozen=True)
class _Parameters:
    """Parameters of the model.

    - `fixed`, `per_image`: computing a step of n images takes `fixed` + n · `per_image` seconds.
    - `relative_steps`: each step on one rank, divided by the median step of its launch.
    - `computing_factor`, `exchange_factor`: factors by which the model's times of computing and of
      the exposed exchange are multiplied. A factor differs from 1 only to show a possible error
      of the model.
    """

    fixed: float
    per_image: float
    link: Link
    relative_steps: np.ndarray
    computing_factor: float = 1.0
    exchange_factor: float = 1.0

    def computing_seconds(self, images: int) -> float:
        return (self.fixed + self.per_image * images) * self.computing_factor

    def relative_step(self, ranks: int) -> float:
        """Return the slowest of `ranks` ranks' step, divided by the median step of one rank.

        Measured steps are medians, so this is the median of the slowest rank's step.
        """
        return float(np.quantile(self.relative_steps, 0.5 ** (1 / ranks)))


@dataclass(frozen=True)
class Fit:
    """The model of one series.

    - `has_described_link`: whether the user described the link. If not, it was fitted.
    - `best`: the parameters that fit the measurements best.
    - `draws`: parameters from fits to randomly changed measurements. Their quantiles are the ends
      of the intervals. Empty if no launch was repeated.
    """

    series: Series
    has_described_link: bool
    best: _Parameters
    draws: Sequence[_Parameters] = field(repr=False)

    def predict(self, ranks: int) -> Point:
        """Return the prediction for `ranks` ranks.

        Raises UsageError if the ranks cannot share the images of an update evenly.
        """
        images = ranks * self.series.images_per_rank(ranks)
        values = [images / sum(self._step_seconds(ranks, draw)) for draw in self.draws]
        fewest, baseline = self._baseline()
        value = images / sum(self._step_seconds(ranks, self.best))
        return Point(
            ranks,
            _build_figure(value, values),
            self._predict_step(ranks),
            efficiency=value / ranks / (baseline / fewest),
            beyond_data=ranks / self.series.max_ranks,
            measured=self.series.measured_speed(ranks),
        )

    def _baseline(self) -> tuple[int, float]:
        """Return the fewest measured ranks, and their images per second: base of efficiencies."""
        fewest = min(n for n, _ in self.series.groups)
        speed = self.series.measured_speed(fewest)
        assert speed is not None
        return fewest, speed

    def document(self) -> dict[str, Any]:
        """Return the fit as `predict --json` prints it."""
        series = self.series
        images = sorted({series.images_per_rank(n) for n, _ in series.groups})
        baseline_ranks, baseline_speed = self._baseline()
        return {
            "title": series.title,
            "coverage": COVERAGE,
            "law": series.law,
            "batch_size": series.batch_size,
            "ranks_per_node": series.ranks_per_node,
            "measured_ranks": sorted({n for n, _ in series.groups}),
            "launches": sum(map(len, series.groups.values())),
            "algorithm": series.algorithm,
            "payload_bytes": series.payload_bytes,
            "buckets": [asdict(bucket) for bucket in series.buckets],
            "baseline": {"ranks": baseline_ranks, "images_per_second": baseline_speed},
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

    def _predict_step(self, ranks: int) -> PredictedStep:
        """Return the step that the best parameters predict, and its parts."""
        slowest_s, exchange_s = self._step_seconds(ranks, self.best)
        step_s = slowest_s + exchange_s
        images = self.series.images_per_rank(ranks)
        median_s = self.best.computing_seconds(images) * self.best.relative_step(1)
        exchange_reason = None
        if ranks > 1 and self.has_described_link:
            exchange_reason = "computed from the described link, not measured"
        return PredictedStep(
            step_s,
            computing=_build_part(median_s, step_s),
            exchange=_build_part(exchange_s, step_s, exchange_reason),
            waiting=self._waiting_part(ranks, slowest_s - median_s, step_s),
        )

    def _waiting_part(self, ranks: int, seconds: float, step_seconds: float) -> StepPart:
        """Return the waiting of a step, with the reason if measurements do not show it."""
        count = len(self.series.relative_steps)
        if ranks > 1 and not count:
            return StepPart(None, None, "cannot be told, because no launch has one rank")
        if ranks <= max(count, 1):
            return _build_part(seconds, step_seconds)
        reason = f"at least this, because only {count} steps on one rank are measured"
        return _build_part(seconds, step_seconds, reason)

    def _step_seconds(self, ranks: int, parameters: _Parameters) -> tuple[float, float]:
        """Return (computing seconds of the slowest rank, seconds of the exposed exchange)."""
        computing_seconds = parameters.computing_seconds(self.series.images_per_rank(ranks))
        slowest_seconds = computing_seconds * parameters.relative_step(ranks)
        exposed_seconds = parameters.exchange_factor * _exposed_seconds(
            self.series, ranks, slowest_seconds, parameters.link
        )
        return slowest_seconds, exposed_seconds


def fit_scaling_model(series: Series, described_link: Link | None = None) -> Fit:
    """Fit the model to the launches of a series.

    `described_link`: the link between nodes as the user describes it. None: the link is fitted to
    the measured exchange.

    Raises UsageError if the link must be fitted, but the launches on several nodes do not have two
    or more different numbers of ranks.
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
            *_fit_fixed_and_per_image_computing(series, perturbation),
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
    """Random changes of the measurements before a fit.

    Fits to differently changed measurements show how uncertain the parameters are.

    - `noise`: relative standard deviation between repeated launches.
    - `freedom`: degrees of freedom with which `noise` was estimated.
    - `rng`: generator of random numbers. If it is None, the measurements are not changed.
    """

    def __init__(self, noise: float, freedom: int, rng: np.random.Generator | None = None) -> None:
        self.rng, self.noise, self.freedom = rng, noise, freedom

    def launch_noise_factor(self, launch_count: int) -> float:
        """Return a random factor for the mean time of `launch_count` launches; 1 without `rng`."""
        if self.rng is None:
            return 1.0
        return float(np.exp(self.rng.standard_t(self.freedom) * self.noise / launch_count**0.5))

    def model_error_factor(self, standard_deviation: float) -> float:
        """Return a random factor with this relative standard deviation; 1 without `rng`."""
        return 1.0 if self.rng is None else float(np.exp(self.rng.normal(0, standard_deviation)))

    def draw_prior_latency(self) -> float:
        """Return a random mean of the prior distribution of the latency, in seconds.

        The mean is 0 without `rng`.
        """
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
            f"{series.title}: launches on {ranks} ranks alone cannot separate bandwidth from "
            f"latency: measure another number of ranks on several nodes, or {advice}"
        )


def _launch_noise_and_freedom(series: Series) -> tuple[float, int]:
    """Return (relative standard deviation between repeated launches, its degrees of freedom).

    Without repeated launches, return (`_DEFAULT_NOISE`, 0).
    """
    freedom = sum(len(group) - 1 for group in series.groups.values())
    if not freedom:
        return _DEFAULT_NOISE, 0
    squares = sum(
        float(np.var(np.log([launch.step_seconds for launch in group]), ddof=0)) * len(group)
        for group in series.groups.values()
    )
    return max((squares / freedom) ** 0.5, _MIN_NOISE), freedom


def _fit_fixed_and_per_image_computing(
    series: Series, perturbation: _Perturbation
) -> tuple[float, float]:
    """Return (fixed seconds of a step's computing, seconds of computing per image).

    Only launches with `series.ranks_per_node` ranks on each node are used. If there are none, all
    launches are used.
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
    """Return the link with the bandwidth and latency that best explain the measured exchange.

    `start_link`: first guess of an iterative fit; None: a guess from the longest step.
    """
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


def _build_part(seconds: float, step_seconds: float, reason: str | None = None) -> StepPart:
    return StepPart(seconds, seconds / step_seconds, reason)


def _build_figure(value: float, draws: Sequence[float]) -> Figure:
    if not draws:
        return Figure(value, None, None)
    low, high = np.quantile(draws, [0.025, 0.975])
    return Figure(value, float(min(low, value)), float(max(high, value)))
