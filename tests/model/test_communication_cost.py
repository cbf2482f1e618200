"""Tests of the theoretical cost of a gradient exchange, against values computed by hand."""

import pytest

from xfbench.base.errors import UsageError
from xfbench.model import communication_cost
from xfbench.model.communication_cost import SINGLE_BUCKET, Bucket, Link
from xfbench.workloads import workloads


@pytest.mark.parametrize("text", ["100Gbit,1us", "12.5GB/s, 1 us", "100 Gbps,1000ns"])
def test_link_is_parsed_from_bits_or_bytes(text):
    link = Link.parse(text)
    assert (link.bandwidth, link.latency) == pytest.approx((12.5e9, 1e-6))


@pytest.mark.parametrize("text", ["100Gbit", "1us,100Gbit", "0Gbit,1us", "1.2.3Gbit,1us", ""])
def test_invalid_link_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="for example 100Gbit,1us"):
        Link.parse(text)


@pytest.mark.parametrize(
    ("algorithm", "ranks", "crossings", "messages"),
    [
        ("ring", 1, 0, 0),
        ("ring", 2, 1, 2),
        ("ring", 4, 1.5, 6),
        ("halving", 2, 1, 2),
        ("halving", 8, 1.75, 6),
        # Two of six ranks first send all their data to others and receive the result last.
        ("halving", 6, 1.5 + 2, 4 + 2),
        ("server", 3, 6, 2),
    ],
)
def test_exchange_time_follows_from_algorithm_and_ranks(algorithm, ranks, crossings, messages):
    assert communication_cost.crossings_and_messages(algorithm, ranks) == (crossings, messages)
    link = Link(100.0, 0.25)
    expected = crossings * 1000 / 100 + messages * 0.25
    assert communication_cost.exchange_seconds(algorithm, ranks, 1000, link) == expected


def test_parameter_servers_divide_the_traffic():
    assert communication_cost.crossings_and_messages("server", 4, servers=2) == (4, 2)


def test_communication_at_the_end_is_fully_exposed():
    assert communication_cost.exposed_seconds(SINGLE_BUCKET, 3.0, [2.0]) == 2.0


def test_overlapped_communication_is_exposed_only_in_part():
    buckets = (Bucket(0.9, 0.5), Bucket(0.1, 1.0))
    # The first bucket finishes before the second is ready.
    assert communication_cost.exposed_seconds(buckets, 10.0, [4.0, 0.5]) == 0.5
    # The second bucket waits for the first.
    assert communication_cost.exposed_seconds(buckets, 10.0, [7.0, 0.5]) == 2.5
    assert communication_cost.exposed_seconds((Bucket(1.0, 0.5),), 10.0, [3.0]) == 0.0


def test_lenet_buckets_send_inner_products_first():
    buckets = communication_cost.gradient_buckets(
        workloads()["lenet"].network, 2**20, 25 * 2**20, 4
    )
    assert sum(bucket.share for bucket in buckets) == pytest.approx(1)
    parameters = 20 * 25 + 20 + 50 * 20 * 25 + 50
    assert [bucket.share for bucket in buckets] == pytest.approx(
        [1 - parameters / 431080, parameters / 431080]
    )
    # The first bucket is ready after the forward pass and the inner products' backward pass.
    conv1_macs, conv2_macs, inner_product_macs = (
        20 * 24**2 * 25,
        50 * 8**2 * 20 * 25,
        500 * 800 + 10 * 500,
    )
    total = 2 * conv1_macs + 3 * (conv2_macs + inner_product_macs)
    assert buckets[0].ready_share == pytest.approx(
        (conv1_macs + conv2_macs + 3 * inner_product_macs) / total
    )
    assert buckets[-1].ready_share == 1.0


@pytest.mark.parametrize("name", sorted(workloads()))
def test_buckets_are_in_ready_order_and_cover_all_gradients(name):
    buckets = communication_cost.gradient_buckets(workloads()[name].network, 2**20, 25 * 2**20, 4)
    ready = [bucket.ready_share for bucket in buckets]
    assert ready == sorted(ready) and ready[-1] <= 1.0
    assert sum(bucket.share for bucket in buckets) == pytest.approx(1)
