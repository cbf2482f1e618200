"""Integers in a worker's reply: a record holds only those that a float64 represents."""

import json

import pytest

from xfbench.running import reply

JOB = "sha256:" + "1" * 64


def read_number(folder, number):
    """Return `number` as `reply.read` reads it from a file."""
    document = {"job": JOB, "status": "ok", "number": number}
    (folder / "reply.json").write_text(json.dumps(document))
    return reply.read(folder / "reply.json", JOB)["number"]


@pytest.mark.parametrize("number", [2**53 - 1, 1 - 2**53, 0, -1])
def test_a_reply_may_hold_any_exact_integer(number, tmp_path):
    assert read_number(tmp_path, number) == number


@pytest.mark.parametrize("number", [2**53, -(2**53), 10**16, -(10**16)])
def test_a_reply_with_a_larger_integer_is_refused(number, tmp_path):
    with pytest.raises(reply.ReplyError, match=r"a number of \d+ digits"):
        read_number(tmp_path, number)
