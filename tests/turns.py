"""Dear tests take turns by day: each has its own within so many days; `make test-all` has all.

`TESTS_DAY=2026-11-25 make test` has the turns of that day again.
"""

import datetime
import os

import pytest

DAY = "TESTS_DAY"


def settle():
    """Keep the first process's day for all: they may begin on two sides of midnight."""
    os.environ.setdefault(DAY, datetime.date.today().isoformat())


def todays(every, days):
    """Of these, in their order, the ones whose turn it is: each once in so many days."""
    day = datetime.date.fromisoformat(os.environ[DAY])
    return list(every)[day.toordinal() % days :: days]


def by_day(every, days):
    """As `parametrize` takes them: all, those marked as long whose turn it is not."""
    cases = [one if isinstance(one, tuple) else (one,) for one in every]
    now = todays(cases, days)
    return [pytest.param(*one, marks=() if one in now else pytest.mark.long) for one in cases]
