"""Verdicts on what publications say about a study, in the sentences of `store/published`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xfbench.planning.experiment import Experiment
from xfbench.store import published
from xfbench.studies.finding import (
    Agreement,
    Finding,
    JudgedClaim,
    Verdict,
    verdict_if_all_must_agree,
)

NO_CLAIM = "no claim of the study is about it"
_AGREEMENTS: dict[Verdict, Agreement] = {
    "holds": "yes",
    "does not hold": "no",
    "cannot be told": "unknown",
}


def judge_published_findings(
    study: Experiment, findings: Sequence[Finding]
) -> tuple[JudgedClaim, ...]:
    """Return the verdict on each published finding about the study.

    `findings` are the results of the study's analyses, in their order. The verdict on a published
    finding combines the verdicts on all claims that name it (`Claim.finding`):

    - "does not hold": at least one claim does not hold.
    - "holds": all claims hold, and the study does not list the finding as unjudged.
    - "cannot be told": all other cases.

    The reason is that of the claims which decide the verdict.
    """
    judged = []
    for finding in published.findings(study.name):
        verdicts = [*_verdicts_and_reasons(study, findings, finding.sentence)]
        verdict = verdict_if_all_must_agree([_AGREEMENTS[verdict] for verdict, _ in verdicts])
        reasons = dict.fromkeys(reason for each, reason in verdicts if each == verdict)
        why = "; ".join(reasons) or NO_CLAIM
        judged.append(JudgedClaim(finding.citation.key, finding.sentence, verdict, why))
    return tuple(judged)


def _verdicts_and_reasons(
    study: Experiment, findings: Sequence[Finding], sentence: str
) -> Iterator[tuple[Verdict, str]]:
    """Yield the verdict and the reason of each claim about this sentence, and of unjudged parts."""
    for analysis, finding in zip(study.analysis, findings, strict=True):
        claims = [
            (claim.source, claim.text) for claim in analysis.claim if claim.finding == sentence
        ]
        for judged in finding.judged:
            if (judged.source, judged.text) in claims:
                yield judged.verdict, f"{judged.text}: {judged.why}"
    for unjudged in study.unjudged:
        if unjudged.finding == sentence:
            yield "cannot be told", unjudged.reason
