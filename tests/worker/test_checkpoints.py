"""Checkpoints: when they are taken, what is counted, what comes back, and where nothing is left."""

import contextlib
import ctypes
import mmap
import os
import shutil
import subprocess

import numpy as np
import pytest

from tests.fake_framework import TWO_RANKS
from tests.fake_trainer import FakeTrainer
from xfbench.worker import checkpoint
from xfbench.workloads import workloads

EPOCHS = {"steps": None, "data": "digits", "global_batch_size": 64, "batch_size_per_rank": 64}
SAVES = {"checkpoint": "plain"}


class LoggingTrainer(FakeTrainer):
    """A trainer that notes its steps (t) and checkpoints (a)."""

    log = ""

    def step(self, batch):
        self.log += "t"
        self.value = self.value + 1

    def save(self, folder):
        assert not list(folder.iterdir())
        self.log += "a"
        super().save(folder)


def test_checkpoints_are_spread_over_steps_and_read_back_equal(train):
    trainer = LoggingTrainer()
    reply = train(trainer, steps=6, warmup=1, checkpoints=3)
    assert trainer.log == "tt" + "tta" * 3
    checkpoints = reply["checkpoints"]
    assert len(checkpoints["save_seconds"]) == len(checkpoints["load_seconds"]) == 3
    assert checkpoints["equal"] and checkpoints["bytes"] == 128 + 4000
    assert checkpoints["wall_seconds"] < reply["measurement"]["wall_seconds"]


def test_uneven_checkpoints_still_follow_the_last_step(train):
    trainer = LoggingTrainer()
    train(trainer, steps=7, warmup=0, checkpoints=3)
    assert trainer.log == "t" + "ttta" + "tta" + "tta"


def test_checkpoints_are_spread_evenly_over_epochs(train):
    trainer = LoggingTrainer()
    train(trainer, epochs=4, checkpoints=2, **EPOCHS)
    assert trainer.log == ("t" * 2 * 22 + "a") * 2


def test_extended_warmup_does_not_add_checkpoints(train, clock):
    """Twenty steps whose level falls once, so that the launch goes on."""

    class SpeedingUpTrainer(LoggingTrainer):
        def step(self, batch):
            super().step(batch)
            clock.now += 9.0 if self.log.count("t") <= 9 else 1.0

    trainer = SpeedingUpTrainer()
    reply = train(trainer, steps=20, warmup=0, checkpoints=2)
    assert len(reply["measurement"]["warmup_seconds"]) > 0
    assert trainer.log.startswith("t" + "t" * 10 + "a" + "t" * 10 + "at")
    assert trainer.log.count("a") == 2


def test_only_wall_time_includes_checkpoints_not_step_times(train, clock):
    """Time passes in steps, in saving, in loading, and in looking at parameters."""

    class TimedTrainer(FakeTrainer):
        def step(self, batch):
            clock.now += 1.0

        def save(self, folder):
            clock.now += 30.0
            super().save(folder)

        def restore(self, folder):
            clock.now += 7.0
            super().restore(folder)

        def parameters(self):
            clock.now += 100.0
            return super().parameters()

    reply = train(TimedTrainer(), steps=4, warmup=0, checkpoints=2)
    checkpoints, measurement = reply["checkpoints"], reply["measurement"]
    assert measurement["step_seconds"] == pytest.approx((1.0,) * 4, abs=1e-6)
    assert checkpoints["save_seconds"] == pytest.approx((30.0,) * 2, abs=1e-6)
    assert checkpoints["load_seconds"] == pytest.approx((7.0,) * 2, abs=1e-6)
    assert checkpoints["wall_seconds"] == pytest.approx(2 * 237.0, abs=1e-6)
    assert measurement["wall_seconds"] == pytest.approx(5 + 2 * 237.0, abs=1e-6)


# Two threads work while it saves, and end when the launch does.
BUSY_SCRIPT = """
import threading
stop, end = threading.Event(), threading.Event()
def spin():
    while not stop.wait(0): sum(range(1000))
    end.wait()
class Trainer(FakeTrainer):
    def step(self, batch): sum(range(3000000))
    def save(self, folder):
        print(folder, flush=True)
        for _ in range(2): threading.Thread(target=spin).start()
        super().save(folder)
        stop.wait(0.5)
    def restore(self, folder):
        stop.set()
        super().restore(folder)
    def runtime_info(self):
        end.set()
        return super().runtime_info()
"""


@pytest.fixture(scope="module")
def busy_launch(shared_fake_launch, tmp_path_factory):
    """A launch with a checkpoint in a folder of its own: record, run folder and that folder."""
    checkpoint_folder = tmp_path_factory.mktemp("below")
    return *shared_fake_launch(
        BUSY_SCRIPT, adapter=SAVES, checkpoints=1, checkpoint_dir=checkpoint_folder
    ), checkpoint_folder


def test_saving_threads_are_not_counted_as_training_threads(busy_launch):
    record, *_ = busy_launch
    assert record.status == "ok", record.reason
    assert record.observed.threads == 1


def test_checkpoint_files_are_removed_after_a_launch(busy_launch):
    record, folder, checkpoint_folder = busy_launch
    assert (record.checkpoints.equal, record.checkpoints.format) == (True, "plain")
    names = "request.json command.json command.sh worker.pyz stdout stderr reply.json".split()
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert str(checkpoint_folder) in (folder / "stdout").read_text()
    assert not list(checkpoint_folder.iterdir())


@pytest.mark.parametrize(
    "change_value",
    [
        np.zeros_like,
        lambda saved: saved * np.float32(1 + 2.0**-23),
        lambda saved: saved.astype(np.float64),
    ],
)
def test_what_does_not_read_back_bit_for_bit_is_told(train, change_value):
    class BrokenTrainer(FakeTrainer):
        def restore(self, folder):
            super().restore(folder)
            self.value = change_value(self.value)

    checkpoints = train(BrokenTrainer(), checkpoints=1)["checkpoints"]
    assert (checkpoints["equal"], checkpoints["differing"]) == (False, ["conv1/weight"])


def test_what_does_not_read_back_is_invalid(busy_launch, judge_changed_reply):
    differing = {"equal": False, "differing": ["conv1/weight"]}
    record = judge_changed_reply(
        busy_launch[:2], lambda reply: reply["checkpoints"].update(differing)
    )
    assert record.status == "invalid"
    assert "does not read back equal: conv1/weight" in record.reason
    assert record.checkpoints.differing == ("conv1/weight",)


@pytest.mark.deep
@pytest.mark.parametrize(
    "value",
    [
        "np.zeros_like(self.value)",
        "self.value * np.float32(1 + 2.0**-23)",
        "self.value.astype(np.float64)",
    ],
)
def test_a_launch_that_reads_other_bits_is_invalid(launch_fake, value):
    broken = f"""
        class Trainer(FakeTrainer):
            def restore(self, folder):
                super().restore(folder)
                self.value = {value}
        """
    record, _ = launch_fake(broken, adapter=SAVES, checkpoints=1)
    assert record.status == "invalid"
    assert "does not read back equal: conv1/weight" in record.reason
    assert not record.checkpoints.equal
    assert record.checkpoints.differing == ("conv1/weight",)


@pytest.mark.deep
def test_a_launch_that_cannot_read_a_checkpoint_is_failed(launch_fake):
    unreadable = """
        class Trainer(FakeTrainer):
            def restore(self, folder): raise ValueError("no such format")
        """
    record, folder = launch_fake(unreadable, adapter=SAVES, checkpoints=1)
    assert (record.status, record.reason) == ("failed", "ValueError: no such format")
    assert not (folder / "checkpoint").exists()


def test_one_that_cannot_be_read_fails_in_the_frameworks_words(train, tmp_path):
    class BrokenTrainer(FakeTrainer):
        def restore(self, folder):
            raise ValueError("no such format")

    with pytest.raises(ValueError, match=r"^no such format$"):
        train(BrokenTrainer(), checkpoints=1)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(
    ("ending_code", "status"),
    [("os.kill(os.getpid(), 9)", "crashed"), ("time.sleep(100)", "timed_out")],
)
def test_crash_or_timeout_during_save_leaves_no_checkpoint(
    launch_fake, tmp_path, ending_code, status
):
    checkpoint_folder = tmp_path / "below"
    checkpoint_folder.mkdir()
    script = f"""
        class Trainer(FakeTrainer):
            def save(self, folder):
                super().save(folder)
                {ending_code}
        """
    options = {"checkpoint_dir": checkpoint_folder, "time_limit": 6, "adapter": SAVES}
    record, _ = launch_fake(script, checkpoints=1, **options)
    assert record.status == status
    assert not list(checkpoint_folder.iterdir())


@pytest.fixture
def mount_small_disk(tmp_path):
    """A function that mounts a file system in memory of so many kilobytes."""
    mount_points = []

    def mount(kilobytes):
        if os.geteuid() != 0:
            pytest.skip("only root can mount a small file system")
        folder = tmp_path / "small"
        folder.mkdir()
        size = ["-o", f"size={kilobytes}k"]
        completed = subprocess.run(
            ["mount", "-t", "tmpfs", *size, "xfbench-small", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        if completed.returncode:
            pytest.skip(f"no small file system here: {completed.stderr.strip()}")
        mount_points.append(folder)
        return folder

    yield mount
    for folder in mount_points:
        subprocess.run(["umount", folder], check=True)


# What has no velocities and is small seems to have room, and finds none while it writes.
class LargeFileTrainer(LoggingTrainer):
    def save(self, folder):
        self.log += "a"
        np.save(folder / "value.npy", np.resize(self.value, 4 * 10**6))


class ErrorHidingTrainer(LargeFileTrainer):
    def save(self, folder):
        with contextlib.suppress(OSError):
            super().save(folder)


class CleaningTrainer(LargeFileTrainer):
    """It clears up behind itself, as TensorFlow does, and says in its own words what it was."""

    def save(self, folder):
        try:
            super().save(folder)
        except OSError:
            (folder / "value.npy").unlink()
            raise RuntimeError("value.npy; No space left on device") from None


@pytest.mark.parametrize("trainer_class", [LargeFileTrainer, ErrorHidingTrainer, CleaningTrainer])
def test_full_disk_fails_and_reports_folder_and_free_space(train, mount_small_disk, trainer_class):
    disk, trainer = mount_small_disk(3000), trainer_class()
    with pytest.raises(checkpoint.DiskFull, match=f"{disk} has room for 3.1 MB") as failure:
        train(trainer, folder=disk / "checkpoint", checkpoints=1)
    assert "--checkpoint-dir" in str(failure.value)
    assert "a" in trainer.log
    assert not list(disk.iterdir())


def test_too_small_disk_fails_before_a_checkpoint_is_written(train, mount_small_disk):
    class LargeTrainer(LoggingTrainer):
        def parameters(self):
            return {"conv1/weight": np.resize(self.value, 10**6)}

    disk, trainer = mount_small_disk(1024), LargeTrainer()
    words = f"takes at least 8.0 MB, and {disk} has room for 1.0 MB"
    with pytest.raises(checkpoint.DiskFull, match=words):
        train(trainer, folder=disk / "checkpoint", checkpoints=1)
    assert "a" not in trainer.log


@pytest.mark.deep
def test_a_launch_without_room_for_a_checkpoint_is_failed(launch_fake, mount_small_disk):
    disk = mount_small_disk(1024)
    large = """
        class Trainer(FakeTrainer):
            def parameters(self): return {"conv1/weight": np.resize(self.value, 10**6)}
            def save(self, folder): print("save", flush=True)
        """
    record, folder = launch_fake(large, adapter=SAVES, checkpoints=1, checkpoint_dir=disk)
    assert record.status == "failed"
    assert record.reason.startswith("DiskFull: a checkpoint takes at least 8.0 MB")
    assert f"…/{disk.name} has room for 1.0 MB" in record.reason  # records name no folders
    assert "save" not in (folder / "stdout").read_text()


def test_record_names_the_file_system_of_checkpoints(train, mount_small_disk):
    reply = train(FakeTrainer(), folder=mount_small_disk(3000) / "checkpoint", checkpoints=1)
    assert reply["checkpoints"]["file_system"] == "tmpfs"


def test_missing_checkpoint_folder_fails_the_launch(train, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        train(FakeTrainer(), folder=tmp_path / "nowhere" / "checkpoint", checkpoints=1)


@pytest.mark.deep
def test_a_launch_without_its_checkpoint_folder_is_failed(launch_fake, tmp_path):
    missing_folder = tmp_path / "nowhere"
    record, _ = launch_fake(adapter=SAVES, checkpoints=1, checkpoint_dir=missing_folder)
    assert record.status == "failed"
    assert "No such file" in record.reason and "…/nowhere" in record.reason


def test_adapter_without_a_checkpoint_format_is_unsupported(launch_fake):
    record, _ = launch_fake(checkpoints=1)
    assert record.status == "unsupported"
    assert record.reason == "the adapter for odd saves no checkpoints"


def test_only_first_rank_saves_and_all_ranks_sync_afterwards(launch_fake):
    saving = """
        class Trainer(FakeTrainer):
            def gradients(self, batch):
                print("gradients", flush=True)
                return {}
            def save(self, folder):
                print("save", flush=True)
                super().save(folder)
        """
    record, folder = launch_fake(saving, adapter=SAVES, checkpoints=2, steps=4, **TWO_RANKS)
    assert record.status == "ok", record.reason
    assert len(record.checkpoints.save_seconds) == 2
    outputs = [(folder / name).read_text().split() for name in ("stdout", "stdout.1")]
    assert outputs == [["save", "gradients"] * 2, ["gradients"] * 2]


def test_checkpoint_folder_is_dropped_from_the_page_cache(tmp_path):
    if checkpoint.file_system_type(tmp_path) not in ("ext4", "xfs", "btrfs"):
        pytest.skip(f"{checkpoint.file_system_type(tmp_path)} may keep what it holds in memory")
    file = tmp_path / "below" / "file"
    file.parent.mkdir()
    file.write_bytes(os.urandom(2**22))
    assert count_resident_pages(file) == 2**22 // mmap.PAGESIZE
    checkpoint.fsync_files_in_folder(tmp_path)
    checkpoint.evict_files_from_page_cache(tmp_path)
    assert count_resident_pages(file) == 0
    assert checkpoint.folder_bytes(tmp_path) == 2**22


def test_checkpoint_is_loaded_from_disk_not_from_page_cache(train, tmp_path):
    """Pages that were not flushed cannot be dropped."""
    if checkpoint.file_system_type(tmp_path) not in ("ext4", "xfs", "btrfs"):
        pytest.skip(f"{checkpoint.file_system_type(tmp_path)} may keep what it holds in memory")

    class ResidencyTrainer(FakeTrainer):
        def save(self, folder):
            np.save(folder / "value.npy", np.resize(self.value, 10**6))

        def restore(self, folder):
            self.resident = count_resident_pages(folder / "value.npy")
            self.value = np.load(folder / "value.npy")[:1000]

    trainer = ResidencyTrainer()
    assert train(trainer, checkpoints=1)["checkpoints"]["equal"]
    assert trainer.resident == 0


def count_resident_pages(file):
    """How many of a file's pages are in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        c_size = ctypes.c_size_t(size)
        start = libc.mmap(None, c_size, mmap.PROT_READ, mmap.MAP_SHARED, opened.fileno(), 0)
        assert libc.mincore(ctypes.c_void_p(start), c_size, pages) == 0
        libc.munmap(ctypes.c_void_p(start), c_size)
    return sum(page & 1 for page in pages)


def test_fingerprint_compares_bits_not_values():
    def digest_bits(*values, dtype=np.float32):
        return checkpoint.parameter_digests({"a": np.array(values, dtype)})

    assert digest_bits(1.0, np.nan) == digest_bits(1.0, np.nan)
    assert digest_bits(0.0) != digest_bits(-0.0)
    assert digest_bits(1.0) != digest_bits(1.0, dtype=np.float64)
    assert digest_bits(1.0, 2.0) != digest_bits(2.0, 1.0)


def test_least_bytes_counts_weights_and_velocities():
    lenet = workloads()["lenet"]
    parameters = {
        name: np.zeros(parameter.shape, np.float32)
        for name, parameter in lenet.network.parameters.items()
    }
    assert checkpoint.min_checkpoint_bytes(lenet, parameters) == 8 * 431_080


@pytest.mark.parametrize("missing_bytes", [0, 1])
def test_checkpoint_needs_a_mebibyte_beside_its_numbers(mount_small_disk, missing_bytes):
    disk = mount_small_disk(3000)
    required_bytes = shutil.disk_usage(disk).free - 2**20 + missing_bytes
    expectation = pytest.raises(checkpoint.DiskFull) if missing_bytes else contextlib.nullcontext()
    with expectation, checkpoint.temporary_checkpoint_folder(disk / "checkpoint", required_bytes):
        pass


def test_files_of_a_killed_launch_are_removed_first(tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "old").write_bytes(b"x")
    with checkpoint.temporary_checkpoint_folder(folder, 0) as empty:
        assert not list(empty.iterdir())


def test_least_bytes_has_no_velocities_of_running_means():
    resnet = workloads()["resnet50"]
    parameters = {
        name: np.zeros(parameter.shape, np.float32)
        for name, parameter in resnet.network.parameters.items()
    }
    learned_count = resnet.network.learned_count
    parameter_count = sum(array.size for array in parameters.values())
    assert parameter_count > learned_count
    assert checkpoint.min_checkpoint_bytes(resnet, parameters) == 4 * (
        parameter_count + learned_count
    )
