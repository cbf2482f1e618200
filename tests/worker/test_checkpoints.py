"""Checkpoints: when they are taken, what is counted, what comes back, and where nothing is left."""

import ctypes
import inspect
import mmap
import os
import subprocess

import numpy as np
import pytest

from tests import side_by_side
from xfbench.results.store import Store
from xfbench.running import canary, runner
from xfbench.worker import checkpoint
from xfbench.workloads import workloads

# A trainer of one parameter, whose checkpoint is the parameter and nothing else.
TRAINER = """
import time
import numpy as np
from xfbench.worker import loop

class Trainer:
    def __init__(self): self.value = np.ones(1000, np.float32)
    def load(self, images, labels): return images
    def step(self, batch):
        print("step", flush=True)
        self.value *= 1.5
        time.sleep(0.02)
    def wait(self): return 1.0
    def loss(self, batch): return EXPECTED_LOSS
    def scores(self, batch): return np.zeros((len(batch), 10), np.float32)
    def gradients(self, batch): return {}
    def parameters(self): return {"conv1/weight": self.value.copy()}
    def assign(self, parameters): self.value = np.resize(parameters["conv1/weight"], 1000)
    def save(self, folder):
        assert not list(folder.iterdir())
        print("save", flush=True)
        np.save(str(folder / "value.npy"), self.value)
    def restore(self, folder): self.value = np.load(str(folder / "value.npy"))
    def observed(self):
        known = {"framework_version": "1", "layout": "NCHW", "kernel": "plain"}
        return {**known, "kernel_evidence": []}

def build(network, solver, options, group):
    return Trainer()
"""
EPOCHS = {"steps": None, "data": "digits", "global_batch_size": 64, "batch_size_per_rank": 64}


@pytest.fixture
def launch(own_adapter, cell, tmp_path):
    """A function that does one launch with this `train.py`: its record and run folder."""

    def do(train, time_limit=60.0, below=None, extra=None, **request):
        own_adapter("odd", train, **({"checkpoint": '"plain"'} if extra is None else extra))
        session = runner.Session(
            Store(tmp_path / "results"), time_limit=time_limit, checkpoint_dir=below
        )
        session.prepare(["odd"], {}, print)
        asked = cell(framework="odd", kernel="plain", **request).request(1)
        [record] = runner.run([asked], session)
        return record, session.store.run_folder(record)

    return do


def told(folder):
    """The order of steps and checkpoints, a letter each."""
    return "".join(line[:2][-1] for line in (folder / "stdout").read_text().split())


def test_they_are_spread_over_the_timed_steps_and_read_back_equal(launch):
    record, folder = launch(TRAINER, steps=6, warmup=1, checkpoints=3)
    assert record.status == "ok", record.reason
    assert told(folder) == "tt" + "tta" * 3
    taken = record.checkpoints
    assert len(taken.save_seconds) == len(taken.load_seconds) == 3
    assert (taken.equal, taken.differing, taken.format) == (True, (), "plain")
    assert taken.bytes == 128 + 4000
    assert taken.wall_seconds < record.measurement.wall_seconds


def test_an_uneven_number_ends_with_the_last_step_all_the_same(launch):
    record, folder = launch(TRAINER, steps=7, warmup=0, checkpoints=3)
    assert record.status == "ok", record.reason
    assert told(folder) == "t" + "ttta" + "tta" + "tta"


def test_of_epochs_they_follow_the_last_ones_evaluation(launch):
    loss = canary.expected("lenet", "digits", 64, 0, "float32").loss
    train = TRAINER.replace("EXPECTED_LOSS", repr(loss))
    record, folder = launch(train, epochs=4, checkpoints=2, **EPOCHS)
    assert record.status == "ok", record.reason
    assert told(folder) == ("t" * 2 * 22 + "a") * 2


def test_a_longer_warm_up_takes_no_more_of_them(launch):
    """Twenty steps whose level falls once, so that the launch goes on."""
    falling = """
import itertools
paces = itertools.chain([9.0] * 12, itertools.repeat(1.0))
class Simulated(Trainer):
    now = 0.0
    def step(self, batch):
        print("step", flush=True)
        Simulated.now += next(paces)
loop.perf_counter = lambda: Simulated.now + 1e-9 * next(COUNT)
COUNT = itertools.count()
def build(network, solver, options, group): return Simulated()
"""
    record, folder = launch(TRAINER + falling, steps=20, warmup=0, checkpoints=2)
    assert record.status == "ok", record.reason
    assert len(record.measurement.warmup_seconds) > 0
    assert told(folder).startswith("t" + "t" * 10 + "a" + "t" * 10 + "at")
    assert told(folder).count("a") == 2


# Time passes in steps, in saving, in loading, and in looking at parameters.
CLOCK = """
import itertools
class Simulated(Trainer):
    now = 0.0
    def takes(self, seconds): Simulated.now += seconds
    def step(self, batch): self.takes(1.0)
    def save(self, folder):
        self.takes(30.0)
        super().save(folder)
    def restore(self, folder):
        self.takes(7.0)
        super().restore(folder)
    def parameters(self):
        self.takes(100.0)
        return super().parameters()
loop.perf_counter = lambda: Simulated.now + 1e-9 * next(COUNT)
COUNT = itertools.count()
def build(network, solver, options, group): return Simulated()
"""


def test_steps_have_nothing_of_them_and_the_wall_time_has_all(launch):
    record, _ = launch(TRAINER + CLOCK, steps=4, warmup=0, checkpoints=2)
    assert record.status == "ok", record.reason
    assert record.measurement.step_seconds == pytest.approx((1.0,) * 4, abs=1e-6)
    taken = record.checkpoints
    assert taken.save_seconds == pytest.approx((30.0,) * 2, abs=1e-6)
    assert taken.load_seconds == pytest.approx((7.0,) * 2, abs=1e-6)
    assert taken.wall_seconds == pytest.approx(2 * 237.0, abs=1e-6)
    assert record.measurement.wall_seconds == pytest.approx(5 + 2 * 237.0, abs=1e-6)


BUSY = """
import threading
class Busy(Trainer):
    def step(self, batch): sum(range(3000000))
    def save(self, folder):
        threads = [threading.Thread(target=spin, args=(stop,)) for _ in range(2)]
        for thread in threads: thread.start()
        super().save(folder)
        stop.wait(0.5)
        self.left = threads
stop = threading.Event()
def spin(stop):
    while not stop.wait(0): sum(range(1000))
    never.wait()
never = threading.Event()
class Ends(Busy):
    def restore(self, folder):
        stop.set()
        super().restore(folder)
    def observed(self):
        never.set()
        return super().observed()
def build(network, solver, options, group): return Ends()
"""


def test_threads_that_save_are_not_counted_among_those_that_train(launch):
    record, _ = launch(TRAINER + BUSY, steps=3, checkpoints=1)
    assert record.status == "ok", record.reason
    assert record.observed.threads == 1


@pytest.mark.parametrize(
    "restore",
    [
        "pass",
        "self.value = np.load(str(folder / 'value.npy')) * np.float32(1 + 2.0**-23)",
        "self.value = np.load(str(folder / 'value.npy')).astype(np.float64)",
    ],
)
def test_what_does_not_read_back_bit_for_bit_is_invalid(launch, restore):
    broken = f"\nclass Broken(Trainer):\n    def restore(self, folder): {restore}\n"
    broken += "def build(network, solver, options, group): return Broken()\n"
    record, _ = launch(TRAINER + broken, checkpoints=1)
    assert record.status == "invalid"
    assert "does not read back equal: conv1/weight" in record.reason
    assert not record.checkpoints.equal
    assert record.checkpoints.differing == ("conv1/weight",)


def test_one_that_cannot_be_read_is_failed_in_the_frameworks_words(launch):
    broken = "\nclass Broken(Trainer):\n"
    broken += "    def restore(self, folder): raise ValueError('no such format')\n"
    broken += "def build(network, solver, options, group): return Broken()\n"
    record, folder = launch(TRAINER + broken, checkpoints=1)
    assert (record.status, record.reason) == ("failed", "ValueError: no such format")
    assert not (folder / "checkpoint").exists()


def test_nothing_is_left_of_them_in_the_runs_folder_or_where_they_were(launch, tmp_path):
    _, folder = launch(TRAINER, checkpoints=1)
    names = "request.json command.json command.sh worker.pyz stdout stderr reply.json".split()
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    below = tmp_path / "below"
    below.mkdir()
    shown = TRAINER.replace('print("save"', 'print(folder.parent, "save"')
    record, folder = launch(shown, checkpoints=1, below=below)
    assert record.status == "ok", record.reason
    assert str(below) in (folder / "stdout").read_text()
    assert not list(below.iterdir())


@pytest.mark.parametrize(
    ("end", "status"),
    [("os.kill(os.getpid(), 9)", "crashed"), ("time.sleep(100)", "timed_out")],
)
def test_a_worker_that_ends_while_it_saves_leaves_none_either(launch, tmp_path, end, status):
    below = tmp_path / "below"
    below.mkdir()
    ending = f"""
import os, time
class Ending(Trainer):
    def save(self, folder):
        super().save(folder)
        {end}
def build(network, solver, options, group): return Ending()
"""
    record, _ = launch(TRAINER + ending, checkpoints=1, below=below, time_limit=6)
    assert record.status == status
    assert not list(below.iterdir())


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts a file system in memory of so many kilobytes."""
    mounted = []

    def mount(kilobytes):
        if os.geteuid() != 0:
            pytest.skip("only root can mount a small file system")
        folder = tmp_path / "small"
        folder.mkdir()
        size = ["-o", f"size={kilobytes}k"]
        done = subprocess.run(
            ["mount", "-t", "tmpfs", *size, "xfbench-small", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"no small file system here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


# What has no velocities and is small seems to have room, and finds none while it writes.
WORDY = """
class Wordy(Trainer):
    def save(self, folder):
        print("save", flush=True)
        np.save(str(folder / "value.npy"), np.resize(self.value, 4 * 10**6))
def build(network, solver, options, group): return Wordy()
"""
SILENT = """
class Silent(Trainer):
    def save(self, folder):
        print("save", flush=True)
        try:
            np.save(str(folder / "value.npy"), np.resize(self.value, 4 * 10**6))
        except OSError:
            pass
def build(network, solver, options, group): return Silent()
"""
# One that clears up behind itself, as TensorFlow does, and says in words of its own what it was.
TIDY = """
class Tidy(Trainer):
    def save(self, folder):
        print("save", flush=True)
        try:
            np.save(str(folder / "value.npy"), np.resize(self.value, 4 * 10**6))
        except OSError:
            (folder / "value.npy").unlink()
            raise RuntimeError("value.npy; No space left on device") from None
def build(network, solver, options, group): return Tidy()
"""


@pytest.mark.parametrize("train", [WORDY, SILENT, TIDY])
def test_a_full_disk_is_failed_with_where_and_how_much(launch, small_disk, train):
    below = small_disk(3000)
    record, folder = launch(TRAINER + train, checkpoints=1, below=below)
    assert record.status == "failed"
    assert f"{below} has room for 3.1 MB" in record.reason
    assert record.reason.startswith("DiskFull: a checkpoint takes")
    assert "save" in (folder / "stdout").read_text()
    assert "--checkpoint-dir" in record.reason
    assert not list(below.iterdir())


def test_a_disk_that_is_too_small_is_failed_before_anything_is_written(launch, small_disk):
    large = TRAINER.replace("np.ones(1000,", "np.ones(10**6,").replace("1000)", "10**6)")
    below = small_disk(1024)
    record, folder = launch(large, checkpoints=1, below=below)
    assert record.status == "failed"
    assert f"takes 8.0 MB at least, and {below} has room for 1.0 MB" in record.reason
    assert "save" not in (folder / "stdout").read_text()


def test_the_file_system_that_held_them_is_told(launch, small_disk):
    record, _ = launch(TRAINER, checkpoints=1, below=small_disk(3000))
    assert record.checkpoints.file_system == "tmpfs"


def test_a_folder_that_is_not_there_is_failed(launch, tmp_path):
    record, _ = launch(TRAINER, checkpoints=1, below=tmp_path / "nowhere")
    assert record.status == "failed"
    assert "No such file" in record.reason and "nowhere" in record.reason


def test_an_adapter_that_names_no_format_is_unsupported(launch):
    record, _ = launch(TRAINER, checkpoints=1, extra={})
    assert record.status == "unsupported"
    assert record.reason == "the adapter for odd saves no checkpoints"


def test_of_several_ranks_the_first_saves_and_all_meet_afterwards(own_adapter, cell, tmp_path):
    saving = """
class Saving(Trainer):
    def gradients(self, batch):
        print("gradients", flush=True)
        return {}
    def save(self, folder):
        print("save", flush=True)
        (folder / "file").write_text("")
    def restore(self, folder): pass
def build(network, solver, options, group): return Saving(group)
"""
    side_by_side.write(own_adapter, tmp_path, side_by_side.TRAINER + saving)
    described = tmp_path / "adapters" / "odd" / "adapter.toml"
    described.write_text(f'checkpoint = "plain"\n{described.read_text()}')
    session = runner.Session(Store(tmp_path / "results"))
    session.prepare(["odd"], {}, print)
    sizes = {"global_batch_size": 8, "batch_size_per_rank": 4, "scaling": "weak"}
    together = {"ranks": 2, "strategy": side_by_side.STRATEGY, "checkpoints": 2, "steps": 4}
    asked = cell(framework="odd", kernel="plain", **sizes, **together)
    [record] = runner.run([asked.request(1)], session)
    assert record.status == "ok", record.reason
    assert len(record.checkpoints.save_seconds) == 2
    folder = session.store.run_folder(record)
    said = [(folder / name).read_text().split() for name in ("stdout", "stdout.1")]
    assert said == [["save", "gradients"] * 2, ["gradients"] * 2]


def test_what_is_forgotten_is_in_no_cache(tmp_path):
    if checkpoint.file_system(tmp_path) not in ("ext4", "xfs", "btrfs"):
        pytest.skip(f"{checkpoint.file_system(tmp_path)} may keep what it holds in memory")
    file = tmp_path / "below" / "file"
    file.parent.mkdir()
    file.write_bytes(os.urandom(2**22))
    assert resident(file) == 2**22 // mmap.PAGESIZE
    checkpoint.flush(tmp_path)
    checkpoint.forget(tmp_path)
    assert resident(file) == 0
    assert checkpoint.size(tmp_path) == 2**22


def test_what_a_launch_loads_is_on_the_medium_and_in_no_cache(launch, tmp_path):
    """Pages that were not flushed cannot be dropped."""
    if checkpoint.file_system(tmp_path) not in ("ext4", "xfs", "btrfs"):
        pytest.skip(f"{checkpoint.file_system(tmp_path)} may keep what it holds in memory")
    looking = f"""
import ctypes, mmap, os
{inspect.getsource(resident)}
class Looking(Trainer):
    def save(self, folder): np.save(str(folder / "value.npy"), np.resize(self.value, 10**6))
    def restore(self, folder):
        print("resident", resident(folder / "value.npy"))
        self.value = np.load(str(folder / "value.npy"))[:1000]
def build(network, solver, options, group): return Looking()
"""
    record, folder = launch(TRAINER + looking, checkpoints=1)
    assert record.status == "ok", record.reason
    assert "resident 0" in (folder / "stdout").read_text()


def resident(file):
    """How many of a file's pages are in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        sized = ctypes.c_size_t(size)
        start = libc.mmap(None, sized, mmap.PROT_READ, mmap.MAP_SHARED, opened.fileno(), 0)
        assert libc.mincore(ctypes.c_void_p(start), sized, pages) == 0
        libc.munmap(ctypes.c_void_p(start), sized)
    return sum(page & 1 for page in pages)


def test_the_bits_are_compared_and_not_the_values():
    def bits(*values, dtype=np.float32):
        return checkpoint.fingerprint({"a": np.array(values, dtype)})

    assert bits(1.0, np.nan) == bits(1.0, np.nan)
    assert bits(0.0) != bits(-0.0)
    assert bits(1.0) != bits(1.0, dtype=np.float64)
    assert bits(1.0, 2.0) != bits(2.0, 1.0)


def test_no_checkpoint_is_smaller_than_weights_and_velocities():
    lenet = workloads()["lenet"]
    parameters = {
        name: np.zeros(parameter.shape, np.float32)
        for name, parameter in lenet.network.parameters.items()
    }
    assert checkpoint.least_bytes(lenet, parameters) == 8 * 431_080
