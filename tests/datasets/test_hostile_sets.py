"""Data sets of strangers: each is refused in one line, and nothing is written outside."""

import json
import os
import resource
import struct
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from tests.other_users import (
    ALICE,
    MALLORY,
    assert_refused,
    list_tree,
    require_other_users,
    run_as,
)
from xfbench.base.errors import UsageError
from xfbench.datasets import sources, writing
from xfbench.datasets.manifest import Preprocessing
from xfbench.worker.crc32c import masked_crc32c
from xfbench.worker.formats import Damaged
from xfbench.worker.prepared import open_prepared
from xfbench.worker.samples import stream_digest


@pytest.fixture
def data_set(folders, tmp_path):
    """A prepared data set with the classes n01, n02 and n03, as pixels."""
    target = tmp_path / "received" / "set"
    preprocessing = Preprocessing(channels=3, size=(8, 8))
    writing.make_data_set(sources.open_image_folder(folders()), target, "raw", preprocessing)
    return target


def change_manifest(**fields):
    def change(folder):
        path = folder / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return change


def change_first_class(name):
    return change_manifest(classes=[name, "n02", "n03"])


def change_first_key(key):
    """Change the first key of the list of samples. No digest depends on keys."""

    def change(folder):
        path = folder / "train.samples"
        first, rest = path.read_text().split("\n", 1)
        path.write_text("\n".join(["\t".join([key, *first.split("\t")[1:]]), rest]))

    return change


def change_splits(**fields):
    def change(folder):
        path = folder / "manifest.json"
        document = json.loads(path.read_text())
        document["splits"]["train"].update(fields)
        path.write_text(json.dumps(document))

    return change


def replace_by_pipe(name):
    def change(folder):
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


def replace_by_link(name):
    def change(folder):
        (folder / name).unlink()
        (folder / name).symlink_to("/etc/passwd")

    return change


def enlarge(name):
    return lambda folder: os.truncate(folder / name, 2**40)


def replace_manifest(content):
    return lambda folder: (folder / "manifest.json").write_bytes(content)


def repeat_key_of_manifest(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace("{", '{"format": "folder",', 1))


def repeat_lines(folder):
    """Claim a sample a million times. The list of digests matches."""
    path = folder / "train.samples"
    line = path.read_text().split("\n")[0]
    count = 10**5
    path.write_text(f"{line}\n" * count)
    change_splits(samples=count, stream_digest=stream_digest([line.split("\t")[2]] * count))(folder)


HOSTILE = {
    "a class above the folder": change_first_class("../../escaped"),
    "a class at the root": change_first_class("/tmp/xfbench-escaped"),
    "a class in another class": change_first_class("n02/n01"),
    "a class that is the folder above": change_first_class(".."),
    "a class that is this folder": change_first_class("."),
    "a class without a name": change_first_class(""),
    "a class with a zero": change_first_class("n01\0"),
    "a class with a line end": change_first_class("n01\nn02"),
    "a class with half a character": change_first_class("\ud800"),
    "a class with a long name": change_first_class("n" * 256),
    "two classes of one name": change_first_class("n02"),
    "a class that is no text": change_manifest(classes=[["n01"], "n02", "n03"]),
    "a key with a zero": change_first_key("n01/\0.jpg"),
    "a key with a long name": change_first_key("n01/" + "n" * 5000 + ".jpg"),
    "more samples than lines": change_splits(samples=10**15),
    "a negative number of samples": change_splits(samples=-1),
    "samples that are not there": repeat_lines,
    "pixels of a huge shape": change_manifest(shape=[3, 2**40, 2**40]),
    "a shape that multiplies to nothing": change_manifest(shape=[3, 0, 8]),
    "a list of a terabyte": enlarge("train.samples"),
    "a manifest of a terabyte": enlarge("manifest.json"),
    "pixels of a terabyte": enlarge("train.pixels"),
    "a manifest of many lists": replace_manifest(b"[" + b"[]," * 11_000_000 + b"[]]"),
    "a manifest with a key twice": repeat_key_of_manifest,
    "a list that is a pipe": replace_by_pipe("train.samples"),
    "a manifest that is a pipe": replace_by_pipe("manifest.json"),
    "pixels that are a pipe": replace_by_pipe("train.pixels"),
    "a list that is a link": replace_by_link("train.samples"),
    "pixels that are a link": replace_by_link("train.pixels"),
    "an unknown format": change_manifest(format="../../writing"),
    "a split that leads outside": change_manifest(splits={"../../train": {}, "train": {}}),
    "an encoding that is a path": change_manifest(preprocessing={"channels": 3, "size": "/etc"}),
}


@contextmanager
def limit_memory(size):
    """Let this process allocate at most `size` more bytes."""
    data_pages = int(Path("/proc/self/statm").read_text().split()[5])
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(
        resource.RLIMIT_DATA, (data_pages * resource.getpagesize() + size, limits[1])
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../../../private/photo.png", "is not a path in the folder"),
        ("n01/../../../private/photo.png", "is not a path in the folder"),
        ("ABSOLUTE", "is not a path in the folder"),
        ("n" * 300, "too long"),
        ("n" * 20_000, "too long"),
    ],
)
def test_label_list_reads_no_file_outside_of_its_data_set(
    run_inline, tmp_path, split, name, reason
):
    private = tmp_path / "private" / "photo.png"
    private.parent.mkdir()
    root = tmp_path / "imagenet"
    for folder in ("train/n01", "val/n01"):
        (root / folder).mkdir(parents=True)
        (root / folder / "a.png").write_bytes(b"")
    Image.new("RGB", (8, 8)).save(private)
    line = f"{private if name == 'ABSOLUTE' else name} 0\n"
    (root / {"train": "train.txt", "test": "val.txt"}[split]).write_text(line)
    completed = run_inline("data", "prepare", "imagenet", "--from", root, "--to", tmp_path / "new")
    assert_refused(completed)
    assert reason in completed.stderr and len(completed.stderr) < 1000


@pytest.mark.parametrize("beginning", ["", "n01/a.png 0\n"])
def test_label_list_of_a_terabyte_needs_no_memory(run_inline, tmp_path, beginning):
    root = tmp_path / "imagenet"
    (root / "train" / "n01").mkdir(parents=True)
    (root / "train" / "n01" / "a.png").write_bytes(b"")
    (root / "train.txt").write_text(beginning)
    enlarge("train.txt")(root)
    with limit_memory(2**29):
        completed = run_inline(
            *("data", "prepare", "imagenet", "--from", root, "--to", tmp_path / "new")
        )
    assert_refused(completed)
    assert "too long" in completed.stderr


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_data_set_is_refused_and_writes_nothing_outside(
    run_inline, data_set, tmp_path, name
):
    HOSTILE[name](data_set)
    target = tmp_path / "work" / "converted"
    target.parent.mkdir()
    outside = {path for path in tmp_path.rglob("*") if target.parent not in path.parents}
    with limit_memory(2**29):
        completed = run_inline("data", "convert", data_set, target, "--format", "folder")
    assert_refused(completed)
    assert len(completed.stderr) < 1000 and not target.exists()
    assert not os.path.lexists("/tmp/xfbench-escaped")
    after = {path for path in tmp_path.rglob("*") if target.parent not in path.parents}
    assert after == outside


def test_images_in_folders_that_are_nested_deeply_are_refused(run_inline, folders, tmp_path):
    (folders() / "train" / "n01" / ("d/" * 110)).mkdir(parents=True)
    source = tmp_path / "pictures"
    for words in (["imagenet", "--from", source, "--to"], [f"folder:{source}"]):
        command = "convert" if len(words) == 1 else "prepare"
        completed = run_inline("data", command, *words, tmp_path / "new", "--format", "raw")
        assert_refused(completed)
        assert "more than 100 folders inside each other" in completed.stderr


def test_tfrecord_of_a_hole_needs_no_memory(run_inline, tmp_path):
    """Its only record has 100 GB, and the checksum of this length is correct."""
    path, size = tmp_path / "in" / "train.tfrecord", 10**11
    path.parent.mkdir()
    length = struct.pack("<Q", size)
    path.write_bytes(length + struct.pack("<I", masked_crc32c(length)))
    os.truncate(path, 12 + size + 4)
    source = f"tfrecord:{path.parent}"
    with limit_memory(2**29):
        completed = run_inline("data", "convert", source, tmp_path / "out", "--format", "folder")
    assert_refused(completed)
    assert "record 0: it has more than 512 MiB" in completed.stderr


def swap_before_opening(monkeypatch, name, swap):
    """Replace the file `name` just before a reader opens it, after all checks of its path."""
    open_descriptor = os.open

    def swap_and_open(path, *arguments, **keywords):
        if Path(path).name == name and not Path(path).is_symlink():
            swap(Path(path))
        return open_descriptor(path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", swap_and_open)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("form", "name"),
    [
        *(("raw", "manifest.json"), ("raw", "train.samples"), ("raw", "train.pixels")),
        *(("recordio", "train.idx"), ("folder", "n01_1.JPEG")),
    ],
)
@pytest.mark.parametrize("planted", ["pipe", "link"])
def test_file_swapped_before_it_is_opened_is_refused(
    folders, tmp_path, monkeypatch, form, name, planted
):
    target = tmp_path / "set"
    source = sources.open_image_folder(folders())
    size = (8, 8) if form == "raw" else None
    writing.make_data_set(source, target, form, Preprocessing(channels=3, size=size))

    def plant(path):
        path.rename(tmp_path / "mine")
        if planted == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(tmp_path / "mine")

    swap_before_opening(monkeypatch, name, plant)
    with pytest.raises(
        Damaged, match=rf"{name} (is not a file|cannot be read: it is a symbolic link)"
    ):
        list(open_prepared(target).splits["train"])


def test_class_that_is_no_folder_name_is_kept_by_other_formats(run_inline, data_set, tmp_path):
    change_first_class("black/white")(data_set)
    target = tmp_path / "converted"
    completed = run_inline("data", "convert", data_set, target, "--format", "tfrecord")
    assert completed.returncode == 0, completed.stderr
    assert json.loads((target / "manifest.json").read_text())["classes"][0] == "black/white"


def interrupt(root, target, form, preprocessing):
    """Leave an incomplete data set, whose training split is written."""
    damaged = next(root.rglob("val/n03/*_2.JPEG"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-200])
    with pytest.raises(Damaged):
        writing.make_data_set(sources.open_image_folder(root), target, form, preprocessing)
    damaged.write_bytes(content)


@pytest.mark.parametrize("planted", ["link", "hard link"])
@pytest.mark.parametrize(
    ("form", "name"),
    [
        *(("raw", "train.pixels"), ("raw", "train.samples"), ("tfrecord", "train.tfrecord")),
        *(("recordio", "train.rec"), ("lmdb", "train.lmdb/data.mdb")),
    ],
)
def test_links_in_an_incomplete_data_set_are_not_followed(folders, tmp_path, form, name, planted):
    root, target = folders(), tmp_path / "set"
    preprocessing = Preprocessing(channels=3, size=(8, 8))
    interrupt(root, target, form, preprocessing)
    path = tmp_path / "set.partial" / name
    path.rename(tmp_path / "mine")
    content = (tmp_path / "mine").read_bytes()
    if planted == "link":
        path.symlink_to(tmp_path / "mine")
    else:
        path.hardlink_to(tmp_path / "mine")
    with pytest.raises(UsageError, match=r"is a symbolic link|has several names"):
        writing.make_data_set(sources.open_image_folder(root), target, form, preprocessing)
    assert (tmp_path / "mine").read_bytes() == content


def make(path, owner, mode=0o755):
    path.mkdir()
    os.chown(path, owner, owner)
    path.chmod(mode)
    return path


def link_as_mallory(path, target):
    path.symlink_to(target)
    os.lchown(path, MALLORY, MALLORY)


def plant_partial_with_links(data, home):
    partial = make(data / "digits-raw.partial", MALLORY, 0o777)
    for name in ("making.json", "train.pixels", "train.samples"):
        link_as_mallory(partial / name, home / "diary")


def plant_lock_of_mallory(data, _):
    (data / "digits-raw.lock").touch(mode=0o644)
    os.chown(data / "digits-raw.lock", MALLORY, MALLORY)


SHARED_DATA = {
    "Mallory's incomplete set": (0, 0o1777, plant_partial_with_links, "partial belongs to another"),
    "a link as the incomplete set": (
        *(0, 0o1777, lambda data, home: link_as_mallory(data / "digits-raw.partial", home)),
        "partial is a symbolic link",
    ),
    "a link as the lock": (
        *(0, 0o1777, lambda data, home: link_as_mallory(data / "digits-raw.lock", home / "new")),
        "lock is a symbolic link",
    ),
    "Mallory's lock": (0, 0o1777, plant_lock_of_mallory, "lock belongs to another user"),
    "a link as the set": (
        *(0, 0o1777, lambda data, home: link_as_mallory(data / "digits-raw", home / "new")),
        "already exists",
    ),
    "Mallory's folder": (MALLORY, 0o1777, lambda *_: None, "data belongs to another user"),
    "no sticky bit": (0, 0o777, lambda *_: None, "data is writable by all users"),
}


@pytest.mark.parametrize("name", SHARED_DATA)
def test_traps_in_a_shared_data_folder_are_refused(open_folder, name):
    owner, mode, plant, reason = SHARED_DATA[name]
    require_other_users()
    data, home = make(open_folder / "data", owner, mode), make(open_folder / "home", ALICE)
    (home / "diary").write_text("dear diary")
    os.chown(home / "diary", ALICE, ALICE)
    plant(data, home)
    before = list_tree(open_folder)
    completed = run_as(ALICE, "data", "prepare", "digits", folder=home, XFBENCH_DATA=str(data))
    assert_refused(completed, reason, "choose a")
    after = list_tree(open_folder)
    after.pop(str(data / "digits-raw.lock"), None)
    before.pop(str(data / "digits-raw.lock"), None)
    assert after == before


def test_two_users_of_a_common_data_folder_keep_their_sets(open_folder):
    require_other_users()
    data = make(open_folder / "data", 0, 0o1777)
    home = make(open_folder / "home", 0, 0o1777)
    prepare = ("data", "prepare", "digits", "--to")
    assert run_as(ALICE, *prepare, data / "set", folder=home).returncode == 0
    before = list_tree(data / "set")
    assert_refused(run_as(MALLORY, *prepare, data / "set", folder=home), "already exists")
    completed = run_as(MALLORY, *prepare, data / "other", folder=home)
    assert completed.returncode == 0, completed.stderr
    assert list_tree(data / "set") == before
