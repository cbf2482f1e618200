"""Predictions from launches that are drawn from a known truth."""

import json
from dataclasses import replace

import numpy as np
import pytest

from xfbench.analysis import prediction, series
from xfbench.base.errors import UsageError
from xfbench.model import communication_cost
from xfbench.model.communication_cost import Link
from xfbench.model.record import Communication
from xfbench.rendering import tables

LINK = Link(125e6, 25e-6)
COMPUTING_S, STEPS = 0.05, 60
PAYLOAD_BYTES = 431080 * 4


def true_step_seconds(ranks):
    """Return the seconds of a LeNet step with 8 images per rank and a ring without overlap."""
    return COMPUTING_S + communication_cost.exchange_seconds("ring", ranks, PAYLOAD_BYTES, LINK)


@pytest.fixture
def make_launches(record):
    """Return a function that makes records for these numbers of ranks, with noise."""

    def make_launches(
        counts, launches_per_count=3, noise=0.01, seed=0, on_nodes=True, images=8, scaling="weak"
    ):
        random = np.random.default_rng(seed)
        records = []
        for ranks in counts:
            for launch in range(1, launches_per_count + 1):
                noise_factor = float(np.exp(random.normal(0, noise)))
                size = images if scaling == "weak" else images // ranks
                computing_s = COMPUTING_S * size / 8
                exposed_s = communication_cost.exchange_seconds("ring", ranks, PAYLOAD_BYTES, LINK)
                step_s = noise_factor * (computing_s + exposed_s)
                communication = Communication(
                    strategy="mirrored",
                    bytes_per_step=1,
                    exposed_seconds=(noise_factor * exposed_s,) * STEPS,
                    waiting_seconds=(0.0,),
                    compute_seconds=(noise_factor * computing_s,) * 20,
                )
                records.append(
                    record(
                        steps=(step_s,) * STEPS,
                        launch=launch,
                        fields={"communication": communication} if ranks > 1 else None,
                        framework="tensorflow",
                        environment="managed",
                        strategy="mirrored" if ranks > 1 else "none",
                        ranks=ranks,
                        nodes=ranks if on_nodes else 1,
                        launcher="slurm",
                        scaling=scaling,
                        batch_size_per_rank=size,
                        global_batch_size=size * ranks,
                    )
                )
        return records

    return make_launches


def fit_records(records, link=None):
    [single_series] = series.build_scaling_series(records)
    return prediction.fit_scaling_model(single_series, link)


def test_noise_free_fit_recovers_the_link_and_predicts_truth(make_launches):
    fit = fit_records(make_launches([1, 2, 4], noise=0.0))
    assert fit.best.link.bandwidth == pytest.approx(LINK.bandwidth, rel=0.03)
    for ranks in (3, 8, 64):
        point = fit.predict(ranks)
        assert point.images_per_second.value == pytest.approx(
            8 * ranks / true_step_seconds(ranks), rel=0.05
        )
        assert point.efficiency == pytest.approx(COMPUTING_S / true_step_seconds(ranks), rel=0.05)
        assert point.beyond_data == ranks / 4 and point.measured is None
    assert fit.predict(2).measured == pytest.approx(16 / true_step_seconds(2))


def test_few_ranks_give_wide_intervals_for_many_ranks(make_launches):
    prediction_interval = fit_records(make_launches([1, 2, 4])).predict(1024).images_per_second
    assert prediction_interval.low < 8 * 1024 / true_step_seconds(1024) < prediction_interval.high
    assert prediction_interval.high > 5 * prediction_interval.low


@pytest.mark.parametrize(("link", "is_trusted"), [(LINK, True), (Link(125e9, 1e-6), False)])
def test_table_warns_if_the_described_link_does_not_fit_the_launches(
    make_launches, link, is_trusted
):
    fit = fit_records(make_launches([1, 2, 4], noise=0.001), link)
    table = tables.prediction_table([fit.predict(4), fit.predict(64)], fit.document())
    assert ("Do not trust" in table) != is_trusted


@pytest.mark.deep
def test_intervals_cover_the_truth_and_widen_with_distance(make_launches):
    covered, widths = [], []
    for seed in range(20):
        fit = fit_records(make_launches([1, 2, 4], noise=0.02, seed=seed))
        intervals = [fit.predict(ranks).images_per_second for ranks in (8, 64)]
        covered += [
            interval.low <= 8 * ranks / true_step_seconds(ranks) <= interval.high
            for interval, ranks in zip(intervals, (8, 64), strict=True)
        ]
        widths.append([interval.high / interval.low for interval in intervals])
    assert 0.9 <= np.mean(covered) <= 1.0
    assert np.median(widths, axis=0)[1] > np.median(widths, axis=0)[0]


def test_strong_scaling_prediction_divides_the_images(make_launches):
    fit = fit_records(make_launches([1, 2, 4], noise=0.0, images=64, scaling="strong"))
    step_s = COMPUTING_S * 2 / 8 + communication_cost.exchange_seconds(
        "ring", 32, PAYLOAD_BYTES, LINK
    )
    assert fit.predict(32).images_per_second.value == pytest.approx(64 / step_s, rel=0.1)
    with pytest.raises(UsageError, match="64 images cannot be shared evenly by 48 ranks"):
        fit.predict(48)


def test_described_link_needs_only_single_rank_launches(make_launches):
    link = Link(12.5e9, 1e-6)
    fit = fit_records(make_launches([1], noise=0.01), link)
    point = fit.predict(64)
    assert fit.document()["link"] == "described"
    assert point.beyond_data == 64
    assert point.images_per_second.low < 8 * 64 / COMPUTING_S < point.images_per_second.high * 1.05


@pytest.mark.parametrize(
    ("counts", "on_nodes", "words"),
    [
        ([1], True, "no launch used a link"),
        ([1, 2, 4], False, "no launch used a link"),
        ([1, 2], True, "2 ranks alone cannot separate bandwidth from latency"),
    ],
)
def test_unidentifiable_link_is_refused_with_advice(make_launches, counts, on_nodes, words):
    with pytest.raises(UsageError, match=words) as caught:
        prediction.fit_scaling_model(
            series.build_scaling_series(make_launches(counts, on_nodes=on_nodes))[0]
        )
    assert "--link" in str(caught.value)


def parts_of(point):
    return {name: getattr(point.step, name) for name in ("computing", "exchange", "waiting")}


def test_parts_of_a_step_follow_the_truth_and_add_up(make_launches):
    fit = fit_records(make_launches([1, 2, 4], noise=0.0))
    for ranks in (1, 4, 64):
        point = fit.predict(ranks)
        parts = parts_of(point)
        assert point.step.seconds == pytest.approx(8 * ranks / point.images_per_second.value)
        assert sum(part.share for part in parts.values()) == pytest.approx(1)
        assert sum(part.seconds for part in parts.values()) == pytest.approx(point.step.seconds)
        assert parts["computing"].seconds == pytest.approx(COMPUTING_S, rel=0.01)
        exchange_s = communication_cost.exchange_seconds("ring", ranks, PAYLOAD_BYTES, LINK)
        assert parts["exchange"].seconds == pytest.approx(exchange_s, rel=0.1)
        assert parts["waiting"].seconds == pytest.approx(0)
        assert not any(part.reason for part in parts.values())
    assert parts["exchange"].share > parts_of(fit.predict(4))["exchange"].share


def test_slowest_of_many_ranks_makes_the_others_wait(record):
    step_times_s = tuple(np.exp(np.random.default_rng(0).normal(0, 0.2, 400)))
    fit = fit_records([record(steps=step_times_s, scaling="weak", framework="torch")], LINK)
    waiting = [fit.predict(ranks).step.waiting.seconds for ranks in (1, 4, 16)]
    assert waiting[0] == 0
    assert waiting[0] < waiting[1] < waiting[2]
    # The median of the largest of 16 draws is exp(0.2 * 1.73).
    assert waiting[2] == pytest.approx(np.exp(0.2 * 1.73) - 1, rel=0.1)


def test_parts_that_are_not_measured_say_so(make_launches):
    described = fit_records(make_launches([1], launches_per_count=1), LINK)
    assert described.predict(1).step.exchange.reason is None
    assert "described link" in described.predict(2).step.exchange.reason
    assert described.predict(STEPS).step.waiting.reason is None
    assert f"only {STEPS} steps" in described.predict(STEPS + 1).step.waiting.reason
    without_one_rank = fit_records(make_launches([2, 4], noise=0.0)).predict(8).step
    assert without_one_rank.waiting.seconds is None and without_one_rank.waiting.share is None
    assert "no launch has one rank" in without_one_rank.waiting.reason
    shares = without_one_rank.computing.share + without_one_rank.exchange.share
    assert shares == pytest.approx(1)


def test_single_launches_give_no_interval(make_launches):
    point = fit_records(make_launches([1, 2, 4], launches_per_count=1)).predict(8)
    assert point.images_per_second.low is None and point.images_per_second.high is None


def test_efficiency_falls_with_the_slowest_of_many_ranks(record):
    step_times_s = tuple(np.exp(np.random.default_rng(0).normal(0, 0.2, 400)))
    single_rank = [
        record(steps=step_times_s, launch=n, scaling="weak", framework="torch") for n in (1, 2)
    ]
    fit = fit_records(single_rank, Link(1e15, 0.0))
    single_rank_efficiency, many_ranks_efficiency = (
        fit.predict(ranks).efficiency for ranks in (1, 16)
    )
    # The median of the largest of 16 draws is exp(0.2 * 1.73).
    assert single_rank_efficiency == pytest.approx(1, rel=0.01)
    assert many_ranks_efficiency == pytest.approx(np.exp(-0.2 * 1.73), rel=0.05)


def test_single_rank_launches_join_the_series_of_each_law(make_launches):
    records = make_launches([1, 2, 4]) + make_launches([1, 2, 4], images=64, scaling="strong")
    all_series = series.build_scaling_series(records)
    assert sorted(law_series.law for law_series in all_series) == ["strong", "weak"]
    assert all({ranks for ranks, _ in law_series.groups} == {1, 2, 4} for law_series in all_series)


COMMUNICATION = Communication(
    strategy="ddp",
    bytes_per_step=1,
    exposed_seconds=(0.01,),
    waiting_seconds=(0.0,),
    compute_seconds=(0.05,),
)


def test_ranks_without_compute_times_form_no_series(record):
    """Treating a missing exposed time as zero would predict an unlimited link."""
    settings = {"ranks": 2, "strategy": "ddp", "global_batch_size": 8, "batch_size_per_rank": 4}
    assert (
        series.build_scaling_series([record(framework="torch", scaling="weak", **settings)]) == []
    )


def test_strategy_options_determine_the_overlap_buckets(record):
    def overlap_buckets(**options):
        settings = {"ranks": 2, "strategy": "ddp", "global_batch_size": 8, "batch_size_per_rank": 4}
        settings |= {"fields": {"communication": COMMUNICATION}, "strategy_options": options}
        launch_record = record(framework="torch", scaling="weak", **settings)
        [single_series] = series.build_scaling_series([launch_record])
        return single_series.buckets

    assert [round(bucket.share, 2) for bucket in overlap_buckets()] == [0.94, 0.06]
    assert overlap_buckets(overlap="off") == communication_cost.SINGLE_BUCKET
    assert len(overlap_buckets(bucket_size=20_000)) > 2


def test_asynchronous_ranks_form_no_series(record):
    rank_times = {"rank_step_seconds": ((0.1, 0.1), (0.4, 0.4))}
    measurement = record().measurement.model_copy(update=rank_times)
    settings = {"ranks": 2, "strategy": "dist_async", "global_batch_size": 8}
    settings |= {"fields": {"communication": COMMUNICATION, "measurement": measurement}}
    launch_record = record(framework="mxnet", scaling="weak", batch_size_per_rank=4, **settings)
    assert series.build_scaling_series([launch_record]) == []


def test_prediction_document_is_valid_json(make_launches):
    fit = fit_records(make_launches([1, 2, 4]))
    document = json.loads(json.dumps(fit.document()))
    assert document["algorithm"] == "ring" and document["payload_bytes"] == PAYLOAD_BYTES
    assert document["measured_ranks"] == [1, 2, 4] and document["launches"] == 9
    bandwidth = document["bandwidth"]
    assert bandwidth["low"] <= bandwidth["value"] <= bandwidth["high"]


def test_interval_excludes_2_5_percent_of_draws_at_each_end(make_launches):
    fit = fit_records(make_launches([1], noise=0.02), LINK)
    interval = fit.document()["computing_seconds"]["8"]
    draws = [draw.computing_seconds(8) for draw in fit.draws]
    assert len(draws) == 400
    assert sum(draw < interval["low"] for draw in draws) == 10
    assert sum(draw > interval["high"] for draw in draws) == 10


@pytest.mark.parametrize(
    ("log_distance", "deviation"), [(0.2, 0.2), (0.0, prediction._MIN_NOISE / np.sqrt(2))]
)
def test_draws_differ_by_the_error_of_the_mean_launch(record, log_distance, deviation):
    """For two launches the error follows Student's t with 1 degree of freedom (median 1)."""
    records = [
        record(steps=(float(np.exp(side * log_distance)),) * 3, framework="torch", scaling="weak")
        for side in (-1, 1)
    ]
    fit = fit_records(records, LINK)
    differences = np.abs(np.log([draw.fixed / fit.best.fixed for draw in fit.draws]))
    assert np.median(differences) == pytest.approx(deviation, rel=0.15)


@pytest.mark.parametrize(("link", "deviation"), [(LINK, 0.3), (None, 0.1)])
def test_described_link_is_less_certain_than_a_measured_link(make_launches, link, deviation):
    fit = fit_records(make_launches([1, 2, 4]), link)
    factors = [draw.exchange_factor for draw in fit.draws]
    assert np.std(np.log(factors)) == pytest.approx(deviation, rel=0.15)


@pytest.fixture
def ranks(record):
    """Return a function that makes a record of `count` ranks with 4 images each."""

    def make_record(count, nodes, step=(0.12,), computing=(0.1,), exposed=(0.02,)):
        communication = COMMUNICATION.model_copy(
            update={"compute_seconds": computing, "exposed_seconds": exposed}
        )
        return record(
            steps=step,
            fields={"communication": communication},
            framework="torch",
            strategy="ddp",
            scaling="weak",
            ranks=count,
            nodes=nodes,
            launcher="slurm",
            global_batch_size=4 * count,
            batch_size_per_rank=4,
        )

    return make_record


def test_computing_time_comes_from_full_nodes(record, ranks):
    """A rank alone on a node computes faster."""
    single_rank = record(steps=(0.05,) * 3, framework="torch", scaling="weak")
    fit = fit_records([single_rank, ranks(4, 2), ranks(8, 4)], LINK)
    assert fit.best.computing_seconds(4) == pytest.approx(0.1)


def test_ranks_per_node_separate_series(ranks):
    all_series = series.build_scaling_series([ranks(2, 1), ranks(2, 2), ranks(4, 2)])
    assert [sorted(node_series.groups) for node_series in all_series] == [
        [(2, 1), (4, 2)],
        [(2, 2)],
    ]
    assert [node_series.ranks_per_node for node_series in all_series] == [2, 1]


def test_batch_of_a_node_is_divided_among_its_ranks(ranks):
    [weak] = series.build_scaling_series([ranks(2, 1), ranks(4, 2)])
    of_nodes = replace(weak, law="per-node", batch_size=8)
    assert [of_nodes.images_per_rank(count) for count in (1, 2, 4, 64)] == [8, 4, 4, 4]
    with pytest.raises(UsageError, match="shared evenly by 2 ranks"):
        replace(of_nodes, batch_size=7).images_per_rank(2)


def test_launch_of_a_series_has_medians(ranks):
    times = {"step": (0.06, 0.07, 0.5), "computing": (0.05, 0.06, 0.4), "exposed": (0.01, 0.02, 9)}
    [single_series] = series.build_scaling_series([ranks(2, 2, **times)])
    assert single_series.groups[2, 2] == [series.Launch(0.07, 0.06, 0.02)]


@pytest.mark.parametrize(("precision", "width"), [("float32", 4), ("float64", 8), ("bfloat16", 4)])
def test_payload_depends_on_the_width_of_gradients(record, precision, width):
    [single_series] = series.build_scaling_series(
        [record(framework="torch", scaling="weak", precision=precision)]
    )
    assert single_series.payload_bytes == 431_080 * width
