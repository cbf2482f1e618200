"""Tests of launches whose worker misbehaves, in real processes.

Where only the reply matters, `judge_changed_reply` replaces the process.
"""

import json
import os
import shutil
import subprocess
import time
from dataclasses import replace

import pytest

from tests import fake_framework
from tests.remaining_processes import list_running
from tests.sample_records import vary_record
from xfbench.execution import job
from xfbench.execution.launch import LaunchContext
from xfbench.host import conditions, roofline
from xfbench.model import adapter
from xfbench.model.request import Protocol
from xfbench.planning.scheduling import launch_order
from xfbench.session import Session
from xfbench.store import lookup
from xfbench.store.results_folder import Store
from xfbench.workloads import workloads


@pytest.fixture
def plain(shared_fake_launch):
    """Return a successful launch whose trainer prints garbage."""
    return shared_fake_launch('print(\'{"status": "failed"\' * 1000)')


def test_launch_leaves_a_record_and_a_complete_run_folder(plain):
    record, folder = plain
    assert record.status == "ok" and record.reason is None
    assert len(record.measurement.step_seconds) == 3
    assert record.measurement.images == 12
    names = {path.name for path in folder.iterdir()}
    assert names == set(
        "request.json command.json command.sh worker.pyz stdout stderr reply.json".split()
    )


def test_a_run_folder_can_be_run_again_by_hand(plain, tmp_path):
    folder = shutil.copytree(plain[1], tmp_path / "copy")
    subprocess.run([folder / "command.sh"], check=True, timeout=60)
    second_reply = json.loads((folder / "reply-again.json").read_text())
    assert second_reply["status"] == "ok"
    assert second_reply["job"] == json.loads((folder / "reply.json").read_text())["job"]


def test_garbage_on_stdout_does_not_affect_the_record(plain):
    record, folder = plain
    assert record.status == "ok"
    assert (folder / "stdout").stat().st_size > 15_000


def test_exception_in_a_worker_is_failed_with_its_message(launch_fake):
    record, folder = launch_fake("raise RuntimeError('no such operator')")
    assert record.status == "failed"
    assert record.reason == "RuntimeError: no such operator"
    assert "Traceback" in json.loads((folder / "reply.json").read_text())["traceback"]


@pytest.mark.parametrize(
    "body", ["raise RuntimeError(MESSAGE)", "os.write(2, MESSAGE.encode())\nos._exit(7)"]
)
def test_reason_names_no_host_of_the_site_or_the_scheduler(
    launch_fake, tmp_path, monkeypatch, body
):
    site = tmp_path / "site.toml"
    site.write_text('title = "s"\nlauncher = "mpi"\nhosts = ["zebra.lab.example", "emu"]\n')
    (tmp_path / "nodes").write_text("yak.lab.example\n")
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodes"))
    message = "zebra, EMU.lab.example and yak lost; [cn17:123] node cn18.lab.example"
    record, _ = launch_fake(f"MESSAGE = {message!r}\n{body}", site=str(site))
    assert "a node, a node and a node lost; […:123] node …" in record.reason


@pytest.mark.parametrize(
    ("death", "words"),
    [
        ("os._exit(7)", "exit status 7"),
        ("import signal; os.kill(os.getpid(), signal.SIGILL)", "SIGILL"),
    ],
)
def test_worker_that_dies_is_crashed_with_its_last_output(launch_fake, death, words):
    record, folder = launch_fake(f"os.write(2, b'last words\\n')\n{death}")
    assert record.status == "crashed"
    assert words in record.reason and "last words" in record.reason
    assert (folder / "stderr").read_text().startswith("last words")


HANG = """
import subprocess
subprocess.Popen(["sleep", "1234.5"], start_new_session=True)
subprocess.Popen(["sleep", "1234.5"])
time.sleep(1000)
"""


def test_hanging_worker_and_its_descendants_end_at_the_limit(launch_fake):
    start_s = time.monotonic()
    record, folder = launch_fake(HANG, time_limit=4)
    assert record.status == "timed_out"
    assert "--time-limit" in record.reason
    assert time.monotonic() - start_s < 60
    assert not list_running(folder)


def test_processes_of_a_finished_worker_are_ended(launch_fake):
    code = 'subprocess.Popen(["sleep", "4321.5"], start_new_session=True)'
    record, folder = launch_fake(f"import subprocess\n{code}")
    assert record.status == "ok"
    assert not list_running(folder)


def test_truncated_reply_is_crashed_and_kept(launch_fake):
    content = '{"schema": "xfbench.reply/1", "status": "o'
    record, folder = launch_fake(f"Path('reply.json').write_text({content!r})\nos._exit(0)")
    assert record.status == "crashed"
    assert "malformed" in record.reason
    assert (folder / "reply.json").read_text() == content


def test_reply_with_a_field_of_the_wrong_type_is_crashed(plain, judge_changed_reply):
    record = judge_changed_reply(plain, lambda reply: reply["observed"].update(layout=3))
    assert record.status == "crashed"
    assert "layout" in record.reason


STEPS_OF_1_S = {"first_step_seconds": 1, "warmup_seconds": [1], "step_seconds": [1] * 3}
# Name of the defect: part of the reply, its changed fields, and text of the record's reason.
IMPOSSIBLE = {
    "no finite loss": ("measurement", {"losses": [None]}, "the loss of update 1 is not finite"),
    "clock goes back": ("measurement", {"step_seconds": [-0.1]}, "a step took -0.1 s: the clock"),
    "clock stands still": ("measurement", {"step_seconds": [0]}, "a step took 0 s: the clock"),
    "steps longer than the launch": (
        "measurement",
        {**STEPS_OF_1_S, "wall_seconds": 0.5},
        "the steps add up to 5 s, more than the 0.5 s that passed",
    ),
    "another kernel": ("observed", {"kernel": "x"}, "plain was requested, but x was observed"),
    "updates left out": ("observed", {"loss_scale": 512}, "updates were skipped"),
    "a pool of four": ("observed", {"pools": {"a": 4}}, "1 threads were requested, but a has 4"),
    "a second pool": ("observed", {"pools": {"a": 1, "b": 2}}, "but b has 2"),
    "busy threads": ("observed", {"cpus": 1.31}, "requested, but 1.31 CPUs were busy"),
    "another loss": ("canary", {"loss": 9}, "loss at the initial weights is 9, not 2."),
}


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_impossible_reply_is_invalid(plain, judge_changed_reply, kind):
    part, fields, words = IMPOSSIBLE[kind]
    assert judge_changed_reply(plain, lambda reply: None).status == "ok"
    record = judge_changed_reply(plain, lambda reply: reply[part].update(fields))
    assert record.status == "invalid" and words in record.reason
    recorded = getattr(record, part).model_dump(mode="json")
    assert {name: recorded[name] for name in fields} == fields


@pytest.mark.deep
def test_nonfinite_loss_is_recorded(launch_fake):
    record, _ = launch_fake(
        "class Trainer(FakeTrainer):\n    def wait_for_loss(self): return float('nan')"
    )
    assert record.status == "invalid"
    assert record.reason == "the loss of update 1 is not finite"
    assert record.measurement.losses[0] is None


@pytest.mark.deep
@pytest.mark.parametrize("pace", [-1, 0])
def test_a_launch_whose_clock_does_not_advance_is_invalid(launch_fake, pace):
    clock = f"lambda reads=itertools.count(1000, {pace}): float(next(reads))"
    record, _ = launch_fake(
        f"import itertools\nfrom xfbench.worker import loop\nloop.perf_counter = {clock}"
    )
    assert record.status == "invalid"
    assert "the clock went backwards or stood still" in record.reason


# Simulates two cores for two threads: the clock omits the shorter thread's time.
TWO_BUSY_THREADS = """
import hashlib, threading
from xfbench.worker import loop
DATA = bytes(1_000_000)
omitted_s = 0.0
loop.perf_counter = lambda: time.process_time() - omitted_s
class Trainer(FakeTrainer):
    def step(self, batch):
        global omitted_s
        seconds = []
        def work():
            while time.thread_time() < 0.15: hashlib.sha512(DATA).digest()
            seconds.append(time.thread_time())
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        omitted_s += min(seconds)
"""


@pytest.mark.deep
def test_two_busy_threads_need_two_requested_threads(launch_fake):
    record, _ = launch_fake(TWO_BUSY_THREADS, threads=1)
    assert record.status == "invalid"
    assert "1 threads were requested" in record.reason and "were busy" in record.reason
    assert 1.5 < record.observed.cpus < 2.3
    record, _ = launch_fake(TWO_BUSY_THREADS, threads=2)
    assert record.status == "ok", record.reason


@pytest.fixture
def session(fake_adapter, tmp_path):
    fake_adapter()
    environments = {"odd": fake_framework.own_environment()}
    return Session(LaunchContext(Store(tmp_path / "results"), environments))


def test_broken_interpreter_is_unavailable_and_other_cells_run(
    session, fake_adapter, cell, tmp_path
):
    fake_adapter(name="gone")
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    session.prepare(["gone"], {"gone": broken})
    requests = launch_order(
        [(cell(framework=name, kernel="plain"), Protocol.fixed(2)) for name in ("odd", "gone")],
        seed=1,
    )
    records = list(session.launch(requests))
    statuses = sorted((r.request.framework, r.status) for r in records)
    assert statuses == [("gone", "unavailable"), ("odd", "ok"), ("odd", "ok")]


@pytest.fixture
def make_launches(record):
    """Return a function that makes a launch of `odd` for each step time in seconds."""

    def make_records(*paces):
        odd = {"framework": "odd", "kernel": "plain"}
        return [record((pace,) * 3, number, **odd) for number, pace in enumerate(paces, 1)]

    return make_records


def test_launches_stop_when_the_interval_is_narrow_enough(session, make_launches):
    earlier_records = make_launches(*[0.01] * 4)
    chosen_cell = earlier_records[0].request.cell()
    protocol = Protocol(least=3, most=9, precision=9)  # five launches have an interval
    requests = launch_order([(chosen_cell, protocol)])
    assert len(requests) == 9
    [fifth] = session.launch(requests[4:], {chosen_cell: protocol}, earlier_records)
    assert (fifth.request.launch, fifth.protocol) == (5, protocol)
    longer_protocol = Protocol(least=6, most=9, precision=9)
    [sixth] = session.launch(
        requests[5:], {chosen_cell: longer_protocol}, [*earlier_records, fifth]
    )
    assert sixth.request.launch == 6


def test_noisy_launches_continue_up_to_the_maximum(session, make_launches):
    earlier_records = make_launches(0.02, 0.1)
    chosen_cell = earlier_records[0].request.cell()
    protocol = Protocol(least=2, most=3, precision=0.02)
    requests = launch_order([(chosen_cell, protocol)])
    [third] = session.launch(requests[2:], {chosen_cell: protocol}, earlier_records)
    assert third.request == requests[-1] and third.request.launch == 3


def test_cells_of_a_leaderboard_stay_together_until_all_are_precise(session, make_launches):
    """The precise cell is launched on beside the noisy one, and no cell of another leaderboard is.

    `threads=1` is the precise cell, `threads=2` is the noisy cell.
    """
    protocol = Protocol(least=5, most=6, precision=0.02)
    precise, noisy = make_launches(*[0.02] * 5), make_launches(0.02, 0.1, 0.03, 0.04, 0.05)
    noisy = [vary_record(record, request={"threads": 2}) for record in noisy]
    other = [
        vary_record(record, request={"batch_size_per_rank": 8, "global_batch_size": 8})
        for record in precise
    ]
    earlier_records = [*precise, *noisy, *other]
    cells = {records[0].request.cell(): protocol for records in (precise, noisy, other)}
    requests = [cell.request(6) for cell in cells]
    records = list(session.launch(requests, cells, earlier_records))
    assert [record.request for record in records] == requests[:2]


def test_records_name_their_session_and_position(session, make_launches):
    [first, second] = [record.request for record in make_launches(0.02, 0.02)]
    records = [*session.launch([second]), *session.launch([first])]
    assert [record.request for record in records] == [second, first]
    assert [record.request.position for record in records] == [1, 2]
    assert {record.request.session for record in records} == {session.id}
    another = Session(session.context)
    assert another.id != session.id and session.id < another.id[:16] + "~"
    assert second.session is None and second.position is None


@pytest.fixture
def low_limit(plain, monkeypatch, tmp_path):
    """Return a limit from a machine peak that is too low."""
    threads = plain[0].request.threads
    low_peaks = dict.fromkeys(("float32", "float64", "bandwidth"), 1.0)
    monkeypatch.setattr(roofline, "_PEAKS", {threads: low_peaks})
    monkeypatch.setattr(roofline, "_KERNEL_FLAGS", {})  # one attempt is enough
    monkeypatch.setattr(roofline, "_peaks_file", lambda _: tmp_path / "peaks")  # a private cache
    return roofline.find_or_measure_limit(plain[0].request)


def test_peak_that_is_too_low_is_measured_again(plain, judge_changed_reply, low_limit):
    record = judge_changed_reply(plain, lambda reply: None, limit=low_limit)
    assert record.status == "ok", record.reason
    assert record.limit.matrix_product > 1e8


def test_throughput_above_the_machine_peak_is_invalid(plain, judge_changed_reply, low_limit):
    steps = {"step_seconds": [1e-9] * 3}
    record = judge_changed_reply(
        plain, lambda reply: reply["measurement"].update(steps), limit=low_limit
    )
    assert record.limit.matrix_product > 1e8
    assert record.status == "invalid"
    assert "of the peak of this hardware" in record.reason


def test_noise_is_recorded_and_invalid_under_strict(launch_fake):
    # The noise is a process that is no descendant of the driver.
    burn = """
import subprocess, sys
BURN = "import os, time\\nif os.fork(): os._exit(0)\\nos.setsid()\\n"
BURN += "end = time.monotonic() + 4\\nwhile time.monotonic() < end: pass"
subprocess.run([sys.executable, "-c", BURN])
"""
    record, _ = launch_fake(burn + fake_framework.SLOW, strict=True)
    assert record.status == "invalid"
    assert "noisy" in record.reason and " cores" in record.reason
    assert record.conditions.other_cpus > 0.1


@pytest.mark.alone
def test_busy_process_beside_a_launch_is_counted_in_its_record(
    launch_fake, judge_changed_reply, burner
):
    finished_launch = launch_fake(fake_framework.SLOW)
    competing = finished_launch[0].conditions.competing
    assert {(process.name, process.pid) for process in competing} == {("another process", None)}
    assert max(process.cpus for process in competing) > 0.2
    assert "burner" not in finished_launch[0].model_dump_json()
    strict_record = judge_changed_reply(finished_launch, lambda reply: None, strict=True)
    assert strict_record.status == "invalid" and "another process used" in strict_record.reason


def test_lars_is_unsupported_without_adapter_support(fake_adapter, cell, tmp_path):
    fake_adapter()
    workload = workloads()["lenet"]
    workload = replace(workload, solver=replace(workload.solver, lars=0.01))
    statuses, python = {}, fake_framework.own_environment()
    for framework, kernel in (("odd", "plain"), ("reference", "numpy")):
        folder = tmp_path / framework
        folder.mkdir()
        request = cell(framework=framework, kernel=kernel).request(1)
        framework_adapter = adapter.load(framework)
        document = job.build_job_document("train", request, workload)
        reply = job.run_job(document, request, framework_adapter, python, folder, 60.0)
        statuses[framework] = reply["status"]
    assert statuses == {"odd": "unsupported", "reference": "ok"}


def test_finished_records_returns_matching_records_oldest_first(record, cell, tmp_path):
    store = Store(tmp_path / "results")
    requests = [
        cell(threads=threads, framework=name).request(launch)
        for name in ("reference", "torch")
        for threads in (1, 2)
        for launch in (1, 2)
    ]
    assert lookup.find_ok_or_invalid_records(requests, store) == [] and not store.folder.exists()
    store.create_and_check_folders()
    assert lookup.find_ok_or_invalid_records(requests, store) == []
    stored_records = []
    for day, request in enumerate(reversed(requests), 1):
        creation = {"created": f"2026-01-0{day}T00:00:00.000Z"}
        chosen = {
            "threads": request.threads,
            "framework": request.framework,
            "launch": request.launch,
        }
        stored_records.append(record(**chosen, fields=creation))
        store.add(stored_records[-1])
        store.add(record(**chosen, workload="convnet", fields=creation))
        store.add(record(**{**chosen, "launch": 3}, fields=creation))
        store.add(record(**chosen, fields={**creation, "source": "imported"}))
        store.add(record(**chosen, fields={**creation, "status": "failed", "reason": "why"}))
        store.add(record(**chosen, seed=request.launch, fields=creation))
    assert lookup.find_ok_or_invalid_records(requests, store) == stored_records
    store.pack()
    assert lookup.find_ok_or_invalid_records(requests[:1], store) == stored_records[-1:]


@pytest.mark.parametrize(
    ("states", "status"),
    [
        (["RUNNING", "COMPLETING", "TIMEOUT"], "timed_out"),
        (["RUNNING"] * 3, "timed_out"),  # Slurm ends the job late
        (["RUNNING", "COMPLETING", "CANCELLED"], "failed"),
    ],
)
def test_launch_that_slurm_refuses_after_the_end_of_its_job_has_the_status_of_the_job(
    launch_fake, tmp_path, monkeypatch, states, status
):
    """From the end time on, srun starts no step, although the job may still be running."""
    text = "srun: error: Unable to create step for job 7: Job/step already completing or completed"
    (tmp_path / "states").write_text("".join(f"JobId=7 JobState={state}\n" for state in states))
    for name, lines in {
        "srun": f"echo '{text}' >&2; exit 1",
        "scontrol": f"cd {tmp_path}; head -n 1 states; sed -i 1d states",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(job, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(job, "_LOOKS", 3)
    record, folder = launch_fake(launcher="slurm")
    assert record.status == status, record.reason
    assert "SLURM_JOB_ID=7" not in (folder / "command.sh").read_text()


@pytest.mark.deep
def test_cpu_time_of_ranks_that_slurm_starts_is_not_other_work(launch_fake, tmp_path, monkeypatch):
    """The ranks are no children of the driver, but their reply names the kernel that they used."""
    (tmp_path / "srun").write_text(
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done; exec "$@"\n'
    )
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    own_seconds = []
    conditions_between = conditions.conditions_between

    def keep_own_seconds(before, after, launch_cpu_seconds):
        own_seconds.append(launch_cpu_seconds)
        return conditions_between(before, after, launch_cpu_seconds)

    monkeypatch.setattr(conditions, "conditions_between", keep_own_seconds)
    for launcher in ("slurm", "local"):
        record, _ = launch_fake(launcher=launcher)
        assert record.status == "ok", record.reason
    assert own_seconds[0] > 0 and own_seconds[1] == 0
