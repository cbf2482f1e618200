"""Processes are ended with whoever started them."""

import os
import sys
import threading

import psutil
import pytest

from xfbench import command


def test_commands_in_threads_are_ended_when_their_block_is(tmp_path):
    """As by an interrupt, which only the main thread hears: what others wait for is ended."""
    started, outcomes = threading.Event(), []
    script = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    waiting = command.Command(
        (sys.executable, "-c", f"{script}print(1, flush=True); time.sleep(120)"),
        dict(os.environ),
        tmp_path,
    )

    def work():
        out = tmp_path / "out"
        done = threading.Thread(target=told, args=(out,))
        done.start()
        outcomes.append(
            command.run([waiting], stdout=[out], stderr=[tmp_path / "err"], time_limit=100)
        )
        done.join()

    def told(out):
        for _ in range(2000):
            if out.exists() and out.read_text():
                break
            threading.Event().wait(0.01)
        started.set()

    with pytest.raises(KeyboardInterrupt), command.threads(2) as pool:
        pool.submit(work)
        assert started.wait(60)
        raise KeyboardInterrupt
    [outcome] = outcomes
    assert outcome.words == "the alarm ended it"
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
