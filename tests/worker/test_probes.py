"""What a probe sees in one process: where memory lies, and what a signal in a step comes to."""

import mmap
import signal
import subprocess
import sys
import threading

import pytest

from tests.fake_trainer import FakeTrainer
from xfbench.worker import placement, probes


class Forgetful(FakeTrainer):
    def restore(self, folder):
        pass


class Deaf(FakeTrainer):
    def step(self, batch):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().step(batch)


class Full(FakeTrainer):
    def save(self, folder):
        raise RuntimeError("no room\nat all")


class Unreadable(FakeTrainer):
    def restore(self, folder):
        raise ValueError("what is that?")


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A function: five steps of this trainer, asked to end in the third; it, and the answer."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    def run(trainer):
        watched = probes.Watched(trainer, signalled=True)
        for _ in range(5):
            watched.step(None)
            watched.synchronize()
        assert not list(tmp_path.iterdir())
        return watched, watched.outcome()

    yield run
    signal.signal(signal.SIGTERM, before)


def test_training_continues_after_a_signal_and_checkpoint(trained):
    watched, told = trained(FakeTrainer())
    assert told["supported"] == "yes", told
    assert "in step 3" in told["evidence"] and "2 steps more" in told["evidence"]
    assert list(watched.parameters()["conv1/weight"][:3]) == [5.0, 6.0, 7.0]
    assert watched.steps == 5


@pytest.mark.parametrize(
    ("trainer", "words"),
    [
        (Forgetful, "does not read back equal: conv1/weight"),
        (Deaf, "never came"),
        (Full, "RuntimeError: no room"),
    ],
)
def test_failed_signal_probe_reports_no_with_the_reason(trained, trainer, words):
    _, told = trained(trainer())
    assert told["supported"] == "no"
    assert told["evidence"].endswith(words), told


def test_training_continues_after_an_unreadable_checkpoint(trained):
    watched, told = trained(Unreadable())
    assert told["supported"] == "no" and "what is that?" in told["evidence"]
    assert list(watched.parameters()["conv1/weight"][:3]) == [5.0, 6.0, 7.0]


def test_ranks_are_compared_before_sync_is_disabled():
    class Apart(FakeTrainer):
        def disable_sync(self):
            self.value = self.value * 2

    one, other = (probes.Watched(Apart(), signalled=False) for _ in range(2))
    for watched in (one, other):
        watched.step(None)
        assert hasattr(watched, "disable_sync")
    other.disable_sync()
    other.step(None)
    assert one.together() == other.together()
    assert other.together()[1] == 1
    alone = probes.Watched(FakeTrainer(), signalled=False)
    alone.step(None)
    alone.step(None)
    assert not hasattr(alone, "disable_sync")
    assert alone.together()[1] == 2 and alone.together()[0] != one.together()[0]


def test_transparent_huge_pages_are_detected():
    if placement.huge_page_mode() in ("", "never"):
        pytest.skip("there are none here")
    before = placement.rolled_up("AnonHugePages")
    size = 16 << 20
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as own:
        own.madvise(mmap.MADV_HUGEPAGE)
        for place in range(0, size, 4096):
            own[place] = 1
        assert placement.rolled_up("AnonHugePages") - before >= size - (4 << 20)


def test_kernel_memory_files_are_parsed(tmp_path):
    rollup = tmp_path / "rollup"
    rollup.write_text("Rss:  10 kB\nAnonHugePages:    2048 kB\nPrivate_Hugetlb:  0 kB\n")
    assert placement.rolled_up("AnonHugePages", rollup) == 2 << 20
    assert placement.rolled_up("Nothing", rollup) is None
    assert placement.rolled_up("Rss", tmp_path / "nowhere") is None
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00 default file=/lib/x.so mapped=9 N0=9 kernelpagesize_kB=4\n"
        "7f01 prefer:1 anon=7 dirty=7 N0=2 N1=5 kernelpagesize_kB=4\n"
        "7f02 default heap anon=1 N0=1\n"
    )
    assert placement.pages_by_node(maps) == {0: 3, 1: 5}
    (tmp_path / "has_memory").write_text("0-1,3\n")
    (tmp_path / "has_cpu").write_text("0\n")
    assert placement.nodes("has_memory", tmp_path) == {0, 1, 3}
    assert placement.nodes("has_cpu", tmp_path) == {0}
    assert placement.nodes("has_memory", tmp_path / "nowhere") == set()
    mode = tmp_path / "enabled"
    mode.write_text("always [madvise] never\n")
    assert placement.huge_page_mode(mode) == "madvise"


def test_memory_policy_prefers_the_requested_node():
    script = (
        "from xfbench.worker import placement\n"
        "node = max(placement.nodes('has_memory') or {0})\n"
        "print(placement.prefer(node), placement.prefer(1000))\n"
        "kept = bytearray(b'1') * (32 << 20)\n"
        "found = placement.pages_by_node()\n"
        "print(node, found.get(node, 0) * placement.PAGE_BYTES >> 20)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    if not first.startswith("None "):
        pytest.skip(first)
    assert "set_mempolicy: " in first.removeprefix("None ")
    assert int(second.split()[1]) >= 32


@pytest.mark.parametrize(
    ("nodes", "grown", "expected"),
    [
        ({"has_memory": {0, 1}, "has_cpu": {0, 1}}, {1: 95, 0: 5}, ("yes", "not here")),
        ({"has_memory": {0, 1}, "has_cpu": {0, 1}}, {1: 40, 0: 60}, ("no", "not here")),
        ({"has_memory": {0, 1}, "has_cpu": {0}}, {1: 95, 0: -5}, ("yes", "yes")),
        ({"has_memory": {0, 1}, "has_cpu": {0}}, {0: 95}, ("no", "no")),
        ({"has_memory": {0}, "has_cpu": {0}}, {0: 95}, ("not here", "not here")),
        ({"has_memory": {0, 1}, "has_cpu": {0}}, {}, ("not here", "not here")),
    ],
)
def test_memory_placement_is_judged_by_new_pages(monkeypatch, nodes, grown, expected):
    monkeypatch.setattr(probes.placement, "nodes", nodes.__getitem__)
    target, told = max(nodes["has_memory"]), probes._placed
    found = told(target, None, grown)
    assert tuple(one["supported"] for one in found) == expected
    refused = told(target, "set_mempolicy: Operation not permitted", grown)
    assert refused[0]["supported"] == "not here" and "permitted" in refused[0]["evidence"]


def test_threads_that_leave_their_cores_fail_the_probe():
    assert probes._kept([0], [0])["supported"] == "yes"
    assert probes._kept([0], [0, 1])["supported"] == "no"
    assert probes._kept(None, [0, 1])["supported"] == "not here"


def test_probe_stops_waiting_for_a_blocked_framework(monkeypatch):
    monkeypatch.setattr(probes, "_PATIENCE", 1)
    never = threading.Event()
    told = probes.found_by_itself(never.wait)["place"]
    assert told == {"found": None, "said": "no answer in 1 s"}
    assert probes.found_by_itself(lambda: 3)["place"] == {"found": 3, "said": ""}
    assert signal.alarm(0) == 0
