"""What PyTorch compiles: where it is kept, and whether it goes the right way."""

import pytest

from tests.adapters.cases import Case, parametrize

COMPILE_CASES = [
    Case("compile_into", "torch", "cropped", kernel="inductor", data=data)
    for data in ("folder 700", "folder 777", "link 700")
]
CONVNET = Case("train", "torch", "convnet", kernel="inductor")


@pytest.mark.deep
@parametrize(COMPILE_CASES, "data")
def test_folder_that_others_could_fill_is_not_used(case, answers):
    facts = answers(case).facts
    assert facts["kernel"] == "inductor" and facts["libraries"] > 0
    trusted = case.data == "folder 700"
    assert facts["used"] is trusted
    assert trusted or facts["left"] == 0


@pytest.mark.deep
@parametrize([CONVNET], "workload")
def test_average_pooling_over_the_edge_has_its_gradient(case, answers):
    """Compiled as PyTorch has it by default conv1's is off by a third (docs/findings.md)."""
    distances = answers(case).facts["distances"]
    gradients = {k: v for k, v in distances.items() if k.startswith("gradient/")}
    assert "gradient/conv1/weight" in gradients and max(gradients.values()) < 1e-4
