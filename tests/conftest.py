"""Hooks and fixtures that all tests share: commands, records, cells, fake adapters and launches.

The hooks mark some tests, refuse another checkout's modules, and hide the user's settings.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy  # noqa: F401  a pytest session inside this one cannot load NumPy again
import pytest
from hypothesis import settings

import xfbench
from tests import command_runner, fake_framework, scheduler
from tests.cluster.node_description import NODES
from xfbench import adapters
from xfbench.base import digests, paths
from xfbench.model.facts import workload_facts
from xfbench.model.gpus import Gpu
from xfbench.model.record import Measurement, Observed, Record
from xfbench.workloads import workloads

# No test asserts how fast something is.
settings.register_profile("xfbench", deadline=None)
settings.load_profile("xfbench")

pytest_xdist_make_scheduler = pytest.hookimpl(optionalhook=True)(scheduler.make_scheduler)
LARGE_FRAMEWORK = "ipex"  # its environment is too large to create in `make test`
# Where environments are, and how Debian's are made. All other settings of the user are hidden.
KEPT_VARIABLES = {"XFBENCH_HOME", "XFBENCH_DEBIAN"}
CHECKOUT = Path(__file__).parents[1]
NO_STUDIES = CHECKOUT / "tests" / "no-studies"  # does not exist


def pytest_configure(config):
    """Refuse another checkout's modules; hide settings of the user, and pytest-xdist.

    pytest-xdist is hidden from pytest sessions that tests start.

    Raises UsageError if the installed xfbench is that of another checkout.
    """
    for package in (xfbench, adapters):
        if not Path(package.__file__).is_relative_to(CHECKOUT):
            raise pytest.UsageError(
                f"{package.__name__} is {package.__file__}, which is not in {CHECKOUT}: "
                "run `make test` here, or install this checkout"
            )
    for name in [name for name in os.environ if name.startswith("XFBENCH_")]:
        if name not in KEPT_VARIABLES:
            del os.environ[name]
    os.environ["XFBENCH_STUDIES"] = str(NO_STUDIES)
    os.environ["COLUMNS"] = "100"  # the width of tables
    if hasattr(config, "workerinput"):
        os.environ.pop("PYTEST_XDIST_WORKER", None)


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items):
    """Mark tests of IPEX as long, and the benchmarks in the package as alone and deep or long."""
    tests_folder = Path(__file__).parent
    for item in items:
        parameters = getattr(item, "callspec", None)
        if parameters and LARGE_FRAMEWORK in parameters.id.split("-"):
            item.add_marker(pytest.mark.long)
        if not item.path.is_relative_to(tests_folder):
            item.add_marker(pytest.mark.alone)
            item.add_marker(pytest.mark.long if "convnet" in item.name else pytest.mark.deep)


def pytest_sessionfinish(session):
    """Send the description of the cluster's nodes to pytest-xdist's main process."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["nodes"] = session.config.stash.get(NODES, "")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    nodes = getattr(node, "workeroutput", {}).get("nodes")
    if nodes:
        node.config.stash[NODES] = nodes


def pytest_terminal_summary(terminalreporter, config):
    """Print what the cluster's nodes were."""
    if NODES in config.stash:
        terminalreporter.line(f"cluster: nodes were {config.stash[NODES]}")


@pytest.fixture(scope="session")
def certifying_home(tmp_path_factory):
    """The user's cache without certificates and revisions: only those of this session count.

    Its peaks are higher than any launch, because a peak that is measured while other tests run may
    be too low.
    """
    home = tmp_path_factory.mktemp("home")
    (paths.cache() / "environments").mkdir(parents=True, exist_ok=True)
    for folder in paths.cache().iterdir():
        if folder.name not in ("certificates", "revisions", "peaks"):
            (home / folder.name).symlink_to(folder)
    fake_framework.write_peaks(home)
    return home


@pytest.fixture
def open_folder():
    """A folder that other users can read, unlike the temporary folders of tests."""
    with tempfile.TemporaryDirectory(prefix="xfbench-open-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def run_inline(tmp_path, monkeypatch, capsys):
    """A function that runs the `xfbench` command in the test's empty folder, in this process.

    This saves the start of a process, which takes most of the time of a short command.
    """
    return command_runner.make_runner(monkeypatch, capsys, tmp_path)


@pytest.fixture
def cell():
    """A function that makes a cell with given fields."""
    return fake_framework.cell


@pytest.fixture
def build_gpu():
    """A function that makes the GPU of a rank. A field is None if NVML did not report it."""

    def build(name, **fields):
        silent = dict.fromkeys(Gpu.model_fields, None) | {"slowed_by": (), "slowed_seconds": {}}
        return Gpu.model_validate({**silent, "rank": 0, "name": name, **fields})

    return build


@pytest.fixture
def record(cell):
    """A function that makes an "ok" record of a launch with the given step times, in seconds.

    Each record is created a millisecond after the previous one.
    """
    last = datetime(2026, 11, 26, tzinfo=UTC)

    def make_timestamp():
        nonlocal last
        last += timedelta(milliseconds=1)
        return last.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def make(steps=(0.1, 0.1, 0.1), launch=1, fields=None, **request):
        launch_request = cell(**request).request(launch)
        measurement = Measurement(
            build_seconds=1.0,
            first_step_seconds=0.5,
            warmup_seconds=(),
            step_seconds=steps,
            wall_seconds=0.5 + sum(steps),
            images=len(steps) * launch_request.global_batch_size,
            peak_rss_bytes=10**8,
            losses=(2.3,) * (1 + len(steps)),
        )
        observed = Observed(
            framework_version="1.0",
            threads=launch_request.threads,
            affinity=(0,),
            kernel=launch_request.kernel,
            kernel_evidence=(),
            libraries=(),
            layout="NCHW",
        )
        defaults = {
            "status": "ok",
            "created": make_timestamp(),
            "cell": digests.of_json(launch_request.cell_digest_fields()),
            "request": launch_request,
            "workload": workload_facts(workloads()[launch_request.workload]),
            "measurement": measurement,
            "observed": observed,
        }
        return Record.make(**{**defaults, **(fields or {})})

    return make


@pytest.fixture
def fake_adapter(tmp_path, monkeypatch):
    """A function that writes an adapter of the fake framework, next to the built-in ones."""

    def make(body="", name="odd", **options):
        monkeypatch.setenv("XFBENCH_ADAPTERS", str(tmp_path / "adapters"))
        return fake_framework.write(tmp_path / "adapters" / name, body, **options)

    return make


@pytest.fixture
def launch_fake(tmp_path, monkeypatch):
    """A function that launches the fake framework and returns the record and its run folder."""
    numbers = itertools.count(1)

    def launch_once(body="", **options):
        root = tmp_path / f"launch-{next(numbers)}"
        monkeypatch.setenv("XFBENCH_ADAPTERS", str(root / "adapters"))
        return fake_framework.launch(root, body, **options)

    return launch_once


@pytest.fixture(scope="session")
def shared_fake_launch(tmp_path_factory):
    """A function like `launch_fake`, for tests that only read: equal calls share one launch."""
    results = {}

    def launch_once(body="", **options):
        key = json.dumps([body, options], sort_keys=True, default=str)
        if key not in results:
            results[key] = fake_framework.launch(tmp_path_factory.mktemp("launch"), body, **options)
        return results[key]

    return launch_once


@pytest.fixture
def judge_changed_reply(tmp_path, monkeypatch):
    """A function that returns the record of a launch after `change` of its last rank's reply."""

    def judge_reply(launch, change, **options):
        _, folder = launch
        monkeypatch.setenv("XFBENCH_ADAPTERS", str(folder.parents[2] / "adapters"))
        return fake_framework.judge_changed_reply(tmp_path, launch, change, **options)

    return judge_reply


BURN = """
import ctypes, time
ctypes.CDLL(None).prctl(15, b"burner", 0, 0, 0)
end = time.monotonic() + 60
while time.monotonic() < end: pass
"""


@pytest.fixture
def burner():
    """The id of a process that keeps a core busy and is no descendant of this one."""
    script = "import os; p = os.fork(); (p and (print(p, flush=True), os._exit(0)))"
    script += f"; os.close(1); os.setsid()\n{BURN}"
    process = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    pid = int(process.stdout.split()[0])
    yield pid
    subprocess.run(["kill", "-9", str(pid)], check=True)
