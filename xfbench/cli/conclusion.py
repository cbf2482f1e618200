"""The leaderboard tables that commands print after they have measured."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from xfbench.analysis import leaderboard
from xfbench.base import revisions
from xfbench.model import certificate
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


def print_revision_comparisons(commits: Sequence[str], store: Store) -> None:
    """Print the command that compares each later revision with the first one.

    - `commits`: the full hashes of the revisions, in the order of `--revisions`.
    """
    base, *later = map(revisions.shorten, commits or [""])
    for commit in later:
        command = ["xfbench", "compare", f"revision={commit}", f"revision={base}"]
        command += ["--fail-on", "slower:5%", "--results", str(store.folder)]
        print(f"Compare the revisions: {shlex.join(command)}")
