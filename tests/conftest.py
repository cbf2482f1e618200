"""What tests share: records to work on, and adapters that stand in a folder of the test's own."""

import os
import subprocess
import sys
import tempfile
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy  # noqa: F401  NumPy cannot be loaded anew after a session within this one
import pytest

from tests import scheduler, side_by_side
from xfbench import digest
from xfbench.records.facts import facts
from xfbench.records.record import Measurement, Observed, Record
from xfbench.request import Cell
from xfbench.results.store import Store
from xfbench.running import canary, runner
from xfbench.workloads import workloads

pytest_xdist_make_scheduler = pytest.hookimpl(optionalhook=True)(scheduler.make_scheduler)
LARGE_FRAMEWORK = "ipex"  # its environment is too large to create for every change
NODES = pytest.StashKey[str]()  # what the cluster's nodes were


def pytest_configure(config):
    """Hide pytest-xdist from the sessions of pytest that tests start."""
    if hasattr(config, "workerinput"):
        os.environ.pop("PYTEST_XDIST_WORKER", None)


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items):
    """Mark tests of IPEX as long; the benchmarks that xfbench brings are deep and run alone."""
    here = Path(__file__).parent
    for item in items:
        parameters = getattr(item, "callspec", None)
        if parameters and LARGE_FRAMEWORK in parameters.id.split("-"):
            item.add_marker(pytest.mark.long)
        if not item.path.is_relative_to(here):
            item.add_marker(pytest.mark.alone)
            item.add_marker(pytest.mark.deep)


def pytest_sessionfinish(session):
    """Tell the process that sums up what only this one of several has seen."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["nodes"] = session.config.stash.get(NODES, "")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    told = getattr(node, "workeroutput", {}).get("nodes")
    if told:
        node.config.stash[NODES] = told


def pytest_terminal_summary(terminalreporter, config):
    """Say which form the cluster had."""
    if NODES in config.stash:
        terminalreporter.line(f"cluster: nodes were {config.stash[NODES]}")


@pytest.fixture
def open_folder():
    """A folder that other users reach too, which they do not those of tests."""
    with tempfile.TemporaryDirectory(prefix="xfbench-open-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def cell():
    """A function that makes a cell; every field can be given."""

    def make(**fields):
        chosen = {
            "framework": "reference",
            "environment": "own",
            "workload": "lenet",
            "kernel": "numpy",
            "threads": 1,
            "global_batch_size": 4,
            "batch_size_per_rank": 4,
            "data": "synthetic",
            "steps": 3,
            "warmup": 1,
        }
        return Cell(**{**chosen, **fields})

    return make


@pytest.fixture
def record(cell):
    """A function that makes an "ok" record of a launch with the given step times, in seconds.

    Each is created a millisecond after the one before.
    """
    last = datetime(2026, 11, 26, tzinfo=UTC)

    def created():
        nonlocal last
        last += timedelta(milliseconds=1)
        return last.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def make(steps=(0.1, 0.1, 0.1), launch=1, fields=None, **request):
        asked = cell(**request).request(launch)
        measured = Measurement(
            build_seconds=1.0,
            first_step_seconds=0.5,
            warmup_seconds=(),
            step_seconds=steps,
            wall_seconds=0.5 + sum(steps),
            images=len(steps) * asked.global_batch_size,
            peak_rss_bytes=10**8,
            losses=(2.3,) * (1 + len(steps)),
        )
        observed = Observed(
            framework_version="1.0",
            threads=asked.threads,
            affinity=(0,),
            kernel=asked.kernel,
            kernel_evidence=(),
            libraries=(),
            layout="NCHW",
        )
        made = {
            "status": "ok",
            "created": created(),
            "cell": digest.of_json(asked.cell_fields()),
            "request": asked,
            "workload": facts(workloads()[asked.workload]),
            "measurement": measured,
            "observed": observed,
        }
        return Record.make(**{**made, **(fields or {})})

    return make


@pytest.fixture
def own_adapter(tmp_path, monkeypatch):
    """A function that puts an adapter with this `train.py` beside the built-in ones.

    EXPECTED_LOSS there becomes what `cell` must have as its canary.
    """

    def make(name, train, **extra):
        folder = tmp_path / "adapters" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text("")
        if "EXPECTED_LOSS" in train:
            expected = canary.expected("lenet", "synthetic", 4, 0, "float32")
            train = train.replace("EXPECTED_LOSS", repr(expected.loss))
        (folder / "train.py").write_text(textwrap.dedent(train))
        lines = "".join(f"{key} = {value}\n" for key, value in extra.items())
        (folder / "adapter.toml").write_text(
            f'name = "{name}"\ntitle = "{name}"\nmodule = "numpy"\ndevices = ["cpu"]\n'
            'precisions = ["float32"]\nstrategies = ["none"]\ndefault_kernel = "plain"\n'
            f'{lines}[environment]\nkind = "own"\n[kernels.plain]\ntitle = "plain"\n'
        )
        monkeypatch.setenv("XFBENCH_ADAPTERS", str(tmp_path / "adapters"))

    return make


@pytest.fixture
def launch(own_adapter, cell, tmp_path):
    """A function that does one launch of two ranks with this `train.py`: its record."""

    def do(train, time_limit=60.0, **request):
        side_by_side.write(own_adapter, tmp_path, train)
        session = runner.Session(Store(tmp_path / "results"), time_limit=time_limit)
        session.prepare(["odd"], {}, print)
        settings = {"ranks": 2, "strategy": side_by_side.STRATEGY, "scaling": "weak"}
        sizes = {"global_batch_size": 8, "batch_size_per_rank": 4}
        asked = cell(framework="odd", kernel="plain", **{**settings, **sizes, **request})
        [record] = runner.run([asked.request(1)], session)
        return record, session.store.run_folder(record)

    return do


BURN = """
import ctypes, time
ctypes.CDLL(None).prctl(15, b"burner", 0, 0, 0)
end = time.monotonic() + 60
while time.monotonic() < end: pass
"""


@pytest.fixture
def burner():
    """A process that keeps a core busy and is no child of this one."""
    script = "import os; p = os.fork(); (p and (print(p, flush=True), os._exit(0)))"
    script += f"; os.close(1); os.setsid()\n{BURN}"
    started = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    pid = int(started.stdout.split()[0])
    yield pid
    subprocess.run(["kill", "-9", str(pid)], check=True)
