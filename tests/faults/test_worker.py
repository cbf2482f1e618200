"""The driver continues after any fault of a worker, and the record names the fault.

Exceptions, deaths, hangs and forged replies are in tests/execution/test_launch.py, memory in
tests/host/test_memory.py.
"""

import json
import signal
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import memory_limits
from tests.fake_framework import STRATEGY, TWO_RANKS
from tests.faults.driver import build_command as command_line
from tests.remaining_processes import list_running, wait_for
from xfbench.base import processes, safe_read
from xfbench.host import machine
from xfbench.model import worker_reply
from xfbench.model.record import Record
from xfbench.store.results_folder import Store


def test_long_output_keeps_its_beginning_and_end(launch_fake):
    record, folder = launch_fake("print('first', 'x' * 10**8, 'last', flush=True)")
    assert record.status == "ok", record.reason
    output = (folder / "stdout").read_bytes()
    assert len(output) < safe_read.MAX_KEPT_BYTES + 100
    assert output.startswith(b"first") and output.endswith(b"last\n")
    assert b"83,222,796 bytes left out" in output


def test_endless_output_ends_the_launch(launch_fake, monkeypatch):
    monkeypatch.setattr(processes, "MAX_OUTPUT_BYTES", 2**20)
    monkeypatch.setattr(processes, "_CHECK_INTERVAL_S", 0.1)
    record, folder = launch_fake("import sys\nwhile True: print('y' * 1000, file=sys.stderr)")
    assert record.status == "crashed"
    assert record.reason.startswith("no reply: it wrote more than 1 MiB to stderr")
    assert len(record.reason) < 500
    assert (folder / "stderr").stat().st_size < safe_read.MAX_KEPT_BYTES + 100


def test_unnamed_signal_is_reported_by_number(launch_fake):
    record, _ = launch_fake("os.kill(os.getpid(), 40)")
    assert (record.status, record.reason) == ("crashed", "no reply: it was ended by signal 40")


@pytest.mark.parametrize(
    "code",
    [
        "import shutil; shutil.rmtree(os.getcwd())",
        "os.unlink('request.json')",
        "os.unlink('stderr'); os.mkfifo('stderr')",
        "os.mkfifo('reply.json')",
        "os.symlink('/dev/zero', 'reply.json')",
    ],
)
def test_worker_that_damages_its_folder_still_gets_a_record(launch_fake, code):
    record, _ = launch_fake(f"{code}\nos._exit(0)")
    assert record.status == "crashed"
    assert "reply" in record.reason


JOB = "sha256:" + "1" * 64
REPLIES = {
    "nothing": (b"", "malformed"),
    "truncated": (b'{"job": "sha', "malformed"),
    "not text": (b"\xff\xfe\x00\xd8", "malformed"),
    "a list": (b"[1]", "malformed"),
    "too deep": (b"[" * 10**5, "malformed"),
    "too long a number": (b'{"job": ' + b"9" * 10**5 + b"}", "malformed"),
    "an empty object": (b"{}", "it has no job"),
    "another job's": (b'{"job": "sha256:22", "status": "ok"}', "another job"),
    "no status": (f'{{"job": "{JOB}", "status": []}}'.encode(), "status or reason"),
    "an unknown status": (f'{{"job": "{JOB}", "status": "fast"}}'.encode(), "status or reason"),
    "a reason of the wrong type": (
        f'{{"job": "{JOB}", "status": "failed", "reason": [1]}}'.encode(),
        "status or reason",
    ),
    "half a surrogate pair": (
        f'{{"job": "{JOB}", "status": "failed", "reason": "\\ud800"}}'.encode(),
        "malformed",
    ),
}


@pytest.mark.parametrize("kind", REPLIES)
def test_invalid_reply_is_reported_in_one_line(tmp_path, kind):
    content, message = REPLIES[kind]
    (tmp_path / "reply.json").write_bytes(content)
    with pytest.raises(worker_reply.ReplyError, match=message) as raised:
        worker_reply.read_reply(tmp_path / "reply.json", JOB)
    assert len(str(raised.value)) < 600 and "\n" not in str(raised.value)


def test_oversized_reply_is_not_read(tmp_path):
    with (tmp_path / "reply.json").open("wb") as file:
        file.truncate(worker_reply.LONGEST + 1)  # a sparse file needs no disk space
    with pytest.raises(worker_reply.ReplyError, match="longer than 256 MiB"):
        worker_reply.read_reply(tmp_path / "reply.json", JOB)


def test_reason_is_a_single_line_of_at_most_500_characters(tmp_path):
    reason = "no\nsuch\r\n operator " + "x" * 10**6
    document = {"job": JOB, "status": "failed", "reason": reason}
    (tmp_path / "reply.json").write_text(json.dumps(document))
    short_reason = worker_reply.read_reply(tmp_path / "reply.json", JOB)["reason"]
    assert short_reason.startswith("no such operator xx") and len(short_reason) == 500


def value_paths(value, path=()):
    """Yield the path of every value in a JSON document."""
    yield path
    if isinstance(value, dict):
        for name, child in value.items():
            yield from value_paths(child, (*path, name))
    elif isinstance(value, list):
        for number, child in enumerate(value[:3]):
            yield from value_paths(child, (*path, number))


STRANGE = st.sampled_from(
    [
        *(None, True, 0, -1, 10**400, 5e-324, 1e308, float("nan"), float("inf"), -0.0),
        *("", "x", "\x1b[2J", [], [[]], {}, {"": None}, [1, "a"], {"rank": 0}, [None] * 3),
    ]
)


@pytest.mark.parametrize("ranks", [1, 2])
def test_reply_with_any_value_anywhere_becomes_a_record(
    shared_fake_launch, judge_changed_reply, ranks
):
    launch = shared_fake_launch(**(TWO_RANKS if ranks > 1 else {}))
    record, folder = launch
    assert record.status == "ok", record.reason
    reply_document = json.loads(
        (folder / ("reply.1.json" if ranks > 1 else "reply.json")).read_text()
    )
    paths = [
        path for path in value_paths(reply_document) if path and path[0] not in ("schema", "job")
    ]
    paths += [(name,) for name in ("kinds", "places", "support", "checkpoints")]

    def check_changed_reply(path, value):
        def change_reply(reply):
            for key in path[:-1]:
                reply = reply[key]
            reply[path[-1]] = value

        changed_record = judge_changed_reply(launch, change_reply, limit=None)
        assert Record.read(json.dumps(changed_record.document()).encode()) == changed_record
        assert changed_record.reason is None or "\n" not in changed_record.reason

    for path in paths:
        check_changed_reply(path, 10**400)

    @settings(
        max_examples=60,
        derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(st.sampled_from(paths), STRANGE)
    def check_strange_reply(path, value):
        check_changed_reply(path, value)

    check_strange_reply()


HANG = """
import subprocess
subprocess.Popen(["sleep", "1234.5"], start_new_session=True)
def after_step(rank, steps): time.sleep(600)
"""


def _is_sleep(process):
    """Return whether the process is the `sleep` that the worker started."""
    return process.name() == "sleep"


@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_driver_leaves_no_worker(run_arguments, tmp_path, ranks):
    """Detached processes of the worker end too."""
    options = {"ranks": 2, "strategy": STRATEGY, "scaling": "weak"} if ranks > 1 else {}
    results = tmp_path / "results"
    arguments = run_arguments(HANG, results=results, **options)
    driver = subprocess.Popen(command_line(*arguments), stderr=subprocess.DEVNULL)
    wait_for(lambda: len(list_running(results, _is_sleep)) == ranks, 60)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    wait_for(lambda: not list_running(results), 15)
    assert list(Store(results).records()) == []
    assert [path.name[:8] for path in (results / "runs").iterdir()] == ["running-"]


def test_sigterm_ends_a_run_like_an_interrupt(run_arguments, tmp_path):
    """Schedulers and shutdowns send SIGTERM."""
    results = tmp_path / "results"
    arguments = run_arguments(HANG, results=results)
    driver = subprocess.Popen(command_line(*arguments), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: list_running(results, _is_sleep), 60)
    driver.send_signal(signal.SIGTERM)
    _, errors = driver.communicate()
    wait_for(lambda: not list_running(results), 15)
    assert driver.returncode == 143
    *_, kept, last = errors.splitlines()
    assert kept.startswith("interrupted after 0 launches, which are kept in")
    assert kept.endswith("continue with --resume")
    assert last == "xfbench: ended by SIGTERM; finished work is kept"


def test_missing_gpu_is_unavailable_without_a_launch(launch_fake):
    if machine.list_accelerator_models():
        pytest.skip("this machine has an NVIDIA device")
    record, folder = launch_fake(device="cuda", adapter={"devices": ["cpu", "cuda"]})
    assert (record.status, record.reason) == ("unavailable", "no NVIDIA device was found here")
    assert not list(folder.parent.iterdir())


@pytest.mark.deep
def test_out_of_memory_worker_is_reported_and_the_run_continues(run_arguments, tmp_path):
    adapter_lines = "LARGE = len(os.listdir('..')) == 1\n"  # the first launch
    adapter_lines += "def after_step(rank, steps): LARGE and np.ones(2 * 10**9, np.uint8)"
    results = tmp_path / "results"
    arguments = run_arguments(adapter_lines, results=results, launches=2)
    with memory_limits.limit_memory(800 * 10**6) as wrap_command:
        argv = wrap_command(command_line(*arguments))
        completed = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert completed.returncode == 1, completed.stderr
    large_record, small_record = sorted(
        Store(results).records(), key=lambda record: record.request.launch
    )
    assert large_record.status == "failed", large_record.reason
    assert large_record.reason == "out of memory: the kernel killed it"
    assert small_record.status == "ok", small_record.reason
    assert list_running(tmp_path) == []
