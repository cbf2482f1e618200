"""Estimation of the speed of all settings from launches of half of them.

A setting is a combination of factors. The first factor is its *work*: kernel, threads and ranks,
which interact. The other factors are its *choices*: allocator and affinity.

In the logarithm of the speed, the effect of the work and the effects of the choices mostly add up.
Launches of half of the settings therefore also predict the other half. This is a fractional
factorial design, analyzed by least squares (Box, Hunter and Hunter, Statistics for Experimenters).

If a setting has launches, these show how far it deviates from the additive model.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from xfbench.statistics import Launches

T = TypeVar("T", bound=Hashable)
# The factors of a setting: first its work, then each of its choices.
Factors = tuple[Hashable, ...]


def select_balanced_half(factors: Mapping[T, Factors]) -> list[T]:
    """Return about half of the settings, as a balanced sample.

    Every work occurs in the sample. All values of a choice occur about equally often.
    `factors` maps each setting to its factors.
    """
    works = list(dict.fromkeys(work for work, *_ in factors.values()))
    levels = [list(dict.fromkeys(column)) for column in zip(*factors.values(), strict=True)][1:]
    even: dict[Hashable, list[T]] = {work: [] for work in works}
    odd: dict[Hashable, list[T]] = {work: [] for work in works}
    for setting, (work, *choices) in factors.items():
        number = works.index(work) + sum(map(list.index, levels, choices))
        (odd if number % 2 else even)[work].append(setting)
    chosen = {setting for work in works for setting in even[work] or odd[work][:1]}
    return [setting for setting in factors if setting in chosen]


@dataclass(frozen=True)
class _Fit(Generic[T]):
    """A least-squares fit of the logarithms of speed.

    Each block and each value of a factor has an effect.

    - `settings`: the setting of each launch.
    - `effects`: the fitted effects. The key of a block's effect is ("block", block). The key of a
      factor's effect is (position of the factor, value of the factor).
    - `residuals`: measured minus fitted logarithm of each launch, in the order of `settings`.
    """

    settings: list[T]
    effects: dict[Hashable, float]
    residuals: np.ndarray
    degrees_of_freedom: int

    @classmethod
    def of(cls, speeds: Mapping[T, Launches], factors: Mapping[T, Factors]) -> _Fit[T]:
        """Fit the logarithms of `speeds`: images per second by setting and block."""
        launches = [
            (setting, block, speed)
            for setting, by_block in speeds.items()
            for block, speed in by_block.items()
        ]
        rows = [[("block", block), *enumerate(factors[setting])] for setting, block, _ in launches]
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = {name: number for number, name in enumerate(names)}
        design = np.zeros((len(rows), len(names)))
        for number, row in enumerate(rows):
            design[number, [columns[name] for name in row]] = 1
        logs = np.log([speed for *_, speed in launches])
        effects, _, rank, _ = np.linalg.lstsq(design, logs, rcond=None)
        return cls(
            [setting for setting, *_ in launches],
            dict(zip(names, effects.tolist(), strict=True)),
            logs - design @ effects,
            len(rows) - int(rank),
        )


def speeds_relative_to_fastest(
    speeds: Mapping[T, Launches], factors: Mapping[T, Factors] | None = None
) -> dict[T, float]:
    """Return the estimated speed of each setting, divided by that of the fastest setting.

    The fastest setting comes first. The logarithm of an estimated speed is the sum of two terms:

    - The effects of the setting's factors.
    - The mean residual of the setting's n launches, times n / (n + 1).

    Differences between blocks are fitted separately and do not influence the estimates. A setting
    is left out if no setting with the same work was launched. If `factors` is None, the launches
    of one setting do not predict the speed of another setting.
    """
    factors = factors or {setting: (setting,) for setting in speeds}
    if not any(speeds.values()):
        return {}
    fit = _Fit.of(speeds, factors)
    works = {factors[setting][0] for setting in fit.settings}
    residuals: dict[T, list[float]] = {}
    for setting, residual in zip(fit.settings, fit.residuals.tolist(), strict=True):
        residuals.setdefault(setting, []).append(residual)
    log_speeds = {
        setting: sum(fit.effects.get(name, 0.0) for name in enumerate(choices))
        + sum(residuals.get(setting, ())) / (1 + len(residuals.get(setting, ())))
        for setting, choices in factors.items()
        if choices[0] in works
    }
    max_log_speed = max(log_speeds.values())
    return {
        setting: math.exp(log_speeds[setting] - max_log_speed)
        for setting in sorted(log_speeds, key=lambda setting: -log_speeds[setting])
    }


def estimate_noise(speeds: Mapping[T, Launches], factors: Mapping[T, Factors]) -> float | None:
    """Return the relative standard deviation of speed among launches of the same setting.

    Return None if there are too few launches.
    """
    for noise_factors in ({setting: (setting,) for setting in speeds}, factors):
        if any(speeds.values()) and (fit := _Fit.of(speeds, noise_factors)).degrees_of_freedom > 1:
            return math.sqrt(float(np.sum(fit.residuals**2)) / fit.degrees_of_freedom)
    return None
