"""Golden files: what must stay as it is while the code is restructured.

Each file is one subject, which `python -m tests.golden` writes from today's code. A test compares
it with what the code gives on every run. Digests of workloads and cells, and keys of certificates,
never change. Sentences, paths, dates and facts about the machine are in none of them.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from tests.golden import archives, form, interface, networks

FOLDER = Path(__file__).parent
SELF_TEST = "self_test"

# By archive, workload or alone: the name of the file below this folder, and what it holds.
SUBJECTS: dict[str, Callable[[], Any]] = {
    **form.builders_by_file("workloads", networks.names(), networks.digests),
    **form.builders_by_file("keys", archives.names(), archives.keys),
    **form.builders_by_file("leaderboard", archives.names(), archives.leaderboard),
    **form.builders_by_file("compare", archives.names(), archives.compare),
    **form.builders_by_file("list", archives.names(), archives.results_list),
    **form.builders_by_file(
        "validate", [*archives.names(), archives.DAMAGED], archives.results_validate
    ),
    "commands": interface.commands,
    "exit_codes": interface.exit_codes,
    "python": interface.python,
    "record_schema": interface.record_schema,
    "schemas": interface.schemas,
    "toml_keys": interface.toml_keys,
    "values": interface.values,
    "variables": interface.variables,
}


def path(name: str) -> Path:
    """Return the file of a subject."""
    return FOLDER / f"{name}.json"


def build(name: str) -> str:
    """Return what the file of a subject has to hold, whoever runs it and wherever."""
    with tempfile.TemporaryDirectory(prefix="xfbench-golden-") as home:
        folders = {"HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home}
        other_variables = {
            key: value for key, value in os.environ.items() if not key.startswith("XFBENCH_")
        }
        with mock.patch.dict(os.environ, {**other_variables, **folders}, clear=True):
            return form.text(SUBJECTS[name]()) + "\n"
