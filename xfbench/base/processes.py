"""Start and end of every process that xfbench runs.

- A command is a list of arguments, never a line for a shell.
- When `run` returns, no process that its commands started is left.
- Each call of `run` or `output` puts its own random mark into the environment of its commands.
  Their child processes inherit the mark, so they are found even outside the process group.
- If xfbench itself is killed, the keeper (`keeper.py`) kills the marked processes.
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
from xfbench.base.process_variables import Purpose, select_variables
from xfbench.base.shared_files import open_file

MAX_OUTPUT_BYTES = 2**30  # limit for standard output and for standard error of a command
_GRACE_S = 2.0
_CHECK_INTERVAL_S = 5.0  # between two checks of the sizes of output files
_ALARM_KEY = -1
_thread_state = threading.local()


class CommandError(XfbenchError):
    """The error of a command that failed, timed out or could not be started.

    - `status`: exit status, negative for a signal; None if the command was not started or timed
      out.
    - `output`: standard output of a command that failed.
    """

    def __init__(self, message: str, status: int | None = None, output: str = "") -> None:
        super().__init__(message)
        self.status, self.output = status, output


@dataclass(frozen=True)
class Command:
    """A command: its arguments, all its environment variables, and its working folder."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path

    def with_environment(self, variables: Mapping[str, str]) -> Command:
        """Return the command with `variables` added to its environment."""
        return replace(self, environment={**self.environment, **variables})

    def to_shell_line(self) -> str:
        """Return a line for a POSIX shell that runs the command in the same environment.

        Words are quoted where the shell needs it. The line does not change the working folder.
        """
        variables = [f"{key}={value}" for key, value in sorted(self.environment.items())]
        return shlex.join(["env", "-i", *variables, *self.argv])


@dataclass(frozen=True)
class Outcome:
    """The outcome of commands that ran together.

    - `status`: exit status of the first failure, negative for a signal; 0 if no command failed.
    - `timed_out`: whether the time limit ended the commands; then `status` is 0.
    - `rank`: number of the command or helper that failed first, counted from 0. Helpers are counted
      after the commands.
    - `message`: text for the user; if empty, the other fields give the text.
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
    """Run `commands` and `helpers` at the same time until all commands have ended.

    - `helpers`: processes that serve `commands`. They are ended when all `commands` have ended.
    - `stdout`, `stderr`: one output file for each command, then one for each helper.
    - `time_limit`: seconds after which all commands and helpers are ended.
    - `alarm`: a socket. If it becomes readable, all commands and helpers are ended.

    All commands and helpers are also ended in these cases:

    - A command or helper fails. The outcome describes the first failure.
    - A command or helper writes more than `MAX_OUTPUT_BYTES` to a file. This counts as a failure.
    - An interrupt arrives. It is raised again.
    - `run` was called in a thread of `command_threads`, and the block of `command_threads` raises
      an error.

    Raises CommandError if a command or helper cannot be started.
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
    """Yield a new mark that is registered with the keeper while the block runs."""
    mark = secrets.token_hex(8)
    _keeper_process.send_mark("+", mark)
    try:
        yield mark
    finally:
        _keeper_process.send_mark("-", mark)


class _KeeperProcess:
    """The process of the keeper.

    It is started when the first mark is sent to it. If it has ended, the next mark starts it again.
    """

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
            with contextlib.suppress(OSError):  # the keeper has just ended
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
    """Yield a pool of `count` threads whose tasks may call `run`.

    If the block raises an error or is interrupted, the commands of all threads are ended. Without
    this, only the main thread would notice an interrupt, and it would wait for the other threads.
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
    with open_file(stdout, "wb") as stdout_file, open_file(stderr, "wb") as stderr_file:
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
    """Wait until the first `command_count` processes of `running` have ended, or any has failed.

    The wait also ends in these cases:

    - An output file is larger than `MAX_OUTPUT_BYTES`.
    - One of `alarms` becomes readable.
    - `time.monotonic` reaches `deadline`, in seconds.

    The outcome says why the wait ended.
    """
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
    """Return a failure if an output file is larger than `MAX_OUTPUT_BYTES`, else None."""
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
    purpose: Purpose = Purpose.PROGRAM,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float,
    new_session: bool = False,
    stdin_text: str = "",
) -> str:
    """Run a command and return its standard output.

    - `purpose`: what the command is for. A command for `Purpose.SUBMISSION` gets no mark, which the
      job would inherit, so after `timeout` only the command itself is killed.
    - `environment`: the command's environment variables; None: those that this process has for
      `purpose`.
    - `cwd`: the command's working folder; None: the working folder of this process.
    - `timeout`: the longest time that the command may take, in seconds.
    - `new_session`: whether the command runs in a new session. Ctrl-C in the terminal then reaches
      only this process.
    - `stdin_text`: the command's standard input.

    Raises CommandError if the command cannot be started, fails, or takes longer than `timeout`.
    After `timeout`, or after an interrupt, all processes that the command started are killed.
    """
    base_environment = select_variables(purpose) if environment is None else environment
    is_marked = purpose is not Purpose.SUBMISSION
    with _registered_mark() as mark:
        try:
            process = subprocess.run(
                argv,
                env={**base_environment, **({keeper.MARK: mark} if is_marked else {})},
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
    output_text = process.stdout.decode(errors="replace")
    if process.returncode:
        message = (process.stderr.decode(errors="replace") or output_text).strip()[-2000:]
        name = Path(argv[0]).name
        raise CommandError(f"{name} failed: {message}", process.returncode, output_text)
    return output_text


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """End the process with SIGTERM, and with SIGKILL if it has not ended after `_GRACE_S` seconds.

    Then kill what is left of its process group.
    """
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
