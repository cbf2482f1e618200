"""Cold is cold, warm is warm, and what cannot be checked is said: on file systems made for it."""

import functools
import json
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests import temporary_mounts
from xfbench.datasets import sources, writing
from xfbench.datasets.manifest import Preprocessing
from xfbench.worker import page_cache, pages, prepared
from xfbench.worker.prepared import FORMATS

# Bytes of files: nothing, less than a block, one byte more than pages, a page, many pages.
SIZES = (0, 1, 100, 3000, 4096, 4097, 9000, 40_000, 1_000_001, 8 * 2**20, 4 * 2**20 + 5)


def retry_on_failure(test):
    """Run the test up to three times until it passes.

    The system may reclaim idle pages of this process, which then come from the device too.
    """

    @functools.wraps(test)
    def run(**fixtures):
        for remaining in (2, 1, 0):
            try:
                return test(**fixtures)
            except AssertionError:
                if not remaining:
                    raise

    return run


@pytest.fixture(autouse=True)
def drop_caches_file(tmp_path_factory, monkeypatch):
    """A file for the kernel's own: everybody's pages would go, and come again in other tests."""
    file = tmp_path_factory.mktemp("kernel") / "drop_caches"
    file.touch()
    monkeypatch.setattr(pages, "_DROP_CACHES", file)
    return file


@pytest.fixture(params=[1024, 4096], ids=["blocks of 1 KiB", "blocks of 4 KiB"])
def ext4(request, tmp_path):
    with temporary_mounts.ext4(tmp_path, block_bytes=request.param) as mount_point:
        yield mount_point


@pytest.fixture
def ext4_default(tmp_path):
    with temporary_mounts.ext4(tmp_path) as mount_point:
        yield mount_point


def write_files(folder, sizes=SIZES, seed=0):
    """Files of these sizes in two folders, of bytes that cannot be compressed."""
    random = np.random.RandomState(seed)
    for number, size in enumerate(sizes):
        path = folder / f"part{number % 2}" / f"{number}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(random.bytes(size))
    return pages.files_under(folder / "part0") + pages.files_under(folder / "part1")


def read_epoch(files):
    """Reads each file once, in an order of its own."""
    return sum(len(path.read_bytes()) for path in reversed(files))


@retry_on_failure
def test_cold_epoch_reads_the_data_set_from_the_device(ext4, drop_caches_file):
    files = write_files(ext4)
    before = page_cache.prepare_cache(files, "cold")
    assert read_epoch(files) == sum(SIZES)
    epoch = page_cache.measure_epoch_reading(before)
    assert epoch["held"] is True and epoch["reason"] is None
    assert epoch["resident_before"] == 0 and not drop_caches_file.read_text()
    assert epoch["device_bytes"] == pytest.approx(sum(SIZES), rel=0.02)
    assert epoch["device_bytes_of_all"] == pytest.approx(sum(SIZES), rel=0.02)


@retry_on_failure
def test_small_files_are_counted_in_full_blocks(ext4_default):
    files = write_files(ext4_default, (2000,) * 700)
    before = page_cache.prepare_cache(files, "cold")
    read_epoch(files)
    epoch = page_cache.measure_epoch_reading(before)
    assert epoch["bytes"] == 700 * 4096 and epoch["held"] is True


@retry_on_failure
def test_warm_epoch_reads_nothing_from_the_device(ext4):
    files = write_files(ext4)
    pages.evict(files)
    before = page_cache.prepare_cache(files, "warm")
    read_epoch(files)
    epoch = page_cache.measure_epoch_reading(before)
    assert epoch["held"] is True
    assert epoch["device_bytes"] < 0.02 * sum(SIZES)
    assert epoch["resident_before"] == epoch["resident_of"] >= sum(SIZES)


def test_epoch_with_too_few_device_reads_is_not_cold(ext4_default):
    files = write_files(ext4_default)
    before = page_cache.prepare_cache(files, "cold")
    read_epoch(files[: len(files) // 2])
    assert page_cache.measure_epoch_reading(before)["held"] is False


@retry_on_failure
def test_epoch_with_evicted_data_is_not_warm(ext4_default):
    files = write_files(ext4_default)
    before = page_cache.prepare_cache(files, "warm")
    pages.evict(files)
    read_epoch(files)
    assert page_cache.measure_epoch_reading(before)["held"] is False


@retry_on_failure
def test_cold_check_allows_for_an_incomplete_last_batch(ext4_default):
    files = write_files(ext4_default, (10_000,) * 100)
    before = page_cache.prepare_cache(files, "cold", share=0.9)
    read_epoch(files[:90])
    assert page_cache.measure_epoch_reading(before)["held"] is True


@pytest.mark.parametrize("has_ended", [False, True])
def test_reads_of_running_and_ended_children_are_counted(ext4_default, has_ended):
    files = write_files(ext4_default)
    script = "import sys; [open(f, 'rb').read() for f in sys.argv[1:]]; print(flush=True); input()"
    before = page_cache.prepare_cache(files, "cold")
    with subprocess.Popen(
        [sys.executable, "-c", script, *map(str, files)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        child.stdout.readline()
        if has_ended:
            child.communicate(b"\n", timeout=60)
        epoch = page_cache.measure_epoch_reading(before)
        child.stdin.close()
    assert epoch["device_bytes"] >= 0.98 * epoch["bytes"]


@retry_on_failure
def test_memory_mapped_file_is_evicted_and_stays_readable(ext4_default):
    [path] = write_files(ext4_default, (2**22,))
    mapped = np.memmap(path, np.uint8, "r")
    pixel_sum = int(mapped.sum())
    assert pages.residency([path]).resident_bytes == 2**22
    before = page_cache.prepare_cache([path], "cold")
    assert int(mapped.sum()) == pixel_sum
    epoch = page_cache.measure_epoch_reading(before)
    assert epoch["resident_before"] == 0 and epoch["held"] is True


def test_file_mapped_by_another_process_is_not_cold(ext4_default, drop_caches_file):
    files = write_files(ext4_default, (2**22, 2**20))
    script = "import sys, numpy; m = numpy.memmap(sys.argv[1], 'u1', 'r'); m.sum(); print(flush=1)"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{script}; input()", str(files[0])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        holder.stdout.readline()
        before = page_cache.prepare_cache(files, "cold")
        read_epoch(files)
        epoch = page_cache.measure_epoch_reading(before)
    finally:
        holder.communicate(b"\n", timeout=60)
    assert epoch["held"] is False and "mapped" in epoch["reason"]
    assert epoch["resident_before"] >= 2**21
    assert drop_caches_file.read_text() == "1", "the last resort"


def test_file_mapped_by_several_ranks_can_be_evicted(ext4_default):
    [path] = write_files(ext4_default, (2**22,))
    rank_script = """
        import sys, numpy
        from pathlib import Path
        from xfbench.worker import page_cache
        path = Path(sys.argv[1])
        mapped = numpy.memmap(path, "u1", "r")
        print(mapped.sum(), flush=True)
        input()
        page_cache.prepare_cache([path], "cold")
        print("prepared", flush=True)
        input()
        print(mapped.sum(), flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(rank_script), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other_rank:
        total = other_rank.stdout.readline()
        mapped = np.memmap(path, np.uint8, "r")
        assert b"%d\n" % mapped.sum() == total
        page_cache.prepare_cache([path], "cold")
        other_rank.stdin.write(b"\n")
        other_rank.stdin.flush()
        assert other_rank.stdout.readline() == b"prepared\n"
        assert pages.evict([path]).resident_bytes == 0
        other_rank.stdin.write(b"\n")
        other_rank.stdin.flush()
        assert other_rank.stdout.readline() == total


def test_evict_writes_new_data_to_the_device_first(ext4_default):
    path = ext4_default / "new"
    content = np.random.RandomState(1).bytes(40 * 2**20)
    path.write_bytes(content)
    assert pages.evict([path]).resident_bytes == 0
    assert path.read_bytes() == content


@retry_on_failure
def test_as_is_mode_leaves_the_cache_unchanged(ext4_default):
    files = write_files(ext4_default)
    pages.evict(files)
    files[-1].read_bytes()
    residency = pages.residency(files)
    assert 0 < residency.resident_bytes < residency.bytes
    before = page_cache.prepare_cache(files, "as-is")
    assert before.resident == residency
    read_epoch(files)
    epoch = page_cache.measure_epoch_reading(before)
    assert epoch["held"] is None and epoch["reason"] is None
    assert epoch["device_bytes"] == pytest.approx(
        residency.bytes - residency.resident_bytes, rel=0.02
    )


@pytest.mark.parametrize("mode", page_cache.MODES)
def test_cache_state_on_tmpfs_is_unknown(tmp_path, mode):
    with temporary_mounts.tmpfs(tmp_path) as folder:
        files = write_files(folder)
        before = page_cache.prepare_cache(files, mode)
        read_epoch(files)
        epoch = page_cache.measure_epoch_reading(before)
    assert epoch["held"] is None and epoch["device_bytes"] is None
    assert epoch["resident_before"] is None and "tmpfs" in epoch["reason"]


@retry_on_failure
def test_cold_epoch_on_an_overlay_is_verified(ext4_default, tmp_path):
    with temporary_mounts.overlay(
        tmp_path, ext4_default / "lower", ext4_default / "upper", ext4_default / "work"
    ) as folder:
        write_files(ext4_default / "lower", (2**20,) * 3)
        files = [*write_files(folder, (2**21,) * 2, seed=1)]
        assert sum(path.stat().st_size for path in files) == 2 * 2**21 + 2**20
        before = page_cache.prepare_cache(files, "cold")
        read_epoch(files)
        epoch = page_cache.measure_epoch_reading(before)
        assert epoch["held"] is True
        assert epoch["device_bytes_of_all"] == pytest.approx(epoch["bytes"], rel=0.02)


def test_cache_state_on_a_compressing_file_system_is_unknown(tmp_path):
    with temporary_mounts.btrfs(tmp_path, "compress=zstd") as folder:
        path = folder / "compressible"
        path.write_bytes(b"0123456789abcdef" * 2**18)
        before = page_cache.prepare_cache([path], "cold")
        path.read_bytes()
        epoch = page_cache.measure_epoch_reading(before)
    assert epoch["held"] is None and "compresses" in epoch["reason"]
    assert 0 < epoch["device_bytes"] < epoch["bytes"] / 2


def test_cache_state_on_fuse_is_unknown(tmp_path):
    """FUSE: what a rank asks for is read by the file system's server."""
    with temporary_mounts.fuse_overlay(tmp_path) as folder:
        files = write_files(folder)
        for mode in ("cold", "warm"):
            before = page_cache.prepare_cache(files, mode)
            read_epoch(files)
            epoch = page_cache.measure_epoch_reading(before)
            assert epoch["held"] is None and "counted 0 of" in epoch["reason"]
            assert epoch["device_bytes"] is None


@retry_on_failure
def test_cold_check_without_file_ownership_counts_reads(ext4_default):
    """The kernel says to such a user that everything is in memory."""
    files = write_files(ext4_default)
    pages.read_into_memory(files)
    script = """
        import json, os, sys
        from pathlib import Path
        from xfbench.worker import page_cache, pages
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        libc = __import__("ctypes").CDLL(None)
        libc.prctl(4, 1, 0, 0, 0)  # dumpable again: /proc/self is its own
        files = [Path(one) for one in sys.argv[1:]]
        before = page_cache.prepare_cache(files, "cold")
        for path in files:
            path.read_bytes()
        cold = page_cache.measure_epoch_reading(before)
        print(json.dumps([cold, pages.residency(files).reason]))
    """
    completed = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(script),
            *(str(path.relative_to(ext4_default)) for path in files),
        ],
        cwd=ext4_default,  # whose own folders others may not enter
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    cold_epoch, reason = json.loads(completed.stdout)
    assert cold_epoch["resident_before"] is None and "own" in reason
    assert cold_epoch["held"] is True


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of 60 pictures of noise in two classes: 15 MB."""
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.RandomState(0)
    for number in range(60):
        path = folder / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        pixels = random.randint(0, 256, (288, 288, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(path, compress_level=0)
    return folder


@pytest.mark.parametrize("file_format", FORMATS)
@retry_on_failure
def test_epochs_are_cold_in_every_format_while_the_set_is_open(ext4_default, pictures, file_format):
    folder = ext4_default / file_format
    if not folder.exists():
        writing.make_data_set(
            sources.open_image_folder(pictures), folder, file_format, Preprocessing(channels=3)
        )
    data = prepared.open_prepared(folder)
    samples, files = data.splits["train"], prepared.split_files(folder, data.manifest, "train")
    assert len(samples) == 60 and files
    for seed in (1, 2):
        before = page_cache.prepare_cache(files, "cold")
        for index in np.random.RandomState(seed).permutation(60):
            np.frombuffer(samples[int(index)].image, np.uint8).sum()
        epoch = page_cache.measure_epoch_reading(before)
        assert epoch["held"] is True, epoch
        assert epoch["device_bytes"] == pytest.approx(
            sum(path.stat().st_size for path in files),
            rel=0.06 if file_format == "folder" else 0.02,
        )


def test_reads_beyond_the_data_set_make_the_result_unknown(ext4_default):
    """As libraries are, of which parts are loaded when they are first needed."""
    random = np.random.RandomState(0)
    data_file, other_file = ext4_default / "set", ext4_default / "besides"
    data_file.write_bytes(random.bytes(2**21))
    other_file.write_bytes(random.bytes(2**20))
    for mode in ("cold", "warm"):
        before = page_cache.prepare_cache([data_file], mode)
        pages.evict([other_file])
        data_file.read_bytes()
        other_file.read_bytes()
        epoch = page_cache.measure_epoch_reading(before)
        assert epoch["held"] is None, epoch
        assert "reads of libraries" in epoch["reason"]
        assert re.match(r"1\d{6} bytes too many", epoch["reason"])


def test_links_to_a_file_are_not_counted_twice(tmp_path):
    (tmp_path / "a").mkdir()
    first = tmp_path / "a" / "first"
    first.write_bytes(b"x" * 5000)
    os.link(first, tmp_path / "second")
    (tmp_path / "third").symlink_to(first)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert len(pages.files_under(tmp_path)) == 1
    assert pages.files_under(first) == [first]


@retry_on_failure
def test_holes_in_sparse_files_are_not_counted(ext4_default):
    path = ext4_default / "sparse"
    with path.open("wb") as file:
        file.truncate(2**22)
        file.seek(2**20)
        file.write(os.urandom(2**20))
        os.fsync(file.fileno())
    assert pages.stored_bytes([path]) == pytest.approx(2**20, rel=0.02)
    before = page_cache.prepare_cache([path], "cold")
    path.read_bytes()
    assert page_cache.measure_epoch_reading(before)["held"] is True


def test_unknown_page_cache_mode_is_refused(tmp_path):
    with pytest.raises(ValueError, match="cold, warm, as-is"):
        page_cache.prepare_cache([], "tepid")


def test_cache_state_compares_device_bytes_with_data_bytes():
    assert page_cache.is_cache_state_held("cold", 2 * 1000, 990 + 1010) is True
    assert page_cache.is_cache_state_held("cold", 1000, 979) is False
    assert page_cache.is_cache_state_held("cold", 1000, 1021) is None
    assert page_cache.is_cache_state_held("cold", 1000, 500, share=0.5) is True
    assert page_cache.is_cache_state_held("cold", 1000, 479, share=0.5) is False
    assert page_cache.is_cache_state_held("warm", 1000, 20) is True
    assert page_cache.is_cache_state_held("warm", 1000, 21) is None
    assert page_cache.is_cache_state_held("warm", 1000, 980) is False
    assert page_cache.is_cache_state_held("warm", 1000, 1020) is False
    assert page_cache.is_cache_state_held("warm", 1000, 4100) is None
    assert page_cache.is_cache_state_held("cold", 1000, None) is None
    assert page_cache.is_cache_state_held("as-is", 1000, 500) is None


@pytest.mark.parametrize(
    ("mode", "device_bytes_per_rank", "expected_state", "reason"),
    [
        ("cold", (400, 600), True, None),
        ("cold", (485, 485), True, None),
        ("cold", (479, 480), False, None),
        ("cold", (400, 400), False, None),
        ("cold", (600, 600), None, "200 bytes too many"),
        ("cold", (None, 600), None, "nobody counts"),
        ("warm", (0, 10), True, None),
        ("warm", (500, 500), False, None),
        ("as-is", (500, 500), None, None),
    ],
)
def test_ranks_are_judged_by_the_sum_of_their_reads(
    mode, device_bytes_per_rank, expected_state, reason
):
    """What one rank has read from storage the other finds in memory."""
    readings = [
        {
            "page_cache": mode,
            "bytes": 1000,
            "share": 0.49,
            "device_bytes": count,
            "held": None,
            "reason": None if count is not None else "nobody counts",
        }
        for count in device_bytes_per_rank
    ]
    for reading in page_cache.judge_epoch_and_mark_rank_readings(readings):
        if reason == "nobody counts":
            assert reading["held"] is None
        else:
            assert reading["held"] is expected_state
            assert (reason is None) == (reading["reason"] is None) and (reason or "") in str(
                reading["reason"]
            )


@pytest.mark.parametrize(("resident_bytes", "is_evicted"), [(20, True), (21, False)])
def test_epoch_is_not_cold_with_over_2_percent_in_memory(tmp_path, resident_bytes, is_evicted):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    before = page_cache.prepare_cache([path], "cold", skip_trial_read=True)
    epoch = page_cache.measure_epoch_reading(
        replace(before, resident=pages.Residency(resident_bytes, 1000))
    )
    assert ("could not be evicted" not in (epoch["reason"] or "")) is is_evicted
