"""The one place that starts processes: commands as values, their output, and their end.

A command is an argument list, never a shell line. When `run` returns, nothing that the
command started is left running, whatever it did: every process carries a mark in its
environment and is found by it, also when it has left its process group. Where this process is
killed meanwhile, `keeper.py` does the same.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from xfbench.base import keeper
from xfbench.base.errors import XfbenchError

MOST_OUTPUT = 2**30  # bytes of a command's standard output, or error, until it is ended
_GRACE_SECONDS = 2.0
_LOOK_SECONDS = 5.0  # between two looks at how much was written
_ALARM = -1
_of_thread = threading.local()


class CommandError(XfbenchError):
    """A command that was to succeed did not; the message ends with its last words."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Command:
    """What is started: arguments, the whole environment, and the folder it runs in."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path

    def with_environment(self, variables: Mapping[str, str]) -> Command:
        return replace(self, environment={**self.environment, **variables})

    def as_shell(self) -> str:
        """The same command as a line for a POSIX shell, every word quoted."""
        variables = [f"{key}={value}" for key, value in sorted(self.environment.items())]
        return shlex.join(["env", "-i", *variables, *self.argv])


@dataclass(frozen=True)
class Outcome:
    """How commands ended: exit status (negative: the signal), or the time limit.

    `rank` is the number of the one that failed first; `words` say how, where a status does not.
    """

    status: int
    timed_out: bool = False
    rank: int = 0
    words: str = ""

    def __str__(self) -> str:
        if self.words:
            return self.words
        if self.timed_out:
            return "its time limit ended it"
        if self.status < 0:
            return f"it was ended by {_name(-self.status)}"
        return f"it ended with exit status {self.status}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time ones between the first and the last have none
        return f"signal {number}"


def run(
    commands: Sequence[Command],
    *,
    beside: Sequence[Command] = (),
    stdout: Sequence[Path],
    stderr: Sequence[Path],
    time_limit: float,
    alarm: socket.socket | None = None,
) -> Outcome:
    """Run `commands` at once, each with its output in two files, for at most `time_limit` seconds.

    What is to run `beside` them has its output in the files that come last, and ends with them.
    Where one fails, the others are ended: the outcome is that of the first that did; one that
    writes more than `MOST_OUTPUT` fails. They are ended, too, when the `alarm` can be read: why is
    known to whoever raised it; so are those of `threads` that are given up. Raises CommandError if
    one cannot be started. An interrupt ends them and is passed on.
    """
    alarms = [one for one in (alarm, getattr(_of_thread, "alarm", None)) if one]
    started: list[subprocess.Popen[bytes]] = []
    written = list(zip(stdout, stderr, strict=True))
    with _marked() as mark:
        try:
            for command, (out, err) in zip((*commands, *beside), written, strict=True):
                started.append(_start(command, mark, out, err))
            end = time.monotonic() + time_limit
            return _first_to_fail(started, len(commands), written, end, alarms)
        finally:
            for process in started:
                _end(process)
            keeper.end_marked({mark})


@contextlib.contextmanager
def _marked() -> Iterator[str]:
    """A mark for commands to carry, by which they are found should this process be killed."""
    mark = secrets.token_hex(8)
    _kept.tell("+", mark)
    try:
        yield mark
    finally:
        _kept.tell("-", mark)


class _Kept:
    """The keeper as this process sees him: there from the first mark on, again should he end."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._marks: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def tell(self, sign: str, mark: str) -> None:
        with self._one_at_a_time:
            (self._marks.add if sign == "+" else self._marks.discard)(mark)
            lines = [f"{sign}{mark}\n"]
            if self._process is None or self._process.poll() is not None:
                self._process = self._start()
                lines = [f"+{one}\n" for one in self._marks]
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):  # he has just ended
                self._process.stdin.write("".join(lines).encode())
                self._process.stdin.flush()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__],
            env={},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.wait()


_kept = _Kept()
atexit.register(_kept.dismiss)


@contextlib.contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that may `run` commands; an error or an interrupt in the block ends them all.

    An interrupt is heard by the main thread alone, which would wait for the others.
    """
    heard, given_up = socket.socketpair()
    pool = ThreadPoolExecutor(count, initializer=_hears, initargs=(heard,))
    try:
        yield pool
    except BaseException:
        given_up.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        given_up.close()
        heard.close()


def _hears(alarm: socket.socket) -> None:
    _of_thread.alarm = alarm


def _start(command: Command, mark: str, stdout: Path, stderr: Path) -> subprocess.Popen[bytes]:
    with stdout.open("wb") as out, stderr.open("wb") as err:
        try:
            return subprocess.Popen(
                command.argv,
                env={**command.environment, keeper.MARK: mark},
                cwd=command.cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except OSError as error:
            raise CommandError(f"{command.argv[0]}: {error.strerror}") from error


def _first_to_fail(
    started: Sequence[subprocess.Popen[bytes]],
    count: int,
    written: Sequence[tuple[Path, Path]],
    end: float,
    alarms: Sequence[socket.socket],
) -> Outcome:
    """Wait for the first `count`, or for one that fails, and hardly wake up in between."""
    left = count
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for number, process in enumerate(started):
            descriptor = os.pidfd_open(process.pid)
            stack.callback(os.close, descriptor)
            selector.register(descriptor, selectors.EVENT_READ, number)
        for alarm in alarms:
            selector.register(alarm, selectors.EVENT_READ, _ALARM)
        while left:
            ended = selector.select(max(0.0, min(_LOOK_SECONDS, end - time.monotonic())))
            if not ended and (too_much := _overlong(written)):
                return too_much
            if not ended and time.monotonic() >= end:
                return Outcome(0, timed_out=True)
            for key, _ in ended:
                if key.data == _ALARM:
                    return Outcome(1, words="the alarm ended it")
                selector.unregister(key.fileobj)
                left -= key.data < count
                status = started[key.data].wait()
                if status:
                    return Outcome(status, rank=key.data)
    return Outcome(0)


def _overlong(written: Sequence[tuple[Path, Path]]) -> Outcome | None:
    """The outcome where a command has written more than it may."""
    for number, files in enumerate(written):
        for file in files:
            with contextlib.suppress(OSError):
                if file.stat().st_size > MOST_OUTPUT:
                    words = f"it wrote more than {MOST_OUTPUT >> 20} MiB to {file.name}"
                    return Outcome(1, rank=number, words=words)
    return None


def output(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float,
    apart: bool = False,
    told: str = "",
) -> str:
    """Standard output of a command that must succeed within `timeout` seconds.

    `told` is its standard input. One that is `apart` does not hear the terminal's interrupt.
    Raises CommandError if it does not: then nothing that it started is left running.
    """
    known = os.environ if environment is None else environment
    with _marked() as mark:
        try:
            process = subprocess.run(
                argv,
                env={**known, keeper.MARK: mark},
                cwd=cwd,
                timeout=timeout,
                check=False,
                capture_output=True,
                input=told.encode(),
                start_new_session=apart,
            )
        except OSError as error:
            raise CommandError(f"{argv[0]}: {error.strerror}") from error
        except BaseException as error:
            keeper.end_marked({mark})
            if isinstance(error, subprocess.TimeoutExpired):
                raise CommandError(f"{argv[0]}: no answer within {timeout:g} s") from error
            raise
    if process.returncode:
        words = (process.stderr or process.stdout).decode(errors="replace").strip()
        raise CommandError(f"{Path(argv[0]).name} failed: {words[-2000:]}", process.returncode)
    return process.stdout.decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command and its process group: asked first, then made to."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
    _signal_group(process.pid, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
