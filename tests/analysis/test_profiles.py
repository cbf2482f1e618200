"""Profiles, computed from the phases in records."""

import csv
import io
import json

import pytest

from tests.sample_records import vary_record
from xfbench.analysis import leaderboard, profiles
from xfbench.model.record import Limit
from xfbench.rendering import profile_tables
from xfbench.rendering.report import profiles as pictures
from xfbench.rendering.report.figures import MOST_BARS

# Seconds of a LeNet step by part. A step takes 0.1 s with the profiler and 0.08 s without.
PARTS_S = {
    "step": 0.1,
    "update": 0.005,
    "other": 0.003,
    "forward/conv1": 0.01,
    "backward/conv1": 0.012,
    "forward/conv2": 0.02,
    "backward/conv2": 0.03,
    "forward/pool1": 0.002,
    "backward/pool1": 0.004,
}
LIMIT = Limit(
    threads=1,
    precision="float32",
    matrix_product=1e12,
    memory_bandwidth=1e10,
    source="measured",
)


@pytest.fixture
def profiled(record):
    """Return a function that makes a launch with these parts of a step and those of PARTS_S."""

    def make_profiled(parts=None, scale=1.0, profiler="a profiler 1.0", **request):
        launch_record = record(steps=(0.08,) * 5, **request)
        part_seconds = {
            name: scale * seconds for name, seconds in {**PARTS_S, **(parts or {})}.items()
        }
        phases = {"input_seconds": 0.0, **{f"profile/{k}": v for k, v in part_seconds.items()}}
        return vary_record(
            launch_record,
            measurement=launch_record.measurement.model_copy(update={"phases": phases}),
            observed=launch_record.observed.model_copy(update={"profiler": profiler}),
            limit=LIMIT,
        )

    return make_profiled


def test_profile_parts_are_medians_over_launches(profiled):
    median_profile = profiles.build_profile([profiled(scale=scale) for scale in (0.9, 1.0, 1.3)])
    layers = {layer.layer: layer for layer in median_profile.layers}
    assert (median_profile.launches, median_profile.profiler) == (3, "a profiler 1.0")
    assert (
        median_profile.step_seconds,
        median_profile.update_seconds,
        median_profile.other_seconds,
    ) == (0.1, 0.005, 0.003)
    assert median_profile.slowdown == pytest.approx(0.1 / 0.08)
    assert (layers["conv1"].forward_seconds, layers["conv1"].backward_seconds) == (0.01, 0.012)
    parts_sum_s = 0.01 + 0.012 + 0.02 + 0.03 + 0.002 + 0.004 + 0.005 + 0.003
    assert median_profile.outside_all_operations_seconds == pytest.approx(0.1 - parts_sum_s)


def test_layers_keep_network_order_and_kinds(profiled):
    launch_profile = profiles.build_profile([profiled()])
    assert [layer.layer for layer in launch_profile.layers][:3] == ["conv1", "pool1", "conv2"]
    kinds = {layer.layer: layer.kind for layer in launch_profile.layers}
    assert (kinds["conv1"], kinds["pool1"], kinds["ip1"]) == (
        *("Convolution", "Pooling", "InnerProduct"),
    )


def test_flops_count_two_per_multiply_add_in_each_direction(profiled):
    """conv1 reads the images, so its input has no gradient."""
    launch_profile = profiles.build_profile([profiled(batch_size_per_rank=4, global_batch_size=4)])
    layers = {layer.layer: layer for layer in launch_profile.layers}
    # conv1: 20 maps of 24x24, 5x5 kernels; conv2: 50 maps of 8x8, 20 maps of 5x5 kernels.
    assert layers["conv1"].flops == pytest.approx(2 * 20 * 24**2 * 25 * 2 * 4 / 0.022)
    assert layers["conv2"].flops == pytest.approx(2 * 50 * 8**2 * 20 * 25 * 3 * 4 / 0.05)
    assert layers["conv2"].share_of_peak == pytest.approx(layers["conv2"].flops / 1e12)
    assert layers["pool1"].flops is None and layers["ip1"].flops is None


def test_changed_network_keeps_layers_without_flops(profiled):
    launch = profiled()
    facts = launch.workload.model_copy(update={"digest": "sha256:another"})
    launch_profile = profiles.build_profile([vary_record(launch, workload=facts)])
    assert [layer.layer for layer in launch_profile.layers] == ["conv1", "conv2", "pool1"]
    assert {layer.flops for layer in launch_profile.layers} == {None}


def test_profile_ignores_failed_and_unprofiled_launches(profiled, record):
    assert profiles.build_profile([record()]) is None
    invalid = vary_record(profiled(scale=9), status="invalid", reason="disturbed")
    assert profiles.build_profile([invalid]) is None
    assert profiles.build_profile([record(), profiled(), invalid]).step_seconds == 0.1


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_impossible_profile_times_are_ignored(profiled, seconds):
    launch = profiled()
    phases = {**launch.measurement.phases, "profile/step": seconds}
    measurement = launch.measurement.model_copy(update={"phases": phases})
    assert profiles.build_profile([launch.model_copy(update={"measurement": measurement})]) is None
    phases = {**launch.measurement.phases, "profile/forward/conv1": seconds}
    measurement = launch.measurement.model_copy(update={"phases": phases})
    launch_profile = profiles.build_profile(
        [launch.model_copy(update={"measurement": measurement})]
    )
    assert launch_profile.layers[0].forward_seconds == 0.0


def test_profiling_does_not_change_the_cell(record):
    assert record(profile=True).cell == record().cell
    assert record(profile=True).request != record().request


def render_profiles(records, format_name="text", max_width=None):
    return profile_tables.FORMATS[format_name](leaderboard.build_tables(records, {}), max_width)


def test_table_has_layers_as_rows_and_configurations_as_columns(profiled):
    launches = [profiled(), profiled(framework="caffe", kernel="openblas", scale=2)]
    text = render_profiles(launches)
    [conv2_line] = [line for line in text.splitlines() if line.startswith("conv2")]
    assert "20 + 30" in conv2_line and "40 + 60" in conv2_line
    [step_line] = [line for line in text.splitlines() if line.startswith("step")]
    assert "100" in step_line and "200" in step_line
    assert (
        "a profiler 1.0, 1 launch, a profiled step takes 1.25 times as long as a timed one" in text
    )


@pytest.mark.parametrize(("step_s", "is_warned"), [(0.095, False), (0.15, True)])
def test_columns_whose_profilers_slow_down_differently_are_named(profiled, step_s, is_warned):
    """A profiled step takes 1.25 times as long as a timed one, and 1.19 or 1.88 times."""
    text = render_profiles(
        [
            profiled(),
            profiled(framework="mxnet"),
            profiled({"step": step_s}, framework="caffe"),
        ]
    )
    [warning] = [line for line in text.splitlines() if "may not be" in line] or [""]
    assert warning.startswith("caffe may not be compared with ") == is_warned
    assert ("reference" in warning and "mxnet" in warning) == is_warned


@pytest.mark.parametrize(("conv2_s", "factor"), [(0.03, None), (0.08, "1.36")])
def test_columns_with_concurrent_operations_are_named(profiled, conv2_s, factor):
    """All operations take 0.086 or 0.136 s, and a step 0.1 s. The lines add up to the step."""
    concurrent = profiled({"backward/conv2": conv2_s}, framework="tensorflow", kernel="onednn")
    text = render_profiles([profiled(), concurrent])
    warning = f"tensorflow: its operations add up to {factor} times its step"
    assert (warning in text) == (factor is not None)
    [rest] = [line for line in text.splitlines() if line.startswith("rest of the step")]
    assert rest.split()[-1] == ("14" if factor is None else "-36")


def test_columns_of_one_framework_are_named_with_their_settings(profiled):
    text = render_profiles([profiled(), profiled({"step": 0.15}, kernel="native")])
    names = ("reference · native · 1 thread", "reference · numpy · 1 thread")
    assert " may not be compared with ".join(names) in text


def test_a_profiled_step_that_is_faster_than_a_timed_one_was_disturbed(profiled):
    disturbed = "0.69 times as long as a timed one (less than 1: disturbed"
    assert disturbed in render_profiles([profiled({"step": 0.055})])
    assert "disturbed" not in render_profiles([profiled({"step": 0.078})])  # 0.98 times


def test_longest_layers_have_rows_and_the_rest_is_summed(profiled):
    parts = {f"forward/layer {n}": 0.0001 * n for n in range(1, 41)}
    launch = profiled(parts)
    other_network = vary_record(
        launch, workload=launch.workload.model_copy(update={"digest": "sha256:another"})
    )
    text = render_profiles([other_network])
    lines = text.splitlines()
    assert any(line.startswith("layer 40 ") for line in lines)
    assert not any(line.startswith("layer 1 ") for line in lines)
    [rest_line] = [line for line in lines if line.startswith("23 more")]
    # 20 of 43 layers are shown: three of LeNet's, and layers 24 to 40.
    assert f"{1e3 * sum(0.0001 * n for n in range(1, 24)):.3g} + 0" in rest_line


def test_layers_of_a_kind_are_summed(profiled):
    """ip1 and ip2 took no time; operations and seconds of conv1 and conv2 are summed."""
    launch = profiled(batch_size_per_rank=4, global_batch_size=4)
    launch_profile = profiles.build_profile([launch])
    layers = {layer.layer: layer for layer in launch_profile.layers}
    kinds = {kind.kind: kind for kind in launch_profile.multi_layer_kind_totals}
    assert [kind.kind for kind in launch_profile.multi_layer_kind_totals][:2] == [
        "Convolution",
        "Pooling",
    ]
    assert "ReLU" not in kinds and "SoftmaxLoss" not in kinds  # LeNet has one of each
    convolutions, pooling = kinds["Convolution"], kinds["Pooling"]
    assert convolutions.layer == "all 2" and convolutions.forward_seconds == pytest.approx(0.03)
    assert convolutions.backward_seconds == pytest.approx(0.042)
    operations = layers["conv1"].flops * 0.022 + layers["conv2"].flops * 0.05
    assert convolutions.flops == pytest.approx(operations / 0.072)
    assert convolutions.share_of_peak == pytest.approx(convolutions.flops / 1e12)
    assert (pooling.layer, pooling.flops, pooling.share_of_peak) == ("all 2", None, None)
    assert kinds["InnerProduct"].flops is None
    without_limit = vary_record(launch, limit=None)
    [unlimited_convolutions, *_] = profiles.build_profile([without_limit]).multi_layer_kind_totals
    assert (
        unlimited_convolutions.flops == convolutions.flops
        and unlimited_convolutions.share_of_peak is None
    )

    lines = render_profiles([launch]).splitlines()
    [convolution_line] = [line for line in lines if line.split()[:3] == ["all", "2", "Convolution"]]
    assert convolution_line.endswith(f"30 + 42 ({convolutions.share_of_peak:.0%})")
    [profile_document] = json.loads(render_profiles([launch], "json"))["profiles"]
    assert (
        profile_document["kinds"][0]["kind"] == "Convolution"
        and profile_document["kinds"][0]["layer"] == "all 2"
    )
    assert "kinds" not in render_profiles([launch], "csv")


def test_csv_and_json_contain_all_profile_data(profiled):
    launches = [profiled()]
    lines = list(csv.DictReader(io.StringIO(render_profiles(launches, "csv"))))
    assert {line["layer"] for line in lines} >= {"conv1", "conv2", "pool1"}
    assert float(lines[0]["forward_seconds"]) == 0.01
    [profile_document] = json.loads(render_profiles(launches, "json"))["profiles"]
    assert (
        profile_document["layers"][0]["layer"] == "conv1"
        and profile_document["update_seconds"] == 0.005
    )


def test_table_that_is_too_wide_is_divided_and_repeats_the_layers(profiled):
    kernels = {"torch": "onednn", "caffe": "openblas", "mxnet": "onednn"}
    launches = [profiled(framework=name, kernel=kernel) for name, kernel in kernels.items()]
    assert max(map(len, render_profiles(launches).splitlines())) > 100
    lines = render_profiles(launches, max_width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("conv2") for line in lines) == 3
    for name in kernels:
        assert sum(f"{name} · " in line for line in lines if line.startswith("layer")) == 1


def test_table_without_profiles_explains_how_to_profile(record):
    assert render_profiles([record()]).strip() == profile_tables.NO_PROFILE
    assert json.loads(render_profiles([record()], "json")) == {"profiles": []}
    assert render_profiles([record()], "csv") == ""


def test_hostile_names_in_a_profile_are_escaped(profiled):
    hostile_parts = {
        "forward/\x1b[31m<script>alert(1)</script>": 0.05,
        "forward/=cmd|' /C calc'!A0": 0.04,
    }
    launch = profiled(hostile_parts, profiler="<b>x</b>\x1b[0m")
    other_network = vary_record(
        launch, workload=launch.workload.model_copy(update={"digest": "sha256:another"})
    )
    assert "\x1b" not in render_profiles([other_network])
    assert "<script>" not in render_profiles([other_network], "html")
    assert not any(
        line["layer"].startswith("=")
        for line in csv.DictReader(io.StringIO(render_profiles([other_network], "csv")))
    )


def test_figure_draws_the_longest_layers_and_data_has_all(profiled):
    launches = [profiled(), profiled(framework="caffe", kernel="openblas", scale=2)]
    [table] = leaderboard.build_tables(launches, {})
    [figure] = pictures.build_layer_time_figures(table)
    bar_values = {bar.name: bar.value for bar in figure.bars}
    assert bar_values["conv2 · reference · numpy · 1 thread"] == pytest.approx(50)
    assert bar_values["conv2 · caffe · openblas · 1 thread"] == pytest.approx(100)
    layers = {line[1] for line in figure.data}
    assert {"conv1", "ip1", "update", "between operations"} <= layers


def test_table_without_profiles_has_no_figure(record):
    [table] = leaderboard.build_tables([record()], {})
    assert pictures.build_layer_time_figures(table) == []


def test_as_many_launches_as_bars_leave_one_layer(profiled):
    launches = [profiled(threads=threads) for threads in range(1, MOST_BARS + 1)]
    [table] = leaderboard.build_tables(launches, {})
    [figure] = pictures.build_layer_time_figures(table)
    assert len(figure.bars) == MOST_BARS
    assert {bar.name.partition(" · ")[0] for bar in figure.bars} == {"conv2"}
    assert figure.note.startswith("Shows the 1 of ")


def test_figure_shows_the_first_rows_and_says_so(profiled):
    launches = [profiled(threads=threads) for threads in range(1, 6)]
    [table] = leaderboard.build_tables(launches, {})
    [figure] = pictures.build_layer_time_figures(table, max_rows=3)
    assert len({line[0] for line in figure.data}) == 3
    assert "Shows the first 3 of 5 rows with a profile" in figure.note
