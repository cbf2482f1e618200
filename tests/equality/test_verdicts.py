"""The text of a verdict."""

import json

import pytest

from xfbench.equality import verdicts

CHECK = {"kind": "blocks", "quantities": 10, "tolerance": 1e-5, "loosest": 0.1}
ANSWER = {
    **{"framework": "torch", "framework_version": "2", "workload": "lenet", "solver": None},
    **{"kernel": "onednn", "device": "cpu", "precision": "float32", "ranks": 1},
    **{"strategy": "none", "strategy_options": {}, "verdict": "equal", "reason": None},
    **{"worst": None, "first_layer": None, "likely_cause": None, "certificate": None},
    "timed_batches": [],
    "failed": False,
}


@pytest.mark.parametrize(
    ("excess", "share"), [([0.2, 0.5], "50%"), ([None, 0.5], "50%"), ([None], "0%")]
)
def test_verdict_text_shows_the_largest_share_of_the_tolerance(excess, share):
    checks = [{**CHECK, "excess": share_of_tolerance} for share_of_tolerance in excess]
    text = verdicts.format_answer_text({**ANSWER, "checks": checks})
    assert f"{10 * len(checks)} quantities, at most {share} of their tolerance" in text


def test_a_framework_that_failed_is_not_called_unsupported():
    answer = {**ANSWER, "verdict": "unsupported", "failed": True, "checks": [], "reason": "no file"}
    text = verdicts.format_answer_text(answer)
    assert "failed\n" in text and "unsupported" not in text
    assert "| failed" in verdicts.format_answers_markdown([answer])


@pytest.mark.parametrize(
    ("options", "name", "start"),
    [
        ("--framework torch --workload lenet", "configurations", "torch · lenet"),
        ("--self-test", "planted", ""),
    ],
)
def test_a_dry_run_prints_json(run_inline, options, name, start):
    text = run_inline("verify", *options.split(), "--dry-run").stdout
    outcome = run_inline("verify", *options.split(), "--dry-run", "--json")
    lines = json.loads(outcome.stdout)[name]
    assert lines and lines == text.splitlines() and lines[0].startswith(start)
