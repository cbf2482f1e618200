"""The text of a verdict."""

import pytest

from xfbench.equality import verdicts

CHECK = {"kind": "blocks", "quantities": 10, "tolerance": 1e-5, "loosest": 0.1}
ANSWER = {
    **{"framework": "torch", "framework_version": "2", "workload": "lenet", "solver": None},
    **{"kernel": "onednn", "device": "cpu", "precision": "float32", "ranks": 1},
    **{"strategy": "none", "strategy_options": {}, "verdict": "equal", "reason": None},
    **{"worst": None, "first_layer": None, "likely_cause": None, "certificate": None},
    "failed": False,
}


@pytest.mark.parametrize(
    ("excess", "share"), [([0.2, 0.5], "50%"), ([None, 0.5], "50%"), ([None], "0%")]
)
def test_verdict_text_shows_the_largest_share_of_the_tolerance(excess, share):
    checks = [{**CHECK, "excess": share_of_tolerance} for share_of_tolerance in excess]
    text = verdicts.format_answer_text({**ANSWER, "checks": checks})
    assert f"{10 * len(checks)} quantities, at most {share} of their tolerance" in text
