"""Number limits in a worker's reply; damaged replies are in tests/faults/test_worker.py."""

import pytest

from xfbench.model import worker_reply

JOB = "sha256:11"
LARGEST = 2**53 - 1


@pytest.fixture
def file(tmp_path):
    """Return a function that writes a reply with this number and returns its file."""

    def write(number):
        path = tmp_path / "reply.json"
        path.write_text(f'{{"job": "{JOB}", "status": "ok", "bytes": {number}}}')
        return path

    return write


@pytest.mark.parametrize("number", [LARGEST, -LARGEST])
def test_largest_integers_of_a_float64_are_read(file, number):
    assert worker_reply.read_reply(file(number), JOB)["bytes"] == number


@pytest.mark.parametrize("number", [LARGEST + 1, -LARGEST - 1, 2**53 + 1, -(2**53) - 1])
def test_integer_beyond_the_range_of_float64_is_refused(file, number):
    with pytest.raises(worker_reply.ReplyError, match="malformed"):
        worker_reply.read_reply(file(number), JOB)
