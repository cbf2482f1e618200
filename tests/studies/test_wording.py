"""Numbers in the sentences and tables of studies."""

import pytest

from xfbench.statistics import Interval
from xfbench.studies import wording


@pytest.mark.parametrize(
    ("confidence", "text"), [(0.95, "200 (190 – 210) MB"), (None, "200 (range 190 – 210) MB")]
)
def test_a_range_of_launches_is_not_shown_as_an_interval(confidence, text):
    interval = Interval(200.0, 190.0, 210.0, 4, confidence)
    assert wording.format_value_with_bounds(interval, "MB") == text
