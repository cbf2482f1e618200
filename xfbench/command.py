"""The one place that starts processes: commands as values, their output, and their end.

A command is an argument list, never a shell line. When `run` returns, nothing that the
command started is left running, whatever it did: every process carries a mark in its
environment and is found by it, also when it has left its process group.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from xfbench.errors import XfbenchError

_MARK = "XFBENCH_RUN"
_GRACE_SECONDS = 2.0


class CommandError(XfbenchError):
    """A command that was to succeed did not; the message ends with its last words."""


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
    """How a command ended: its exit status (negative: the signal), or the time limit."""

    status: int
    timed_out: bool = False

    def __str__(self) -> str:
        if self.timed_out:
            return "its time limit ended it"
        if self.status < 0:
            return f"it was ended by {signal.Signals(-self.status).name}"
        return f"it ended with exit status {self.status}"


def run(command: Command, *, stdout: Path, stderr: Path, time_limit: float) -> Outcome:
    """Run `command` with its output in two files, for at most `time_limit` seconds.

    Raises CommandError if it cannot be started. An interrupt ends it and is passed on.
    """
    mark = secrets.token_hex(8)
    with stdout.open("wb") as out, stderr.open("wb") as err:
        try:
            process = subprocess.Popen(
                command.argv,
                env={**command.environment, _MARK: mark},
                cwd=command.cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except OSError as error:
            raise CommandError(f"{command.argv[0]}: {error.strerror}") from error
        try:
            return Outcome(process.wait(time_limit))
        except subprocess.TimeoutExpired:
            _end(process)
            return Outcome(process.returncode, timed_out=True)
        finally:
            _end(process)
            _end_marked(mark)


def output(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float,
) -> str:
    """Standard output of a command that must succeed within `timeout` seconds.

    Raises CommandError if it does not.
    """
    try:
        process = subprocess.run(
            argv,
            env=environment,
            cwd=cwd,
            timeout=timeout,
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        raise CommandError(f"{argv[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{argv[0]}: no answer within {timeout:g} s") from error
    if process.returncode:
        words = (process.stderr or process.stdout).decode(errors="replace").strip()
        raise CommandError(f"{Path(argv[0]).name} failed: {words[-2000:]}")
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


def _end_marked(mark: str) -> None:
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark:
                process.kill()
        except (psutil.Error, OSError):
            continue
