"""Proves that a framework trains the same network: runs the cases, judges, says where it differs.

What is proven holds for one framework, workload, kernel, device and precision, at any
batch size, number of threads and input.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from xfbench import adapter, capabilities
from xfbench.environments.environment import Environment
from xfbench.equality import cases, dropout, jobs, judge, locate
from xfbench.equality.certificate import Check
from xfbench.equality.judge import Deviation
from xfbench.equality.oracle import MOST_DRAWS, Expected, Oracle
from xfbench.request import Request
from xfbench.running import reference
from xfbench.strategy import ASYNCHRONOUS

# An error so large, before any update, that no draw of rounding could explain it.
_BEYOND_DOUBT = 1000.0
_TOGETHER = "gradients of the ranks are not joined to their mean over all images"
_TRAINED = ("step", "losses", "trained_test_loss")


@dataclass(frozen=True)
class Verdict:
    """What came of it. `worst` is the deviation farthest beyond its tolerance, or nearest to it."""

    request: Request
    verdict: Literal["equal", "different", "unsupported"]
    reason: str | None = None
    worst: Deviation | None = None
    place: locate.Place | None = None
    checks: tuple[Check, ...] = ()
    wrong: tuple[Deviation, ...] = field(default=(), repr=False)

    def document(self, certificate: str | None) -> dict[str, Any]:
        """As `verify --json` prints it."""
        request, worst = self.request, self.worst
        return {
            "framework": request.framework,
            "workload": request.workload,
            "solver": request.solver or None,
            "kernel": request.kernel,
            "device": request.device,
            "precision": request.precision,
            "ranks": request.ranks,
            "strategy": request.strategy,
            "strategy_options": dict(request.strategy_options),
            "verdict": self.verdict,
            "reason": self.reason,
            "worst": worst
            and {
                "quantity": worst.kind,
                "name": worst.name or None,
                "step": worst.step,
                "relative_error": _finite(worst.relative_error),
                "tolerance": worst.tolerance,
                "case": worst.case.name,
                "precision": worst.precision,
            },
            "first_layer": self.place.layer if self.place else None,
            "likely_cause": self.place.cause if self.place else None,
            "certificate": certificate,
            "checks": [check.model_dump() for check in self.checks],
        }


def unprovable(request: Request) -> str | None:
    """Why no certificate can be had for what the framework can do; None where one can."""
    together = adapter.load(request.framework).strategy(request.strategy)
    return ASYNCHRONOUS if together.asynchronous else None


Run = Callable[..., jobs.Results]


@dataclass
class Verifier:
    """Verifies one cell after another; `say` hears what is being done, `run` runs cases."""

    say: Callable[[str], None] = lambda _: None
    time_limit: float = reference.TIME_LIMIT
    run: Run = jobs.check

    def __post_init__(self) -> None:
        self.oracle = Oracle(self.say)

    def verify(self, request: Request, found: Environment, seed: int = 0) -> Verdict:
        """The verdict on one cell. Raises CheckError where the framework gives no results."""
        refused = capabilities.refusal(request) or unprovable(request)
        if refused:
            return Verdict(request, "unsupported", refused)
        if request.ranks > 1:
            return self._together(request, found, seed)
        workload = cases.of(request)
        precision = request.precision
        whole = cases.whole(workload, seed)
        wholes = self.oracle.expected(whole, precision=precision)
        activations = self.oracle.activations(wholes)
        wanted = [(expected, precision) for expected in wholes]
        if precision != "float64":
            blocks = cases.of_blocks(workload, seed)
            rounded = self.oracle.expected(blocks, activations, precision=precision)
            wanted += [(expected, precision) for expected in rounded]
            double = request.model_copy(update={"precision": "float64"})
            if capabilities.refusal(double) is None:
                exact = self.oracle.expected(whole, precision="float64")
                wanted += [(expected, "float64") for expected in exact]
        ratios = dropout.ratios(workload.network)
        self.say(f"{request.framework} {request.kernel}: {workload.name}, {len(wanted)} cases")
        results = self._run(
            request,
            found,
            [expected.case.document(precision) for expected, precision in wanted]
            + [dropout.document(ratio, seed) for ratio in ratios],
            activations,
        )
        if results.unsupported:
            return Verdict(request, "unsupported", next(iter(results.unsupported.values())))
        arrays = results.arrays
        deviations = judged(self.oracle, wanted, arrays, activations)
        wrong = [deviation for deviation in deviations if not deviation.holds]
        worst = max(deviations, key=lambda deviation: deviation.excess)
        place, reason = None, None
        if wrong:
            # Where float64 shows it, nothing that may be rounding is to lead astray.
            certain = [deviation for deviation in wrong if deviation.precision == "float64"]
            place = locate.locate(
                workload,
                certain or wrong,
                lambda names, w: self._alone(request, found, names, w, seed),
            )
        for ratio, layer in ratios.items():
            reason = dropout.defect(ratio, seed, arrays[dropout.name(ratio)])
            if reason:
                place = place or locate.Place(layer, reason)
                break
        verdict: Literal["equal", "different"] = "different" if wrong or reason else "equal"
        return Verdict(
            request,
            verdict,
            reason,
            worst,
            place,
            _checks(deviations),
            tuple(wrong),
        )

    def _together(self, request: Request, found: Environment, seed: int) -> Verdict:
        """The law of data parallelism: after every update the weights are those of one process.

        The network itself is one rank's certificate to prove.
        """
        workload = cases.of(request)
        whole = cases.whole(workload, seed, request.ranks)
        wanted = [
            (expected, precision)
            for precision in dict.fromkeys((request.precision, "float64"))
            if capabilities.refusal(request.model_copy(update={"precision": precision})) is None
            for expected in self.oracle.expected(whole, precision=precision)
        ]
        self.say(f"{request.label()}: {len(wanted)} cases")
        documents = [expected.case.document(precision) for expected, precision in wanted]
        results = self._run(request, found, documents, None)
        if results.unsupported:
            return Verdict(request, "unsupported", next(iter(results.unsupported.values())))
        deviations = judged(self.oracle, wanted, results.arrays)
        wrong = tuple(deviation for deviation in deviations if not deviation.holds)
        worst = max(deviations, key=lambda deviation: deviation.excess)
        place = locate.Place("ranks", _TOGETHER) if wrong else None
        verdict: Literal["equal", "different"] = "different" if wrong else "equal"
        return Verdict(request, verdict, None, worst, place, _checks(deviations), wrong)

    def _run(
        self,
        request: Request,
        found: Environment,
        documents: Sequence[dict[str, Any]],
        activations: Path | None,
    ) -> jobs.Results:
        described, workload = adapter.load(request.framework), cases.of(request)
        return self.run(
            documents, request, workload, described, found, activations, self.time_limit
        )

    def _alone(
        self, request: Request, found: Environment, names: Sequence[str], weights: str, seed: int
    ) -> set[str]:
        """Which of these layers go wrong when each runs alone."""
        workload = cases.of(request)
        alone = {name: cases.of_layer(workload, name, weights, seed) for name in names}
        expected = self.oracle.expected(list(alone.values()), precision=request.precision)
        results = self._run(
            request, found, [e.case.document(request.precision) for e in expected], None
        )
        bad = set()
        for name, one in zip(alone, expected, strict=True):
            arrays = results.arrays.get(one.case.key(request.precision), {})
            compared = judge.compare(one, request.precision, arrays)
            if arrays and any(not deviation.holds for deviation in compared):
                bad.add(name)
        return bad


def judged(
    oracle: Oracle,
    wanted: Sequence[tuple[Expected, str]],
    arrays: Mapping[str, jobs.Arrays],
    activations: Path | None = None,
) -> list[Deviation]:
    """Every quantity of the cases, each at its precision, compared with what was found.

    What is outside by no more than rounding may explain is judged again with more draws of
    what rounding does, as far as needed.
    """
    by_case = {
        expected.case.key(precision): judge.compare(
            expected, precision, arrays[expected.case.key(precision)]
        )
        for expected, precision in wanted
    }
    if _doubtful(itertools.chain.from_iterable(by_case.values())):
        for expected, precision in wanted:
            key, draws = expected.case.key(precision), cases.DRAWS
            while any(not d.holds for d in by_case[key]) and draws < MOST_DRAWS:
                draws = min(2 * draws, MOST_DRAWS)
                more = oracle.expected([expected.case], activations, draws, precision)
                by_case[key] = judge.compare(more[0], precision, arrays[key])
    return list(itertools.chain.from_iterable(by_case.values()))


def _doubtful(deviations: Iterable[Deviation]) -> bool:
    """Whether something is outside, none of it in float64 and all by little: may be rounding."""
    wrong = [deviation for deviation in deviations if not deviation.holds]
    return bool(wrong) and all(
        d.precision != "float64" and (d.excess < _BEYOND_DOUBT or d.quantity.startswith(_TRAINED))
        for d in wrong
    )


def _checks(deviations: Sequence[Deviation]) -> tuple[Check, ...]:
    groups: dict[str, list[Deviation]] = defaultdict(list)
    for deviation in deviations:
        what = "whole network" if deviation.case.whole else "blocks"
        groups[f"{what}, {deviation.precision}, {deviation.case.weights} weights"].append(deviation)
    return tuple(_check(kind, group) for kind, group in groups.items())


def _check(kind: str, group: Sequence[Deviation]) -> Check:
    # Where the truth is nothing but rounding, a relative tolerance says nothing.
    tolerances = sorted(d.tolerance for d in group if d.size > d.allowed) or [0.0]
    return Check(
        kind=kind,
        quantities=len(group),
        tolerance=tolerances[len(tolerances) // 2],
        loosest=tolerances[-1],
        excess=_finite(max(d.excess for d in group)),
    )


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None
