"""The `xfbench` command line: parses options, calls other modules and prints.

A command imports its modules only when it runs. So `--help` needs little time.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from pathlib import Path
from typing import Annotated

import typer

from xfbench.base.errors import XfbenchError, disk_or_limit_error_message
from xfbench.base.terminal_text import say
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
_INTERNAL_ERROR_STATUS = 3
_MAX_LINE_CHARS = 4000
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
    """
    debug = "--debug" in sys.argv[1:]
    try:
        status = app(standalone_mode=False)
        if status == _INTERRUPTED_STATUS:  # typer turns Ctrl-C into a status
            raise KeyboardInterrupt
    except XfbenchError as error:
        if debug:
            raise
        status = _print_error(str(error), error.exit_status)
    except ParseError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command
            print(getattr(error, "ctx").get_help())  # noqa: B009
            sys.exit(0)
        message: str = getattr(error, "format_message")()  # noqa: B009
        status = _print_error(
            " ".join(message.split()) or "wrong command line: see xfbench --help", 2
        )
    except (KeyboardInterrupt, typer.Abort):
        status = _print_error("interrupted; finished work is kept", _INTERRUPTED_STATUS)
    except BrokenPipeError:
        sys.stderr.close()
        status = 0
    except Exception as error:
        if debug:
            raise
        from xfbench.workloads import WorkloadError

        if isinstance(error, WorkloadError):
            sys.exit(_print_error(str(error), 2))
        if isinstance(error, OSError) and (system_message := disk_or_limit_error_message(error)):
            sys.exit(
                _print_error(f"{system_message}; finished work is kept: continue with --resume", 1)
            )
        with tempfile.NamedTemporaryFile(
            "w", prefix="xfbench-", suffix=".log", delete=False, encoding="utf-8"
        ) as log:
            log.write(traceback.format_exc())
        status = _print_error(
            f"bug in xfbench: {error!r}; details in {Path(log.name)}", _INTERNAL_ERROR_STATUS
        )
    sys.exit(status)


def _print_error(message: str, status: int) -> int:
    say(f"xfbench: {message}", _MAX_LINE_CHARS)
    return status
