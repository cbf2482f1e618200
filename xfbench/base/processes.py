"""Starts and ends all processes of xfbench.

A command is an argument list, never a shell line. When `run` returns, no process that the command
started is left. Every process has a mark in its environment, so that it is found even after it left
its process group. If this process is killed, `keeper.py` ends the marked processes.
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

MAX_OUTPUT_BYTES = 2**30  # of a command's standard output or error; a command with more is ended
_GRACE_S = 2.0
_CHECK_INTERVAL_S = 5.0  # between two checks of the output's size
_ALARM_KEY = -1
_thread_state = threading.local()


class CommandError(XfbenchError):
    """A command failed; the message ends with the end of its output."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Command:
    """A command: arguments, the whole environment, and the working folder."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path

    def with_environment(self, variables: Mapping[str, str]) -> Command:
        return replace(self, environment={**self.environment, **variables})

    def to_shell_line(self) -> str:
        """Return the command as a line for a POSIX shell, with every word quoted."""
        variables = [f"{key}={value}" for key, value in sorted(self.environment.items())]
        return shlex.join(["env", "-i", *variables, *self.argv])


@dataclass(frozen=True)
class Outcome:
    """How commands ended: exit status (negative for a signal), or the time limit.

    `rank` is the number of the command that failed first. `message` replaces the default text.
    """

    status: int
    timed_out: bool = False
    rank: int = 0
    message: str = ""

    def __str__(self) -> str:
        if self.message:
            return self.message
        if self.timed_out:
            return "it exceeded its time limit"
        if self.status < 0:
            return f"it was ended by {_signal_name(-self.status)}"
        return f"it ended with exit status {self.status}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


def run(
    commands: Sequence[Command],
    *,
    helpers: Sequence[Command] = (),
    stdout: Sequence[Path],
    stderr: Sequence[Path],
    time_limit: float,
    alarm: socket.socket | None = None,
) -> Outcome:
    """Run `commands` at once, each with its output in two files, for at most `time_limit` seconds.

    The last files receive the output of `helpers`, which are ended with the commands. If a command
    fails, the others are ended and the outcome is that of the first failure. A command that writes
    more than `MAX_OUTPUT_BYTES` fails. All commands are ended if `alarm` becomes readable, or if
    the block of `command_threads` fails. An interrupt ends them and is raised again. Raises
    CommandError if a command cannot be started.
    """
    alarms = [
        alarm_socket
        for alarm_socket in (alarm, getattr(_thread_state, "alarm", None))
        if alarm_socket
    ]
    running: list[subprocess.Popen[bytes]] = []
    output_files = list(zip(stdout, stderr, strict=True))
    with _registered_mark() as mark:
        try:
            for command, (out, err) in zip((*commands, *helpers), output_files, strict=True):
                running.append(_start(command, mark, out, err))
            deadline = time.monotonic() + time_limit
            return _wait_for_end_or_failure(running, len(commands), output_files, deadline, alarms)
        finally:
            for process in running:
                _terminate(process)
            keeper.kill_marked({mark})


@contextlib.contextmanager
def _registered_mark() -> Iterator[str]:
    """Register a new mark with the keeper while the block runs."""
    mark = secrets.token_hex(8)
    _keeper_process.send_mark("+", mark)
    try:
        yield mark
    finally:
        _keeper_process.send_mark("-", mark)


class _KeeperProcess:
    """The keeper's process: started with the first mark, restarted if it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def send_mark(self, sign: str, mark: str) -> None:
        with self._lock:
            (self._marks.add if sign == "+" else self._marks.discard)(mark)
            lines = [f"{sign}{mark}\n"]
            if self._process is None or self._process.poll() is not None:
                self._process = self._start()
                lines = [f"+{known_mark}\n" for known_mark in self._marks]
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):  # it has just ended
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

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.wait()


_keeper_process = _KeeperProcess()
atexit.register(_keeper_process.close)


@contextlib.contextmanager
def command_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Return threads that may `run` commands; an error or interrupt in the block ends the commands.

    Only the main thread receives an interrupt, and without this it would wait for the others.
    """
    alarm, trigger = socket.socketpair()
    pool = ThreadPoolExecutor(count, initializer=_set_thread_alarm, initargs=(alarm,))
    try:
        yield pool
    except BaseException:
        trigger.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        trigger.close()
        alarm.close()


def _set_thread_alarm(alarm: socket.socket) -> None:
    _thread_state.alarm = alarm


def _start(command: Command, mark: str, stdout: Path, stderr: Path) -> subprocess.Popen[bytes]:
    with stdout.open("wb") as stdout_file, stderr.open("wb") as stderr_file:
        try:
            return subprocess.Popen(
                command.argv,
                env={**command.environment, keeper.MARK: mark},
                cwd=command.cwd,
                stdin=subprocess.DEVNULL,
                stdout=stdout_file,
                stderr=stderr_file,
                start_new_session=True,
            )
        except OSError as error:
            raise CommandError(f"{command.argv[0]}: {error.strerror}") from error


def _wait_for_end_or_failure(
    running: Sequence[subprocess.Popen[bytes]],
    command_count: int,
    output_files: Sequence[tuple[Path, Path]],
    deadline: float,
    alarms: Sequence[socket.socket],
) -> Outcome:
    """Wait until the first `count` processes have ended or any process fails."""
    remaining = command_count
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for number, process in enumerate(running):
            descriptor = os.pidfd_open(process.pid)
            stack.callback(os.close, descriptor)
            selector.register(descriptor, selectors.EVENT_READ, number)
        for alarm in alarms:
            selector.register(alarm, selectors.EVENT_READ, _ALARM_KEY)
        while remaining:
            ready = selector.select(max(0.0, min(_CHECK_INTERVAL_S, deadline - time.monotonic())))
            if not ready and (excess := _find_excess_output(output_files)):
                return excess
            if not ready and time.monotonic() >= deadline:
                return Outcome(0, timed_out=True)
            for key, _ in ready:
                if key.data == _ALARM_KEY:
                    return Outcome(1, message="the alarm ended it")
                selector.unregister(key.fileobj)
                remaining -= key.data < command_count
                status = running[key.data].wait()
                if status:
                    return Outcome(status, rank=key.data)
    return Outcome(0)


def _find_excess_output(output_files: Sequence[tuple[Path, Path]]) -> Outcome | None:
    """Return the outcome if a command wrote more than `MAX_OUTPUT_BYTES`, else None."""
    for number, files in enumerate(output_files):
        for file in files:
            with contextlib.suppress(OSError):
                if file.stat().st_size > MAX_OUTPUT_BYTES:
                    message = f"it wrote more than {MAX_OUTPUT_BYTES >> 20} MiB to {file.name}"
                    return Outcome(1, rank=number, message=message)
    return None


def output(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float,
    new_session: bool = False,
    stdin_text: str = "",
) -> str:
    """Return the standard output of a command that must succeed within `timeout` seconds.

    `stdin_text` is its standard input. With `new_session` it does not receive the terminal's
    interrupt. Raises CommandError if it fails; then no process that it started is left.
    """
    base_environment = os.environ if environment is None else environment
    with _registered_mark() as mark:
        try:
            process = subprocess.run(
                argv,
                env={**base_environment, keeper.MARK: mark},
                cwd=cwd,
                timeout=timeout,
                check=False,
                capture_output=True,
                input=stdin_text.encode(),
                start_new_session=new_session,
            )
        except OSError as error:
            raise CommandError(f"{argv[0]}: {error.strerror}") from error
        except BaseException as error:
            keeper.kill_marked({mark})
            if isinstance(error, subprocess.TimeoutExpired):
                raise CommandError(f"{argv[0]}: no answer within {timeout:g} s") from error
            raise
    if process.returncode:
        message = (process.stderr or process.stdout).decode(errors="replace").strip()
        raise CommandError(f"{Path(argv[0]).name} failed: {message[-2000:]}", process.returncode)
    return process.stdout.decode(errors="replace")


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """End the command with SIGTERM, then SIGKILL, and its process group with SIGKILL."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
    _signal_group(process.pid, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
