"""What each choice is worth, from launches of half of the settings.

A setting is its work (kernel, threads, ranks, which may go together in any way) and choices that
mostly add up in the logarithm of its speed: who gives memory, where threads may run. So half of the
settings tell of the others too, and every launch tells of all that share something with it (a
fractional factorial design, analysed by least squares; Box, Hunter and Hunter, Statistics for
Experimenters). What a setting has beyond that shows in its own launches.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from xfbench.statistics import Launches

T = TypeVar("T", bound=Hashable)
# A setting's work, then its other choices.
Factors = tuple[Hashable, ...]


def select_half(factors: Mapping[T, Factors]) -> list[T]:
    """Every other setting, so that each work and each other choice comes as often as can be."""
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
    """A least-squares fit of the logarithm of speed to the blocks and choices of launches.

    `effects` has the worth of each choice, by its place among the factors. `residuals` has what
    each launch has beyond its block and choices, in the order of `settings`.
    """

    settings: list[T]
    effects: dict[Hashable, float]
    residuals: np.ndarray
    degrees_of_freedom: int

    @classmethod
    def of(cls, speeds: Mapping[T, Launches], factors: Mapping[T, Factors]) -> _Fit[T]:
        """By least squares."""
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


def relative_speeds(
    speeds: Mapping[T, Launches], factors: Mapping[T, Factors] | None = None
) -> dict[T, float]:
    """Each setting's speed over the fastest's, the fastest first, as all launches tell it.

    Of a block, whatever the machine did to all of it falls out. A setting has what its choices are
    worth and, the more launches it has itself, the more of what these have beyond. Whose work has
    no launch is not among them. Without `factors` no setting tells of another.
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
    """How much launches of one setting differ: relative standard deviation, None where unknown."""
    for noise_factors in ({setting: (setting,) for setting in speeds}, factors):
        if any(speeds.values()) and (fit := _Fit.of(speeds, noise_factors)).degrees_of_freedom > 1:
            return math.sqrt(float(np.sum(fit.residuals**2)) / fit.degrees_of_freedom)
    return None
