"""Tests that each published finding about a study has a verdict with a reason."""

import pytest

from tests.studies.thread_launches import make_thread_launches
from xfbench.planning import experiment
from xfbench.store import published
from xfbench.studies import answer, page, render
from xfbench.studies.published_findings import NO_CLAIM

WITH_FINDINGS = sorted({finding.study for finding in published.findings()})
[KERNELS] = [finding.sentence for finding in published.findings("kernels")]


@pytest.mark.parametrize("name", WITH_FINDINGS)
def test_each_published_sentence_of_a_study_has_a_verdict_and_a_reason(name):
    study = experiment.load(name)
    study_answer = answer.answer_study(study, study.sizes[0], [], {})
    sentences = [finding.sentence for finding in published.findings(name)]
    assert [judged.text for judged in study_answer.sentences] == sentences
    for judged in study_answer.sentences:
        assert judged.verdict == "cannot be told"  # there is no record
        assert judged.why and judged.why != NO_CLAIM, (
            f"{name}.toml: no claim and no reason for: {judged.text}"
        )


@pytest.mark.parametrize("name", WITH_FINDINGS)
def test_each_claim_of_a_study_names_a_sentence_about_that_study(name):
    study = experiment.load(name)
    sentences = {(finding.citation.key, finding.sentence) for finding in published.findings(name)}
    claims = [claim for analysis in study.analysis for claim in analysis.claim]
    assert {(claim.source, claim.finding) for claim in claims if claim.finding} <= sentences
    assert {entry.finding for entry in study.unjudged} <= {sentence for _, sentence in sentences}


@pytest.mark.parametrize("name", WITH_FINDINGS)
def test_each_published_sentence_is_shown_with_its_verdict(name):
    study = experiment.load(name)
    study_answer = answer.answer_study(study, study.sizes[0], [], {})
    words = " ".join(render.render_markdown(study_answer).split())
    html = " ".join(page.render_html(study_answer).split())
    for finding in published.findings(name):
        shown = f"{finding.citation.key}: {finding.sentence} "
        assert f"- {shown}Whether it holds here **cannot be told**: " in words
        assert f"<li>{shown}Whether it holds here <strong>cannot be told</strong>: " in html


@pytest.mark.parametrize(
    ("bounds", "reason", "verdict", "why"),
    [
        ([{"low": 3.0}], None, "does not hold", "1 of 1 disagree"),
        ([{"low": 1.5}], None, "holds", "1 of 1 agree"),
        ([{"low": 1.5}, {"low": 3.0}], None, "does not hold", "1 of 1 disagree"),
        ([{"low": 1.5}, {"where": {"threads": 64}}], None, "cannot be told", "no matching cell"),
        ([{"low": 1.5}], "half of it is not tested", "cannot be told", "half of it is not tested"),
        ([{"low": 3.0}], "half of it is not tested", "does not hold", "1 of 1 disagree"),
        ([], "it is not tested", "cannot be told", "it is not tested"),
        ([], None, "cannot be told", NO_CLAIM),
    ],
)
def test_verdict_combines_all_claims_about_the_sentence(
    make_study, make_launches, bounds, reason, verdict, why
):
    claims = [
        {"source": "Z17", "text": f"claim {n}", "finding": KERNELS, "high": 9.0, **each}
        for n, each in enumerate(bounds)
    ]
    claims.append({"source": "Z17", "text": "about no sentence", "low": 8.0})
    study = make_study(
        {"name": "ratio", "over": "threads", "claim": claims},
        name="kernels",
        unjudged=[{"finding": KERNELS, "reason": reason}] if reason else [],
    )
    records = make_thread_launches(make_launches)
    study_answer = answer.answer_study(study, "laptop", records, {})
    [judged] = study_answer.sentences
    assert (judged.source, judged.text, judged.verdict) == ("Z17", KERNELS, verdict)
    assert why in judged.why
    [sentence] = study_answer.document()["sentences"]
    assert sentence == {
        "source": "Z17",
        "sentence": KERNELS,
        "verdict": verdict,
        "why": judged.why,
    }
