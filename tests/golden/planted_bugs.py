"""The outcome of `verify --self-test` for every bug planted in an adapter, which takes hours."""

import json
import sys
from typing import Any

from tests import golden
from tests.golden import form
from xfbench.equality import plants

TIME_LIMIT_S = 3600


def outcomes() -> dict[str, dict[str, Any]]:
    """Return the golden outcomes by the planted bug's name."""
    file = golden.path(golden.SELF_TEST)
    by_name: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    return by_name


def outcome(name: str) -> dict[str, Any]:
    """Train with the planted bug for real, and return what `verify --self-test` says of it."""
    [planted_bug] = [bug for bug in plants.load_planted_bugs() if bug.name == name]
    result = plants.run_self_test([planted_bug], 0, print, TIME_LIMIT_S)
    [verdict] = result["planted"]
    return {key: verdict[key] for key in ("framework", "workload", "caught", "first_layer")}


def run_missing() -> None:
    """Add the planted bugs that the file does not have, each as soon as it has run."""
    for planted_bug in plants.load_planted_bugs():
        recorded = outcomes()
        if planted_bug.name not in recorded:
            recorded[planted_bug.name] = outcome(planted_bug.name)
            golden.path(golden.SELF_TEST).write_text(form.text(recorded) + "\n", encoding="utf-8")
            print(f"{planted_bug.name}: {recorded[planted_bug.name]}", file=sys.stderr)
