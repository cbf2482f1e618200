"""The `xfbench` command line: parses options, calls other modules and prints.

A command imports its modules only when it runs. So `--help` needs little time.
"""

from __future__ import annotations

import errno
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from xfbench.base import paths
from xfbench.base.errors import XfbenchError, disk_or_limit_error_message
from xfbench.base.terminal_text import print_in_any_encoding, say
from xfbench.base.terminal_text import print_legibly as print
from xfbench.base.version import __version__
from xfbench.cli import (
    compare,
    data,
    env,
    framework,
    leaderboard,
    machine,
    predict,
    report,
    results,
    run,
    study,
    trace,
    tune,
    verify,
    workload,
)
from xfbench.cli.options import GroupedCommand

_INTERRUPTED_STATUS = 130
_SIGTERM_STATUS = 128 + signal.SIGTERM
_INTERNAL_ERROR_STATUS = 3
_MAX_LINE_CHARS = 4000
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
# The base class of typer's usage errors, looked up because typer has its own copy of click.
ParseError: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
app = typer.Typer(
    name="xfbench",
    help="Which framework trains this network fastest here, and how sure are we?",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", cls=GroupedCommand)(run.run)
app.add_typer(study.app, name="study")
app.command("leaderboard")(leaderboard.leaderboard)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("tune", cls=GroupedCommand)(tune.tune)
app.command("predict")(predict.predict)
app.command("verify", cls=GroupedCommand)(verify.verify)
app.command("trace")(trace.trace)
app.add_typer(workload.app)
app.add_typer(framework.app)
app.add_typer(env.app)
app.add_typer(data.app, name="data")
app.add_typer(results.app, name="results")
app.command("machine")(machine.machine)
app.command("doctor")(machine.doctor)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(f"xfbench {__version__}")
        raise typer.Exit


@app.callback()
def _set_global_options(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    ctx.obj = {"debug": debug}


def main() -> None:
    """Run the command line and exit with one of these statuses.

    - `0`: everything requested ran and passed.
    - `1`: something ran and failed.
    - `2`: the command line or a file is wrong.
    - `3`: there is a bug in xfbench.
    - `130`: the command was interrupted; all records are kept.
    - `143`: the same, by SIGTERM.
    """
    print_in_any_encoding()
    paths.restrict_umask()
    with _interrupt_on_sigterm() as received_signals:
        status = _run_command_and_report_errors(received_signals)
    sys.exit(status)


@contextmanager
def _interrupt_on_sigterm() -> Iterator[list[int]]:
    """Make SIGTERM end the command as Ctrl-C does. Yield a list that gets the signal's number.

    A further SIGTERM has no effect, because `timeout` and schedulers may send it twice.
    """
    received_signals: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        signal.signal(number, lambda *_: None)
        received_signals.append(number)
        raise KeyboardInterrupt

    previous_handler = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield received_signals
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def _run_command_and_report_errors(received_signals: Sequence[int]) -> int:
    """Run the command line, print any error, and return the exit status."""
    debug = "--debug" in sys.argv[1:]
    try:
        status = app(standalone_mode=False)
        if status == _INTERRUPTED_STATUS:  # typer turns Ctrl-C into a status
            raise KeyboardInterrupt
        return int(status or 0)
    except XfbenchError as error:
        if debug:
            raise
        return _print_error(str(error), error.exit_status)
    except ParseError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command
            print(getattr(error, "ctx").get_help())  # noqa: B009
            return 0
        message: str = getattr(error, "format_message")()  # noqa: B009
        return _print_error(
            " ".join(message.split()) or "wrong command line: see xfbench --help", 2
        )
    except (KeyboardInterrupt, typer.Abort) as error:
        if isinstance(error.__cause__, EOFError):  # typer takes any for the end of standard input
            return _print_unexpected_error(error.__cause__)
        if received_signals:
            return _print_error("ended by SIGTERM; finished work is kept", _SIGTERM_STATUS)
        return _print_error("interrupted; finished work is kept", _INTERRUPTED_STATUS)
    except BrokenPipeError as error:
        if error.errno == errno.ESHUTDOWN:  # Python's name also for a lost file server
            return _print_unexpected_error(error)
        sys.stderr.close()
        return 0
    except Exception as error:
        if debug:
            raise
        return _print_unexpected_error(error)


def _print_unexpected_error(error: Exception) -> int:
    """Print an error that is not an XfbenchError, and return the exit status.

    The traceback of a bug is written to a file.
    """
    from xfbench.workloads import WorkloadError

    if isinstance(error, WorkloadError):
        return _print_error(str(error), 2)
    if isinstance(error, MemoryError):
        return _print_error("this process may use no more memory: see ulimit -v, or free some", 1)
    if isinstance(error, OSError) and (cache_message := _describe_cache_error(error)):
        return _print_error(cache_message, 1)
    if isinstance(error, OSError) and (system_message := disk_or_limit_error_message(error)):
        return _print_error(f"{system_message}; finished work is kept: continue with --resume", 1)
    if isinstance(error, FileNotFoundError) and not _has_working_folder():
        return _print_error("the working folder was deleted: change to another folder", 1)
    with tempfile.NamedTemporaryFile(
        "w", prefix="xfbench-", suffix=".log", delete=False, encoding="utf-8"
    ) as log:
        log.write("".join(traceback.format_exception(error)))
    return _print_error(
        f"bug in xfbench: {error!r}; details in {Path(log.name)}", _INTERNAL_ERROR_STATUS
    )


def _describe_cache_error(error: OSError) -> str | None:
    """Return the message for an error of the cache folder; None for any other error."""
    try:
        folder, file = paths.cache(), Path(str(error.filename or ""))
    except XfbenchError:
        return None
    is_above = file in (folder, *folder.parents)
    is_refused = error.errno in _REFUSALS and (is_above or folder in file.parents)
    if not is_refused and not (error.errno == errno.ENOENT and is_above):
        return None
    return (
        f"{file}: {error.strerror}: xfbench needs a cache folder to write to: set XFBENCH_HOME "
        "to one"
    )


def _has_working_folder() -> bool:
    try:
        return Path.cwd().is_dir()
    except FileNotFoundError:
        return False


def _print_error(message: str, status: int) -> int:
    say(f"xfbench: {message}", _MAX_LINE_CHARS)
    return status
