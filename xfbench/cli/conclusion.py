"""The leaderboard tables that commands print after they have measured."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from xfbench.analysis import leaderboard
from xfbench.analysis.leaderboard import NO_CERTIFICATE, Table
from xfbench.base import paths, revisions
from xfbench.base.terminal_text import print_legibly as print
from xfbench.base.terminal_text import terminal_width
from xfbench.base.wording import pluralize
from xfbench.model import certificate, origins
from xfbench.model.plan import Plan
from xfbench.model.record import Record
from xfbench.rendering import profile_tables, tables
from xfbench.rendering.report.repeat import setting_options
from xfbench.store.results_folder import Store

_FAILED_STATUSES = ("failed", "crashed", "timed_out")
# The options of `xfbench verify` that decide what a certificate is about.
_VERIFY_OPTIONS = (
    *("--framework", "--workload", "--kernel", "--device", "--precision", "--site", "--launcher"),
    *("--ranks", "--strategy", "--strategy-options", "--threads"),
    *("--learning-rate", "--lars", "--lr-scaling", "--lr-warmup"),
)


def print_leaderboard_and_results_path(
    records: Sequence[Record], store: Store, done: Sequence[Record] = ()
) -> None:
    """Print the leaderboard tables of new records, then the path of the results folder `store`.

    `done`: records of earlier launches that belong to the tables too.
    """
    folder = store.folder
    new_ids = {record.id for record in records}
    shown = [*(record for record in done if record.id not in new_ids), *records]
    board_tables = leaderboard.add_origins(
        leaderboard.build_tables(shown, certificate.read_certificates(folder)),
        origins.read(folder),
    )
    print(tables.to_text(board_tables, layout=tables.Layout(max_width=terminal_width())))
    if any(record.request and record.request.profile for record in records):
        print(profile_tables.FORMATS["text"](board_tables, terminal_width()))
    results_words = [] if folder == paths.results(None) else ["--results", str(folder)]
    suggestions = [
        *_suggest_verification(board_tables, results_words),
        *_suggest_repetition(records, results_words),
    ]
    for line in dict.fromkeys(suggestions):
        print(line)
    print(f"Records: {folder} ({len(records)} new)")
    results_option = "".join(f" {shlex.quote(word)}" for word in results_words)
    print(f"Tables: xfbench leaderboard{results_option} · report: xfbench report{results_option}")


def _suggest_repetition(records: Sequence[Record], results_words: list[str]) -> Iterator[str]:
    """Yield what the user can do about launches that have no figure, a line for each kind."""
    failed = [record for record in records if record.status in _FAILED_STATUSES]
    if failed:
        show = shlex.join(["xfbench", "results", "show", failed[-1].id[7:19], *results_words])
        yield (
            f"{pluralize(len(failed), 'launch')} failed: {show} names the files of the last one; "
            "the same command with --resume repeats them"
        )
    if invalid := sum(record.status == "invalid" for record in records):
        yield (
            f"{pluralize(invalid, 'launch')} invalid, so not counted: mend what the reason names, "
            "and run the command again without --resume"
        )


def _suggest_verification(board_tables: Sequence[Table], results_words: list[str]) -> Iterator[str]:
    """Yield a command for each row that is not ranked because it has no certificate.

    `results_words`: the option for the results folder; empty if it is the default one.
    """
    for table in board_tables:
        for row in table.unranked:
            if row.reason == NO_CERTIFICATE:
                problem = f"{row.framework} is not verified, so not ranked"
                # `xfbench verify` has no named interpreters and no revisions.
                if row.request.python or row.request.revision:
                    yield f"{problem}: run it again without --no-verify"
                    continue
                words = ["xfbench", "verify"]
                words += ["--batch-size", str(row.request.batch_size_per_rank)]
                for option, value in setting_options(row.request).items():
                    if option in _VERIFY_OPTIONS and value is not None:
                        words += [option, str(value)]
                yield f"{problem}: {shlex.join([*words, *results_words])} verifies these launches"


def print_compare_commands(plan: Plan, store: Store) -> None:
    """Print the commands that compare each revision, or named interpreter, with the first one."""
    values_by_field = {
        "revision": [revisions.shorten(commit) for commit in plan.revisions],
        "python": plan.interpreter_names,
    }
    for field, values in values_by_field.items():
        for value in values[1:]:
            command = ["xfbench", "compare", f"{field}={value}", f"{field}={values[0]}"]
            command += ["--fail-on", "slower:5%", "--must-find", "10%"]
            command += ["--results", str(store.folder)]
            print(f"Compare: {shlex.join(command)}")
