"""Verdicts that tests need, and the cases of several of them in one worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xfbench.equality import jobs
from xfbench.model import adapter
from xfbench.model.request import Request
from xfbench.planning import experiment
from xfbench.workloads import workloads


@dataclass(frozen=True)
class Proof:
    """One verdict that a test needs: a framework, a network, a seed and settings of a matrix."""

    framework: str
    workload: str = "lenet"
    seed: int = 0
    settings: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, framework, workload="lenet", seed=0, **settings):
        return cls(framework, workload, seed, tuple(settings.items()))

    def __str__(self):
        words = [self.framework, self.workload, *(str(value) for _, value in self.settings)]
        return "-".join([*words, f"seed {self.seed}"] if self.seed else words)

    @property
    def request(self) -> Request:
        lists = {name: [value] for name, value in self.settings}
        matrix = experiment.build_matrix(
            framework=[self.framework], workload=[self.workload], **lists
        )
        [(cell, _)] = experiment.expand_matrices([matrix])
        return cell.request(1)


class CasesCollected(Exception):
    """Raised after a verifier has listed its cases and before they run."""


@dataclass
class Batch:
    """The cases of several proofs, which run in one worker.

    They have the same framework, kernel and precision, so that what the worker observes of these
    holds for each proof.
    """

    documents: list[dict[str, Any]] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    results: dict[str, jobs.CaseResults] = field(default_factory=dict)

    def collect(self, proof: Proof):
        """Return a function for `Verifier.run` that adds the proof's cases to this batch."""

        def run(
            documents, request, workload, description, environment, activations=None, time_limit=0
        ):
            self.documents += [_prefix_case(document, proof) for document in documents]
            if activations is not None:
                with np.load(activations, allow_pickle=False) as arrays:
                    self.inputs |= {f"{proof}|{key}": value for key, value in arrays.items()}
            raise CasesCollected

        return run

    def run(self, request: Request, framework_environment, folder) -> None:
        # JAX keeps 64-bit mode on after the first float64 case, so these come last.
        self.documents.sort(key=lambda document: document["options"]["precision"] == "float64")
        inputs = folder / "inputs.npz"
        np.savez(inputs, **self.inputs)
        description = adapter.load(request.framework)
        results = jobs.run_cases(
            self.documents,
            request,
            workloads()[request.workload],
            description,
            framework_environment,
            inputs,
        )
        cases: dict[str, dict[str, str]] = defaultdict(dict)
        for document in self.documents:
            proof, _, case = document["name"].partition("|")
            cases[proof][case] = document["name"]
        for proof, names in cases.items():
            self.results[proof] = jobs.CaseResults(
                _select(results.arrays, names), _select(results.unsupported, names)
            )

    def replay(self, proof: Proof):
        """Return a function for `Verifier.run` that gives the batch's results, then runs cases."""
        results = self.results.pop(str(proof), None)

        def run(*arguments, **keywords):
            nonlocal results
            first_results, results = results, None
            return first_results or jobs.run_cases(*arguments, **keywords)

        return run


def _prefix_case(document, proof):
    input_name = document["input"]
    return {
        **document,
        "name": f"{proof}|{document['name']}",
        "input": f"{proof}|{input_name}" if input_name else None,
    }


def _select(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {name: values[full_name] for name, full_name in names.items() if full_name in values}


def summarise_violations(verdict):
    """Return what a failing assertion shows of a verdict."""
    return [
        (deviation.case.name, deviation.quantity, deviation.relative_error, deviation.tolerance)
        for deviation in verdict.violations[:5]
    ]
