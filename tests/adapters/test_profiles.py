"""Profiles of every framework: its own profiler sees the network's layers, forward and backward."""

import json

import pytest
from typer.testing import CliRunner

from xfbench import cli
from xfbench.analysis.profiles import profile

FRAMEWORKS = ["caffe", "ipex", "jax", "mxnet", "tensorflow", "torch"]
WITH_WEIGHTS = ("conv1", "conv2", "ip1", "ip2")


@pytest.fixture
def profiled(launch):
    """A function that does one launch on one thread with a profile: its record and profile."""

    def make(framework, **settings):
        asked = {"workload": ["lenet"], "batch_size": [64], "threads": [1], **settings}
        record = launch(framework, steps=4, profile=True, **asked)
        assert record.status == "ok", record.reason
        return record, profile([record])

    return make


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_layer_with_weights_is_seen_in_both_directions(profiled, framework):
    record, found = profiled(framework)
    layers = {one.layer: one for one in found.layers}
    for name in WITH_WEIGHTS:
        assert layers[name].forward_seconds > 0 and layers[name].backward_seconds > 0, name
    # 70 % and 13 % of the arithmetic are these two's; ip2 has 0.2 %.
    assert layers["conv2"].seconds > layers["ip2"].seconds
    assert layers["conv1"].seconds > layers["ip2"].seconds
    assert record.observed.profiler == found.profiler and "none" not in found.profiler
    # On one thread nothing runs beside anything else; Caffe's layers are timed apart from its step.
    seen = sum(one.seconds for one in found.layers) + found.update_seconds
    assert found.step_seconds / 4 < seen
    assert framework == "caffe" or seen <= 1.05 * found.step_seconds
    # The profile comes after what is measured, which has nothing of it.
    steps = len(record.measurement.step_seconds)
    assert steps >= 4 and len(record.measurement.losses) == 1 + 3 + steps


def test_a_compiled_tensorflow_program_is_told_layer_by_layer_too(profiled):
    _, found = profiled("tensorflow", kernel=["xla"])
    layers = {one.layer: one for one in found.layers}
    assert layers["conv2"].backward_seconds > 0


def test_an_adapter_without_a_profiler_says_so_and_its_launch_is_good(launch):
    record = launch("reference", workload=["lenet"], batch_size=[4], steps=2, profile=True)
    assert record.status == "ok"
    assert record.observed.profiler == "none: the adapter has no profiler"
    assert profile([record]) is None


def test_a_run_with_a_profile_ends_with_its_layers_and_the_leaderboard_has_them_too(tmp_path):
    line = ["run", "--framework", "torch", "--workload", "lenet", "--batch-size", "8", "--steps"]
    line += ["4", "--threads", "1", "--launches", "1", "--no-verify", "--profile"]
    done = CliRunner().invoke(cli.app, [*line, "--results", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    [conv2] = [one for one in done.output.splitlines() if one.startswith("conv2")]
    assert "Convolution" in conv2
    line = ["leaderboard", "--columns", "layers", "--json", "--results", str(tmp_path)]
    told = CliRunner().invoke(cli.app, line, catch_exceptions=False)
    [found] = json.loads(told.stdout)["profiles"]
    assert found["framework"] == "torch" and "torch.profiler" in found["profiler"]
    assert {one["layer"] for one in found["layers"]} >= set(WITH_WEIGHTS)
