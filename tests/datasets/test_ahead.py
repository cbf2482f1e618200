"""Work done ahead comes in order, not too far ahead, and ends with who asked for it."""

import threading
import time

import pytest

from xfbench.datasets.ahead import map_in_order


def test_results_keep_the_input_order():
    def slow_at_first(number):
        time.sleep(0.02 if number % 40 == 0 else 0)
        return number * number

    assert list(map_in_order(slow_at_first, range(500))) == [number**2 for number in range(500)]
    assert list(map_in_order(slow_at_first, [])) == []


def test_error_is_raised_in_order():
    def all_but_one(number):
        if number >= 100:
            raise ValueError(number)
        return number

    yielded_numbers = []
    with pytest.raises(ValueError, match=r"^100$"):
        for number in map_in_order(all_but_one, range(1000)):
            yielded_numbers.append(number)
    assert yielded_numbers == list(range(96)), "those of its own task are lost with it"


def test_closed_iterator_ends_its_threads():
    processed, before = [], threading.active_count()
    results = map_in_order(lambda number: processed.append(number) or number, range(100_000))
    assert [next(results), next(results)] == [0, 1]
    results.close()
    assert threading.active_count() == before
    assert len(processed) < 10_000
