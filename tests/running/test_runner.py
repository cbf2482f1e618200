"""Launches: what happens when a worker does what it should not, in a real process each time."""

import json
import subprocess
import time
from dataclasses import replace

import psutil
import pytest

from xfbench import adapter
from xfbench.analysis import statistics
from xfbench.environments import environment
from xfbench.host import machine, roofline
from xfbench.request import Protocol
from xfbench.results.store import Store
from xfbench.running import job, runner
from xfbench.workloads import workloads

# A trainer that does as it is told, so that each test shows only where it misbehaves.
TRAINER = """
import numpy as np

class Trainer:
    def load(self, images, labels): return images
    def step(self, batch): sum(range(200000))
    def wait(self): return 1.0
    def loss(self, batch): return EXPECTED_LOSS
    def scores(self, batch): return np.zeros((len(batch), 10), np.float32)
    def gradients(self, batch): return {}
    def parameters(self): return {}
    def assign(self, parameters): pass
    def observed(self):
        return {
            "framework_version": "1", "layout": "NCHW", "kernel": "plain", "kernel_evidence": []
        }

def build(network, solver, options, group):
    return Trainer()
"""


@pytest.fixture
def launch(own_adapter, cell, tmp_path):
    """A function that does one launch with this `train.py`: its record and run folder."""

    def do(train, time_limit=60.0, strict=False, **request):
        own_adapter("odd", train)
        store = Store(tmp_path / "results")
        session = runner.Session(store, time_limit=time_limit, strict=strict)
        session.prepare(["odd"], {}, print)
        asked = cell(framework="odd", kernel="plain", **request).request(1)
        [record] = runner.run([asked], session)
        assert record in store.records()
        return record, store.run_folder(record)

    return do


def test_a_launch_leaves_a_record_and_all_that_went_into_it(launch):
    record, folder = launch(TRAINER)
    assert record.status == "ok" and record.reason is None
    assert len(record.measurement.step_seconds) == 3
    assert record.measurement.images == 12
    names = {path.name for path in folder.iterdir()}
    assert names == set(
        "request.json command.json command.sh worker.pyz stdout stderr reply.json".split()
    )


def test_a_run_folder_can_be_run_again_by_hand(launch):
    record, folder = launch(TRAINER)
    subprocess.run([folder / "command.sh"], check=True, timeout=60)
    again = json.loads((folder / "reply-again.json").read_text())
    assert again["status"] == "ok"
    assert again["job"] == json.loads((folder / "reply.json").read_text())["job"]


def test_garbage_on_standard_output_is_kept_and_harms_nothing(launch):
    record, folder = launch(TRAINER + '\nprint(\'{"status": "failed"\' * 1000)\n')
    assert record.status == "ok"
    assert (folder / "stdout").stat().st_size > 15_000


def test_an_exception_is_failed_with_its_words(launch):
    record, folder = launch(TRAINER + "\nraise RuntimeError('no such operator')\n")
    assert record.status == "failed"
    assert record.reason == "RuntimeError: no such operator"
    assert "Traceback" in json.loads((folder / "reply.json").read_text())["traceback"]


def test_what_a_framework_cannot_do_is_unsupported_with_its_reason(launch):
    record, _ = launch(
        TRAINER
        + """
from xfbench.worker.protocol import Unsupported
def build(network, solver, options, group):
    raise Unsupported("no pooling of size 3 here")
"""
    )
    assert (record.status, record.reason) == ("unsupported", "no pooling of size 3 here")


@pytest.mark.parametrize(
    ("death", "words"),
    [
        ("import os; os._exit(7)", "exit status 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "SIGILL"),
    ],
)
def test_a_worker_that_dies_is_crashed_with_how_and_its_last_words(launch, death, words):
    record, folder = launch(
        f"{TRAINER}\nimport sys\nprint('last words', file=sys.stderr, flush=True)\n{death}\n"
    )
    assert record.status == "crashed"
    assert words in record.reason and "last words" in record.reason
    assert (folder / "stderr").read_text().startswith("last words")


HANG = """
import subprocess, sys, time
subprocess.Popen(["sleep", "1234.5"], start_new_session=True)
subprocess.Popen(["sleep", "1234.5"])
time.sleep(1000)
"""


def test_a_worker_that_hangs_is_ended_at_the_limit_with_all_its_descendants(launch):
    begun = time.monotonic()
    record, _ = launch(TRAINER + HANG, time_limit=4)
    assert record.status == "timed_out"
    assert "--time-limit" in record.reason
    assert time.monotonic() - begun < 60
    assert not _running("1234.5")


def test_what_a_worker_left_behind_is_ended_though_it_replied(launch):
    record, _ = launch(
        TRAINER
        + """
import subprocess
subprocess.Popen(["sleep", "4321.5"], start_new_session=True)
"""
    )
    assert record.status == "ok"
    assert not _running("4321.5")


def _running(argument):
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if argument in (process.info["cmdline"] or ()) and process.info["status"] != "zombie":
            found.append(process)
    return found


# The worker's own last act is replaced from within: what is on disk is what counts.
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"schema": "xfbench.reply/1", "status": "o', "not whole"),
        ("", "not whole"),
        ("[]", "not whole"),
        ('{"job": "sha256:00", "status": "ok"}', "another request"),
    ],
)
def test_half_a_reply_or_a_foreign_one_is_crashed(launch, content, words):
    record, folder = launch(
        f"{TRAINER}\nimport os\nopen('reply.json', 'w').write({content!r})\nos._exit(0)\n"
    )
    assert record.status == "crashed"
    assert words in record.reason
    assert (folder / "reply.json").read_text() == content


def test_a_reply_with_a_field_of_the_wrong_kind_is_crashed(launch):
    record, _ = launch(TRAINER.replace('"layout": "NCHW"', '"layout": 3'))
    assert record.status == "crashed"
    assert "layout" in record.reason


def test_a_loss_that_is_not_finite_is_invalid(launch):
    record, _ = launch(
        TRAINER.replace("def wait(self): return 1.0", "def wait(self): return float('nan')")
    )
    assert record.status == "invalid"
    assert "loss of update 1" in record.reason
    assert record.measurement.losses[0] is None


def test_a_kernel_that_was_not_asked_for_is_invalid(launch):
    record, _ = launch(TRAINER.replace('"kernel": "plain"', '"kernel": "other"'))
    assert record.status == "invalid"
    assert "plain was asked for and other observed" in record.reason


def test_updates_left_out_in_float16_make_a_launch_invalid(launch):
    record, _ = launch(TRAINER.replace('"kernel": "plain"', '"kernel": "plain", "loss_scale": 512'))
    assert record.status == "invalid"
    assert "updates were left out" in record.reason and "is 512 now" in record.reason


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        ("lambda now=iter(range(1000, 0, -1)): float(next(now))", "clock"),
        ("lambda now=iter(range(1000)): float(next(now)) * 0", "clock"),
    ],
)
def test_a_forged_clock_is_invalid(launch, clock, words):
    record, _ = launch(f"{TRAINER}\nfrom xfbench.worker import loop\nloop.perf_counter = {clock}\n")
    assert record.status == "invalid"
    assert words in record.reason


def test_settings_from_outside_do_not_reach_the_worker(launch, monkeypatch):
    monkeypatch.setenv("OMP_THREAD_LIMIT", "1")
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    record, folder = launch(
        TRAINER + "\nimport os\nassert not {'OMP_THREAD_LIMIT', 'SECRET_TOKEN'} & set(os.environ)\n"
    )
    assert record.status == "ok", record.reason
    assert all(b"hunter2" not in path.read_bytes() for path in folder.iterdir())


def test_an_interpreter_that_is_gone_makes_its_cells_unavailable_and_the_rest_goes_on(
    own_adapter, cell, tmp_path
):
    own_adapter("odd", TRAINER)
    own_adapter("gone", TRAINER)
    session = runner.Session(Store(tmp_path / "results"))
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    session.prepare(["odd", "gone"], {"gone": broken}, print)
    requests = runner.plan(
        [(cell(framework=name, kernel="plain"), Protocol.fixed(2)) for name in ("odd", "gone")],
        seed=1,
    )
    records = list(runner.run(requests, session))
    statuses = sorted((r.request.framework, r.status) for r in records)
    assert statuses == [("gone", "unavailable"), ("odd", "ok"), ("odd", "ok")]


def test_launches_of_different_cells_are_interleaved_in_a_seeded_order(cell):
    cells = [(cell(threads=threads), Protocol.fixed(3)) for threads in range(1, 6)]
    requests = runner.plan(cells, seed=4)
    assert [request.launch for request in requests] == [1] * 5 + [2] * 5 + [3] * 5
    assert requests == runner.plan(cells, seed=4) != runner.plan(cells, seed=5)
    assert [r.threads for r in requests[:5]] != [r.threads for r in requests[5:10]]


def test_resuming_leaves_out_what_has_an_outcome_and_tries_again_what_failed(
    own_adapter, cell, tmp_path
):
    flag = tmp_path / "broken"
    own_adapter("odd", f"{TRAINER}\nimport os\nassert not os.path.exists({str(flag)!r})\n")
    store = Store(tmp_path / "results")
    session = runner.Session(store)
    session.prepare(["odd"], {}, print)
    requests = runner.plan([(cell(framework="odd", kernel="plain"), Protocol.fixed(3))])
    list(runner.run(requests[:1], session))
    flag.touch()
    assert [record.status for record in runner.run(requests[1:2], session)] == ["failed"]
    assert [record.request for record in runner.done(requests, store)] == requests[:1]


# Steps as long as a file says: one line per launch, taken in turn.
PACED = """
import os, time

class Paced(Trainer):
    def __init__(self):
        with open({speeds!r}) as file: paces = file.read().split()
        self.pace = float(paces[len(os.listdir({taken!r}))])
        open(os.path.join({taken!r}, str(os.getpid())), "w").close()
    def step(self, batch): time.sleep(self.pace)

def build(network, solver, options, group):
    return Paced()
"""


@pytest.fixture
def paced(own_adapter, cell, tmp_path):
    """A function: a session, a cell of a framework whose launches have these step times."""

    def make(paces):
        speeds, taken = tmp_path / "speeds", tmp_path / "taken"
        speeds.write_text(" ".join(map(str, paces)))
        taken.mkdir()
        own_adapter("odd", TRAINER + PACED.format(speeds=str(speeds), taken=str(taken)))
        session = runner.Session(Store(tmp_path / "results"))
        session.prepare(["odd"], {}, print)
        return session, cell(framework="odd", kernel="plain")

    return make


def test_launches_end_as_soon_as_the_interval_is_narrow_enough(paced):
    session, one = paced([0.05] * 9)
    protocol = Protocol(least=3, most=9, precision=0.5)
    requests = runner.plan([(one, protocol)])
    assert len(requests) == 9
    records = list(runner.run(requests, session, {one: protocol}))
    assert [record.request.launch for record in records] == [1, 2, 3]
    assert all(record.protocol == protocol for record in records)
    more = Protocol(least=4, most=9, precision=0.5)
    again = runner.run(requests[3:], session, {one: more}, done=records)
    assert [record.request.launch for record in again] == [4]


def test_launches_go_on_while_they_differ_and_end_at_the_most(paced):
    session, one = paced([0.02, 0.1, 0.02, 0.1, 0.02, 0.1])
    protocol = Protocol(least=3, most=5, precision=0.02)
    records = list(runner.run(runner.plan([(one, protocol)]), session, {one: protocol}))
    assert [record.request.launch for record in records] == [1, 2, 3, 4, 5]


# A machine whose time passes only in steps: each takes the next of the paces, over and over.
SIMULATED = """
import itertools
from xfbench.worker import loop

class Simulated(Trainer):
    paces = itertools.cycle({paces})
    now = waited = 0.0
    def step(self, batch): Simulated.now += next(self.paces)
    def wait(self):
        Simulated.waited += 1
        return 1.0

loop.perf_counter = lambda: Simulated.now + 1e-9 * next(COUNT)
COUNT = itertools.count()

def build(network, solver, options, group):
    return Simulated()
"""


@pytest.fixture
def simulated(launch):
    """A function that does one launch whose steps take the given seconds: its record."""

    def do(paces, **request):
        record, _ = launch(TRAINER + SIMULATED.format(paces=list(paces)), **request)
        return record

    return do


def test_steps_are_timed_one_by_one_where_nothing_is_queued(simulated):
    record = simulated([9, 8, 1, 2, 3], steps=3, warmup=1)
    measured = record.measurement
    assert record.status == "ok", record.reason
    assert measured.first_step_seconds == pytest.approx(9)
    assert measured.warmup_seconds == pytest.approx((8,))
    assert measured.step_seconds == pytest.approx((1, 2, 3))
    assert (measured.window, measured.images, len(measured.losses)) == (1, 12, 5)
    assert measured.wall_seconds == pytest.approx(23)


def test_a_window_is_timed_as_one_and_gives_the_mean_step(simulated):
    record = simulated(
        [9, *[8, 8, 8, 8], *[1, 2, 3, 4], *[5, 5, 5, 9]], steps=8, warmup=3, window=4
    )
    measured = record.measurement
    assert record.status == "ok", record.reason
    assert measured.warmup_seconds == pytest.approx((8,))
    assert measured.step_seconds == pytest.approx((2.5, 6))
    assert (measured.window, measured.images, len(measured.losses)) == (4, 32, 4)
    assert record.request.window == 4


def test_epochs_end_windows_too(simulated):
    """An epoch is 22 batches of 64: after the first step 21, in windows of 5, 5, 5, 5 and 1."""
    sizes = {"global_batch_size": 64, "batch_size_per_rank": 64, "data": "digits", "steps": None}
    record = simulated([1], epochs=2, warmup=0, window=5, **sizes)
    measured = record.measurement
    # The canary of the digits is another; what was measured stands on the record all the same.
    assert record.status == "invalid" and "initial weights" in record.reason
    assert len(measured.step_seconds) == 5 + 5
    assert measured.images == (2 * 22 - 1) * 64
    assert [epoch.seconds for epoch in record.learning] == pytest.approx([22, 22])


def test_the_warm_up_goes_on_until_the_steps_are_steady(simulated):
    record = simulated([5] * 13 + [1] * 1000, steps=20, warmup=2)
    measured = record.measurement
    assert len(measured.step_seconds) == 20
    assert measured.step_seconds == pytest.approx((1,) * 20)
    assert len(measured.warmup_seconds) == 2 + 10
    assert statistics.is_steady(record)


def test_a_launch_that_never_becomes_steady_ends_and_does_not_count(simulated):
    record = simulated([1.05**n for n in range(200)], steps=20, warmup=2)
    assert record.status == "ok"
    assert len(record.measurement.step_seconds) == 20
    assert len(record.measurement.losses) == 1 + 2 + 3 * 20
    assert not statistics.is_steady(record)
    assert statistics.launches([record]) == {}


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        ('"pools": {"openmp": 4}', "openmp has 4"),
        ('"pools": {"openmp": 1, "blas": 2}', "blas has 2"),
    ],
)
def test_a_pool_of_another_size_than_was_asked_for_is_invalid(launch, observed, words):
    record, _ = launch(TRAINER.replace('"layout"', f'{observed}, "layout"'))
    assert record.status == "invalid"
    assert "1 threads were asked for" in record.reason and words in record.reason


BUSY = """
import threading
DATA = bytes(10_000_000)
class Busy(Trainer):
    def step(self, batch):  # hashing lets go of the interpreter's lock
        import hashlib
        work = lambda: [hashlib.sha512(DATA).digest() for _ in range(10)]
        threads = [threading.Thread(target=work) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]

def build(network, solver, options, group):
    return Busy()
"""


@pytest.mark.skipif(machine.usable_cores() < 2, reason="two threads need two cores to be seen")
@pytest.mark.alone
def test_more_cpus_kept_busy_than_threads_were_asked_for_is_invalid(launch):
    for _ in range(5):  # other work on this machine may leave its two threads one core
        record, _ = launch(TRAINER + BUSY)
        if record.status == "invalid":
            break
    assert "1 threads were asked for" in record.reason and "kept busy" in record.reason
    record, _ = launch(TRAINER + BUSY, threads=2)
    assert record.status == "ok", record.reason


def test_steps_that_take_longer_than_the_launch_did_are_invalid(launch):
    """The clock jumps back behind the last step: five steps of 1 s in a launch of half a second."""
    clock = """
def clock(reads=itertools.count()):
    last = Simulated.waited == 5
    Simulated.late = getattr(Simulated, "late", 0) + last
    return 0.5 if Simulated.late > 1 else Simulated.now + 1e-9 * next(reads)

loop.perf_counter = clock
"""
    record, _ = launch(TRAINER + SIMULATED.format(paces=[1]) + clock)
    assert record.status == "invalid"
    assert "the steps add up to 5 s, more than the 0.5 s that passed" in record.reason


def test_a_limit_that_was_measured_beside_other_work_is_measured_once_more(simulated, monkeypatch):
    low = dict.fromkeys(("float32", "float64", "bandwidth"), 1.0)
    monkeypatch.setattr(roofline, "_PEAKS", {1: low})
    record = simulated([0.1])
    assert record.status == "ok", record.reason
    assert record.limit.matrix_product > 1e8


def test_more_than_the_machine_can_do_is_invalid(simulated):
    record = simulated([1e-9])
    assert record.limit.matrix_product > 0
    assert record.status == "invalid"
    assert "of what the cores can do at most" in record.reason


def test_a_network_whose_first_loss_is_another_is_invalid(launch):
    record, _ = launch(TRAINER.replace("EXPECTED_LOSS", "1.01 * EXPECTED_LOSS"))
    assert record.status == "invalid"
    assert "test-mode loss at the initial weights" in record.reason
    assert record.canary.relative_error == pytest.approx(0.01)


def test_what_disturbed_a_launch_is_on_its_record_and_counts_against_it_under_strict(launch):
    # The trainer's own helper, which is no child of the driver's, is the disturbance.
    burn = """
import subprocess, sys
BURN = "import os, time\\nif os.fork(): os._exit(0)\\nos.setsid()\\n"
BURN += "end = time.monotonic() + 4\\nwhile time.monotonic() < end: pass"
subprocess.run([sys.executable, "-c", BURN])
"""
    slow = TRAINER.replace("sum(range(200000))", "__import__('time').sleep(0.4)")
    record, _ = launch(burn + slow, strict=True)
    assert record.status == "invalid"
    assert "disturbed" in record.reason and "of a core" in record.reason
    assert record.conditions.other_cpus > 0.1


@pytest.mark.alone
def test_a_burner_beside_a_launch_is_named_on_its_record(launch, burner):
    slow = TRAINER.replace("sum(range(200000))", "__import__('time').sleep(0.4)")
    record, _ = launch(slow)
    assert "burner" in [one.name for one in record.conditions.competing]
    strict, _ = launch(slow, strict=True)
    assert strict.status == "invalid" and "burner used" in strict.reason


def test_a_solver_that_asks_for_lars_is_refused_where_it_is_not_translated(
    own_adapter, cell, tmp_path
):
    own_adapter("odd", TRAINER)
    workload = workloads()["lenet"]
    workload = replace(workload, solver=replace(workload.solver, lars=0.01))
    statuses = {}
    for framework, kernel in (("odd", "plain"), ("reference", "numpy")):
        folder = tmp_path / framework
        folder.mkdir()
        request = cell(framework=framework, kernel=kernel).request(1)
        described = adapter.load(framework)
        document = job.document("train", request, workload)
        reply = job.work(document, request, described, environment.ensure(described), folder, 60.0)
        statuses[framework] = reply["status"]
    assert statuses == {"odd": "unsupported", "reference": "ok"}


def test_what_is_done_is_found_among_other_cells_oldest_first(record, cell, tmp_path):
    store = Store(tmp_path / "results")
    asked = [
        cell(threads=threads, framework=name).request(launch)
        for name in ("reference", "torch")
        for threads in (1, 2)
        for launch in (1, 2)
    ]
    assert runner.done(asked, store) == [] and not store.folder.exists()
    store.prepare()
    assert runner.done(asked, store) == []
    kept = []
    for day, one in enumerate(reversed(asked), 1):
        when = {"created": f"2026-01-0{day}T00:00:00.000Z"}
        chosen = {"threads": one.threads, "framework": one.framework, "launch": one.launch}
        kept.append(record(**chosen, fields=when))
        store.add(kept[-1])
        store.add(record(**chosen, workload="convnet", fields=when))
        store.add(record(**{**chosen, "launch": 3}, fields=when))
        store.add(record(**chosen, fields={**when, "source": "imported"}))
        store.add(record(**chosen, seed=one.launch, fields=when))
    assert runner.done(asked, store) == kept
    store.pack()
    assert runner.done(asked[:1], store) == kept[-1:]
