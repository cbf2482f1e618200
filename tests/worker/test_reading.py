"""Plain reads: each block once, from no memory, and nothing left behind."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import temporary_mounts
from xfbench.worker import pages, reading
from xfbench.worker.reading import PATTERNS, Pattern

MIB = 2**20
SMALL_PATTERNS = (Pattern("sequential", MIB, False), Pattern("random", 4096, True))


@pytest.fixture
def ext4(tmp_path):
    with temporary_mounts.ext4(tmp_path) as mount_point:
        yield mount_point


def test_reads_are_cold_and_figures_are_positive(ext4):
    with reading.temporary_file(ext4, 16 * MIB) as file:
        measurements = reading.measure_read_speed([file], 16 * MIB, rounds=2)
    assert [
        (measurement["pattern"], measurement["block_bytes"]) for measurement in measurements
    ] == [
        ("sequential", MIB),
        ("random", 128 * 1024),
        ("random", 4096),
    ]
    for measurement in measurements:
        assert len(measurement["rounds"]) == 2 and measurement["reason"] is None
        for read_round in measurement["rounds"]:
            assert read_round["seconds"] > 0 and read_round["resident_bytes"] == 0
            assert read_round["bytes"] == read_round["operations"] * measurement["block_bytes"] > 0
            assert read_round["device_bytes"] == pytest.approx(read_round["bytes"], rel=0.02)


def test_round_respects_byte_and_time_limits(ext4):
    with reading.temporary_file(ext4, 16 * MIB) as file:
        [size_limited] = reading.measure_read_speed([file], 3 * MIB, 1, patterns=SMALL_PATTERNS[:1])
        [time_limited] = reading.measure_read_speed(
            [file], 16 * MIB, 1, seconds=0.0, patterns=SMALL_PATTERNS[:1]
        )
    assert size_limited["rounds"][0]["bytes"] == 3 * MIB
    assert time_limited["rounds"][0]["operations"] == 1


def test_scratch_file_has_no_name_and_is_always_removed(ext4):
    with pytest.raises(KeyboardInterrupt), reading.temporary_file(ext4, 8 * MIB) as file:
        assert file.stat().st_size == 8 * MIB
        assert [path.name for path in ext4.iterdir()] == ["lost+found"]
        free_blocks = os.statvfs(ext4).f_bfree
        raise KeyboardInterrupt
    assert os.statvfs(ext4).f_bfree >= free_blocks + 2048
    assert not file.exists()


def test_scratch_file_uses_at_most_half_of_the_free_space(tmp_path):
    with temporary_mounts.tmpfs(tmp_path, options="size=40m") as folder:
        with reading.temporary_file(folder, 256 * MIB) as file:
            assert file.stat().st_size == 16 * MIB
        (folder / "other").write_bytes(b"x" * 30 * MIB)
        with pytest.raises(reading.NotEnoughData), reading.temporary_file(folder):
            pass


def test_cache_state_of_tmpfs_reads_is_unknown(tmp_path):
    with (
        temporary_mounts.tmpfs(tmp_path) as folder,
        reading.temporary_file(folder, 8 * MIB) as file,
    ):
        [measurement] = reading.measure_read_speed([file], 8 * MIB, 1, patterns=SMALL_PATTERNS[:1])
    assert "tmpfs" in measurement["reason"] and measurement["rounds"][0]["resident_bytes"] is None


@given(
    sizes=st.lists(st.integers(0, 50_000), min_size=1, max_size=8).filter(any),
    size=st.integers(1, 200_000),
    pattern=st.sampled_from([Pattern("r", 4096, True), Pattern("s", 4096, False), *PATTERNS]),
    seed=st.integers(0, 5),
)
def test_reads_stay_in_the_file_and_never_repeat_a_block(sizes, size, pattern, seed):
    reads = reading._plan_reads(sizes, pattern, size, seed)
    assert reads and len(reads) == len(set(reads))
    for file, offset, length in reads:
        assert offset % pattern.block_bytes == 0
        assert 0 < length == min(pattern.block_bytes, sizes[file] - offset)
    assert len(reads) <= max(1, size // pattern.block_bytes)
    if not pattern.random:
        assert reads == sorted(reads)


def test_random_reads_depend_only_on_the_seed():
    first, second = (reading._plan_reads([MIB], SMALL_PATTERNS[1], MIB, seed) for seed in (0, 1))
    assert first != second
    assert first == reading._plan_reads([MIB], SMALL_PATTERNS[1], MIB, 0)
    assert first != sorted(first)


def test_large_data_set_is_sampled_reproducibly(tmp_path):
    for number in range(20):
        (tmp_path / str(number)).write_bytes(b"x" * 1000)
    files = pages.files_under(tmp_path)
    drawn_files = reading.draw_files(files, 4500)
    assert len(set(drawn_files)) == 5 and set(drawn_files) < set(files)
    assert drawn_files == reading.draw_files(files, 4500)
    assert set(reading.draw_files(files)) == set(files)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "file").touch()
    with pytest.raises(reading.NotEnoughData):
        reading.draw_files([Path(tmp_path / "empty" / "file")])
