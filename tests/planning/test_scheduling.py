"""Tests of the order of launches."""

import random
from collections import Counter
from itertools import islice, pairwise

import pytest

from xfbench.model.request import Protocol
from xfbench.planning.scheduling import balanced_orders, launch_order


@pytest.mark.parametrize("count", range(1, 10))
def test_a_design_balances_places_and_neighbours(count):
    """Each cell has each place, and follows each other cell, equally often."""
    size = count if count % 2 == 0 else 2 * count
    for design in range(1, 4):
        orders = [*islice(balanced_orders(range(count), random.Random(design)), size * design)]
        orders = orders[-size:]
        places = Counter(place for order in orders for place in enumerate(order))
        neighbours = Counter(pair for order in orders for pair in pairwise(order))
        assert len(places) == count**2 and len(set(places.values())) == 1
        assert len(neighbours) == count * (count - 1) and len(set(neighbours.values())) <= 1


def test_no_cells_have_no_launches():
    assert launch_order([]) == []


def test_blocks_have_one_launch_of_each_cell(cell):
    cells = [(cell(threads=threads), Protocol.fixed(3)) for threads in range(1, 6)]
    requests = launch_order(cells, seed=4)
    assert [request.launch for request in requests] == [1] * 5 + [2] * 5 + [3] * 5
    assert requests == launch_order(cells, seed=4) != launch_order(cells, seed=5)
    assert [r.threads for r in requests[:5]] != [r.threads for r in requests[5:10]]


def test_each_plan_has_a_new_order(cell):
    """Two orders of 40 launches are equal with a probability below 10 to the power of -40."""
    cells = [(cell(threads=threads), Protocol.fixed(5)) for threads in range(1, 9)]
    assert launch_order(cells) != launch_order(cells)


def test_cells_with_fewer_launches_are_absent_from_later_blocks(cell):
    cells = [(cell(threads=n), Protocol.fixed(n)) for n in (1, 3)]
    assert [r.threads for r in launch_order(cells)][2:] == [3, 3]
