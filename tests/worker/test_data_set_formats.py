"""Formats of data sets: what we write is what we read, and what is damaged is refused in words."""

import importlib
import io
import os
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import google_crc32c
import lmdb
import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import peak_memory
from tests.worker.small_samples import number_samples, open_writer
from xfbench.base.errors import UsageError
from xfbench.datasets import encoding
from xfbench.datasets.lmdb import encode_datum
from xfbench.datasets.recordio import encode_record
from xfbench.datasets.tfrecord import encode_example
from xfbench.worker.crc32c import crc32c
from xfbench.worker.formats import Damaged, SampleList
from xfbench.worker.protobuf import Malformed, iterate_fields
from xfbench.worker.samples import Sample

FORMATS = ("tfrecord", "recordio", "lmdb")
FILES = {"tfrecord": "train.tfrecord", "recordio": "train.rec", "lmdb": "train.lmdb/data.mdb"}
each_format = pytest.mark.parametrize("kind", FORMATS)


def write_samples(kind, folder, samples):
    writer = open_writer(kind, folder)
    for sample in samples:
        writer.add(sample)
    writer.close()
    return folder / FILES[kind]


def read_samples(kind, folder, sample_list=None):
    module = importlib.import_module(f"xfbench.worker.formats.{kind}")
    return module.samples(folder, "train", sample_list)


def decode_pixels(image):
    """What a sample shows, (C, H, W)."""
    if not isinstance(image, bytes):
        return image
    decoded = np.array(PIL.Image.open(io.BytesIO(image)))
    return decoded[None] if decoded.ndim == 2 else decoded.transpose(2, 0, 1)


def encode_jpeg(array):
    file = io.BytesIO()
    PIL.Image.fromarray(array).save(file, "jpeg")
    return file.getvalue()


def is_same(kind, read_back, expected_samples):
    """Whether these are the same samples, as far as the format keeps them."""
    if len(read_back) != len(expected_samples):
        return False
    for n, (sample, expected) in enumerate(zip(read_back, expected_samples, strict=True)):
        key = f"{n:08d}" if kind == "recordio" else expected.key
        if (sample.key, sample.label) != (key, expected.label):
            return False
        if isinstance(expected.image, bytes) and sample.image != expected.image:
            return False
        if not np.array_equal(decode_pixels(sample.image), decode_pixels(expected.image)):
            return False
    return True


@st.composite
def any_samples(draw):
    letters = st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\t")
    keys = draw(st.lists(st.text(letters, min_size=1, max_size=300), unique=True, max_size=8))
    samples = []
    for key in keys:
        shape = draw(st.tuples(st.sampled_from((1, 3)), st.integers(1, 40), st.integers(1, 40)))
        image = np.random.RandomState(len(samples)).randint(0, 256, shape, dtype=np.uint8)
        if draw(st.booleans()):
            image = encode_jpeg(image[0]) if draw(st.booleans()) else encoding.encode_png(image)
        samples.append(Sample(key, draw(st.integers(0, 2**24)), image))
    return samples


@each_format
@given(samples=any_samples())
@settings(max_examples=40)
def test_written_samples_are_read_back_unchanged(kind, samples):
    with tempfile.TemporaryDirectory() as folder:
        write_samples(kind, Path(folder), samples)
        assert is_same(kind, read_samples(kind, Path(folder)), samples)


@each_format
def test_samples_can_be_indexed_from_both_ends(kind, tmp_path):
    write_samples(kind, tmp_path, number_samples(5))
    samples = read_samples(kind, tmp_path)
    assert [samples[n].label for n in (4, 0, -1, -5)] == [1, 0, 1, 0]
    assert len(list(samples)) == 5
    for invalid_index in (5, -6):
        with pytest.raises(IndexError):
            samples[invalid_index]


def test_lmdb_keeps_overlong_keys_complete_and_distinct(tmp_path):
    image = number_samples(1)[0].image
    keys = ["é" * 400, "é" * 400 + "1", "x" * 502, "y" * 503, "12_34"]
    samples = [Sample(key, 0, image) for key in keys]
    write_samples("lmdb", tmp_path, samples)
    assert [sample.key for sample in read_samples("lmdb", tmp_path)] == keys


@each_format
def test_sample_count_must_match_the_list(kind, tmp_path):
    write_samples(kind, tmp_path, number_samples(3))
    keys = [sample.key for sample in number_samples(3)]
    sample_list = SampleList(keys, [0, 1, 2], [""] * 3, None, [])
    assert [sample.key for sample in read_samples(kind, tmp_path, sample_list)] == keys
    with pytest.raises(Damaged, match=r"has 3 samples, but its list has 2"):
        read_samples(kind, tmp_path, SampleList(keys[:2], [0, 1], [""] * 2, None, []))


def test_recordio_splits_records_with_the_magic_number(tmp_path):
    magic, png_header = struct.pack("<I", 0xCED7230A), b"\x89PNG\r\n\x1a\n"
    images = [
        png_header + suffix for suffix in (magic, magic * 2, b"abcd" + magic + b"e", b"ab" + magic)
    ]
    records = [
        encode_record(struct.pack("<IfQQ", 0, 1, n, 0) + image) for n, image in enumerate(images)
    ]
    assert [record.count(magic) for record in records] == [2, 3, 2, 2]
    assert [record[7] >> 5 for record in records] == [1, 1, 1, 0]
    (tmp_path / "train.rec").write_bytes(b"".join(records))
    starts = [sum(map(len, records[:n])) for n in range(len(records))]
    index = "".join(f"{n}\t{start}\n" for n, start in enumerate(starts))
    (tmp_path / "train.idx").write_text(index)
    assert [sample.image for sample in read_samples("recordio", tmp_path)] == images


def test_tfrecord_shards_are_read_in_order_and_must_be_complete(tmp_path):
    samples = number_samples(6)
    for shard in range(3):
        shard_path = write_samples("tfrecord", tmp_path, samples[2 * shard : 2 * shard + 2])
        shard_path.rename(tmp_path / f"train-{shard:05d}-of-00003.tfrecord")
    assert is_same("tfrecord", read_samples("tfrecord", tmp_path), samples)
    write_samples("tfrecord", tmp_path, samples[:1])
    with pytest.raises(Damaged, match="remove one of them"):
        read_samples("tfrecord", tmp_path)
    (tmp_path / "train.tfrecord").unlink()
    (tmp_path / "train-00001-of-00003.tfrecord").unlink()
    with pytest.raises(Damaged, match="train-00000-of-00003"):
        read_samples("tfrecord", tmp_path)


@each_format
def test_missing_split_is_reported(kind, tmp_path):
    with pytest.raises(Damaged, match=f"{FILES[kind]} is missing"):
        read_samples(kind, tmp_path)


# Resuming


@pytest.mark.parametrize("kind", ["tfrecord", "recordio"])
def test_resuming_a_truncated_file_gives_identical_files(kind, tmp_path):
    samples = number_samples(4)
    complete_content = write_samples(kind, tmp_path / "whole", samples).read_bytes()
    files = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    record_ends = [0]
    for count in range(1, 5):
        record_ends.append(write_samples(kind, tmp_path / "parts", samples[:count]).stat().st_size)
    assert record_ends[-1] == len(complete_content)
    truncated_folder = tmp_path / "torn"
    truncated_folder.mkdir()
    for size in range(len(complete_content) + 1):
        (truncated_folder / FILES[kind]).write_bytes(complete_content[:size])
        count = sum(end <= size for end in record_ends) - 1
        if count < 4:
            with pytest.raises(Damaged):
                open_writer(kind, truncated_folder, count + 1)
        resumed = open_writer(kind, truncated_folder, count)
        for sample in samples[count:]:
            resumed.add(sample)
        resumed.close()
        assert {path.name: path.read_bytes() for path in truncated_folder.iterdir()} == files


@each_format
def test_resuming_drops_samples_beyond_the_count(kind, tmp_path):
    samples = number_samples(8)
    write_samples(kind, tmp_path, samples[:6] + samples[:1])
    resumed = open_writer(kind, tmp_path, 2)
    assert not (tmp_path / "train.idx").exists()
    for sample in samples[5:]:
        resumed.add(sample)
    resumed.close()
    read_back = read_samples(kind, tmp_path)
    assert is_same(kind, read_back, samples[:2] + samples[5:])
    open_writer(kind, tmp_path, 0).close()
    assert len(read_samples(kind, tmp_path)) == 0


KILLED_SCRIPT = """
import os, signal, sys
from pathlib import Path
from tests.worker.small_samples import number_samples, open_writer
kind, folder, synced, more = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
made = open_writer(kind, folder)
for sample in number_samples(synced + more)[:synced]:
    made.add(sample)
made.sync()
for sample in number_samples(synced + more)[synced:]:
    made.add(sample)
os.kill(os.getpid(), signal.SIGKILL)
"""


@each_format
@pytest.mark.parametrize(("synced_count", "unsynced_count"), [(0, 3), (1, 0), (200, 100)])
def test_killed_writer_keeps_synced_samples_and_resumes(
    kind, synced_count, unsynced_count, tmp_path
):
    argv = [
        sys.executable,
        "-c",
        textwrap.dedent(KILLED_SCRIPT),
        kind,
        tmp_path,
        str(synced_count),
        str(unsynced_count),
    ]
    root = Path(__file__).parent.parent.parent
    completed = subprocess.run(argv, cwd=root, timeout=60, check=False)
    assert completed.returncode == -signal.SIGKILL
    samples = number_samples(synced_count + unsynced_count + 5)
    resumed = open_writer(kind, tmp_path, synced_count)
    for sample in samples[synced_count:]:
        resumed.add(sample)
    resumed.close()
    assert is_same(kind, read_samples(kind, tmp_path), samples)
    assert not list(tmp_path.rglob("lock.mdb"))


def test_resuming_a_truncated_lmdb_is_refused(tmp_path):
    file = write_samples("lmdb", tmp_path, number_samples(300))
    complete_content = file.read_bytes()
    for size in range(0, len(complete_content), 4096 // 3):
        file.write_bytes(complete_content[:size])
        with pytest.raises(Damaged):
            open_writer("lmdb", tmp_path, 1)
    file.write_bytes(complete_content)
    open_writer("lmdb", tmp_path, 300).close()
    with pytest.raises(Damaged, match="300 records from xfbench, not 301"):
        open_writer("lmdb", tmp_path, 301)
    open_writer("lmdb", tmp_path, 300).close()


def test_lmdb_map_grows_with_the_database(tmp_path, monkeypatch):
    module = importlib.import_module("xfbench.datasets.lmdb")
    monkeypatch.setattr(module, "_MIN_MAP_BYTES", 1 << 16)
    monkeypatch.setattr(module, "_TRANSACTION_BYTES", 1 << 18)
    samples = [Sample(str(n), n, np.full((3, 100, 100), n, np.uint8)) for n in range(60)]
    file = write_samples("lmdb", tmp_path, samples)
    assert file.stat().st_size > 20 * (1 << 16)
    assert is_same("lmdb", read_samples("lmdb", tmp_path), samples)


FULL_DISK_SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from xfbench.datasets import lmdb
from xfbench.base.errors import UsageError
from xfbench.worker.samples import Sample
lmdb._MIN_MAP_BYTES, lmdb._TRANSACTION_BYTES = int(sys.argv[2]), 1 << 18
made = lmdb.Writer(Path(sys.argv[1]), "train", 0)
try:
    for n in range(300):
        made.add(Sample(str(n), n, np.full((3, 100, 100), n % 256, np.uint8)))
except UsageError as error:
    print(error)
"""


@pytest.mark.parametrize("first_map", [1 << 16, 1 << 26])
def test_full_disk_error_says_to_make_room(first_map, tmp_path):
    mount = 'mount -t tmpfs -o size=2m tmpfs "$1" && exec "$2" -c "$3" "$1" "$4"'
    unshare_command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    argv = [*unshare_command, tmp_path, sys.executable, FULL_DISK_SCRIPT, str(first_map)]
    completed = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if "unshare" in completed.stderr or "mount" in completed.stderr:
        pytest.skip("no mount of one's own here")
    assert "free space there" in completed.stdout, completed.stderr


# Damage


def overwrite_bytes(path, offset, content):
    """Write other bytes over a file's, at a place that may count from its end."""
    file_bytes = bytearray(path.read_bytes())
    offset %= len(file_bytes)
    file_bytes[offset : offset + len(content)] = content
    path.write_bytes(file_bytes)


def expect_damaged(kind, folder, *words):
    """Read all; the error names the file and has the words."""
    with pytest.raises(Damaged) as error:
        list(read_samples(kind, folder))
    for word in (FILES[kind], *words):
        assert word in str(error.value)


def write_tfrecord(folder, *examples):
    """A file of these examples, checksums and all."""
    content = b""
    for data in examples:
        for part in (struct.pack("<Q", len(data)), data):
            crc = google_crc32c.value(part)
            mask = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
            content += part + struct.pack("<I", mask)
    folder.mkdir(exist_ok=True)
    (folder / "train.tfrecord").write_bytes(content)


def write_recordio(folder, *contents):
    (folder / "train.rec").write_bytes(b"".join(map(encode_record, contents)))
    starts = [
        sum(len(encode_record(record)) for record in contents[:n]) for n in range(len(contents))
    ]
    index = "".join(f"{n}\t{start}\n" for n, start in enumerate(starts))
    (folder / "train.idx").write_text(index)


def write_lmdb(folder, entries):
    (folder / "train.lmdb").mkdir(exist_ok=True)
    path = str(folder / "train.lmdb")
    with lmdb.open(path, map_size=1 << 24) as database, database.begin(write=True) as transaction:
        for key, value in entries:
            transaction.put(key, value)


PNG = encoding.encode_image(number_samples(1)[0].image, "")


@each_format
def test_truncation_is_refused_except_at_tfrecord_boundaries(kind, tmp_path):
    file = write_samples(kind, tmp_path, number_samples(3))
    complete_content = file.read_bytes()
    words = {"recordio": "truncated", "tfrecord": "truncated", "lmdb": "data.mdb"}[kind]
    boundaries = {0}
    if kind != "lmdb":
        for count in range(1, 3):
            boundaries.add(
                write_samples(kind, tmp_path / "parts", number_samples(count)).stat().st_size
            )
    for size in range(0, len(complete_content), 1 if kind != "lmdb" else 97):
        file.write_bytes(complete_content[:size])
        if kind == "tfrecord" and size in boundaries:
            assert len(read_samples(kind, tmp_path)) < 3
        elif kind == "recordio" and size in boundaries:
            with pytest.raises(Damaged, match=f"does not begin at byte {size}"):
                read_samples(kind, tmp_path)
        else:
            expect_damaged(kind, tmp_path, words)


@each_format
def test_file_truncated_during_reading_is_an_error(kind, tmp_path):
    file = write_samples(kind, tmp_path, [Sample("a", 0, np.zeros((3, 90, 90), np.uint8))])
    samples = read_samples(kind, tmp_path)
    os.truncate(file, 100)
    with pytest.raises(Damaged, match="was truncated to"):
        samples[0]


def iterate_changed_files(kind):
    """A small file of this kind with one byte changed, one after another: its folder each time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = write_samples(kind, folder, number_samples(3))
        complete_content = file.read_bytes()
        # Most of a database's pages is empty.
        offsets = (
            range(len(complete_content))
            if kind != "lmdb"
            else np.flatnonzero(list(complete_content))
        )
        for offset in offsets:
            file.write_bytes(complete_content)
            overwrite_bytes(
                file, offset, bytes([complete_content[offset] ^ (0x01, 0x80, 0xFF)[offset % 3]])
            )
            yield folder


def test_tfrecord_detects_any_changed_byte():
    for folder in iterate_changed_files("tfrecord"):
        expect_damaged("tfrecord", folder, "record")


@pytest.mark.parametrize("kind", ["recordio", "lmdb"])
def test_changed_byte_in_recordio_or_lmdb_never_crashes(kind):
    damaged_count = 0
    for folder in iterate_changed_files(kind):
        try:
            list(read_samples(kind, folder))
        except Damaged as error:
            assert "train." in str(error)
            damaged_count += 1
    assert damaged_count


def test_tfrecord_defects_are_reported(tmp_path):
    file = write_samples("tfrecord", tmp_path, number_samples(2))
    one_record_bytes = write_samples("tfrecord", tmp_path / "one", number_samples(1)).stat().st_size
    complete_content = file.read_bytes()
    overwrite_bytes(file, one_record_bytes, b"\xff")
    expect_damaged("tfrecord", tmp_path, "record 1", "its length", "checksum")
    file.write_bytes(complete_content)
    overwrite_bytes(file, -20, b"\xff")
    expect_damaged("tfrecord", tmp_path, "record 1", "its data", "checksum")
    for label in (-1, 2**31, 2**63 - 1):
        write_tfrecord(tmp_path, encode_example(PNG, label, "a"))
        expect_damaged("tfrecord", tmp_path, "record 0", f"label {label}")
    write_tfrecord(tmp_path, encode_example(PNG, 2**31 - 1, "a"), encode_example(PNG, 0, "a"))
    expect_damaged("tfrecord", tmp_path, "record 1", "key 'a' occurs twice")
    write_tfrecord(tmp_path, encode_example(PNG, 1, "a b").replace(b"a b", b"a\nb"))
    expect_damaged("tfrecord", tmp_path, "record 0", "line ends")
    write_tfrecord(tmp_path, encode_example(encoding.EncodedImage(b"GIF89a", "GIF", 1, 1), 1, "a"))
    expect_damaged("tfrecord", tmp_path, "neither JPEG nor PNG")
    write_tfrecord(tmp_path, b"")
    expect_damaged("tfrecord", tmp_path, "record 0", "no feature image/encoded")
    write_tfrecord(tmp_path, b"\x0a\x7f")
    expect_damaged("tfrecord", tmp_path, "record 0", "longer than the message around it")


def test_recordio_defects_are_reported(tmp_path):
    def build_record(flag, label, *extra_parts):
        return struct.pack("<IfQQ", flag, label, 0, 0) + b"".join(extra_parts) + PNG.content

    for label in (-1.0, 0.5, float("nan"), float("inf"), 2.0**31):
        write_recordio(tmp_path, build_record(0, 3), build_record(0, label))
        expect_damaged("recordio", tmp_path, "record 1", "label")
    write_recordio(tmp_path, build_record(2, 0, struct.pack("<ff", 1, 2)))
    expect_damaged("recordio", tmp_path, "record 0", "vector of 2 labels")
    write_recordio(tmp_path, build_record(1, 0, struct.pack("<f", 7)))
    assert read_samples("recordio", tmp_path)[0].label == 7
    write_recordio(tmp_path, b"short")
    expect_damaged("recordio", tmp_path, "record 0", "shorter than its header")
    write_recordio(tmp_path, struct.pack("<IfQQ", 0, 1, 0, 0) + b"BM")
    expect_damaged("recordio", tmp_path, "neither JPEG nor PNG")
    write_recordio(tmp_path, build_record(0, 1), build_record(0, 2))
    overwrite_bytes(tmp_path / "train.rec", len(encode_record(build_record(0, 1))), b"\0")
    expect_damaged("recordio", tmp_path, "record 1", "magic number")
    write_recordio(tmp_path, build_record(0, 1))
    overwrite_bytes(tmp_path / "train.rec", 7, b"\x40")
    expect_damaged("recordio", tmp_path, "record 0", "parts are not in order")
    for text, words in (
        ("0\t0\n0\t0\n", "twice"),
        ("0\t4\n", "does not begin at byte 4"),
        ("", "lacks 1 records"),
        ("0\t0\n1\t0\n", "line 2: the record at byte 0 occurs twice"),
        (f"0\t{10**30}\n", "line 1"),
        ("0 0\n", "line 1"),
        (f"{10**30}\t0\n", "line 1"),
    ):
        write_recordio(tmp_path, build_record(0, 1))
        (tmp_path / "train.idx").write_text(text)
        with pytest.raises(Damaged, match=words):
            read_samples("recordio", tmp_path)


def test_datum_defects_are_reported(tmp_path):
    gray = Sample("a", 1, np.zeros((1, 2, 3), np.uint8))
    floats = encoding.encode_bytes_field(6, bytes(24))
    damaged_values = {
        "float_data": floats,
        "label -1": encode_datum(gray) + encoding.encode_varint_field(5, -1),
        "label 2147483648": encode_datum(gray) + encoding.encode_varint_field(5, 2**31),
        "not an image of shape 1 × 2 × 4": encode_datum(gray) + encoding.encode_varint_field(3, 4),
        "not an image of shape 2 × 2 × 3": encode_datum(gray) + encoding.encode_varint_field(1, 2),
        "neither JPEG nor PNG": encode_datum(gray) + encoding.encode_varint_field(7, 1),
        "not an image of shape 0 × 0 × 0": b"",
        "longer than the message around it": encode_datum(gray) + b"\x22\x7f",
        "a number is cut off": encode_datum(gray) + b"\x28",
        "field 0": b"\0\0",
        "unknown wire type 3": b"\x0b",
    }
    for number, (words, value) in enumerate(damaged_values.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_lmdb(folder, [(b"00000000_b", encode_datum(gray)), (b"00000001_a", value)])
        expect_damaged("lmdb", folder, "record 1", words)
    write_lmdb(tmp_path, [(b"00000000_a", encode_datum(gray)), (b"00000001_a", encode_datum(gray))])
    expect_damaged("lmdb", tmp_path, "record 1", "key 'a' occurs twice")


def test_unknown_message_fields_are_skipped(tmp_path):
    gray = Sample("a", 1, np.zeros((1, 2, 3), np.uint8))
    unknown_fields = encoding.encode_varint_field(99, 5) + b"\x9d\x06abcd" + b"\x99\x06abcdefgh"
    write_lmdb(tmp_path, [(b"plain", unknown_fields + encode_datum(gray) + unknown_fields)])
    [sample] = read_samples("lmdb", tmp_path)
    assert sample.key == "plain" and sample.label == 1
    write_tfrecord(tmp_path, unknown_fields + encode_example(PNG, 4, "a") + unknown_fields)
    assert read_samples("tfrecord", tmp_path)[0].label == 4


def find_meta_pages(file):
    """Where the two meta pages say what they are, the newer one last."""
    content = file.read_bytes()
    transaction_numbers = {
        offset: content[offset + 128 : offset + 136] for offset in (16, 16 + 4096)
    }
    return sorted(
        transaction_numbers,
        key=lambda offset: int.from_bytes(transaction_numbers[offset], "little"),
    )


def test_lmdb_meta_page_defects_are_reported(tmp_path):
    file = write_samples("lmdb", tmp_path, number_samples(300))
    complete_content = file.read_bytes()
    older, newer = find_meta_pages(file)
    cases = [
        (newer + 4, struct.pack("<I", 2), "version 2"),
        (newer + 24, struct.pack("<I", 4000), "4000 bytes, a size that LMDB does not use"),
        (newer + 24 + 48 + 4, b"\x04", "several values"),
        (newer + 24 + 48 + 32, struct.pack("<Q", 299), "its meta page says 299"),
        (newer + 24 + 48 + 40, struct.pack("<Q", 10**9), "there are only pages 2 to"),
        (newer + 24 + 96, struct.pack("<Q", 10**6), "truncated"),
    ]
    for offset, content, words in cases:
        file.write_bytes(complete_content)
        overwrite_bytes(file, offset, content)
        expect_damaged("lmdb", tmp_path, words)
    for offset in (older, newer):
        overwrite_bytes(file, offset, b"\0")
    expect_damaged("lmdb", tmp_path, "no valid meta page")
    file.write_bytes(b"not a database at all" * 1000)
    expect_damaged("lmdb", tmp_path, "no valid meta page")


def find_first_nodes(file):
    """The root's page number, the first node in it, the first leaf's page, and two nodes of it."""
    content = file.read_bytes()
    [root] = struct.unpack_from("<Q", content, find_meta_pages(file)[1] + 24 + 48 + 40)
    [node] = struct.unpack_from("<H", content, root * 4096 + 16)
    [leaf] = struct.unpack_from("<I", content, root * 4096 + node)
    offsets = struct.unpack_from("<HH", content, leaf * 4096 + 16)
    page_types = [content[page * 4096 + 10] for page in (root, leaf)]
    assert page_types == [1, 2]
    return root, root * 4096 + node, leaf, [leaf * 4096 + offset for offset in offsets]


def test_lmdb_page_defects_are_reported(tmp_path):
    file = write_samples("lmdb", tmp_path, number_samples(300))
    complete_content = file.read_bytes()
    _, _, leaf, (first_node, second_node) = find_first_nodes(file)
    cases = [
        (leaf * 4096, b"\x77", "its header says page 119"),
        (leaf * 4096 + 10, b"\x01", "its header says"),
        (leaf * 4096 + 12, b"\xff\xff", "list of nodes ends at byte 65535"),
        (leaf * 4096 + 16, b"\0\0", "a node is at byte 0"),
        (first_node, struct.pack("<H", 5000), "a record extends beyond its page"),
        (first_node + 6, struct.pack("<H", 5000), "a key extends beyond its page"),
        (first_node + 4, b"\x04", "a record has several values"),
        (second_node + 8, b"/", "does not come after"),
    ]
    for offset, content, words in cases:
        file.write_bytes(complete_content)
        overwrite_bytes(file, offset, content)
        expect_damaged("lmdb", tmp_path, words)


def test_lmdb_value_outside_the_file_is_refused(tmp_path):
    file = write_samples("lmdb", tmp_path, [Sample("far", 0, np.zeros((3, 50, 50), np.uint8))])
    offset = file.read_bytes().index(b"00000000_far") + len(b"00000000_far")
    overwrite_bytes(file, offset, struct.pack("<Q", 10**6))
    expect_damaged("lmdb", tmp_path, "at page 1000000 extend beyond the file")


def test_cyclic_lmdb_tree_is_refused(tmp_path):
    file = write_samples("lmdb", tmp_path, number_samples(300))
    root, node, _, _ = find_first_nodes(file)
    overwrite_bytes(file, node, struct.pack("<H", root))
    expect_damaged("lmdb", tmp_path, f"page {root}")
    overwrite_bytes(file, find_meta_pages(file)[1] + 24 + 48 + 6, struct.pack("<H", 32))
    expect_damaged("lmdb", tmp_path, "the tree does not end")


def test_lmdb_tree_deeper_than_those_of_lmdb_is_refused(tmp_path):
    """Every child of the root is the root itself, and a hole makes room for many pages."""
    file = write_samples("lmdb", tmp_path, number_samples(300))
    root, *_ = find_first_nodes(file)
    [lower] = struct.unpack_from("<H", file.read_bytes(), root * 4096 + 12)
    for place in range(root * 4096 + 16, root * 4096 + lower, 2):
        [node] = struct.unpack_from("<H", file.read_bytes(), place)
        overwrite_bytes(file, root * 4096 + node, struct.pack("<H", root))
    overwrite_bytes(file, find_meta_pages(file)[1] + 24 + 48 + 6, struct.pack("<H", 60_000))
    claim_pages(file, 2**28)
    expect_damaged("lmdb", tmp_path, "depth 60000")


def claim_pages(file, last):
    """Say that the database has so many pages; a hole follows those that it has."""
    overwrite_bytes(file, find_meta_pages(file)[1] + 24 + 96, struct.pack("<Q", last))
    os.truncate(file, (last + 1) * 4096)


def test_lmdb_value_of_gigabytes_is_not_read(tmp_path):
    file = write_samples("lmdb", tmp_path, [Sample("far", 0, np.zeros((3, 50, 50), np.uint8))])
    node = file.read_bytes().index(b"00000000_far") - 8
    overwrite_bytes(file, node, struct.pack("<I", 2**32 - 1))
    claim_pages(file, 2**21)
    expect_damaged("lmdb", tmp_path, "record 0", "more than 512 MiB")


def test_recordio_record_of_many_parts_is_not_read(tmp_path):
    """Each part may have half a gibibyte. Holes are in place of the data."""
    path, size = tmp_path / "train.rec", 2**29 - 8
    with path.open("wb") as file:
        for kind in (1, 2, 2, 3):
            file.write(struct.pack("<II", 0xCED7230A, kind << 29 | size))
            file.seek(size, os.SEEK_CUR)
        file.truncate()
    (tmp_path / "train.idx").write_text("0\t0\n")
    expect_damaged("recordio", tmp_path, "record 0", "more than 512 MiB")


def test_recordio_number_that_occurs_twice_is_refused(tmp_path):
    file = write_samples("recordio", tmp_path, number_samples(2))
    start = file.with_suffix(".idx").read_text().split()[3]
    file.with_suffix(".idx").write_text(f"7\t0\n7\t{start}\n")
    with pytest.raises(Damaged, match="record 7 occurs twice"):
        read_samples("recordio", tmp_path)


def test_recordio_index_of_a_terabyte_is_not_read(tmp_path):
    """A hole follows its lines."""
    file = write_samples("recordio", tmp_path, number_samples(2))
    os.truncate(file.with_suffix(".idx"), 2**40)
    with pytest.raises(Damaged, match="has a line that is too long"):
        read_samples("recordio", tmp_path)


def test_empty_recordio_records_are_refused_at_the_first(tmp_path):
    (tmp_path / "train.rec").write_bytes(encode_record(b"") * 2**17)
    (tmp_path / "train.idx").write_text("")
    with peak_memory.expect_less_than(2**20):
        expect_damaged("recordio", tmp_path, "record 0", "shorter than its header")


def test_recordio_with_an_index_needs_little_memory_per_record(tmp_path):
    record = encode_record(struct.pack("<IfQQ", 0, 1, 0, 0))
    (tmp_path / "train.rec").write_bytes(record * 10_000)
    lines = (f"{number}\t{number * len(record)}\n" for number in range(10_000))
    (tmp_path / "train.idx").write_text("".join(lines))
    with peak_memory.expect_less_than(10_000 * 64):
        samples = read_samples("recordio", tmp_path)
    assert len(samples) == 10_000


def test_tfrecord_example_of_endless_values_is_refused(tmp_path):
    names = b"".join(
        encoding.encode_bytes_field(1, encoding.encode_bytes_field(1, b"%d" % number))
        for number in range(10_001)
    )
    write_tfrecord(tmp_path, encoding.encode_bytes_field(1, names))
    expect_damaged("tfrecord", tmp_path, "record 0", "more than 10,000 features")
    labels = encoding.encode_bytes_field(3, encoding.encode_bytes_field(1, bytes(2**20)))
    feature = encoding.encode_bytes_field(1, b"label") + encoding.encode_bytes_field(2, labels)
    label_feature = encoding.encode_bytes_field(1, encoding.encode_bytes_field(1, feature))
    image_only = encode_example(PNG, 1, "a").replace(b"image/class/label", b"image/class/other")
    write_tfrecord(tmp_path, image_only + label_feature)
    with peak_memory.expect_less_than(2**24):
        expect_damaged("tfrecord", tmp_path, "record 0", "feature label has several values")


def test_lmdb_reads_the_newest_valid_meta_page(tmp_path):
    writer = open_writer("lmdb", tmp_path)
    for sample in number_samples(2):
        writer.add(sample)
    writer.sync()
    writer.add(Sample("late", 5, number_samples(1)[0].image))
    writer.close()
    file = tmp_path / FILES["lmdb"]
    # Closing writes no transaction of its own where nothing waits.
    assert len(read_samples("lmdb", tmp_path)) == 3
    overwrite_bytes(file, find_meta_pages(file)[1], b"\0")
    assert is_same("lmdb", read_samples("lmdb", tmp_path), number_samples(2))


@each_format
def test_link_out_of_the_data_set_is_refused(kind, tmp_path):
    file = write_samples(kind, tmp_path / "elsewhere", number_samples(1))
    link = tmp_path / "here" / FILES[kind]
    link.parent.mkdir(parents=True)
    link.symlink_to(file)
    with pytest.raises(Damaged, match="points outside"):
        read_samples(kind, tmp_path / "here")


@each_format
def test_writer_refuses_samples_the_format_cannot_store(kind, tmp_path):
    writer, image = open_writer(kind, tmp_path), number_samples(1)[0].image
    for label in (-1, 2**31):
        with pytest.raises(UsageError, match=f"a has label {label}"):
            writer.add(Sample("a", label, image))
    with pytest.raises(UsageError, match="neither a JPEG nor a PNG"):
        writer.add(Sample("a", 0, b"GIF89a"))
    for invalid_image in (image.astype(np.float32), image[0], np.zeros((2, 2, 2), np.uint8)):
        with pytest.raises(ValueError, match="must be uint8 pixels"):
            writer.add(Sample("a", 0, invalid_image))
    for key in ("", "a\nb", "a\tb", "\udcff") if kind != "recordio" else ():
        with pytest.raises(UsageError, match="is no"):
            writer.add(Sample(key, 0, image))
    writer.add(Sample("a", 0, image))
    writer.close()
    assert len(read_samples(kind, tmp_path)) == 1


# What the readers are made of


@given(st.binary(max_size=5000))
def test_crc32c_matches_the_library(content):
    assert crc32c(content) == google_crc32c.value(content)


def test_crc32c_matches_the_library_for_long_input():
    content = np.random.RandomState(0).bytes(100_003)
    for size in (63, 64, 65, 66, 67, 68, 1000, 65_536, 100_003):
        assert crc32c(content[:size]) == google_crc32c.value(content[:size])


@given(st.binary(max_size=60))
def test_random_bytes_parse_or_are_malformed(content):
    try:
        for _, wire, start, end in iterate_fields(content, (0, len(content))):
            assert wire == 0 or 0 <= start <= end <= len(content)
    except Malformed:
        pass
