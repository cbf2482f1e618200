"""What an exchange costs, from ranks whose figures are known."""

import pytest

from xfbench import communication
from xfbench.record import Communication


def told(compute, sent=1000.0):
    return {"compute_seconds": compute, "payload_bytes": 400, "sent": {"eth0": sent, "lo": 1.0}}


def test_a_step_is_computing_waiting_for_the_slowest_and_what_of_the_exchange_shows():
    ranks = [told([1.0, 1.0, 1.0]), told([1.0, 3.0, 2.0])]
    found = communication.shared(ranks, [4.0, 5.0], nodes=1)
    assert found["compute_seconds"] == [1.0, 2.0, 1.5]
    assert found["waiting_seconds"] == [0.0, 1.0, 0.5]
    # The slowest takes 1, 3 and 2: its median is 2.
    assert found["exposed_seconds"] == [2.0, 3.0]


def test_interfaces_are_counted_once_on_each_node():
    ranks = [told([1.0], sent) for sent in (10.0, 10.0, 20.0, 20.0)]
    assert communication.shared(ranks, [1.0], nodes=2)["interface_bytes"]["eth0"] == 30.0
    assert communication.shared(ranks, [1.0], nodes=1)["interface_bytes"]["eth0"] == 10.0


def test_where_one_rank_tells_nothing_nothing_is_known():
    assert communication.shared([told([1.0]), None], [1.0], nodes=1) is None


@pytest.mark.parametrize(("ranks", "server", "asked"), [(2, False, 800), (4, False, 2400)])
def test_an_all_reduce_sends_twice_the_gradients_from_all_ranks_but_one(ranks, server, asked):
    assert communication.asked_bytes(400, ranks, server=server) == asked


def test_a_server_is_sent_everything_and_sends_it_back():
    assert communication.asked_bytes(400, 3, server=True) == 2400


def test_shares_of_a_cell_are_medians_over_its_launches(record):
    def launch(exposed, interfaces):
        return record(
            steps=(0.1, 0.1),
            fields={
                "communication": Communication(
                    strategy="ddp",
                    bytes_per_step=800,
                    exposed_seconds=(exposed,) * 2,
                    waiting_seconds=(0.01,),
                    compute_seconds=(0.05,),
                    payload_bytes=400,
                    interface_bytes=interfaces,
                )
            },
        )

    alone = [launch(0.02, {"lo": 810.0}), launch(0.04, {"lo": 820.0}), launch(0.04, {"lo": 830.0})]
    found = communication.shares(alone)
    assert (found.compute, found.waiting) == pytest.approx((0.5, 0.1))
    assert found.exposed == pytest.approx(0.4)
    assert (found.bytes_per_step, found.counted_bytes) == (800, 820.0)
    assert communication.shares([launch(0, {"lo": 5.0, "eth0": 7.0})]).counted_bytes == 7.0
    assert communication.shares([launch(0, {"lo": 0.0})]).counted_bytes is None
    assert communication.shares([record()]) is None
