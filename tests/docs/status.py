"""The table of README.md that says what was tested, from the records in docs/.

`python -m tests.docs.status` prints it.
"""

import json
import tarfile
from pathlib import Path

from xfbench.model import adapter
from xfbench.rendering import formats

DOCS = Path(__file__).parents[2] / "docs"
COLUMNS = {
    "CPU": {"device": "cpu", "ranks": 1},
    "GPU (CUDA)": {"device": "cuda"},
    "several ranks": {"ranks": 2, "nodes": 1},
    "`--launcher mpi`": {"launcher": "mpi"},
    "`--launcher slurm`": {"launcher": "slurm"},
}

CELL_FIELDS = ("framework", "workload", "kernel", "device", "precision", "ranks")


def read_certified_cells(path):
    """Return the cells of the certificates in a JSON file that was kept apart from the records."""
    if not path.is_file():
        return set()
    subjects = [
        document["subject"]
        for document in json.loads(path.read_text())
        if document["verdict"] == "equal"
    ]
    return {tuple(subject[name] for name in CELL_FIELDS) for subject in subjects}


def read_certified_requests():
    """Return (framework, request, day) of each launch in docs/ that is ok and has a certificate."""
    launches = []
    for path in sorted(DOCS.rglob("*.tar.gz")):
        certified = read_certified_cells(path.with_name("certificates.json"))
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.startswith("records/") and member.name.endswith(".json"):
                    record = json.load(archive.extractfile(member))
                    if record["status"] != "ok":
                        continue
                    request = record["request"]
                    cell = tuple(request[name] for name in CELL_FIELDS)
                    if record.get("certificate") or cell in certified:
                        launches.append((request["framework"], request, record["created"][:10]))
    return launches


def is_kind(request, conditions):
    """Return whether a request meets the conditions of a column. `ranks` is a minimum above 1."""
    values = {"device": "cpu", "ranks": 1, "nodes": 1, "launcher": "local", **request}
    return all(
        values[name] >= value if name == "ranks" and value > 1 else values[name] == value
        for name, value in conditions.items()
    )


def describe(framework, conditions, launches):
    """Return the day of the last such launch, "untested", or "not available"."""
    description = adapter.load(framework)
    if conditions.get("device", "cpu") not in description.devices:
        return "not available"
    needs_strategy = conditions.get("ranks", 1) > 1 or "launcher" in conditions
    if needs_strategy and description.strategies == ("none",):
        return "not available"
    days = [
        day for name, request, day in launches if name == framework and is_kind(request, conditions)
    ]
    return max(days, default="untested")


def build_status_table():
    """Return the table in Markdown: a row for each framework."""
    launches = read_certified_requests()
    rows = [
        [framework, *(describe(framework, kind, launches) for kind in COLUMNS.values())]
        for framework in adapter.list_names()
    ]
    return formats.markdown_table(["framework", *COLUMNS], rows)


if __name__ == "__main__":
    print(build_status_table())
