"""`verify` on real frameworks: correct networks are equal, and planted bugs are detected.

`make verify-all` tests the other kernels and the planted bugs that need an ImageNet network.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from itertools import product

import pytest

from tests.equality.proofs import Proof, summarise_violations
from xfbench.environments import environment
from xfbench.equality import certify, jobs, plants
from xfbench.equality.verify import Verifier
from xfbench.model import adapter, capabilities
from xfbench.planning import experiment
from xfbench.workloads import workloads

FRAMEWORKS = ["caffe", "ipex", "jax", "mxnet", "tensorflow", "torch"]
MIXED = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # a unit in the last place
SMALL_PLANTED_BUGS = [
    bug for bug in plants.load_planted_bugs() if bug.workload in ("lenet", "convnet")
]
# Planted bugs that are cheap to train; the deep tests try all others.
QUICK_PLANTED_BUGS = (
    *("LRN's alpha off by a tenth", "LRN's k is 2", "loss summed over the batch"),
    *("decay multipliers left out", "biases without their multipliers", "Nesterov's momentum"),
    *("no warm-up of the rate",),
    "flattened as channels, rows, columns where rows, columns, channels are meant",
    *("input scaled by 1/255 for 1/256", "gradients of earlier steps not cleared"),
)


def for_proofs(*values):
    return pytest.mark.parametrize("proof", values, ids=str)


@for_proofs(
    # JAX compiles every case; in the quick tests only `tests/training` proves it.
    *(
        pytest.param(Proof.of(*cell), marks=pytest.mark.deep if cell[0] == "jax" else ())
        for cell in product(FRAMEWORKS, ("lenet", "convnet"))
    )
)
def test_correct_network_is_equal(prove, proof):
    verdict = prove(proof)
    assert (verdict.verdict, summarise_violations(verdict), verdict.reason) == ("equal", [], None)
    assert verdict.place is None
    kinds = {check.kind for check in verdict.checks}
    assert {
        f"{scope}, float32, {weights} weights"
        for scope in ("whole network", "blocks")
        for weights in ("own", "scaled")
    } <= kinds
    if "float64" in adapter.load(proof.framework).precisions:
        assert "whole network, float64, scaled weights" in kinds


@pytest.mark.deep
@for_proofs(
    *(
        Proof.of(name, precision=precision)
        for name in ("jax", "tensorflow", "torch")
        for precision in MIXED
    )
)
def test_mixed_precision_is_equal_to_a_rounded_oracle(prove, proof):
    """In float16, the framework and the oracle scale the loss in the backward pass."""
    verdict = prove(proof)
    assert (verdict.verdict, summarise_violations(verdict)) == ("equal", [])
    precision = dict(proof.settings)["precision"]
    ulp = MIXED[precision]
    checks = {check.kind: check for check in verdict.checks}
    rounded = checks[f"blocks, {precision}, scaled weights"]
    assert 3 * ulp < rounded.tolerance < 128 * ulp  # rounding is visible but not dominant
    assert rounded.excess > 0.001  # float32 would deviate less
    assert checks["whole network, float64, own weights"].tolerance == pytest.approx(1e-8, rel=0.1)


@pytest.mark.deep
@for_proofs(Proof.of("torch", kernel="inductor"))
def test_a_compiled_network_is_equal(prove, proof):
    verdict = prove(proof)
    assert (verdict.verdict, summarise_violations(verdict), verdict.reason) == ("equal", [], None)


def test_tf32_needs_an_nvidia_gpu():
    assert "NVIDIA" in capabilities.refusal_reason(Proof.of("torch", precision="tf32").request)


@pytest.mark.long
@pytest.mark.timeout(3600)
@for_proofs(
    Proof.of("torch", "alexnet"),
    *(Proof.of(*cell) for cell in product(FRAMEWORKS, ("googlenet", "caffenet"))),
)
def test_an_imagenet_network_is_equal(prove, proof):
    verdict = prove(proof)
    assert (verdict.verdict, summarise_violations(verdict), verdict.reason) == ("equal", [], None)


@pytest.mark.deep
@for_proofs(*(Proof.of(name, seed=7) for name in FRAMEWORKS))
def test_another_seed_gives_no_false_alarm(prove, proof):
    verdict = prove(proof)
    assert (verdict.verdict, summarise_violations(verdict)) == ("equal", [])


@pytest.mark.deep
@for_proofs(*(Proof.of(name, lars=0.5, lr_warmup=2) for name in FRAMEWORKS))
def test_lars_and_warm_up_are_equal(prove, proof):
    verdict = prove(proof)
    assert (verdict.verdict, summarise_violations(verdict), verdict.reason) == ("equal", [], None)
    assert verdict.request.changed_solver_text == "LARS 0.5, warm-up 2 epochs"


@pytest.mark.parametrize(
    "planted_bug",
    [
        pytest.param(bug, marks=() if bug.name in QUICK_PLANTED_BUGS else pytest.mark.deep)
        for bug in SMALL_PLANTED_BUGS
    ],
    ids=lambda bug: bug.name,
)
def test_a_planted_bug_is_caught_at_its_layer(planted_bug):
    [outcome] = plants.run_self_test([planted_bug], 0, print, 600)["planted"]
    assert outcome["caught"]
    assert outcome["first_layer"] == planted_bug.layer
    assert outcome["likely_cause"]


def test_ten_planted_bugs_are_tried_in_the_quick_tests():
    assert len({bug.name for bug in SMALL_PLANTED_BUGS} & {*QUICK_PLANTED_BUGS}) == 10


def test_each_planted_bug_changes_its_file():
    planted_bugs = plants.load_planted_bugs()
    assert len(planted_bugs) >= 20
    assert len({bug.name for bug in planted_bugs}) == len(planted_bugs)
    for planted_bug in planted_bugs:
        compile(planted_bug.changed_source(), planted_bug.file, "exec")
        assert planted_bug.workload in workloads()


def test_a_precision_that_an_adapter_lacks_is_unsupported(prove):
    verdict = prove(Proof.of("caffe", precision="float64"))
    assert verdict.verdict == "unsupported"
    assert "no precision float64" in verdict.reason


def run_xfbench(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "xfbench", *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, **variables},
    )


@pytest.mark.deep
def test_verify_prints_a_certificate_and_finds_it_again():
    first = run_xfbench(
        "verify", "--framework", "torch", "--workload", "lenet", "--again", "--json"
    )
    assert first.returncode == 0, first.stderr
    [verdict] = json.loads(first.stdout)["verdicts"]
    assert verdict["verdict"] == "equal"
    assert verdict["certificate"].startswith("sha256:")
    assert set(verdict) >= {
        *("framework", "workload", "kernel", "device", "precision", "ranks", "strategy"),
        *("verdict", "worst", "first_layer", "likely_cause", "certificate"),
    }
    cached = run_xfbench("verify", "--framework", "torch", "--workload", "lenet", "--json")
    assert json.loads(cached.stdout)["verdicts"][0]["certificate"] == verdict["certificate"]
    assert "cases" not in cached.stderr  # nothing was run


@pytest.mark.deep
def test_unverified_launches_are_ranked_after_the_command_that_run_prints(tmp_path):
    results = ["--results", str(tmp_path / "my results")]
    short = ["--launches", "1", "--steps", "2", "--warmup", "0"]
    cell = ["--framework", "torch", "--workload", "lenet"]
    launched = run_xfbench("run", *cell, *short, "--no-verify", *results)
    assert launched.returncode == 0, launched.stderr
    problem = "torch is not verified, so not ranked: xfbench "
    [line] = [line for line in launched.stdout.splitlines() if line.startswith(problem)]
    command = shlex.split(line.removeprefix(problem).removesuffix(" verifies these launches"))
    verified = run_xfbench(*command)
    assert verified.returncode == 0, verified.stderr
    document = json.loads(run_xfbench("leaderboard", "--json", *results).stdout)
    [table] = document["tables"]
    assert len(table["rows"]) == 1 and not table["unranked"]
    assert table["rows"][0]["batch_certificate"]


def test_verify_compares_the_gradients_of_larger_batches_too():
    words = ["verify", "--framework", "reference", "--workload", "lenet", "--threads", "1"]
    completed = run_xfbench(*words, "--batch-size", "6,32", "--json")
    assert completed.returncode == 0, completed.stderr
    [verdict] = json.loads(completed.stdout)["verdicts"]
    batches = verdict["timed_batches"]
    assert [(b["batch_size"], b["threads"], b["verdict"]) for b in batches] == [
        (6, 1, "equal"),
        (32, 1, "equal"),
    ]
    shown = run_xfbench(*words, "--batch-size", "32").stdout
    assert re.search(r"^  batch 32, 1 threads: equal, at most \d+% of its tolerance$", shown, re.M)


@pytest.mark.deep
def test_a_wrong_large_batch_exits_with_1_and_names_the_layer():
    planted_bug = next(bug for bug in plants.load_planted_bugs() if bug.name.endswith("of lenet"))
    with plants.applied(planted_bug):
        completed = run_xfbench(
            *("verify", "--framework", "torch", "--workload", "lenet", "--batch-size", "8,64")
        )
    assert completed.returncode == 1
    assert re.search("^  batch 8, . threads: equal", completed.stdout, re.M)
    assert re.search("^  batch 64, . threads: different, .*first at conv1", completed.stdout, re.M)


@pytest.mark.deep
def test_different_network_exits_with_1_and_names_the_layer():
    planted_bug = next(
        bug for bug in plants.load_planted_bugs() if bug.name == "loss summed over the batch"
    )
    with plants.applied(planted_bug):
        for _ in range(2):  # the second time there is a verdict in the cache
            completed = run_xfbench("verify", "--framework", "mxnet", "--workload", "lenet")
            assert completed.returncode == 1
            assert "different" in completed.stdout
            assert "goes wrong first at  loss" in completed.stdout


def test_a_certificate_holds_for_one_adapter_only():
    planted_bug = next(bug for bug in plants.load_planted_bugs() if bug.framework == "torch")
    torch_environment = environment.ensure_environment(adapter.load("torch"))
    [(cell, _)] = experiment.expand_matrices(
        [experiment.build_matrix(framework=["torch"], workload=["lenet"])]
    )
    original = certify.build_subject(cell.request(1), torch_environment)
    with plants.applied(planted_bug):
        changed = certify.build_subject(cell.request(1), torch_environment)
    assert certify.find_cached_certificate(changed) is None
    assert {
        field
        for field, value in changed.model_dump().items()
        if value != original.model_dump()[field]
    } == {"adapter_digest"}


@pytest.mark.deep
def test_another_kernel_than_the_requested_one_proves_nothing():
    planted_bug = plants.PlantedBug(
        name="oneDNN off",
        framework="torch",
        workload="lenet",
        layer="",
        find="torch.backends.mkldnn.enabled = options.kernel in _ONEDNN",
        replace="torch.backends.mkldnn.enabled = False",
    )
    with (
        plants.applied(planted_bug),
        pytest.raises(jobs.CheckError, match="kernel native ran, not onednn"),
    ):
        torch_environment = environment.ensure_environment(adapter.load("torch"))
        Verifier().verify(Proof.of("torch").request, torch_environment)
