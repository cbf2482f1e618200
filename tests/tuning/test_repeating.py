"""Which launches of a search are done again, and how often."""

from xfbench.record import Conditions
from xfbench.tuning import repeating


def test_what_is_spoiled_is_done_again_when_all_had_theirs():
    order = []

    def launch(one):
        order.append(one)
        return one, order.count(one)

    found = repeating.block("abc", launch, lambda done: done in {("b", 1), ("c", 1), ("c", 2)})
    assert "".join(order) == "abcbcc"
    assert found == {"a": ("a", 1), "b": ("b", 2), "c": ("c", 3)}


def test_it_ends_where_cores_stay_apart_and_the_last_launch_counts():
    order = []
    found = repeating.block("ab", lambda one: order.append(one) or len(order), lambda _: True)
    assert len(order) == 2 * (1 + repeating.AGAIN)
    assert found == {"a": len(order) - 1, "b": len(order)}


def test_where_there_is_no_launch_any_more_what_was_done_counts():
    left = ["third", "second", "first"]
    found = repeating.block("ab", lambda _: left.pop() if left else None, lambda _: True)
    assert found == {"a": "third", "b": "second"}


def test_a_launch_of_several_threads_is_spoiled_by_cores_farther_apart_than_at_their_nearest(
    record,
):
    def one(*handovers, threads=2):
        calm = {"load_before": 0.0, "load_after": 0.0, "steal_seconds": 0.0, "swap_bytes": 0}
        seen = Conditions(**calm, seconds=1.0, handover_seconds=handovers)
        return record((0.1,), 1, {"conditions": seen}, threads=threads)

    near, far, moved = one(2.0e-7, 1.9e-7), one(3.3e-7, 3.2e-7), one(2.0e-7, 3.3e-7)
    nearest = repeating.nearest([far, near, one()])
    assert nearest == 1.9e-7
    assert [repeating.apart(a, nearest) for a in (near, far, moved, one())] == [0, 1, 1, 0]
    assert not repeating.apart(one(3.3e-7, 3.2e-7, threads=1), nearest)
    assert not repeating.apart(far, repeating.nearest([far]))  # nothing nearer is known
    assert repeating.nearest([one()]) is None
