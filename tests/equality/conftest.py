"""Proofs of real frameworks: all cases of a framework run in one worker per session."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from tests.equality.proofs import Batch, CasesCollected, Proof
from xfbench.environments import environment
from xfbench.equality import certify, jobs
from xfbench.equality.verify import Verifier
from xfbench.model import adapter


@pytest.fixture(scope="session")
def prove(request, tmp_path_factory, certifying_home):
    """Return a function that returns the verdict of a `Proof`.

    The first proof of a framework, kernel and precision runs the cases of all proofs that this
    session collected. Verdicts become certificates of this session, for `tests/training`.
    """
    collected_proofs = {
        item.callspec.params["proof"]: None
        for item in request.session.items
        if "proof" in getattr(getattr(item, "callspec", None), "params", {})
    }
    verifier = Verifier(print)

    def batch_key(proof):
        return proof.framework, proof.request.kernel, proof.request.precision

    def verify(proof, framework_environment, run):
        verifier_with_run = replace(verifier, run=run)
        verifier_with_run.oracle = verifier.oracle
        return verifier_with_run.verify(proof.request, framework_environment, proof.seed)

    batches: dict[tuple[str, ...], Batch] = {}

    def run_batch(framework, kernel, precision):
        key = framework, kernel, precision
        if key in batches:
            return batches[key]
        batch = batches[key] = Batch()  # if its run is ended, no other test starts it again
        framework_environment = environment.ensure_environment(adapter.load(framework))
        for proof in collected_proofs:
            if batch_key(proof) == key:
                with suppress(CasesCollected):
                    verify(proof, framework_environment, batch.collect(proof))
        if batch.documents:
            request = Proof.of(framework, kernel=kernel, precision=precision).request
            try:
                batch.run(request, framework_environment, tmp_path_factory.mktemp("proofs"))
            except jobs.CheckError as error:  # then each proof runs alone and says what is wrong
                print(f"{framework} {kernel} {precision}: {error}")
        return batch

    def build_verdict(proof):
        framework_environment = environment.ensure_environment(adapter.load(proof.framework))
        verdict = verify(proof, framework_environment, run_batch(*batch_key(proof)).replay(proof))
        if proof.seed == 0:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("XFBENCH_HOME", str(certifying_home))
                certify.store_verdict_unless_unsupported(verdict, framework_environment, proof.seed)
        return verdict

    return build_verdict
