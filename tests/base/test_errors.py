"""What a slip is told: the nearest name, else all there are."""

import errno

import pytest

from xfbench.base import errors


def test_unknown_name_error_suggests_or_lists_names():
    assert str(errors.unknown_name_error("module", "caffee", ["caffe", "gcc"])).endswith(
        "did you mean caffe?"
    )
    assert str(errors.unknown_name_error("module", "zlib", ["gcc", "caffe"])).endswith(
        "unknown module 'zlib': choose from caffe, gcc"
    )
    assert str(errors.unknown_name_error("module", "zlib", [])).endswith("there are none")
    many = [*(f"unlike{number:02}" for number in range(60)), "threads"]
    message = str(errors.unknown_name_error("field", "thrdsxx", many))
    assert "there are 61, such as threads, " in message and message.count("unlike") == 7


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left", "/data/file"), "/data/file: No space left"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (OSError(errno.EFBIG, "File too large"), "File too large"),
        (OSError(errno.ESTALE, "Stale file handle", "/nfs/file"), "/nfs/file: Stale file handle"),
        (OSError(errno.ESHUTDOWN, "Cannot send after shutdown"), "Cannot send after shutdown"),
        (OSError(errno.ENOENT, "No such file", "/data/file"), None),
        (OSError("no number"), None),
    ],
)
def test_only_an_error_of_the_system_is_described_in_words(error, words):
    assert errors.disk_or_limit_error_message(error) == words
