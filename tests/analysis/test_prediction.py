"""Prediction on launches whose truth is known, since they were drawn from it."""

import json

import numpy as np
import pytest

from xfbench import exchange
from xfbench.analysis import prediction, series
from xfbench.base.errors import UsageError
from xfbench.exchange import Link
from xfbench.records.record import Communication

LINK = Link(125e6, 25e-6)
COMPUTING, STEPS = 0.05, 60
PAYLOAD = 431080 * 4


def truth(ranks):
    """Seconds of a step of 8 images on each of so many ranks: LeNet, a ring, nothing hidden."""
    return COMPUTING + exchange.exchange_seconds("ring", ranks, PAYLOAD, LINK)


@pytest.fixture
def launches(record):
    """A function: records of launches on these numbers of ranks, with noise between them."""

    def make(counts, each=3, noise=0.01, seed=0, on_nodes=True, images=8, scaling="weak"):
        random = np.random.default_rng(seed)
        made = []
        for ranks in counts:
            for launch in range(1, each + 1):
                here = float(np.exp(random.normal(0, noise)))
                size = images if scaling == "weak" else images // ranks
                computing = COMPUTING * size / 8
                shown = exchange.exchange_seconds("ring", ranks, PAYLOAD, LINK)
                step = here * (computing + shown)
                told = Communication(
                    strategy="mirrored",
                    bytes_per_step=1,
                    exposed_seconds=(here * shown,) * STEPS,
                    waiting_seconds=(0.0,),
                    compute_seconds=(here * computing,) * 20,
                )
                made.append(
                    record(
                        steps=(step,) * STEPS,
                        launch=launch,
                        fields={"communication": told} if ranks > 1 else None,
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
        return made

    return make


def fitted(records, link=None):
    [only] = series.build_series(records)
    return prediction.fit(only, link)


def test_noise_free_fit_recovers_the_link_and_predicts_truth(launches):
    found = fitted(launches([1, 2, 4], noise=0.0))
    assert found.best.link.bandwidth == pytest.approx(LINK.bandwidth, rel=0.03)
    for ranks in (3, 8, 64):
        point = found.predict(ranks)
        assert point.images_per_second.value == pytest.approx(8 * ranks / truth(ranks), rel=0.05)
        assert point.efficiency == pytest.approx(COMPUTING / truth(ranks), rel=0.05)
        assert point.beyond_data == ranks / 4 and point.measured is None
    assert found.predict(2).measured == pytest.approx(16 / truth(2))


def test_few_ranks_give_wide_intervals_for_many_ranks(launches):
    far = fitted(launches([1, 2, 4])).predict(1024).images_per_second
    assert far.low < 8 * 1024 / truth(1024) < far.high
    assert far.high > 5 * far.low


@pytest.mark.deep
def test_intervals_cover_the_truth_and_widen_with_distance(launches):
    inside, widths = [], []
    for seed in range(20):
        found = fitted(launches([1, 2, 4], noise=0.02, seed=seed))
        points = [found.predict(ranks).images_per_second for ranks in (8, 64)]
        inside += [
            one.low <= 8 * ranks / truth(ranks) <= one.high
            for one, ranks in zip(points, (8, 64), strict=True)
        ]
        widths.append([one.high / one.low for one in points])
    assert 0.9 <= np.mean(inside) <= 1.0
    assert np.median(widths, axis=0)[1] > np.median(widths, axis=0)[0]


def test_strong_scaling_prediction_divides_the_images(launches):
    found = fitted(launches([1, 2, 4], noise=0.0, images=64, scaling="strong"))
    step = COMPUTING * 2 / 8 + exchange.exchange_seconds("ring", 32, PAYLOAD, LINK)
    assert found.predict(32).images_per_second.value == pytest.approx(64 / step, rel=0.1)
    with pytest.raises(UsageError, match="64 images cannot be shared evenly by 48 ranks"):
        found.predict(48)


def test_described_link_needs_only_single_rank_launches(launches):
    link = Link(12.5e9, 1e-6)
    found = fitted(launches([1], noise=0.01), link)
    point = found.predict(64)
    assert found.document()["link"] == "described"
    assert point.beyond_data == 64
    assert point.images_per_second.low < 8 * 64 / COMPUTING < point.images_per_second.high * 1.05


@pytest.mark.parametrize(
    ("counts", "on_nodes", "words"),
    [
        ([1], True, "nothing was measured over a link"),
        ([1, 2, 4], False, "nothing was measured over a link"),
        ([1, 2], True, "from 2 ranks alone bandwidth and latency cannot be told apart"),
    ],
)
def test_unidentifiable_link_is_refused_with_advice(launches, counts, on_nodes, words):
    with pytest.raises(UsageError, match=words) as told:
        prediction.fit(series.build_series(launches(counts, on_nodes=on_nodes))[0])
    assert "--link" in str(told.value)


def test_single_launches_give_no_interval(launches):
    point = fitted(launches([1, 2, 4], each=1)).predict(8)
    assert point.images_per_second.low is None and point.images_per_second.high is None


def test_efficiency_falls_with_the_slowest_of_many_ranks(record):
    steps = tuple(np.exp(np.random.default_rng(0).normal(0, 0.2, 400)))
    alone = [record(steps=steps, launch=n, scaling="weak", framework="torch") for n in (1, 2)]
    found = fitted(alone, Link(1e15, 0.0))
    few, many = (found.predict(ranks).efficiency for ranks in (1, 16))
    # The median of the largest of 16 draws from this: exp(0.2 times 1.73).
    assert few == pytest.approx(1, rel=0.01)
    assert many == pytest.approx(np.exp(-0.2 * 1.73), rel=0.05)


def test_single_rank_launches_join_the_series_of_each_law(launches):
    both = launches([1, 2, 4]) + launches([1, 2, 4], images=64, scaling="strong")
    found = series.build_series(both)
    assert sorted(one.law for one in found) == ["strong", "weak"]
    assert all({ranks for ranks, _ in one.groups} == {1, 2, 4} for one in found)


TOLD = Communication(
    strategy="ddp",
    bytes_per_step=1,
    exposed_seconds=(0.01,),
    waiting_seconds=(0.0,),
    compute_seconds=(0.05,),
)


def test_ranks_without_compute_times_form_no_series(record):
    """To take it for nothing would be to foretell a link without limits."""
    chosen = {"ranks": 2, "strategy": "ddp", "global_batch_size": 8, "batch_size_per_rank": 4}
    assert series.build_series([record(framework="torch", scaling="weak", **chosen)]) == []


def test_strategy_options_determine_the_overlap_buckets(record):
    def buckets(**options):
        chosen = {"ranks": 2, "strategy": "ddp", "global_batch_size": 8, "batch_size_per_rank": 4}
        chosen |= {"fields": {"communication": TOLD}, "strategy_options": options}
        made = record(framework="torch", scaling="weak", **chosen)
        [found] = series.build_series([made])
        return found.buckets

    assert [round(bucket.share, 2) for bucket in buckets()] == [0.94, 0.06]
    assert buckets(overlap="off") == exchange.SINGLE_BUCKET
    assert len(buckets(bucket_size=20_000)) > 2


def test_asynchronous_ranks_form_no_series(record):
    own = {"rank_step_seconds": ((0.1, 0.1), (0.4, 0.4))}
    measured = record().measurement.model_copy(update=own)
    chosen = {"ranks": 2, "strategy": "dist_async", "global_batch_size": 8}
    chosen |= {"fields": {"communication": TOLD, "measurement": measured}}
    made = record(framework="mxnet", scaling="weak", batch_size_per_rank=4, **chosen)
    assert series.build_series([made]) == []


def test_prediction_document_is_valid_json(launches):
    found = fitted(launches([1, 2, 4]))
    document = json.loads(json.dumps(found.document()))
    assert document["algorithm"] == "ring" and document["payload_bytes"] == PAYLOAD
    assert document["measured_ranks"] == [1, 2, 4] and document["launches"] == 9
    bandwidth = document["bandwidth"]
    assert bandwidth["low"] <= bandwidth["value"] <= bandwidth["high"]


def test_an_interval_leaves_out_2_5_percent_of_draws_at_each_end(launches):
    fit = fitted(launches([1], noise=0.02), LINK)
    interval = fit.document()["computing_seconds"]["8"]
    draws = [draw.computing_seconds(8) for draw in fit.draws]
    assert len(draws) == 400
    assert sum(draw < interval["low"] for draw in draws) == 10
    assert sum(draw > interval["high"] for draw in draws) == 10


@pytest.mark.parametrize(
    ("far", "deviation"), [(0.2, 0.2), (0.0, prediction._MIN_NOISE / np.sqrt(2))]
)
def test_draws_differ_by_the_error_of_the_mean_launch(record, far, deviation):
    """Two launches of steps far apart: half of Student's t with 1 degree of freedom is below 1."""
    made = [
        record(steps=(float(np.exp(side * far)),) * 3, framework="torch", scaling="weak")
        for side in (-1, 1)
    ]
    found = fitted(made, LINK)
    differences = np.abs(np.log([draw.fixed / found.best.fixed for draw in found.draws]))
    assert np.median(differences) == pytest.approx(deviation, rel=0.15)


@pytest.mark.parametrize(("link", "deviation"), [(LINK, 0.3), (None, 0.1)])
def test_described_link_is_less_certain_than_a_measured_link(launches, link, deviation):
    found = fitted(launches([1, 2, 4]), link)
    factors = [draw.exchange_factor for draw in found.draws]
    assert np.std(np.log(factors)) == pytest.approx(deviation, rel=0.15)


@pytest.fixture
def ranks(record):
    """A function: a record of `count` ranks of 4 images, with these seconds of each step."""

    def make(count, nodes, step=(0.12,), computing=(0.1,), exposed=(0.02,)):
        told = TOLD.model_copy(update={"compute_seconds": computing, "exposed_seconds": exposed})
        return record(
            steps=step,
            fields={"communication": told},
            framework="torch",
            strategy="ddp",
            scaling="weak",
            ranks=count,
            nodes=nodes,
            launcher="slurm",
            global_batch_size=4 * count,
            batch_size_per_rank=4,
        )

    return make


def test_computing_is_measured_on_full_nodes(record, ranks):
    """A rank that has a node for itself computes faster."""
    alone = record(steps=(0.05,) * 3, framework="torch", scaling="weak")
    found = fitted([alone, ranks(4, 2), ranks(8, 4)], LINK)
    assert found.best.computing_seconds(4) == pytest.approx(0.1)


def test_ranks_per_node_separate_series(ranks):
    found = series.build_series([ranks(2, 1), ranks(2, 2), ranks(4, 2)])
    assert [sorted(one.groups) for one in found] == [[(2, 1), (4, 2)], [(2, 2)]]
    assert [one.ranks_per_node for one in found] == [2, 1]


def test_launch_of_a_series_has_medians(ranks):
    times = {"step": (0.06, 0.07, 0.5), "computing": (0.05, 0.06, 0.4), "exposed": (0.01, 0.02, 9)}
    [found] = series.build_series([ranks(2, 2, **times)])
    assert found.groups[2, 2] == [series.Launch(0.07, 0.06, 0.02)]


@pytest.mark.parametrize(("precision", "width"), [("float32", 4), ("float64", 8), ("bfloat16", 4)])
def test_payload_depends_on_the_width_of_gradients(record, precision, width):
    [found] = series.build_series([record(framework="torch", scaling="weak", precision=precision)])
    assert found.payload_bytes == 431_080 * width
