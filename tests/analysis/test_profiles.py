"""Profiles: what is made of the phases that launches brought along."""

import csv
import io
import json

import pytest

from tests.likenesses import varied
from xfbench.analysis import leaderboard, profiles
from xfbench.layout import profile_tables
from xfbench.records.record import Limit
from xfbench.report import profiles as pictures
from xfbench.report.figures import MOST_BARS

# LeNet's seconds of a step, by part; a step of 0.1 s under the profiler, of 0.08 s without.
PARTS = {
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
    """A function that makes a launch with these parts of a step, and others of PARTS."""

    def make(parts=None, scale=1.0, profiler="a profiler 1.0", **request):
        one = record(steps=(0.08,) * 5, **request)
        told = {name: scale * value for name, value in {**PARTS, **(parts or {})}.items()}
        phases = {"input_seconds": 0.0, **{f"profile/{k}": v for k, v in told.items()}}
        return varied(
            one,
            measurement=one.measurement.model_copy(update={"phases": phases}),
            observed=one.observed.model_copy(update={"profiler": profiler}),
            limit=LIMIT,
        )

    return make


def test_profile_parts_are_medians_over_launches(profiled):
    found = profiles.profile([profiled(scale=scale) for scale in (0.9, 1.0, 1.3)])
    layers = {one.layer: one for one in found.layers}
    assert (found.launches, found.profiler) == (3, "a profiler 1.0")
    assert (found.step_seconds, found.update_seconds, found.other_seconds) == (0.1, 0.005, 0.003)
    assert found.slowdown == pytest.approx(0.1 / 0.08)
    assert (layers["conv1"].forward_seconds, layers["conv1"].backward_seconds) == (0.01, 0.012)
    seen = 0.01 + 0.012 + 0.02 + 0.03 + 0.002 + 0.004 + 0.005 + 0.003
    assert found.unseen_seconds == pytest.approx(0.1 - seen)


def test_layers_keep_network_order_and_kinds(profiled):
    found = profiles.profile([profiled()])
    assert [one.layer for one in found.layers][:3] == ["conv1", "pool1", "conv2"]
    kinds = {one.layer: one.kind for one in found.layers}
    assert (kinds["conv1"], kinds["pool1"], kinds["ip1"]) == (
        *("Convolution", "Pooling", "InnerProduct"),
    )


def test_flops_count_two_per_multiply_add_in_each_direction(profiled):
    """conv1 reads the images: its input has no gradient."""
    found = profiles.profile([profiled(batch_size_per_rank=4, global_batch_size=4)])
    layers = {one.layer: one for one in found.layers}
    # 20 maps of 24 by 24 from 5 by 5; 50 of 8 by 8 from 20 of 5 by 5.
    assert layers["conv1"].flops == pytest.approx(2 * 20 * 24**2 * 25 * 2 * 4 / 0.022)
    assert layers["conv2"].flops == pytest.approx(2 * 50 * 8**2 * 20 * 25 * 3 * 4 / 0.05)
    assert layers["conv2"].share_of_peak == pytest.approx(layers["conv2"].flops / 1e12)
    assert layers["pool1"].flops is None and layers["ip1"].flops is None


def test_changed_network_keeps_layers_without_flops(profiled):
    one = profiled()
    facts = one.workload.model_copy(update={"digest": "sha256:another"})
    found = profiles.profile([varied(one, workload=facts)])
    assert [layer.layer for layer in found.layers] == ["conv1", "conv2", "pool1"]
    assert {layer.flops for layer in found.layers} == {None}


def test_profile_ignores_failed_and_unprofiled_launches(profiled, record):
    assert profiles.profile([record()]) is None
    bad = varied(profiled(scale=9), status="invalid", reason="disturbed")
    assert profiles.profile([bad]) is None
    assert profiles.profile([record(), profiled(), bad]).step_seconds == 0.1


@pytest.mark.parametrize("step", [0.0, -1.0, float("inf"), float("nan")])
def test_impossible_profile_times_are_ignored(profiled, step):
    one = profiled()
    phases = {**one.measurement.phases, "profile/step": step}
    measured = one.measurement.model_copy(update={"phases": phases})
    assert profiles.profile([one.model_copy(update={"measurement": measured})]) is None
    phases = {**one.measurement.phases, "profile/forward/conv1": step}
    measured = one.measurement.model_copy(update={"phases": phases})
    found = profiles.profile([one.model_copy(update={"measurement": measured})])
    assert found.layers[0].forward_seconds == 0.0


def test_profiling_does_not_change_the_cell(record):
    assert record(profile=True).cell == record().cell
    assert record(profile=True).request != record().request


def shown(records, how="text"):
    return profile_tables.FORMATS[how](leaderboard.tables(records, {}))


def test_table_has_layers_as_rows_and_configurations_as_columns(profiled):
    made = [profiled(), profiled(framework="caffe", kernel="openblas", scale=2)]
    text = shown(made)
    [conv2] = [line for line in text.splitlines() if line.startswith("conv2")]
    assert "20 + 30" in conv2 and "40 + 60" in conv2
    [step] = [line for line in text.splitlines() if line.startswith("step")]
    assert "100" in step and "200" in step
    assert "a profiler 1.0, 1 launch, 1.25 times a timed step" in text


def test_longest_layers_have_rows_and_the_rest_is_summed(profiled):
    parts = {f"forward/layer {n}": 0.0001 * n for n in range(1, 41)}
    one = profiled(parts)
    made = varied(one, workload=one.workload.model_copy(update={"digest": "sha256:another"}))
    text = shown([made])
    lines = text.splitlines()
    assert any(line.startswith("layer 40 ") for line in lines)
    assert not any(line.startswith("layer 1 ") for line in lines)
    [rest] = [line for line in lines if line.startswith("23 more")]
    # Of 43 layers 20 are shown: three of LeNet's, and those from 24 on.
    assert f"{1e3 * sum(0.0001 * n for n in range(1, 24)):.3g} + 0" in rest


def test_layers_of_a_kind_are_summed(profiled):
    """ip1 and ip2 took no time; of conv1 and conv2 operations and seconds are added up."""
    made = profiled(batch_size_per_rank=4, global_batch_size=4)
    found = profiles.profile([made])
    layers = {one.layer: one for one in found.layers}
    kinds = {one.kind: one for one in found.kinds}
    assert [one.kind for one in found.kinds][:2] == ["Convolution", "Pooling"]
    assert "ReLU" not in kinds and "SoftmaxLoss" not in kinds  # of which LeNet has one each
    both, pooling = kinds["Convolution"], kinds["Pooling"]
    assert both.layer == "all 2" and both.forward_seconds == pytest.approx(0.03)
    assert both.backward_seconds == pytest.approx(0.042)
    done = layers["conv1"].flops * 0.022 + layers["conv2"].flops * 0.05
    assert both.flops == pytest.approx(done / 0.072)
    assert both.share_of_peak == pytest.approx(both.flops / 1e12)
    assert (pooling.layer, pooling.flops, pooling.share_of_peak) == ("all 2", None, None)
    assert kinds["InnerProduct"].flops is None
    unknown = varied(made, limit=None)
    [together, *_] = profiles.profile([unknown]).kinds
    assert together.flops == both.flops and together.share_of_peak is None

    lines = shown([made]).splitlines()
    [line] = [one for one in lines if one.split()[:3] == ["all", "2", "Convolution"]]
    assert line.endswith(f"30 + 42 ({both.share_of_peak:.0%})")
    [told] = json.loads(shown([made], "json"))["profiles"]
    assert told["kinds"][0]["kind"] == "Convolution" and told["kinds"][0]["layer"] == "all 2"
    assert "kinds" not in shown([made], "csv")


def test_csv_and_json_contain_all_profile_data(profiled):
    made = [profiled()]
    lines = list(csv.DictReader(io.StringIO(shown(made, "csv"))))
    assert {line["layer"] for line in lines} >= {"conv1", "conv2", "pool1"}
    assert float(lines[0]["forward_seconds"]) == 0.01
    [told] = json.loads(shown(made, "json"))["profiles"]
    assert told["layers"][0]["layer"] == "conv1" and told["update_seconds"] == 0.005


def test_table_without_profiles_explains_how_to_profile(record):
    assert shown([record()]).strip() == profile_tables.NO_PROFILE
    assert json.loads(shown([record()], "json")) == {"profiles": []}
    assert shown([record()], "csv") == ""


def test_hostile_names_in_a_profile_are_escaped(profiled):
    evil = {"forward/\x1b[31m<script>alert(1)</script>": 0.05, "forward/=cmd|' /C calc'!A0": 0.04}
    one = profiled(evil, profiler="<b>x</b>\x1b[0m")
    made = varied(one, workload=one.workload.model_copy(update={"digest": "sha256:another"}))
    assert "\x1b" not in shown([made])
    assert "<script>" not in shown([made], "html")
    assert not any(
        line["layer"].startswith("=") for line in csv.DictReader(io.StringIO(shown([made], "csv")))
    )


def test_figure_draws_the_longest_layers_and_data_has_all(profiled):
    made = [profiled(), profiled(framework="caffe", kernel="openblas", scale=2)]
    [table] = leaderboard.tables(made, {})
    [figure] = pictures.build_figures(table)
    drawn = {bar.name: bar.value for bar in figure.bars}
    assert drawn["conv2 · reference · numpy · 1 thread"] == pytest.approx(50)
    assert drawn["conv2 · caffe · openblas · 1 thread"] == pytest.approx(100)
    layers = {line[1] for line in figure.data}
    assert {"conv1", "ip1", "update", "between operations"} <= layers


def test_table_without_profiles_has_no_figure(record):
    [table] = leaderboard.tables([record()], {})
    assert pictures.build_figures(table) == []


def test_as_many_launches_as_bars_leave_one_layer(profiled):
    made = [profiled(threads=threads) for threads in range(1, MOST_BARS + 1)]
    [table] = leaderboard.tables(made, {})
    [figure] = pictures.build_figures(table)
    assert len(figure.bars) == MOST_BARS
    assert {bar.name.partition(" · ")[0] for bar in figure.bars} == {"conv2"}
    assert figure.note.startswith("Drawn are the 1 of ")
