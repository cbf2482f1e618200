"""What `--size` and `--encode` may say."""

import pytest

from xfbench.base.errors import UsageError
from xfbench.datasets import preparing


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, None), ("1", (1, 1)), ("240x320", (240, 320)), ("8192X1", (8192, 1))],
)
def test_size_is_height_and_width(text, expected):
    assert preparing.parse_height_and_width(text) == expected


@pytest.mark.parametrize("text", ["0", "8193", "1x8193", "0x5", "1x2x3", "-1", "x", ""])
def test_size_out_of_range_is_refused(text):
    with pytest.raises(UsageError, match="--size"):
        preparing.parse_height_and_width(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((None, None), ("keep", None), ("pixels", "pixels"), ("png", "png")),
        *(("jpeg", "jpeg:90"), ("jpeg:1", "jpeg:1"), ("jpeg:100", "jpeg:100")),
    ],
)
def test_encoding_has_a_jpeg_quality(text, expected):
    assert preparing.parse_encoding(text) == expected


@pytest.mark.parametrize("text", ["jpeg:0", "jpeg:101", "jpeg:-1", "jpeg:x", "png:9", "gif", ""])
def test_unknown_encoding_or_quality_is_refused(text):
    with pytest.raises(UsageError, match="--encode"):
        preparing.parse_encoding(text)
