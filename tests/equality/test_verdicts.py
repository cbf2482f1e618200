"""How a verdict reads."""

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
    ("excess", "nearest"), [([0.2, 0.5], "50%"), ([None, 0.5], "50%"), ([None], "0%")]
)
def test_verdict_text_shows_the_largest_share_of_the_tolerance(excess, nearest):
    checks = [{**CHECK, "excess": one} for one in excess]
    shown = verdicts.format_text({**ANSWER, "checks": checks})
    assert f"{10 * len(checks)} quantities, at most {nearest} of their tolerance" in shown
