"""Verify that a framework trains the same network: run the cases, judge them, locate differences.

A verdict is valid for one framework, workload, solver, kernel, device, precision, number of ranks
and strategy. The batch size, the number of threads and the input do not matter.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from xfbench.environments.environment import Environment
from xfbench.equality import cases, dropout, jobs, judge, locate
from xfbench.equality.cases import Case
from xfbench.equality.elapsed import say_elapsed_time
from xfbench.equality.judge import Deviation
from xfbench.equality.oracle import MAX_DRAWS, Expected, Oracle
from xfbench.execution import reference
from xfbench.model import adapter, capabilities
from xfbench.model.certificate import Check
from xfbench.model.request import Request
from xfbench.model.strategy import ASYNCHRONOUS
from xfbench.workloads import Workload

# Before the first update, rounding never explains an excess above this limit. In a block of two
# images, one ReLU that rounding switches may change a gradient by a thousand times its tolerance.
_BEYOND_DOUBT = 10_000.0
_RANKS_CAUSE = "the ranks' gradients are not reduced to their mean over all images"
_AFTER_UPDATES = ("step", "losses", "trained_test_loss")


@dataclass(frozen=True)
class Verdict:
    """The outcome of verifying one cell.

    - `reason`: why the cell is "unsupported"; or a defect that makes it "different" and that is no
      deviation, such as wrong dropout; else None
    - `worst`: the deviation with the largest excess, even if it is within tolerance; None if no
      case ran
    - `place`: the first wrong place; None if there is none or it is unknown
    - `checks`: a summary of the deviations by kind of check
    - `violations`: the deviations that are not within tolerance
    - `kernel_evidence`: what showed which kernels ran
    """

    request: Request
    verdict: Literal["equal", "different", "unsupported"]
    reason: str | None = None
    worst: Deviation | None = None
    place: locate.Place | None = None
    checks: tuple[Check, ...] = ()
    violations: tuple[Deviation, ...] = field(default=(), repr=False)
    kernel_evidence: tuple[str, ...] = ()

    def document(self, certificate: str | None) -> dict[str, Any]:
        """Return the object that `verify --json` prints.

        `certificate` is the certificate's id; None if there is no certificate.
        """
        request, worst = self.request, self.worst
        return {
            "framework": request.framework,
            "workload": request.workload,
            "solver": request.changed_solver_text or None,
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
                "relative_error": _finite_or_none(worst.relative_error),
                "tolerance": worst.tolerance,
                "case": worst.case.name,
                "precision": worst.precision,
            },
            "first_layer": self.place.layer if self.place else None,
            "likely_cause": self.place.cause if self.place else None,
            "certificate": certificate,
            "checks": [check.model_dump() for check in self.checks],
        }


def unverifiable_reason(request: Request) -> str | None:
    """Return why a supported request cannot be verified. None if it can be verified."""
    framework_adapter = adapter.load(request.framework, request.revision)
    strategy = framework_adapter.find_or_build_strategy(request.strategy)
    return ASYNCHRONOUS if strategy.asynchronous else None


RunCases = Callable[..., jobs.CaseResults]


@dataclass
class Verifier:
    """A verifier of cells, one cell at a time.

    - `say`: is called with each progress message
    - `time_limit`: seconds for one launch
    - `run`: runs cases, like `jobs.run_cases`
    - `all_at_once`: whether every case of a timed batch that may be needed runs in the first call
      of `run`. Otherwise, most layers run alone only if larger cases leave a doubt.
    """

    say: Callable[[str], None] = lambda _: None
    time_limit: float = reference.TIME_LIMIT
    run: RunCases = jobs.run_cases
    all_at_once: bool = False

    def __post_init__(self) -> None:
        self.oracle = Oracle(self.say)

    def verify(self, request: Request, environment: Environment, seed: int = 0) -> Verdict:
        """Return the verdict on one cell. Raises CheckError if the framework gives no results."""
        refusal = capabilities.refusal_reason(request) or unverifiable_reason(request)
        if refusal:
            return Verdict(request, "unsupported", refusal)
        if request.ranks > 1:
            return self._verify_ranks(request, environment, seed)
        workload = cases.workload_with_case_rate_and_warmup(request)
        precision = request.precision
        network_cases = cases.own_and_scaled_whole_network_cases(workload, seed)
        expected_networks = self.oracle.compute_expected(network_cases, precision=precision)
        block_inputs = self.oracle.write_block_inputs(expected_networks)
        comparisons = [(expected, precision) for expected in expected_networks]
        if precision != "float64":
            blocks = cases.block_cases(workload, seed)
            expected_blocks = self.oracle.compute_expected(
                blocks, block_inputs, precision=precision
            )
            comparisons += [(expected, precision) for expected in expected_blocks]
            double = request.model_copy(update={"precision": "float64"})
            if capabilities.refusal_reason(double) is None:
                float64_networks = self.oracle.compute_expected(network_cases, precision="float64")
                comparisons += [(expected, "float64") for expected in float64_networks]
        ratios = dropout.dropout_layer_by_ratio(workload.network)
        self.say(f"{request.framework} {request.kernel}: {workload.name}, {len(comparisons)} cases")
        results = self.run_cases(
            request,
            environment,
            [expected.case.document(precision) for expected, precision in comparisons]
            + [dropout.build_case_document(ratio, seed) for ratio in ratios],
            block_inputs,
        )
        if results.unsupported:
            return Verdict(request, "unsupported", next(iter(results.unsupported.values())))
        network_verdict = self.judge_and_locate(
            request, environment, workload, comparisons, results, block_inputs, seed
        )
        arrays = results.arrays
        place, reason = network_verdict.place, None
        for ratio, layer in ratios.items():
            reason = dropout.describe_dropout_defect(ratio, seed, arrays[dropout.case_name(ratio)])
            if reason:
                place = place or locate.Place(layer, reason)
                break
        verdict = "different" if reason else network_verdict.verdict
        return replace(network_verdict, verdict=verdict, reason=reason, place=place)

    def judge_and_locate(
        self,
        request: Request,
        environment: Environment,
        workload: Workload,
        comparisons: Sequence[tuple[Expected, str]],
        results: jobs.CaseResults,
        block_inputs: Path | None,
        seed: int,
    ) -> Verdict:
        """Return the verdict on the results of cases on one rank, with the place of a difference.

        - `workload`: the workload that the cases train, or of which they train a part
        - `comparisons`, `block_inputs`: see `judge_cases`

        Raises CheckError if there are no results.
        """
        if not results.arrays:
            raise jobs.CheckError(f"{request.label()}: there are no results of its cases")
        deviations = judge_cases(self.oracle, comparisons, results.arrays, block_inputs)
        violations = [deviation for deviation in deviations if not deviation.is_within_tolerance]
        place = None
        if violations:
            check_layers = partial(
                self.find_failing_layers, request, environment, seed, violations[0].case
            )
            # Rounding cannot cause violations in float64, so these locate the place better.
            certain = [deviation for deviation in violations if deviation.precision == "float64"]
            place = locate.find_first_wrong_place(workload, certain or violations, check_layers)
        return Verdict(
            request,
            "different" if violations else "equal",
            None,
            max(deviations, key=lambda deviation: deviation.excess),
            place,
            summarize_by_scope_precision_weights(deviations),
            tuple(violations),
            results.kernel_evidence,
        )

    def _verify_ranks(self, request: Request, environment: Environment, seed: int) -> Verdict:
        """Verify data parallelism: after each update, the weights must equal those of one process.

        The network itself is verified separately, on one rank.
        """
        workload = cases.workload_with_case_rate_and_warmup(request)
        network_cases = cases.own_and_scaled_whole_network_cases(workload, seed, request.ranks)
        comparisons = [
            (expected, precision)
            for precision in dict.fromkeys((request.precision, "float64"))
            if capabilities.refusal_reason(request.model_copy(update={"precision": precision}))
            is None
            for expected in self.oracle.compute_expected(network_cases, precision=precision)
        ]
        self.say(f"{request.label()}: {len(comparisons)} cases")
        documents = [expected.case.document(precision) for expected, precision in comparisons]
        results = self.run_cases(request, environment, documents, None)
        if results.unsupported:
            return Verdict(request, "unsupported", next(iter(results.unsupported.values())))
        if not results.arrays:
            raise jobs.CheckError(f"{request.label()}: there are no results of its cases")
        deviations = judge_cases(self.oracle, comparisons, results.arrays)
        violations = tuple(
            deviation for deviation in deviations if not deviation.is_within_tolerance
        )
        worst = max(deviations, key=lambda deviation: deviation.excess)
        place = locate.Place("ranks", _RANKS_CAUSE) if violations else None
        verdict: Literal["equal", "different"] = "different" if violations else "equal"
        return Verdict(
            request,
            verdict,
            None,
            worst,
            place,
            summarize_by_scope_precision_weights(deviations),
            violations,
        )

    def run_cases(
        self,
        request: Request,
        environment: Environment,
        documents: Sequence[dict[str, Any]],
        block_inputs: Path | None,
    ) -> jobs.CaseResults:
        """Run cases of the request's workload in its framework. Raises CheckError without results.

        `block_inputs` is the file that `Oracle.write_block_inputs` returned; None without blocks.
        """
        framework_adapter, workload = (
            adapter.load(request.framework, request.revision),
            cases.workload_with_case_rate_and_warmup(request),
        )
        activity = f"{request.framework} {request.kernel}: {workload.name}, {len(documents)} cases"
        with say_elapsed_time(self.say, activity):
            return self.run(
                documents,
                request,
                workload,
                framework_adapter,
                environment,
                block_inputs,
                self.time_limit,
            )

    def find_failing_layers(
        self,
        request: Request,
        environment: Environment,
        seed: int,
        failed_case: Case,
        names: Sequence[str],
        weights: str,
    ) -> set[str]:
        """Test each layer in `names` alone, and return the names of the wrong layers.

        The batch size is that of `failed_case`. `weights` is the set of weights, "own" or "scaled".
        Raises CheckError without results.
        """
        workload = cases.workload_with_case_rate_and_warmup(request)
        layer_cases = {
            name: cases.layer_case(workload, name, weights, seed, failed_case.batch_size)
            for name in names
        }
        expected = self.oracle.compute_expected(
            list(layer_cases.values()), precision=request.precision
        )
        results = self.run_cases(
            request, environment, [e.case.document(request.precision) for e in expected], None
        )
        failing = set()
        for name, expected_layer in zip(layer_cases, expected, strict=True):
            arrays = results.arrays.get(expected_layer.case.key(request.precision), {})
            deviations = judge.compare(expected_layer, request.precision, arrays)
            if arrays and any(not deviation.is_within_tolerance for deviation in deviations):
                failing.add(name)
        return failing


def judge_cases(
    oracle: Oracle,
    comparisons: Sequence[tuple[Expected, str]],
    arrays: Mapping[str, jobs.Arrays],
    block_inputs: Path | None = None,
) -> list[Deviation]:
    """Compare the results in `arrays` with the expected results and return the deviations.

    - `comparisons`: for each case, its expected results and the precision of the framework's run
    - `arrays`: for each `Case.key`, the framework's results by quantity
    - `block_inputs`: the file that `Oracle.write_block_inputs` returned; None without blocks

    If rounding may explain all violations, each case with a violation is judged again. The oracle
    then uses more draws of rounding, up to MAX_DRAWS.
    """
    by_case = {
        expected.case.key(precision): judge.compare(
            expected, precision, arrays[expected.case.key(precision)]
        )
        for expected, precision in comparisons
    }
    if may_be_rounding(itertools.chain.from_iterable(by_case.values())):
        for expected, precision in comparisons:
            key, draws = expected.case.key(precision), cases.DRAWS
            while any(not d.is_within_tolerance for d in by_case[key]) and draws < MAX_DRAWS:
                draws = min(2 * draws, MAX_DRAWS)
                case = replace(expected.case, timed_batch_size=None)
                more = oracle.compute_expected([case], block_inputs, draws, precision)[0]
                by_case[key] = judge.compare(
                    replace(more, case=expected.case), precision, arrays[key]
                )
    return list(itertools.chain.from_iterable(by_case.values()))


def may_be_rounding(deviations: Iterable[Deviation]) -> bool:
    """Return whether there are violations and rounding may explain all of them.

    Rounding cannot explain these violations:

    - Violations in float64.
    - Violations before the first update whose excess is `_BEYOND_DOUBT` or more.
    """
    violations = [deviation for deviation in deviations if not deviation.is_within_tolerance]
    return bool(violations) and all(
        d.precision != "float64"
        and (d.excess < _BEYOND_DOUBT or d.quantity.startswith(_AFTER_UPDATES))
        for d in violations
    )


def summarize_by_scope_precision_weights(deviations: Sequence[Deviation]) -> tuple[Check, ...]:
    """Return a summary of the deviations of each scope, precision and set of weights."""
    groups: dict[str, list[Deviation]] = defaultdict(list)
    for deviation in deviations:
        is_layer = deviation.case.name.startswith("layer/")
        scope = "layers" if is_layer else "blocks"
        scope = "whole network" if deviation.case.is_whole_network else scope
        groups[f"{scope}, {deviation.precision}, {deviation.case.weights} weights"].append(
            deviation
        )
    return tuple(_summarize_check(kind, group) for kind, group in groups.items())


def _summarize_check(kind: str, group: Sequence[Deviation]) -> Check:
    # If the truth is mere rounding, its tolerance is absolute and not comparable with the others.
    tolerances = sorted(d.tolerance for d in group if d.size > d.allowed) or [0.0]
    return Check(
        kind=kind,
        quantities=len(group),
        tolerance=tolerances[len(tolerances) // 2],
        loosest=tolerances[-1],
        undecidable=sum(d.size <= d.allowed for d in group),
        excess=_finite_or_none(max(d.excess for d in group)),
    )


def _finite_or_none(value: float) -> float | None:
    return value if value < float("inf") else None
