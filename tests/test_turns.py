"""Which of the dear tests a day has."""

import datetime

import pytest

from tests import turns


@pytest.mark.parametrize(("many", "days"), [(27, 3), (28, 3), (2, 3), (19, 19)])
def test_each_has_its_turn_once_in_so_many_days(monkeypatch, many, days):
    first, had = datetime.date(2026, 12, 30), []
    for later in range(days):
        monkeypatch.setenv(turns.DAY, str(first + datetime.timedelta(later)))
        had += turns.todays(range(many), days)
    assert sorted(had) == list(range(many))


def test_a_day_that_was_asked_for_is_had_and_else_it_is_todays(monkeypatch):
    monkeypatch.setenv(turns.DAY, "2026-11-25")
    turns.settle()
    assert turns.todays("abc", 3) == ["abc"[datetime.date(2026, 11, 25).toordinal() % 3]]
    monkeypatch.delenv(turns.DAY)
    turns.settle()
    assert turns.todays("abc", 3) == ["abc"[datetime.date.today().toordinal() % 3]]


def test_those_whose_turn_it_is_not_are_long():
    every = [("a", 1), ("b", 2), ("c", 3)]
    found = turns.by_day(every, 3)
    assert [one.values for one in found] == every
    assert [one.values for one in found if not one.marks] == turns.todays(every, 3)
    assert {mark.name for one in found for mark in one.marks} == {"long"}
    assert [one.values for one in turns.by_day("ab", 1)] == [("a",), ("b",)]
