"""The outcome of `verify --self-test` for every mutation of an adapter, which takes hours."""

import json
import sys
from typing import Any

from tests import golden
from tests.golden import form
from xfbench.equality import plants

TIME_LIMIT_S = 3600


def outcomes() -> dict[str, dict[str, Any]]:
    """Return the golden outcomes by the mutation's name."""
    file = golden.path(golden.SELF_TEST)
    by_name: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    return by_name


def outcome(name: str) -> dict[str, Any]:
    """Train with the mutation for real, and return what `verify --self-test` says of it."""
    [mutation] = [plant for plant in plants.load_mutations() if plant.name == name]
    result = plants.run_self_test([mutation], 0, print, TIME_LIMIT_S)
    [verdict] = result["planted"]
    return {key: verdict[key] for key in ("framework", "workload", "caught", "first_layer")}


def run_missing() -> None:
    """Add the mutations that the file does not have, each as soon as it has run."""
    for mutation in plants.load_mutations():
        recorded = outcomes()
        if mutation.name not in recorded:
            recorded[mutation.name] = outcome(mutation.name)
            golden.path(golden.SELF_TEST).write_text(form.text(recorded) + "\n", encoding="utf-8")
            print(f"{mutation.name}: {recorded[mutation.name]}", file=sys.stderr)
