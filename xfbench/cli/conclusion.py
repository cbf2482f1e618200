"""The leaderboard tables that commands print after they have measured."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from xfbench.analysis import leaderboard
from xfbench.base import revisions
from xfbench.model import certificate
from xfbench.model.plan import Plan
from xfbench.model.record import Record
from xfbench.rendering import profile_tables, tables
from xfbench.store.results_folder import Store


def print_leaderboard_and_results_path(records: Sequence[Record], store: Store) -> None:
    """Print the leaderboard tables of `records`, then the path of the results folder `store`."""
    folder = store.folder
    board_tables = leaderboard.build_tables(records, certificate.read_certificates(folder))
    print(tables.to_text(board_tables))
    if any(record.request and record.request.profile for record in records):
        print(profile_tables.FORMATS["text"](board_tables))
    print(
        f"Records: {folder} ({len(records)} new) · tables: xfbench leaderboard --results {folder}"
    )


def print_compare_commands(plan: Plan, store: Store) -> None:
    """Print the commands that compare each revision, or named interpreter, with the first one."""
    values_by_field = {
        "revision": [revisions.shorten(commit) for commit in plan.revisions],
        "python": plan.interpreter_names,
    }
    for field, values in values_by_field.items():
        for value in values[1:]:
            command = ["xfbench", "compare", f"{field}={value}", f"{field}={values[0]}"]
            command += ["--fail-on", "slower:5%", "--results", str(store.folder)]
            print(f"Compare: {shlex.join(command)}")
