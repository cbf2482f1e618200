"""One process at a time: with real processes that hold, let go and are killed."""

import errno
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.other_users import MALLORY, require_other_users
from xfbench.base import errors, locks

HOLDER = """
import pathlib, sys
from xfbench.base import locks
with locks.exclusive(pathlib.Path(sys.argv[1]), "holds it"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that has the lock until it is told to let go."""
    argv = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_lock_wait_is_announced_and_ends_in_an_error(holder, tmp_path):
    messages = []
    with (
        pytest.raises(errors.UnavailableError, match=r"holds it has not ended.*fuser .*lock"),
        locks.exclusive(tmp_path / "lock", "holds it", messages.append, timeout_s=0.2),
    ):
        pytest.fail("it was let in")
    assert messages == ["waiting for another process that holds it"]


def test_waiting_process_enters_when_the_lock_is_released(holder, tmp_path):
    def release(_):
        holder.stdin.write("\n")
        holder.stdin.flush()

    with locks.exclusive(tmp_path / "lock", "holds it", release, timeout_s=60):
        assert holder.wait(60) == 0


def test_killed_process_releases_its_lock(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait(60)
    messages = []
    with locks.exclusive(tmp_path / "lock", "holds it", messages.append, timeout_s=60):
        assert not messages


def test_error_in_the_block_releases_the_lock(tmp_path):
    with pytest.raises(KeyError), locks.exclusive(tmp_path / "lock", "fails"):
        raise KeyError
    messages = []
    with locks.exclusive(tmp_path / "lock", "is next", messages.append, timeout_s=1):
        assert not messages


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "provides no locks"),
        (errno.ENOLCK, "provides no locks"),
        (errno.ENOSPC, "cannot be locked: No space left on device"),
    ],
)
def test_a_refused_lock_is_no_held_lock(number, words, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with pytest.raises(errors.UnavailableError, match=words), locks.exclusive(tmp_path / "a", "is"):
        pytest.fail("it was let in")


def test_child_of_a_killed_process_does_not_keep_its_lock(tmp_path):
    """A command may outlive its driver for a moment; the next driver does not wait for it."""
    code = HOLDER.replace("    sys.stdin", "    start_child()\n    sys.stdin")
    start_child = "import subprocess\ndef start_child():\n    subprocess.Popen(['sleep', '60'])\n"
    argv = [sys.executable, "-c", start_child + code, str(tmp_path / "lock")]
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        [child] = wait_for_children(process.pid)
        process.kill()
        process.wait(60)
        messages = []
        with locks.exclusive(tmp_path / "lock", "holds it", messages.append, timeout_s=60):
            assert not messages
        child.kill()


@pytest.mark.parametrize("mode", [None, 0o644, 0o666])
def test_others_cannot_hold_a_lock(open_folder, mode):
    """Whoever can read a file can lock it, also a file of an earlier version."""
    require_other_users()
    lock = open_folder / "lock"
    if mode:
        lock.touch()
        lock.chmod(mode)
    with locks.exclusive(lock, "holds it"):
        pass
    command = ["flock", "--nonblock", "--shared", str(lock), "true"]
    other_user = ["setpriv", f"--reuid={MALLORY}", f"--regid={MALLORY}", "--clear-groups"]
    assert subprocess.run(command, check=False).returncode == 0
    refused = subprocess.run([*other_user, *command], capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "Permission denied" in refused.stderr


@pytest.mark.parametrize("name", ["XFBENCH_TRUSTED_GROUP", "XFBENCH_TRUSTED_FOLDERS"])
def test_trusted_users_share_a_lock(tmp_path, monkeypatch, name):
    trusted = {"XFBENCH_TRUSTED_GROUP": os.getgid(), "XFBENCH_TRUSTED_FOLDERS": tmp_path}[name]
    monkeypatch.setenv(name, str(trusted))
    with locks.exclusive(tmp_path / "lock", "holds it"):
        assert (tmp_path / "lock").stat().st_mode & 0o444 == 0o444


def wait_for_children(pid):
    """Return the children of a process, when it has some."""
    while not (children := psutil.Process(pid).children()):
        time.sleep(0.01)
    return children
