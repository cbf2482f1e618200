"""Words of messages."""

import pytest

from xfbench.base.wording import pluralize


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "launch", "1 launch"),
        (2, "launch", "2 launches"),
        (0, "epoch", "0 epochs"),
        (2, "input thread", "2 input threads"),
        (1, "node", "1 node"),
    ],
)
def test_nouns_are_in_the_plural_unless_there_is_one(count, noun, text):
    assert pluralize(count, noun) == text
