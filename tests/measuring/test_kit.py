"""Tests of the kit for a machine with a GPU: the program that runs there, and its archive."""

import gzip
import json
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.measuring.kit import rehearsal
from tests.measuring.kit.there import run as there
from xfbench.environments import environment
from xfbench.model import adapter

KIT = Path(there.__file__).parent
REPLY = """echo '{"status": "ok", "reason": null, "summary": "done"}' > reply.json"""


@pytest.fixture
def make_kit(tmp_path):
    """Write a kit of items that are lines for the shell, by name; with fields of all, or of one."""

    def make(items, of_item=None, **more):
        folder = tmp_path / "kit"
        shutil.copytree(KIT, folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "workers").mkdir()
        (folder / "workers" / "odd.pyz").write_bytes(b"the worker")
        (folder / "plan.json").write_text("{}")
        fields = {"stage": "facts", "framework": None, "variables": {}, "worker": None}
        fields |= {"inputs": None, "alone": False, "always": False, "batch_size": None}
        fields |= {"seconds": 0, "limit": 60, **more}
        documents = [
            {
                "name": name,
                "title": name,
                "command": command,
                **fields,
                **(of_item or {}).get(name, {}),
            }
            for name, command in items.items()
        ]
        document = {"frameworks": ["odd"], "items": documents}
        (folder / "kit.json").write_text(json.dumps(document))
        return folder

    return make


def start_kit(folder, *arguments):
    return subprocess.Popen(
        ["sh", folder / "run.sh", "--output", folder.parent / "out", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_kit(folder, *arguments):
    process = start_kit(folder, *arguments)
    output, errors = process.communicate(timeout=120)
    return process.returncode, output + errors


def read_archive(folder):
    members, _ = there.read_members(folder.parent / "out" / there.ARCHIVE)
    return there.list_items(members)


def test_items_run_and_a_crash_does_not_end_the_rest(make_kit):
    folder = make_kit({"a/1": REPLY, "a/2": "kill -9 $$", "a/3": "exit 3", "a/4": REPLY})
    status, output = run_kit(folder)
    assert status == 1 and "4 items ended, 2 badly" in output
    assert "a/1: done" in output and "a/2: no reply, exit status 137" in output
    assert read_archive(folder) == {"a/1", "a/2", "a/3", "a/4"}


def test_kill_keeps_what_ended_and_the_next_run_continues(make_kit, tmp_path):
    waiting = f"[ -e {tmp_path}/continued ] || sleep 600; {REPLY}"
    folder = make_kit({"a/1": REPLY, "a/2": waiting, "a/3": REPLY})
    process = start_kit(folder, "--jobs", "1")
    while "1/3" not in process.stdout.readline():
        pass
    process.kill()
    process.communicate()
    assert read_archive(folder) == {"a/1"}
    with (tmp_path / "out" / there.ARCHIVE).open("ab") as file:
        file.write(gzip.compress(b"half of an item")[:-9])  # a kill while it was written
    (tmp_path / "continued").touch()
    status, output = run_kit(folder)
    assert status == 0 and "2 of 3 items are to be run" in output
    assert read_archive(folder) == {"a/1", "a/2", "a/3"}


def test_items_of_an_earlier_archive_are_skipped_but_facts_repeated(make_kit, tmp_path):
    folder = make_kit({"a/1": REPLY, "a/2": REPLY}, of_item={"a/1": {"always": True}})
    archive, earlier = tmp_path / "out" / there.ARCHIVE, tmp_path / "earlier.tar.gz"
    assert "2 of 2 items" in run_kit(folder)[1]
    assert "0 of 2 items" in run_kit(folder)[1]
    archive.replace(earlier)
    arguments = ("--have", earlier, "--have", earlier, f"odd={sys.executable}")
    assert "1 of 2 items" in run_kit(folder, *arguments)[1]
    assert read_archive(folder) == {"a/1"}
    archive.unlink()
    shutil.copy(earlier, folder / "first.tar.gz")
    assert "1 of 2 items" in run_kit(folder)[1]


def test_time_that_is_over_ends_items_with_all_their_processes(make_kit):
    folder = make_kit({"a/1": REPLY, "a/2": "timeout 600 sleep 599", "a/3": REPLY})
    status, output = run_kit(folder, "--minutes", "0.15", "--jobs", "1")
    assert status == 0 and "a/2: ended, because the time is over" in output
    assert "2 had no time" in output
    assert read_archive(folder) == {"a/1"}
    assert not is_running("sleep 599")


def is_running(command):
    """Whether a process has this command line. `timeout` has a process group of its own."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_text().replace("\0", " ").strip() == command:
                return True
    return False


def test_item_that_does_not_fit_is_left_out_and_later_ones_run(make_kit):
    folder = make_kit({"a/1": REPLY, "a/2": REPLY}, of_item={"a/1": {"seconds": 600}})
    status, output = run_kit(folder, "--minutes", "1")
    assert status == 0 and "1 had no time" in output and read_archive(folder) == {"a/2"}


def test_item_over_its_limit_is_timed_out(make_kit):
    folder = make_kit({"a/1": "sleep 600", "a/2": REPLY}, limit=1)
    status, output = run_kit(folder)
    assert status == 1 and "a/1: timed out after 1 s" in output
    assert unpack(folder, "a/1/status").read_text() == "124\n"


def test_archive_stays_below_its_limit(make_kit):
    noise = "head -c 300000 /dev/urandom > noise; " + REPLY
    folder = make_kit({"a/1": noise, "a/2": REPLY, "a/3": noise, "a/4": noise})
    _, output = run_kit(folder, "--megabytes", "0.4", "--jobs", "1")
    assert output.count("not kept: the archive is full") == 2
    assert (folder.parent / "out" / there.ARCHIVE).stat().st_size <= 400_000
    assert read_archive(folder) == {"a/1", "a/2"}


def test_items_alone_do_not_run_beside_others(make_kit):
    command = f"ls -d ../../*/[0-9] | wc -l > count; sleep 1; {REPLY}"
    items = dict.fromkeys(("a/1", "a/2", "b/3", "a/4"), command)
    folder = make_kit(items, of_item={"b/3": {"alone": True}})
    run_kit(folder, "--jobs", "3")
    assert unpack(folder, "b/3/count").read_text().strip() == "1"
    assert unpack(folder, "a/4/count").read_text().strip() == "1"


def unpack(folder, name):
    """Unpack the archive and return the path of a file in it."""
    target = folder.parent / "unpacked"
    shutil.unpack_archive(folder.parent / "out" / there.ARCHIVE, target, "gztar")
    return target / name


def test_folder_of_an_item_is_made_complete_and_only_results_come_back(make_kit):
    command = f"cat worker.pyz inputs.npz request.json given > all; {REPLY}"
    fields = {"worker": "odd.pyz", "inputs": "1.npz", "framework": "odd"}
    folder = make_kit({"a/1": command}, **fields)
    (folder / "a/1").mkdir(parents=True)
    (folder / "a/1/request.json.gz").write_bytes(gzip.compress(b"the job"))
    (folder / "a/1/given").write_text("what was given")
    (folder / "inputs").mkdir()
    (folder / "inputs/1.npz").write_bytes(b"the inputs")
    assert "0 of 1 items" in run_kit(folder)[1]  # no interpreter
    status, output = run_kit(folder, f"odd={sys.executable}")
    assert status == 0, output
    text = unpack(folder, "a/1/all").read_text()
    assert text == "the workerthe inputsthe jobwhat was given"
    names = {path.name for path in unpack(folder, "a/1").iterdir()}
    assert names == {"all", "output", "reply.json", "request.json", "seconds", "status"}


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("odd", "expected FRAMEWORK=PYTHON, not odd"),
        ("even=python3", "this kit has no framework even"),
        ("odd=/no/such", "odd=/no/such: no such program"),
    ],
)
def test_wrong_arguments_of_a_kit_are_refused(make_kit, pair, words):
    status, output = run_kit(make_kit({"a/1": REPLY}), pair)
    assert status == 2 and words in output


def test_signal_ends_the_items_too(make_kit):
    folder = make_kit({"a/1": "sleep 598", "a/2": REPLY})
    process = start_kit(folder)
    while "a/2: done" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert not is_running("sleep 598")


@pytest.mark.deep
def test_short_kit_is_rehearsed(tmp_path):
    """It runs without a network and with a read-only home, is killed, continued and imported."""
    interpreter = environment.ensure_environment(adapter.load("jax")).interpreter
    if not rehearsal.can_isolate():
        pytest.skip("namespaces are not permitted here")
    assert rehearsal.rehearse(tmp_path, "short", 8, 15.0, str(interpreter)) == []
