"""Images as pixels, whether they are kept as pixels or as JPEG or PNG files."""

import sys

import numpy as np
import pytest

from xfbench.worker import pictures
from xfbench.worker.samples import Sample

GRAY = np.arange(12, dtype=np.uint8).reshape(1, 3, 4)


@pytest.mark.parametrize("channels", [None, 1])
def test_pixels_need_no_pillow(channels, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    pictures._import_pillow.cache_clear()
    sample = Sample("zero", 0, GRAY)
    assert pictures.decode_pixels(sample, channels) is sample.image


def test_gray_pixels_become_rgb():
    expected = np.repeat(GRAY, 3, axis=0)
    np.testing.assert_array_equal(pictures.decode_pixels(Sample("zero", 0, GRAY), 3), expected)
