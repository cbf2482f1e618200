"""What the table says about the storage of data sets."""

from types import SimpleNamespace

import pytest

from xfbench.analysis import reading


@pytest.mark.parametrize(
    ("hosts", "hashes", "words"),
    [
        ("aa", ("1" * 20, "2" * 20), " (2 file systems)"),
        ("aa", ("1" * 16, "2" * 16), " (2 file systems)"),
        ("aa", ("1" * 16, "2" * 20), " (up to 2 file systems)"),  # one of an earlier version
        ("ab", ("1" * 20, "2" * 20), " (up to 2 file systems)"),  # perhaps of two users
        ("ab", ("1" * 20, "1" * 20), ""),
        ("ab", (None, None), ""),
    ],
)
def test_file_systems_are_told_apart_as_far_as_their_hashes_can_be_compared(hosts, hashes, words):
    records = [
        SimpleNamespace(
            machine=SimpleNamespace(hostname_hash=host),
            storage=SimpleNamespace(medium=SimpleNamespace(source_hash=source_hash)),
        )
        for host, source_hash in zip(hosts, hashes, strict=True)
    ]
    request = SimpleNamespace(data_set=SimpleNamespace(medium="lustre on network"))
    assert reading.describe_media(request, records) == f"lustre on network{words}"
