"""Proofs of real frameworks: all that a session needs of one framework run in one worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from xfbench.environments import environment
from xfbench.equality import certify, jobs
from xfbench.equality.verify import Verifier
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
        matrix = experiment.matrix(framework=[self.framework], workload=[self.workload], **lists)
        [(cell, _)] = experiment.cells([matrix])
        return cell.request(1)


class CasesCollected(Exception):
    """A verifier has named its cases; they have not run yet."""


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

        def run(documents, request, workload, described, found, activations=None, limit=0):
            self.documents += [_renamed(document, proof) for document in documents]
            if activations is not None:
                with np.load(activations, allow_pickle=False) as arrays:
                    self.inputs |= {f"{proof}|{key}": value for key, value in arrays.items()}
            raise CasesCollected

        return run

    def run(self, request: Request, found, folder) -> None:
        # JAX keeps 64-bit mode on after the first float64 case, so these come last.
        self.documents.sort(key=lambda document: document["options"]["precision"] == "float64")
        inputs = folder / "inputs.npz"
        np.savez(inputs, **self.inputs)
        described = adapter.load(request.framework)
        results = jobs.run_cases(
            self.documents, request, workloads()[request.workload], described, found, inputs
        )
        cases: dict[str, dict[str, str]] = defaultdict(dict)
        for document in self.documents:
            proof, _, case = document["name"].partition("|")
            cases[proof][case] = document["name"]
        for proof, names in cases.items():
            self.results[proof] = jobs.CaseResults(
                _chosen(results.arrays, names), _chosen(results.unsupported, names)
            )

    def replay(self, proof: Proof):
        """Return a function for `Verifier.run`: the batch's results first, then a real run."""
        results = self.results.pop(str(proof), None)

        def run(*arguments, **keywords):
            nonlocal results
            answer, results = results, None
            return answer or jobs.run_cases(*arguments, **keywords)

        return run


def _renamed(document, proof):
    reads = document["input"]
    return {
        **document,
        "name": f"{proof}|{document['name']}",
        "input": f"{proof}|{reads}" if reads else None,
    }


def _chosen(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {name: values[long] for name, long in names.items() if long in values}


@pytest.fixture(scope="session")
def prove(request, tmp_path_factory, certifying_home):
    """Return a function: the verdict of a `Proof`.

    The first proof of a framework, kernel and precision runs the cases of all that this session
    collected. Verdicts become certificates of this session, for `tests/training`.
    """
    collected = {
        item.callspec.params["proof"]: None
        for item in request.session.items
        if "proof" in getattr(getattr(item, "callspec", None), "params", {})
    }
    verifier = Verifier(print)

    def group(proof):
        return proof.framework, proof.request.kernel, proof.request.precision

    def verify(proof, found, run):
        one = replace(verifier, run=run)
        one.oracle = verifier.oracle
        return one.verify(proof.request, found, proof.seed)

    batches: dict[tuple[str, ...], Batch] = {}

    def batch(framework, kernel, precision):
        key = framework, kernel, precision
        if key in batches:
            return batches[key]
        prepared = batches[key] = Batch()  # if its run is ended, no other test starts it again
        found = environment.ensure(adapter.load(framework))
        for proof in collected:
            if group(proof) == key:
                with suppress(CasesCollected):
                    verify(proof, found, prepared.collect(proof))
        if prepared.documents:
            request = Proof.of(framework, kernel=kernel, precision=precision).request
            try:
                prepared.run(request, found, tmp_path_factory.mktemp("proofs"))
            except jobs.CheckError as error:  # then each proof runs alone and says what is wrong
                print(f"{framework} {kernel} {precision}: {error}")
        return prepared

    def verdict(proof):
        found = environment.ensure(adapter.load(proof.framework))
        answer = verify(proof, found, batch(*group(proof)).replay(proof))
        if proof.seed == 0:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("XFBENCH_HOME", str(certifying_home))
                certify.store_verdict(answer, found, proof.seed)
        return answer

    return verdict


def shown(verdict):
    """Return what a failing assertion shows of a verdict."""
    return [
        (d.case.name, d.quantity, d.relative_error, d.tolerance) for d in verdict.violations[:5]
    ]
