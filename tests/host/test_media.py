"""Descriptions of a folder's storage medium, tested on temporary file systems."""

import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests import temporary_mounts
from xfbench.host import media
from xfbench.model.record import Medium, ReadRound, Reads, Record, Storage
from xfbench.worker import mounts, page_cache

MIB = 2**20


@pytest.fixture
def ext4(tmp_path):
    with temporary_mounts.ext4(tmp_path, name="a disk with spaces") as mount_point:
        yield mount_point


def test_tmpfs_is_described_as_memory(tmp_path):
    with temporary_mounts.tmpfs(tmp_path, options="size=8m") as folder:
        medium = media.describe_medium(folder)
    assert (medium.file_system, medium.device, medium.disks) == ("tmpfs", "memory", ())
    assert medium.total_bytes == 8 * MIB and "size=8192k" in medium.options
    assert medium.rotational is None and medium.below == ()


def test_loop_device_is_described_with_the_medium_below(ext4, tmp_path):
    medium = media.describe_medium(ext4)
    assert (medium.file_system, medium.device, medium.disks) == ("ext4", "loop", ("loop",))
    assert medium.block_bytes == 4096 and 0 < medium.free_bytes < medium.total_bytes < 64 * MIB
    assert "rw" in medium.options
    [below] = medium.below
    assert below.file_system == media.describe_medium(tmp_path).file_system


def test_deep_folder_is_on_the_same_medium(ext4):
    deep = ext4 / "a b" / "c,d"
    deep.mkdir(parents=True)
    assert media.describe_medium(deep).device == "loop"
    (deep / "file").write_bytes(b"x")
    assert (
        mounts.mounted_block_device_ids(deep / "file")
        == mounts.mounted_block_device_ids(ext4)
        != []
    )


def test_topmost_mount_decides_the_medium(ext4, tmp_path):
    mount_point = ext4 / "place"
    with temporary_mounts.tmpfs(ext4, name="place"):
        assert media.describe_medium(mount_point).file_system == "tmpfs"
        with temporary_mounts.mount(mount_point, "--bind", tmp_path):
            medium = media.describe_medium(mount_point)
            assert medium.file_system == media.describe_medium(tmp_path).file_system != "tmpfs"
    assert media.describe_medium(mount_point).device == "loop"


def test_overlay_lists_its_writable_layer_first(ext4, tmp_path):
    with temporary_mounts.tmpfs(tmp_path, name="in memory") as memory:
        layers = ext4 / "lower layer", memory / "upper layer", memory / "work"
        (ext4 / "lower layer" / "data").mkdir(parents=True)
        with temporary_mounts.overlay(tmp_path, *layers, name="all of it") as folder:
            (folder / "new").write_bytes(b"x")
            medium, data_medium = (
                media.describe_medium(folder),
                media.describe_medium(folder / "data"),
            )
    assert (medium.file_system, medium.device) == ("overlay", "overlay")
    assert [below.file_system for below in medium.below] == ["tmpfs", "ext4"]
    assert [below.device for below in data_medium.below] == ["loop"]
    assert not any("=/" in option for option in medium.options)


def test_overlay_layers_are_not_confused_with_local_folders(ext4, tmp_path):
    """A container sees paths of host folders, and its own folders may have the same paths."""
    (ext4 / "upper").mkdir()
    os.utime(ext4 / "upper", (0, 0))
    with temporary_mounts.overlay(
        tmp_path, ext4 / "lower", ext4 / "upper", ext4 / "work"
    ) as folder:
        with temporary_mounts.tmpfs(ext4, name="upper"):
            assert media.describe_medium(folder).below == ()
        assert len(media.describe_medium(folder).below) == 1


def test_overlay_layers_on_the_same_file_system_are_merged(ext4, tmp_path, monkeypatch):
    """Another process writes to the file system between two readings."""
    original_statvfs = os.statvfs

    def write_and_statvfs(path):
        with (tmp_path / "written").open("ab") as file:
            file.write(b"x" * MIB)
            os.fsync(file.fileno())
        return original_statvfs(path)

    monkeypatch.setattr(os, "statvfs", write_and_statvfs)
    layers = ext4 / "lower", ext4 / "upper", ext4 / "work"
    with temporary_mounts.overlay(tmp_path, *layers) as folder:
        assert [medium.device for medium in media.describe_medium(folder).below] == ["loop"]


# In the kernel's format (proc(5)), with servers and paths.
MOUNTINFO = r"""
36 35 0:50 /vol /mnt/my\040data rw,noatime shared:1 - nfs4 filer.example.org:/home/jane rw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys,clientaddr=10.1.2.3,local_lock=none,addr=10.9.8.7,fsc=jane
37 35 0:51 / /scratch rw,relatime shared:2 master:3 - lustre 10.0.0.1@o2ib:10.0.0.2@o2ib:/jane rw,flock,lazystatfs,nosquash_nids=10.0.0.3@o2ib
38 35 0:52 / /home rw - cifs //filer/jane rw,vers=3.1.1,username=jane,domain=EXAMPLE,uid=1000,addr=10.9.8.7,soft
39 35 0:53 / /merged rw - overlay overlay rw,lowerdir=/a\134:b:/c\054d,upperdir=/u\040p,workdir=/w
40 35 0:54 / /b rw - btrfs /dev/nonesuch rw,compress=zstd:3,ssd,subvolid=5,subvol=/jane
"""  # noqa: E501


def test_mount_options_omit_hosts_users_and_paths():
    nfs, lustre, cifs, overlay, btrfs = mounts.list_mounts(MOUNTINFO)
    assert nfs.public_options() == [
        *("rw", "noatime", "vers=4.2", "rsize=1048576", "wsize=1048576", "namlen=255", "hard"),
        *("proto=tcp", "timeo=600", "retrans=2", "sec=sys", "local_lock=none"),
    ]
    assert lustre.public_options() == ["rw", "relatime", "flock", "lazystatfs"]
    assert cifs.public_options() == ["rw", "vers=3.1.1", "soft"]
    assert overlay.public_options() == ["rw"]
    assert btrfs.public_options() == ["rw", "compress=zstd:3", "ssd"]
    assert [mounts._storage_kind(mount, []) for mount in (nfs, lustre, cifs)] == ["network"] * 3


def test_escaped_mount_names_are_decoded():
    nfs, *_, overlay, _ = mounts.list_mounts(MOUNTINFO)
    assert (nfs.point, nfs.root, nfs.number) == ("/mnt/my data", "/vol", 36)
    assert (
        overlay.option_value("upperdir") == "/u p"
        and overlay.option_value("lowerdir") == r"/a\:b:/c,d"
    )


def test_longest_mount_point_is_the_fallback():
    all_mounts = mounts.list_mounts(MOUNTINFO + r"41 35 0:55 / /scratch rw - tmpfs none rw" + "\n")
    assert mounts._deepest_mount(all_mounts, Path("/mnt/my data/x")).file_system == "nfs4"
    assert mounts._deepest_mount(all_mounts, Path("/scratch/x")).file_system == "tmpfs"
    assert mounts._deepest_mount(all_mounts, Path("/scratchy")) is None


def test_a_mount_without_its_number_is_found_by_its_point(tmp_path, monkeypatch):
    """As in a container whose mountinfo has other numbers than /proc/self/fdinfo."""
    line = f"{10**9} 35 0:55 / {tmp_path} rw - lustre a@b:/c rw\n"
    listed = mounts.list_mounts(line)
    monkeypatch.setattr(mounts, "list_mounts", lambda: listed)
    (tmp_path / "data").mkdir()
    assert mounts.mount_of(tmp_path / "data").file_system == "lustre"


def test_missing_folder_is_reported(tmp_path):
    with pytest.raises(media.UnreadableError, match="No such file"):
        media.describe_medium(tmp_path / "nowhere")


def make_reads(*rounds):
    read_rounds = [
        ReadRound(seconds=1, bytes=1000, operations=1, **read_round) for read_round in rounds
    ]
    return Reads(pattern="random", block_bytes=1000, random=True, rounds=tuple(read_rounds))


def test_reads_are_cold_only_if_the_device_gave_all_bytes():
    cold = media.compute_speed(make_reads({"resident_bytes": 0, "device_bytes": 1000}))
    assert cold.is_cold is True and cold.from_device == 1
    partly = {"resident_bytes": 500, "device_bytes": 500}
    partly_cold = media.compute_speed(
        make_reads({"resident_bytes": 0, "device_bytes": 1000}, partly)
    )
    assert (
        partly_cold.is_cold is False
        and partly_cold.from_device == 0.5
        and partly_cold.resident_bytes == 500
    )
    uncounted = {"resident_bytes": 0, "device_bytes": 0}
    assert media.compute_speed(make_reads(uncounted)).is_cold is None
    in_memory = {"resident_bytes": None, "device_bytes": 0}
    assert media.compute_speed(make_reads(in_memory)).is_cold is None
    assert (
        media.compute_speed(make_reads({"resident_bytes": 1000, "device_bytes": 0})).is_cold
        is False
    )


def test_storage_facts_survive_a_record_round_trip(ext4, record):
    file = ext4 / "set"
    file.write_bytes(os.urandom(MIB))
    epochs = []
    for mode in page_cache.MODES:
        before = page_cache.prepare_cache([file], mode)
        file.read_bytes()
        epochs.append(page_cache.measure_epoch_reading(before))
    medium, measured = (
        media.describe_medium(ext4),
        media.evict_and_measure_reads_by_pattern(file, MIB, rounds=1),
    )
    stored_record = record(
        fields={"storage": Storage(medium=medium, reads=measured, epochs=epochs)}
    )
    read_back = Record.read(json.dumps(stored_record.document()).encode())
    assert read_back == stored_record and [epoch.held for epoch in read_back.storage.epochs] == [
        True,
        True,
        None,
    ]
    for private_name in (str(ext4), platform.node()):
        assert private_name not in stored_record.storage.model_dump_json()


def run_machine_command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "xfbench", "machine", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_machine_read_prints_medium_and_figures_and_cleans_up(ext4):
    document = json.loads(run_machine_command("--read", ext4, "--read-size", 8, "--json").stdout)
    medium, described = Medium.model_validate(document["medium"]), media.describe_medium(ext4)
    assert medium.model_copy(update={"below": described.below}) == described
    assert [pattern["block_bytes"] for pattern in document["reads"]] == [MIB, 128 * 1024, 4096]
    for pattern in document["reads"]:
        assert pattern["is_cold"] is True and pattern["resident_bytes"] == 0
        assert (
            pattern["bytes_per_second"]["low"] > 0 and pattern["operations_per_second"]["low"] > 0
        )
        assert len(pattern["rounds"]) == 6
    assert [path.name for path in ext4.iterdir()] == ["lost+found"]


def test_machine_read_text_reports_unchecked_media(tmp_path):
    with temporary_mounts.tmpfs(tmp_path) as folder:
        completed = run_machine_command("--read", folder, "--read-size", 8)
    assert (
        "tmpfs on memory" in completed.stdout
        and "could not check that reads were cold: tmpfs" in completed.stdout
    )


def test_data_set_files_are_read_and_no_file_is_written(tmp_path, ext4):
    (ext4 / "manifest.json").write_text("{}")
    (ext4 / "train.pixels").write_bytes(os.urandom(4 * MIB))
    temporary_mounts.make_read_only(ext4)
    completed = run_machine_command("--read", ext4, "--json")
    document = json.loads(completed.stdout)
    assert document["reads"][0]["rounds"][0]["bytes"] == 4 * MIB + 2
    assert all(pattern["is_cold"] for pattern in document["reads"])


def test_read_only_folder_is_reported(ext4):
    temporary_mounts.make_read_only(ext4)
    completed = run_machine_command("--read", ext4)
    assert completed.returncode == 1 and "Read-only file system" in completed.stderr


def test_interrupt_leaves_no_file(ext4):
    free = os.statvfs(ext4).f_bfree
    # If tests run in the background, child processes ignore SIGINT by default.
    command = ("env", "--default-signal=INT", sys.executable, "-m", "xfbench")
    process = subprocess.Popen([*command, "machine", "--read", str(ext4)])
    while process.poll() is None and not has_large_file_in(ext4, process.pid):
        pass
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert [path.name for path in ext4.iterdir()] == ["lost+found"]
    os.sync()
    assert os.statvfs(ext4).f_bfree >= free - 16


def has_large_file_in(folder, process):
    """Return whether the process has an open file of more than 1 MiB in the folder."""
    with suppress(OSError, psutil.Error):
        for descriptor in Path("/proc", str(process), "fd").iterdir():
            if str(descriptor.readlink()).startswith(f"{folder}/"):
                return descriptor.stat().st_size > MIB
    return False


def test_free_bytes_exclude_what_is_reserved_for_root(ext4):
    space = os.statvfs(ext4)
    assert space.f_bavail < space.f_bfree
    assert media.describe_medium(ext4).free_bytes == space.f_bavail * space.f_frsize


@pytest.fixture
def make_raid(tmp_path, monkeypatch):
    """Return a function that simulates in /sys a RAID of disks, rotational or not."""
    system = tmp_path / "block"
    monkeypatch.setattr(mounts, "_SYS", system)
    system.mkdir()

    def make_array(*rotational):
        array = tmp_path / "devices" / "md0"
        (array / "slaves").mkdir(parents=True)
        (system / "9:0").symlink_to(array)
        (tmp_path / "bus" / "scsi").mkdir(parents=True)
        for number, value in enumerate(rotational):
            disk = tmp_path / "devices" / f"sd{number}"
            (disk / "queue").mkdir(parents=True)
            (disk / "device").mkdir()
            (disk / "device" / "subsystem").symlink_to(tmp_path / "bus" / "scsi")
            (disk / "queue" / "rotational").write_text(f"{value}\n")
            (disk / "dev").write_text(f"8:{number}\n")
            (system / f"8:{number}").symlink_to(disk)
            (array / "slaves" / disk.name).symlink_to(disk)
        array_mount = mounts.Mount(1, "9:0", "/", "/", "ext4", "/dev/md0", ())
        monkeypatch.setattr(mounts, "mount_of", lambda _: array_mount)

    return make_array


@pytest.mark.parametrize(
    ("rotational", "expected"), [((0, 0), False), ((1, 1), True), ((0, 1), None)]
)
def test_medium_is_rotational_if_all_of_its_disks_are(make_raid, tmp_path, rotational, expected):
    make_raid(*rotational)
    facts = mounts.storage_facts(tmp_path)
    assert facts["disks"] == ["scsi", "scsi"] and facts["rotational"] is expected


@pytest.mark.parametrize(
    ("file_system", "options", "expected"),
    [
        *(("squashfs", "ro", True), ("erofs", "ro", True), ("zfs", "rw", True)),
        *(("btrfs", "rw,compress-force=zstd", True), ("btrfs", "rw", False), ("ext4", "rw", False)),
        *(("btrfs", "rw,compress=none", False), ("btrfs", "rw,compress=no", False)),
        *(("btrfs", "rw,compress", True), ("btrfs", "rw,compress=lzo", True)),
    ],
)
def test_compressing_file_systems_are_recognized(file_system, options, expected):
    [mount] = mounts.list_mounts(f"36 35 0:50 / /a rw - {file_system} /dev/nonesuch {options}\n")
    assert mount.compresses is expected


def test_a_server_is_stored_as_a_salted_hash_only(monkeypatch, tmp_path):
    def hash_source(file_system, source):
        line = f"36 35 0:32 / / rw - {file_system} {source} rw"
        monkeypatch.setattr(mounts, "mount_of", lambda _: mounts.list_mounts(line)[0])
        medium = media.describe_medium(tmp_path)
        assert "tcp" not in medium.model_dump_json()
        return medium.source_hash

    source = "one@tcp:/fast"
    first = hash_source("lustre", source)
    assert len(first) == 20 and first not in hashlib.sha256(source.encode()).hexdigest()
    assert hash_source("lustre", source) == first != hash_source("lustre", "two@tcp:/fast")
    assert hash_source("ext4", "/dev/sda1") is None
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "of another user"))
    assert hash_source("lustre", source) != first
