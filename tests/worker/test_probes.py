"""What a probe sees in one process: where memory lies, and what a signal in a step comes to."""

import mmap
import signal
import subprocess
import sys
import threading

import pytest

from tests.fake_trainer import FakeTrainer
from xfbench.worker import placement, probes


class ForgetfulTrainer(FakeTrainer):
    def restore(self, folder):
        pass


class SignalIgnoringTrainer(FakeTrainer):
    def step(self, batch):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().step(batch)


class FullDiskTrainer(FakeTrainer):
    def save(self, folder):
        raise RuntimeError("no room\nat all")


class UnreadableTrainer(FakeTrainer):
    def restore(self, folder):
        raise ValueError("what is that?")


@pytest.fixture
def train_with_signal(tmp_path, monkeypatch):
    """A function: five steps of this trainer, asked to end in the third; it, and the answer."""
    monkeypatch.chdir(tmp_path)
    old_handler = signal.getsignal(signal.SIGTERM)

    def run(trainer):
        watched = probes.WatchedTrainer(trainer, signalled=True)
        for _ in range(5):
            watched.step(None)
            watched.wait_for_loss()
        assert not list(tmp_path.iterdir())
        return watched, watched.checkpoint_after_signal_answer()

    yield run
    signal.signal(signal.SIGTERM, old_handler)


def test_training_continues_after_a_signal_and_checkpoint(train_with_signal):
    watched, answer = train_with_signal(FakeTrainer())
    assert answer["supported"] == "yes", answer
    assert "in step 3" in answer["evidence"] and "2 more steps" in answer["evidence"]
    assert list(watched.parameters()["conv1/weight"][:3]) == [5.0, 6.0, 7.0]
    assert watched.steps == 5


@pytest.mark.parametrize(
    ("trainer_class", "words"),
    [
        (ForgetfulTrainer, "the restored checkpoint differs: conv1/weight"),
        (SignalIgnoringTrainer, "did not arrive"),
        (FullDiskTrainer, "RuntimeError: no room"),
    ],
)
def test_failed_signal_probe_reports_no_with_the_reason(train_with_signal, trainer_class, words):
    _, answer = train_with_signal(trainer_class())
    assert answer["supported"] == "no"
    assert answer["evidence"].endswith(words), answer


def test_training_continues_after_an_unreadable_checkpoint(train_with_signal):
    watched, answer = train_with_signal(UnreadableTrainer())
    assert answer["supported"] == "no" and "what is that?" in answer["evidence"]
    assert list(watched.parameters()["conv1/weight"][:3]) == [5.0, 6.0, 7.0]


def test_ranks_are_compared_before_sync_is_disabled():
    class UnsyncedTrainer(FakeTrainer):
        def disable_sync(self):
            self.value = self.value * 2

    first, second = (probes.WatchedTrainer(UnsyncedTrainer(), signalled=False) for _ in range(2))
    for watched in (first, second):
        watched.step(None)
        assert hasattr(watched, "disable_sync")
    second.disable_sync()
    second.step(None)
    assert first.synced_digest_and_step_count() == second.synced_digest_and_step_count()
    assert second.synced_digest_and_step_count()[1] == 1
    single_rank = probes.WatchedTrainer(FakeTrainer(), signalled=False)
    single_rank.step(None)
    single_rank.step(None)
    assert not hasattr(single_rank, "disable_sync")
    assert (
        single_rank.synced_digest_and_step_count()[1] == 2
        and single_rank.synced_digest_and_step_count()[0] != first.synced_digest_and_step_count()[0]
    )


def test_transparent_huge_pages_are_detected():
    if placement.huge_page_mode() in ("", "never"):
        pytest.skip("there are none here")
    before = placement.mapped_bytes("AnonHugePages")
    size = 16 << 20
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for offset in range(0, size, 4096):
            memory[offset] = 1
        assert placement.mapped_bytes("AnonHugePages") - before >= size - (4 << 20)


def test_kernel_memory_files_are_parsed(tmp_path):
    rollup = tmp_path / "rollup"
    rollup.write_text("Rss:  10 kB\nAnonHugePages:    2048 kB\nPrivate_Hugetlb:  0 kB\n")
    assert placement.mapped_bytes("AnonHugePages", rollup) == 2 << 20
    assert placement.mapped_bytes("Nothing", rollup) is None
    assert placement.mapped_bytes("Rss", tmp_path / "nowhere") is None
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00 default file=/lib/x.so mapped=9 N0=9 kernelpagesize_kB=4\n"
        "7f01 prefer:1 anon=7 dirty=7 N0=2 N1=5 kernelpagesize_kB=4\n"
        "7f02 default heap anon=1 N0=1\n"
    )
    assert placement.anonymous_pages_by_node(maps) == {0: 3, 1: 5}
    (tmp_path / "has_memory").write_text("0-1,3\n")
    (tmp_path / "has_cpu").write_text("0\n")
    assert placement.numa_nodes("has_memory", tmp_path) == {0, 1, 3}
    assert placement.numa_nodes("has_cpu", tmp_path) == {0}
    assert placement.numa_nodes("has_memory", tmp_path / "nowhere") == set()
    mode = tmp_path / "enabled"
    mode.write_text("always [madvise] never\n")
    assert placement.huge_page_mode(mode) == "madvise"


def test_memory_policy_prefers_the_requested_node():
    script = (
        "from xfbench.worker import placement\n"
        "node = max(placement.numa_nodes('has_memory') or {0})\n"
        "print(placement.prefer_memory_of_node(node), placement.prefer_memory_of_node(1000))\n"
        "kept = bytearray(b'1') * (32 << 20)\n"
        "found = placement.anonymous_pages_by_node()\n"
        "print(node, found.get(node, 0) * placement.PAGE_BYTES >> 20)\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    first, second = completed.stdout.splitlines()
    if not first.startswith("None "):
        pytest.skip(first)
    assert "set_mempolicy: " in first.removeprefix("None ")
    assert int(second.split()[1]) >= 32


@pytest.mark.parametrize(
    ("nodes", "new_pages", "expected"),
    [
        ({"has_memory": {0, 1}, "has_cpu": {0, 1}}, {1: 95, 0: 5}, ("yes", "not here")),
        ({"has_memory": {0, 1}, "has_cpu": {0, 1}}, {1: 40, 0: 60}, ("no", "not here")),
        ({"has_memory": {0, 1}, "has_cpu": {0}}, {1: 95, 0: -5}, ("yes", "yes")),
        ({"has_memory": {0, 1}, "has_cpu": {0}}, {0: 95}, ("no", "no")),
        ({"has_memory": {0}, "has_cpu": {0}}, {0: 95}, ("not here", "not here")),
        ({"has_memory": {0, 1}, "has_cpu": {0}}, {}, ("not here", "not here")),
    ],
)
def test_memory_placement_is_judged_by_new_pages(monkeypatch, nodes, new_pages, expected):
    monkeypatch.setattr(probes.placement, "numa_nodes", nodes.__getitem__)
    target, build_answers = max(nodes["has_memory"]), probes._numa_and_hbm_placement_answers
    answers = build_answers(target, None, new_pages)
    assert tuple(answer["supported"] for answer in answers) == expected
    refused_answers = build_answers(target, "set_mempolicy: Operation not permitted", new_pages)
    assert (
        refused_answers[0]["supported"] == "not here"
        and "permitted" in refused_answers[0]["evidence"]
    )


def test_threads_that_leave_their_cores_fail_the_probe():
    assert probes._affinity_answer([0], [0])["supported"] == "yes"
    assert probes._affinity_answer([0], [0, 1])["supported"] == "no"
    assert probes._affinity_answer(None, [0, 1])["supported"] == "not here"


def test_probe_stops_waiting_for_a_blocked_framework(monkeypatch):
    monkeypatch.setattr(probes, "_TIMEOUT_SECONDS", 1)
    never_set = threading.Event()
    answer = probes.probe_native_rank_count(never_set.wait)["place"]
    assert answer == {"found": None, "said": "no answer in 1 s"}
    assert probes.probe_native_rank_count(lambda: 3)["place"] == {"found": 3, "said": ""}
    assert signal.alarm(0) == 0
