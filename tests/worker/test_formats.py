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

from tests.worker.small_samples import number_samples, open_writer
from xfbench.base.errors import UsageError
from xfbench.data import encoding
from xfbench.data.lmdb import encode_datum
from xfbench.data.recordio import encode_record
from xfbench.data.tfrecord import encode_example
from xfbench.worker.crc32c import crc32c
from xfbench.worker.formats import Damaged, SampleList
from xfbench.worker.protobuf import Malformed, fields
from xfbench.worker.samples import Sample

KINDS = ("tfrecord", "recordio", "lmdb")
FILES = {"tfrecord": "train.tfrecord", "recordio": "train.rec", "lmdb": "train.lmdb/data.mdb"}
every_kind = pytest.mark.parametrize("kind", KINDS)


def write(kind, folder, samples):
    made = open_writer(kind, folder)
    for sample in samples:
        made.add(sample)
    made.close()
    return folder / FILES[kind]


def read(kind, folder, listed=None):
    module = importlib.import_module(f"xfbench.worker.formats.{kind}")
    return module.samples(folder, "train", listed)


def pixels(image):
    """What a sample shows, (C, H, W)."""
    if not isinstance(image, bytes):
        return image
    decoded = np.array(PIL.Image.open(io.BytesIO(image)))
    return decoded[None] if decoded.ndim == 2 else decoded.transpose(2, 0, 1)


def jpeg(array):
    file = io.BytesIO()
    PIL.Image.fromarray(array).save(file, "jpeg")
    return file.getvalue()


def same(kind, found, samples):
    """Whether these are the same samples, as far as the format keeps them."""
    if len(found) != len(samples):
        return False
    for n, (one, other) in enumerate(zip(found, samples, strict=True)):
        key = f"{n:08d}" if kind == "recordio" else other.key
        if (one.key, one.label) != (key, other.label):
            return False
        if isinstance(other.image, bytes) and one.image != other.image:
            return False
        if not np.array_equal(pixels(one.image), pixels(other.image)):
            return False
    return True


@st.composite
def any_samples(draw):
    letters = st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\t")
    keys = draw(st.lists(st.text(letters, min_size=1, max_size=300), unique=True, max_size=8))
    found = []
    for key in keys:
        shape = draw(st.tuples(st.sampled_from((1, 3)), st.integers(1, 40), st.integers(1, 40)))
        image = np.random.RandomState(len(found)).randint(0, 256, shape, dtype=np.uint8)
        if draw(st.booleans()):
            image = jpeg(image[0]) if draw(st.booleans()) else encoding.encode_png(image)
        found.append(Sample(key, draw(st.integers(0, 2**24)), image))
    return found


@every_kind
@given(samples=any_samples())
@settings(deadline=None, max_examples=40)
def test_written_samples_are_read_back_unchanged(kind, samples):
    with tempfile.TemporaryDirectory() as folder:
        write(kind, Path(folder), samples)
        assert same(kind, read(kind, Path(folder)), samples)


@every_kind
def test_samples_can_be_indexed_from_both_ends(kind, tmp_path):
    write(kind, tmp_path, number_samples(5))
    found = read(kind, tmp_path)
    assert [found[n].label for n in (4, 0, -1, -5)] == [1, 0, 1, 0]
    assert len(list(found)) == 5
    for outside in (5, -6):
        with pytest.raises(IndexError):
            found[outside]


def test_lmdb_keeps_overlong_keys_complete_and_distinct(tmp_path):
    image = number_samples(1)[0].image
    keys = ["é" * 400, "é" * 400 + "1", "x" * 502, "y" * 503, "12_34"]
    samples = [Sample(key, 0, image) for key in keys]
    write("lmdb", tmp_path, samples)
    assert [sample.key for sample in read("lmdb", tmp_path)] == keys


@every_kind
def test_sample_count_must_match_the_list(kind, tmp_path):
    write(kind, tmp_path, number_samples(3))
    keys = [sample.key for sample in number_samples(3)]
    listed = SampleList(keys, [0, 1, 2], [""] * 3, None, [])
    assert [sample.key for sample in read(kind, tmp_path, listed)] == keys
    with pytest.raises(Damaged, match=r"holds 3 samples, its list 2"):
        read(kind, tmp_path, SampleList(keys[:2], [0, 1], [""] * 2, None, []))


def test_recordio_splits_records_with_the_magic_number(tmp_path):
    magic, head = struct.pack("<I", 0xCED7230A), b"\x89PNG\r\n\x1a\n"
    images = [head + rest for rest in (magic, magic * 2, b"abcd" + magic + b"e", b"ab" + magic)]
    content = [
        encode_record(struct.pack("<IfQQ", 0, 1, n, 0) + one) for n, one in enumerate(images)
    ]
    assert [one.count(magic) for one in content] == [2, 3, 2, 2]
    assert [one[7] >> 5 for one in content] == [1, 1, 1, 0]
    (tmp_path / "train.rec").write_bytes(b"".join(content))
    starts = [sum(map(len, content[:n])) for n in range(len(content))]
    index = "".join(f"{n}\t{start}\n" for n, start in enumerate(starts))
    (tmp_path / "train.idx").write_text(index)
    assert [sample.image for sample in read("recordio", tmp_path)] == images


def test_tfrecord_shards_are_read_in_order_and_must_be_complete(tmp_path):
    samples = number_samples(6)
    for shard in range(3):
        part = write("tfrecord", tmp_path, samples[2 * shard : 2 * shard + 2])
        part.rename(tmp_path / f"train-{shard:05d}-of-00003.tfrecord")
    assert same("tfrecord", read("tfrecord", tmp_path), samples)
    write("tfrecord", tmp_path, samples[:1])
    with pytest.raises(Damaged, match="which are meant"):
        read("tfrecord", tmp_path)
    (tmp_path / "train.tfrecord").unlink()
    (tmp_path / "train-00001-of-00003.tfrecord").unlink()
    with pytest.raises(Damaged, match="train-00000-of-00003"):
        read("tfrecord", tmp_path)


@every_kind
def test_missing_split_is_reported(kind, tmp_path):
    with pytest.raises(Damaged, match=f"{FILES[kind]} is missing"):
        read(kind, tmp_path)


# Resuming


@pytest.mark.parametrize("kind", ["tfrecord", "recordio"])
def test_resuming_a_truncated_file_gives_identical_files(kind, tmp_path):
    samples = number_samples(4)
    whole = write(kind, tmp_path / "whole", samples).read_bytes()
    files = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    ends = [0]
    for count in range(1, 5):
        ends.append(write(kind, tmp_path / "parts", samples[:count]).stat().st_size)
    assert ends[-1] == len(whole)
    torn = tmp_path / "torn"
    torn.mkdir()
    for size in range(len(whole) + 1):
        (torn / FILES[kind]).write_bytes(whole[:size])
        count = sum(end <= size for end in ends) - 1
        if count < 4:
            with pytest.raises(Damaged):
                open_writer(kind, torn, count + 1)
        resumed = open_writer(kind, torn, count)
        for sample in samples[count:]:
            resumed.add(sample)
        resumed.close()
        assert {path.name: path.read_bytes() for path in torn.iterdir()} == files


@every_kind
def test_resuming_drops_samples_beyond_the_count(kind, tmp_path):
    samples = number_samples(8)
    write(kind, tmp_path, samples[:6] + samples[:1])
    resumed = open_writer(kind, tmp_path, 2)
    assert not (tmp_path / "train.idx").exists()
    for sample in samples[5:]:
        resumed.add(sample)
    resumed.close()
    found = read(kind, tmp_path)
    assert same(kind, found, samples[:2] + samples[5:])
    open_writer(kind, tmp_path, 0).close()
    assert len(read(kind, tmp_path)) == 0


KILLED = """
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


@every_kind
@pytest.mark.parametrize(("synced", "more"), [(0, 3), (1, 0), (200, 100)])
def test_killed_writer_keeps_synced_samples_and_resumes(kind, synced, more, tmp_path):
    argv = [sys.executable, "-c", textwrap.dedent(KILLED), kind, tmp_path, str(synced), str(more)]
    root = Path(__file__).parent.parent.parent
    ended = subprocess.run(argv, cwd=root, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    samples = number_samples(synced + more + 5)
    resumed = open_writer(kind, tmp_path, synced)
    for sample in samples[synced:]:
        resumed.add(sample)
    resumed.close()
    assert same(kind, read(kind, tmp_path), samples)
    assert not list(tmp_path.rglob("lock.mdb"))


def test_resuming_a_truncated_lmdb_is_refused(tmp_path):
    file = write("lmdb", tmp_path, number_samples(300))
    whole = file.read_bytes()
    for size in range(0, len(whole), 4096 // 3):
        file.write_bytes(whole[:size])
        with pytest.raises(Damaged):
            open_writer("lmdb", tmp_path, 1)
    file.write_bytes(whole)
    open_writer("lmdb", tmp_path, 300).close()
    with pytest.raises(Damaged, match="300 records of ours, not 301"):
        open_writer("lmdb", tmp_path, 301)
    open_writer("lmdb", tmp_path, 300).close()


def test_lmdb_map_grows_with_the_database(tmp_path, monkeypatch):
    module = importlib.import_module("xfbench.data.lmdb")
    monkeypatch.setattr(module, "_MIN_MAP_BYTES", 1 << 16)
    monkeypatch.setattr(module, "_TRANSACTION_BYTES", 1 << 18)
    samples = [Sample(str(n), n, np.full((3, 100, 100), n, np.uint8)) for n in range(60)]
    file = write("lmdb", tmp_path, samples)
    assert file.stat().st_size > 20 * (1 << 16)
    assert same("lmdb", read("lmdb", tmp_path), samples)


FULL = """
import sys
from pathlib import Path
import numpy as np
from xfbench.data import lmdb
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
    unshared = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    argv = [*unshared, tmp_path, sys.executable, FULL, str(first_map)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if "unshare" in ended.stderr or "mount" in ended.stderr:
        pytest.skip("no mount of one's own here")
    assert "make room there" in ended.stdout, ended.stderr


# Damage


def changed(path, place, content):
    """Write other bytes over a file's, at a place that may count from its end."""
    found = bytearray(path.read_bytes())
    place %= len(found)
    found[place : place + len(content)] = content
    path.write_bytes(found)


def refused(kind, folder, *words):
    """Read all; the error names the file and has the words."""
    with pytest.raises(Damaged) as error:
        list(read(kind, folder))
    for word in (FILES[kind], *words):
        assert word in str(error.value)


def tfrecord(folder, *examples):
    """A file of these examples, checksums and all."""
    content = b""
    for data in examples:
        for part in (struct.pack("<Q", len(data)), data):
            crc = google_crc32c.value(part)
            mask = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
            content += part + struct.pack("<I", mask)
    folder.mkdir(exist_ok=True)
    (folder / "train.tfrecord").write_bytes(content)


def recordio(folder, *contents):
    (folder / "train.rec").write_bytes(b"".join(map(encode_record, contents)))
    starts = [sum(len(encode_record(one)) for one in contents[:n]) for n in range(len(contents))]
    index = "".join(f"{n}\t{start}\n" for n, start in enumerate(starts))
    (folder / "train.idx").write_text(index)


def lmdb_of(folder, entries):
    (folder / "train.lmdb").mkdir(exist_ok=True)
    path = str(folder / "train.lmdb")
    with lmdb.open(path, map_size=1 << 24) as database, database.begin(write=True) as transaction:
        for key, value in entries:
            transaction.put(key, value)


PNG = encoding.build_picture(number_samples(1)[0].image, "")


@every_kind
def test_truncation_is_refused_except_at_tfrecord_boundaries(kind, tmp_path):
    file = write(kind, tmp_path, number_samples(3))
    whole = file.read_bytes()
    words = {"recordio": "truncated", "tfrecord": "truncated", "lmdb": "data.mdb"}[kind]
    boundaries = {0}
    if kind != "lmdb":
        for count in range(1, 3):
            boundaries.add(write(kind, tmp_path / "parts", number_samples(count)).stat().st_size)
    for size in range(0, len(whole), 1 if kind != "lmdb" else 97):
        file.write_bytes(whole[:size])
        if kind == "tfrecord" and size in boundaries:
            assert len(read(kind, tmp_path)) < 3
        elif kind == "recordio" and size in boundaries:
            with pytest.raises(Damaged, match=f"does not begin at byte {size}"):
                read(kind, tmp_path)
        else:
            refused(kind, tmp_path, words)


@every_kind
def test_file_truncated_during_reading_is_an_error(kind, tmp_path):
    file = write(kind, tmp_path, [Sample("a", 0, np.zeros((3, 90, 90), np.uint8))])
    found = read(kind, tmp_path)
    os.truncate(file, 100)
    with pytest.raises(Damaged, match="has been cut"):
        found[0]


def flips(kind):
    """A small file of this kind with one byte changed, one after another: its folder each time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = write(kind, folder, number_samples(3))
        whole = file.read_bytes()
        # Most of a database's pages is empty.
        places = range(len(whole)) if kind != "lmdb" else np.flatnonzero(list(whole))
        for place in places:
            file.write_bytes(whole)
            changed(file, place, bytes([whole[place] ^ (0x01, 0x80, 0xFF)[place % 3]]))
            yield folder


def test_tfrecord_detects_any_changed_byte():
    for folder in flips("tfrecord"):
        refused("tfrecord", folder, "record")


@pytest.mark.parametrize("kind", ["recordio", "lmdb"])
def test_changed_byte_in_recordio_or_lmdb_never_crashes(kind):
    found = 0
    for folder in flips(kind):
        try:
            list(read(kind, folder))
        except Damaged as error:
            assert "train." in str(error)
            found += 1
    assert found


def test_tfrecord_defects_are_reported(tmp_path):
    file = write("tfrecord", tmp_path, number_samples(2))
    one = write("tfrecord", tmp_path / "one", number_samples(1)).stat().st_size
    whole = file.read_bytes()
    changed(file, one, b"\xff")
    refused("tfrecord", tmp_path, "record 1", "its length", "checksum")
    file.write_bytes(whole)
    changed(file, -20, b"\xff")
    refused("tfrecord", tmp_path, "record 1", "its data", "checksum")
    for label in (-1, 2**31, 2**63 - 1):
        tfrecord(tmp_path, encode_example(PNG, label, "a"))
        refused("tfrecord", tmp_path, "record 0", f"label {label}")
    tfrecord(tmp_path, encode_example(PNG, 2**31 - 1, "a"), encode_example(PNG, 0, "a"))
    refused("tfrecord", tmp_path, "record 1", "key 'a' is another's")
    tfrecord(tmp_path, encode_example(PNG, 1, "a b").replace(b"a b", b"a\nb"))
    refused("tfrecord", tmp_path, "record 0", "line ends")
    tfrecord(tmp_path, encode_example(encoding.Picture(b"GIF89a", "GIF", 1, 1), 1, "a"))
    refused("tfrecord", tmp_path, "neither JPEG nor PNG")
    tfrecord(tmp_path, b"")
    refused("tfrecord", tmp_path, "record 0", "image/encoded has 0 values")
    tfrecord(tmp_path, b"\x0a\x7f")
    refused("tfrecord", tmp_path, "record 0", "longer than what it is in")


def test_recordio_defects_are_reported(tmp_path):
    def head(flag, label, *rest):
        return struct.pack("<IfQQ", flag, label, 0, 0) + b"".join(rest) + PNG.content

    for label in (-1.0, 0.5, float("nan"), float("inf"), 2.0**31):
        recordio(tmp_path, head(0, 3), head(0, label))
        refused("recordio", tmp_path, "record 1", "label")
    recordio(tmp_path, head(2, 0, struct.pack("<ff", 1, 2)))
    refused("recordio", tmp_path, "record 0", "2 labels, not one")
    recordio(tmp_path, head(1, 0, struct.pack("<f", 7)))
    assert read("recordio", tmp_path)[0].label == 7
    recordio(tmp_path, b"short")
    refused("recordio", tmp_path, "record 0", "shorter than its header")
    recordio(tmp_path, struct.pack("<IfQQ", 0, 1, 0, 0) + b"BM")
    refused("recordio", tmp_path, "neither JPEG nor PNG")
    recordio(tmp_path, head(0, 1), head(0, 2))
    changed(tmp_path / "train.rec", len(encode_record(head(0, 1))), b"\0")
    refused("recordio", tmp_path, "record 1", "magic number")
    recordio(tmp_path, head(0, 1))
    changed(tmp_path / "train.rec", 7, b"\x40")
    refused("recordio", tmp_path, "record 0", "parts are not in order")
    for text, words in (
        ("0\t0\n0\t0\n", "twice"),
        ("0\t4\n", "does not begin at byte 4"),
        ("", "lacks 1 records"),
        ("0 0\n", "line 1"),
        (f"{10**30}\t0\n", "line 1"),
    ):
        recordio(tmp_path, head(0, 1))
        (tmp_path / "train.idx").write_text(text)
        with pytest.raises(Damaged, match=words):
            read("recordio", tmp_path)


def test_datum_defects_are_reported(tmp_path):
    gray = Sample("a", 1, np.zeros((1, 2, 3), np.uint8))
    floats = encoding.encode_bytes_field(6, bytes(24))
    others = {
        "float_data": floats,
        "label -1": encode_datum(gray) + encoding.encode_number_field(5, -1),
        "label 2147483648": encode_datum(gray) + encoding.encode_number_field(5, 2**31),
        "no image of 1 × 2 × 4": encode_datum(gray) + encoding.encode_number_field(3, 4),
        "no image of 2 × 2 × 3": encode_datum(gray) + encoding.encode_number_field(1, 2),
        "neither JPEG nor PNG": encode_datum(gray) + encoding.encode_number_field(7, 1),
        "no image of 0 × 0 × 0": b"",
        "longer than what it is in": encode_datum(gray) + b"\x22\x7f",
        "a number is cut off": encode_datum(gray) + b"\x28",
        "field 0": b"\0\0",
        "unknown wire type 3": b"\x0b",
    }
    for number, (words, value) in enumerate(others.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        lmdb_of(folder, [(b"00000000_b", encode_datum(gray)), (b"00000001_a", value)])
        refused("lmdb", folder, "record 1", words)
    lmdb_of(tmp_path, [(b"00000000_a", encode_datum(gray)), (b"00000001_a", encode_datum(gray))])
    refused("lmdb", tmp_path, "record 1", "key 'a' is another's")


def test_unknown_message_fields_are_skipped(tmp_path):
    gray = Sample("a", 1, np.zeros((1, 2, 3), np.uint8))
    more = encoding.encode_number_field(99, 5) + b"\x9d\x06abcd" + b"\x99\x06abcdefgh"
    lmdb_of(tmp_path, [(b"plain", more + encode_datum(gray) + more)])
    [found] = read("lmdb", tmp_path)
    assert found.key == "plain" and found.label == 1
    tfrecord(tmp_path, more + encode_example(PNG, 4, "a") + more)
    assert read("tfrecord", tmp_path)[0].label == 4


def metas(file):
    """Where the two meta pages say what they are, the newer one last."""
    content = file.read_bytes()
    numbers = {place: content[place + 128 : place + 136] for place in (16, 16 + 4096)}
    return sorted(numbers, key=lambda place: int.from_bytes(numbers[place], "little"))


def test_lmdb_meta_page_defects_are_reported(tmp_path):
    file = write("lmdb", tmp_path, number_samples(300))
    whole = file.read_bytes()
    older, newer = metas(file)
    cases = [
        (newer + 4, struct.pack("<I", 2), "version 2"),
        (newer + 24, struct.pack("<I", 4000), "4000 bytes, which LMDB never has"),
        (newer + 24 + 48 + 4, b"\x04", "several values"),
        (newer + 24 + 48 + 32, struct.pack("<Q", 299), "counts 299"),
        (newer + 24 + 48 + 40, struct.pack("<Q", 10**9), "there are pages 2 to"),
        (newer + 24 + 96, struct.pack("<Q", 10**6), "truncated"),
    ]
    for place, content, words in cases:
        file.write_bytes(whole)
        changed(file, place, content)
        refused("lmdb", tmp_path, words)
    for place in (older, newer):
        changed(file, place, b"\0")
    refused("lmdb", tmp_path, "no valid meta page")
    file.write_bytes(b"not a database at all" * 1000)
    refused("lmdb", tmp_path, "no valid meta page")


def first_nodes(file):
    """The root's page number, the first node in it, the first leaf's page, and two nodes of it."""
    content = file.read_bytes()
    [root] = struct.unpack_from("<Q", content, metas(file)[1] + 24 + 48 + 40)
    [node] = struct.unpack_from("<H", content, root * 4096 + 16)
    [leaf] = struct.unpack_from("<I", content, root * 4096 + node)
    places = struct.unpack_from("<HH", content, leaf * 4096 + 16)
    kinds = [content[page * 4096 + 10] for page in (root, leaf)]
    assert kinds == [1, 2]
    return root, root * 4096 + node, leaf, [leaf * 4096 + place for place in places]


def test_lmdb_page_defects_are_reported(tmp_path):
    file = write("lmdb", tmp_path, number_samples(300))
    whole = file.read_bytes()
    _, _, leaf, (one, other) = first_nodes(file)
    cases = [
        (leaf * 4096, b"\x77", "it says that it is page 119"),
        (leaf * 4096 + 10, b"\x01", "it says that"),
        (leaf * 4096 + 12, b"\xff\xff", "list of nodes ends at byte 65535"),
        (leaf * 4096 + 16, b"\0\0", "a node lies at byte 0"),
        (one, struct.pack("<H", 5000), "a record leads out of its page"),
        (one + 6, struct.pack("<H", 5000), "a key leads out of its page"),
        (one + 4, b"\x04", "a record has several values"),
        (other + 8, b"/", "does not come after"),
    ]
    for place, content, words in cases:
        file.write_bytes(whole)
        changed(file, place, content)
        refused("lmdb", tmp_path, words)


def test_lmdb_value_outside_the_file_is_refused(tmp_path):
    file = write("lmdb", tmp_path, [Sample("far", 0, np.zeros((3, 50, 50), np.uint8))])
    place = file.read_bytes().index(b"00000000_far") + len(b"00000000_far")
    changed(file, place, struct.pack("<Q", 10**6))
    refused("lmdb", tmp_path, "at page 1000000 lead out of the file")


def test_cyclic_lmdb_tree_is_refused(tmp_path):
    file = write("lmdb", tmp_path, number_samples(300))
    root, node, _, _ = first_nodes(file)
    changed(file, node, struct.pack("<H", root))
    refused("lmdb", tmp_path, f"page {root}")
    changed(file, metas(file)[1] + 24 + 48 + 6, struct.pack("<H", 60_000))
    refused("lmdb", tmp_path, "the tree does not end")


def test_lmdb_reads_the_newest_valid_meta_page(tmp_path):
    made = open_writer("lmdb", tmp_path)
    for sample in number_samples(2):
        made.add(sample)
    made.sync()
    made.add(Sample("late", 5, number_samples(1)[0].image))
    made.close()
    file = tmp_path / FILES["lmdb"]
    # Closing writes no transaction of its own where nothing waits.
    assert len(read("lmdb", tmp_path)) == 3
    changed(file, metas(file)[1], b"\0")
    assert same("lmdb", read("lmdb", tmp_path), number_samples(2))


@every_kind
def test_link_out_of_the_data_set_is_refused(kind, tmp_path):
    file = write(kind, tmp_path / "elsewhere", number_samples(1))
    link = tmp_path / "here" / FILES[kind]
    link.parent.mkdir(parents=True)
    link.symlink_to(file)
    with pytest.raises(Damaged, match="leads out"):
        read(kind, tmp_path / "here")


@every_kind
def test_writer_refuses_samples_the_format_cannot_store(kind, tmp_path):
    made, image = open_writer(kind, tmp_path), number_samples(1)[0].image
    for label in (-1, 2**31):
        with pytest.raises(UsageError, match=f"a has label {label}"):
            made.add(Sample("a", label, image))
    with pytest.raises(UsageError, match="neither a JPEG nor a PNG"):
        made.add(Sample("a", 0, b"GIF89a"))
    for wrong in (image.astype(np.float32), image[0], np.zeros((2, 2, 2), np.uint8)):
        with pytest.raises(ValueError, match="no uint8 pixels"):
            made.add(Sample("a", 0, wrong))
    for key in ("", "a\nb", "a\tb", "\udcff") if kind != "recordio" else ():
        with pytest.raises(UsageError, match="is no"):
            made.add(Sample(key, 0, image))
    made.add(Sample("a", 0, image))
    made.close()
    assert len(read(kind, tmp_path)) == 1


# What the readers are made of


@given(st.binary(max_size=5000))
@settings(deadline=None)
def test_crc32c_matches_the_library(content):
    assert crc32c(content) == google_crc32c.value(content)


def test_crc32c_matches_the_library_for_long_input():
    content = np.random.RandomState(0).bytes(100_003)
    for size in (63, 64, 65, 66, 67, 68, 1000, 65_536, 100_003):
        assert crc32c(content[:size]) == google_crc32c.value(content[:size])


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_random_bytes_parse_or_are_malformed(content):
    try:
        for _, wire, start, end in fields(content, (0, len(content))):
            assert wire == 0 or 0 <= start <= end <= len(content)
    except Malformed:
        pass
