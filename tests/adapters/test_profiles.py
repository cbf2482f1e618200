"""Tests of profiles: each framework's profiler reports the layers, forward and backward."""

import json

import pytest
from typer.testing import CliRunner

from tests.adapters.cases import FRAMEWORKS, Case, parametrize
from xfbench import cli
from xfbench.analysis.profiles import build_profile

WITH_WEIGHTS = ("conv1", "conv2", "ip1", "ip2")
COMPILED = Case("profile_steps", "tensorflow", kernel="xla")


@pytest.mark.deep
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_profile_has_layers_with_weights_in_both_directions(shared_real_launch, framework):
    record = shared_real_launch(framework)
    assert record.status == "ok", record.reason
    network_profile = build_profile([record])
    layers = {layer.layer: layer for layer in network_profile.layers}
    for name in WITH_WEIGHTS:
        assert layers[name].forward_seconds > 0 and layers[name].backward_seconds > 0, name
    # conv2 has 70 % of the arithmetic, conv1 13 % and ip2 0.2 %.
    assert layers["conv2"].seconds > layers["ip2"].seconds
    assert layers["conv1"].seconds > layers["ip2"].seconds
    assert (
        record.observed.profiler == network_profile.profiler
        and "none" not in network_profile.profiler
    )
    # On one thread layers run one after another; Caffe times them apart from its step.
    profiled_s = (
        sum(layer.seconds for layer in network_profile.layers) + network_profile.update_seconds
    )
    assert network_profile.step_seconds / 4 < profiled_s
    assert framework == "caffe" or profiled_s <= 1.05 * network_profile.step_seconds


@pytest.mark.deep
@parametrize([COMPILED], "framework")
def test_compiled_tensorflow_is_profiled_by_layer(case, answers):
    assert answers(case).facts["seconds"]["profile/backward/conv2"] > 0


@pytest.mark.deep
def test_launch_of_an_adapter_without_a_profiler_is_ok(shared_real_launch):
    record = shared_real_launch("reference")
    assert record.status == "ok", record.reason
    assert record.observed.profiler == "none: the adapter has no profiler"
    assert build_profile([record]) is None


@pytest.mark.deep
def test_run_and_leaderboard_show_the_layers_of_a_profile(tmp_path):
    command = ["run", "--framework", "torch", "--workload", "lenet", "--batch-size", "8", "--steps"]
    command += ["4", "--threads", "1", "--launches", "1", "--no-verify", "--profile"]
    run_completed = CliRunner().invoke(
        cli.app, [*command, "--results", str(tmp_path)], catch_exceptions=False
    )
    assert run_completed.exit_code == 0, run_completed.output
    [conv2] = [line for line in run_completed.output.splitlines() if line.startswith("conv2")]
    assert "Convolution" in conv2
    command = ["leaderboard", "--view", "layers", "--json", "--results", str(tmp_path)]
    leaderboard_completed = CliRunner().invoke(cli.app, command, catch_exceptions=False)
    [network_profile] = json.loads(leaderboard_completed.stdout)["profiles"]
    assert (
        network_profile["framework"] == "torch" and "torch.profiler" in network_profile["profiler"]
    )
    assert {layer["layer"] for layer in network_profile["layers"]} >= set(WITH_WEIGHTS)
