"""`verify` on real frameworks: the right networks are equal, and planted discrepancies are not.

The plants that need an ImageNet network, and the other kernels, are `make verify-all`'s.
"""

import json
import os
import subprocess
import sys
from itertools import product

import pytest

from tests import turns
from xfbench import adapter, experiment
from xfbench.environments import environment
from xfbench.equality import certify, jobs, plants
from xfbench.equality.verify import Verifier
from xfbench.running import runner
from xfbench.workloads import workloads

FRAMEWORKS = ["caffe", "ipex", "jax", "mxnet", "tensorflow", "torch"]
PLANTS = [plant for plant in plants.plants() if plant.workload in ("lenet", "convnet")]


@pytest.fixture(scope="module")
def verify():
    """A function: the verdict on a framework and workload."""
    verifier = Verifier()

    def verdict(framework, workload, seed=0, **settings):
        matrix = experiment.matrix(framework=[framework], workload=[workload], **settings)
        [(cell, _)] = experiment.cells([matrix])
        found = environment.ensure(adapter.load(framework))
        return verifier.verify(cell.request(1), found, seed)

    return verdict


def told(verdict):
    """What a failing assertion shows."""
    return [(d.case.name, d.quantity, d.relative_error, d.tolerance) for d in verdict.wrong[:5]]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("workload", ["lenet", "convnet"])
def test_the_right_network_is_equal(verify, framework, workload):
    verdict = verify(framework, workload)
    assert (verdict.verdict, told(verdict), verdict.reason) == ("equal", [], None)
    assert verdict.place is None
    kinds = {check.kind for check in verdict.checks}
    assert {
        f"{what}, float32, {weights} weights"
        for what in ("whole network", "blocks")
        for weights in ("own", "scaled")
    } <= kinds
    if "float64" in adapter.load(framework).precisions:
        assert "whole network, float64, scaled weights" in kinds


MIXED = product(["jax", "tensorflow", "torch"], [("bfloat16", 2.0**-8), ("float16", 2.0**-11)])


@pytest.mark.parametrize(
    ("framework", "precision", "ulp"), turns.by_day([(one, *kind) for one, kind in MIXED], 3)
)
def test_mixed_precision_is_equal_within_what_an_oracle_rounded_so_allows(
    verify, framework, precision, ulp
):
    """In float16 the loss is scaled on its way back, in the framework and in the oracle."""
    verdict = verify(framework, "lenet", precision=[precision])
    assert (verdict.verdict, told(verdict)) == ("equal", [])
    checks = {check.kind: check for check in verdict.checks}
    rounded = checks[f"blocks, {precision}, scaled weights"]
    assert 3 * ulp < rounded.tolerance < 128 * ulp  # what it does is seen, and does not hide all
    assert rounded.excess > 0.001  # it was not float32 that ran
    assert checks["whole network, float64, own weights"].tolerance == pytest.approx(1e-8, rel=0.1)


def test_what_is_compiled_is_equal(verify):
    verdict = verify("torch", "lenet", kernel=["inductor"])
    assert (verdict.verdict, told(verdict), verdict.reason) == ("equal", [], None)


def test_tf32_is_asked_of_a_gpu():
    [(cell, _)] = experiment.cells(
        [experiment.matrix(framework=["torch"], workload=["lenet"], precision=["tf32"])]
    )
    assert "NVIDIA" in runner.refusal(cell.request(1))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("framework", "workload"),
    [
        ("torch", "alexnet"),
        # These take minutes more each, a quarter of an hour beside others: `make test-all`.
        *(
            pytest.param(name, workload, marks=pytest.mark.long)
            for name, workload in product(FRAMEWORKS, ("googlenet", "caffenet"))
        ),
    ],
)
def test_an_imagenet_network_is_equal(verify, framework, workload):
    verdict = verify(framework, workload)
    assert (verdict.verdict, told(verdict), verdict.reason) == ("equal", [], None)


@pytest.mark.parametrize("framework", turns.by_day(FRAMEWORKS, 2))
def test_another_seed_is_no_false_alarm(verify, framework):
    verdict = verify(framework, "lenet", seed=7)
    assert (verdict.verdict, told(verdict)) == ("equal", [])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_lars_and_warm_up_are_the_oracles(verify, framework):
    verdict = verify(framework, "lenet", lars=[0.5], rate_warmup=[2])
    assert (verdict.verdict, told(verdict), verdict.reason) == ("equal", [], None)
    assert verdict.request.solver == "LARS 0.5, warm-up 2 epochs"


@pytest.mark.parametrize("plant", turns.by_day(PLANTS, 3), ids=lambda plant: plant.name)
def test_a_planted_discrepancy_is_caught_at_its_layer(plant):
    result = plants.self_test([plant], 0, print, 600)
    [found] = result["planted"]
    assert found["caught"]
    assert found["first_layer"] == plant.layer
    assert found["likely_cause"]


def test_there_are_twenty_plants_and_each_one_changes_what_is_there():
    every = plants.plants()
    assert len(every) >= 20
    assert len({plant.name for plant in every}) == len(every)
    for plant in every:
        compile(plant.source(), plant.file, "exec")
        assert plant.workload in workloads()


def test_what_an_adapter_says_it_cannot_do_is_unsupported(verify):
    verdict = verify("caffe", "lenet", precision=["float64"])
    assert verdict.verdict == "unsupported"
    assert "no precision float64" in verdict.reason


def command(*words, **variables):
    return subprocess.run(
        [sys.executable, "-m", "xfbench", *words],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, **variables},
    )


def test_the_command_prints_verdicts_and_gives_certificates_that_it_finds_again():
    first = command("verify", "--framework", "torch", "--workload", "lenet", "--again", "--json")
    assert first.returncode == 0, first.stderr
    [verdict] = json.loads(first.stdout)["verdicts"]
    assert verdict["verdict"] == "equal"
    assert verdict["certificate"].startswith("sha256:")
    assert set(verdict) >= {
        *("framework", "workload", "kernel", "device", "precision", "ranks", "strategy"),
        *("verdict", "worst", "first_layer", "likely_cause", "certificate"),
    }
    again = command("verify", "--framework", "torch", "--workload", "lenet", "--json")
    assert json.loads(again.stdout)["verdicts"][0]["certificate"] == verdict["certificate"]
    assert "cases" not in again.stderr  # nothing was run


def test_a_different_network_exits_with_1_and_says_where():
    plant = next(p for p in plants.plants() if p.name == "loss summed over the batch")
    with plants.standing(plant):
        for _ in range(2):  # the second time there is a verdict in the cache
            done = command("verify", "--framework", "mxnet", "--workload", "lenet")
            assert done.returncode == 1
            assert "different" in done.stdout
            assert "goes wrong first at  loss" in done.stdout


def test_a_certificate_holds_for_one_adapter_alone():
    plant = next(p for p in plants.plants() if p.framework == "torch")
    found = environment.ensure(adapter.load("torch"))
    [(cell, _)] = experiment.cells([experiment.matrix(framework=["torch"], workload=["lenet"])])
    before = certify.subject(cell.request(1), found)
    with plants.standing(plant):
        after = certify.subject(cell.request(1), found)
    assert certify.find(after) is None
    assert {k for k, v in after.model_dump().items() if v != before.model_dump()[k]} == {
        "adapter_digest"
    }


def test_a_kernel_that_was_not_the_one_asked_for_proves_nothing(verify):
    other = plants.Plant(
        name="oneDNN off",
        framework="torch",
        workload="lenet",
        layer="",
        find="torch.backends.mkldnn.enabled = options.kernel in _ONEDNN",
        replace="torch.backends.mkldnn.enabled = False",
    )
    with (
        plants.standing(other),
        pytest.raises(jobs.CheckError, match="kernel native ran, not onednn"),
    ):
        verify("torch", "lenet")
