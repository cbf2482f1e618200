"""The tables of README.md that say what was tested, from the records in docs/ and the site files.

`python -m tests.docs.status` prints them.
"""

import json
import re
import tarfile
from pathlib import Path

from xfbench.host import sites
from xfbench.launchers import resources
from xfbench.model import adapter
from xfbench.rendering import formats

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
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
    """Return the table of frameworks in Markdown."""
    launches = read_certified_requests()
    rows = [
        [framework, *(describe(framework, kind, launches) for kind in COLUMNS.values())]
        for framework in adapter.list_names()
    ]
    return formats.markdown_table(["framework", *COLUMNS], rows)


def find_sites_on_test_cluster():
    """Return the names of the sites that tests/cluster passes to a command on its Slurm cluster."""
    texts = [path.read_text() for path in sorted((ROOT / "tests/cluster").glob("test_*.py"))]
    return set(re.findall(r"--site ([a-z][\w-]*)", "\n".join(texts)))


def describe_site(name, launches, sites_on_cluster):
    """Return how a site file that comes with xfbench was tested.

    - A day: the last verified launch in docs/ with this site. A site that only chooses the local
      launcher is the same as none.
    - "real Slurm, in tests/cluster": a test runs it on a cluster.
    - "not available": xfbench has no launcher for it.
    - "untested": all other cases. A machine that is retired cannot be tested any more.
    """
    site = sites.load_site(name)
    if site.launcher not in resources.LAUNCHERS:
        return "not available"
    same_as_none = site == sites.Site(title=site.title)
    days = [
        day
        for _, request, day in launches
        if request.get("site") == name
        or (same_as_none and not request.get("site") and is_kind(request, {"launcher": "local"}))
    ]
    if days:
        return max(days)
    if name in sites_on_cluster:
        return "real Slurm, in tests/cluster"
    return "untested, retired" if "(retired)" in site.title else "untested"


def build_site_table():
    """Return the table of the site files that come with xfbench, in Markdown."""
    launches, on_cluster = read_certified_requests(), find_sites_on_test_cluster()
    names = sorted(file.stem for file in (ROOT / "launchers/sites").glob("*.toml"))
    rows = [
        [name, sites.load_site(name).launcher, describe_site(name, launches, on_cluster)]
        for name in names
    ]
    return formats.markdown_table(["site", "launcher", "tested"], rows)


if __name__ == "__main__":
    print(build_status_table(), build_site_table(), sep="\n\n")
