"""Records for the report, measured with the reference and varied, and a real browser."""

import os
import shutil
import subprocess
import sys

import pytest

from tests import debian
from tests.sample_records import certify_records, vary_record
from xfbench.rendering.report import page
from xfbench.store.results_folder import Store

CELLS = ["--framework", "reference", "--workload", "lenet", "--threads", "1"]
LENGTH = ["--batch-size", "4,8", "--steps", "4", "--warmup", "1", "--launches", "2"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A results folder of four real launches: two cells of the reference, nothing proven."""
    made = tmp_path_factory.mktemp("report") / "results"
    command = [sys.executable, "-m", "xfbench", "run", *CELLS, *LENGTH, "--no-verify"]
    done = subprocess.run(
        [*command, "--results", made], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="session")
def measured(folder):
    """Its records, those of batch 8 first."""
    found = Store(folder).records()
    return sorted(found, key=lambda one: -one.request.global_batch_size)


@pytest.fixture(scope="session")
def board(measured):
    """Records and certificates of one leaderboard: five ranked cells, one that is not, one failed.

    One is the fastest for certain, two cannot be told apart.
    """
    speeds = {("torch", "onednn", 1): 0.010, ("torch", "onednn", 2): 0.005}
    speeds |= {("caffe", "openblas", 1): 0.030, ("caffe", "openblas", 2): 0.0301}
    speeds |= {("caffe", "mkl", 2): 0.020}
    shifts = (0.999, 1.0, 1.002, 0.998, 1.001)
    ranked = [
        vary_record(
            measured[0],
            request={"framework": name, "kernel": kernel, "threads": threads, "launch": launch},
            seconds=seconds * shift * (1 + 0.004 * (threads * launch % 3)),
            observed=measured[0].observed.model_copy(update={"kernel": kernel}),
        )
        for (name, kernel, threads), seconds in speeds.items()
        for launch, shift in enumerate(shifts, 1)
    ]
    found, certificates = certify_records(ranked)
    unproven = vary_record(measured[0], request={"framework": "mxnet", "threads": 2}, seconds=0.001)
    gone = {"status": "crashed", "reason": "rank 0 was killed", "measurement": None}
    failed = vary_record(measured[0], request={"framework": "tensorflow"}, **gone)
    return [*found, unproven, failed], certificates


@pytest.fixture(scope="session")
def chromium():
    """Debian's Chromium, driven from here."""
    if reason := debian.install_missing(["chromium"], ["chromium", "fonts-dejavu-core"]):
        pytest.skip(reason)
    sync_api = pytest.importorskip("playwright.sync_api")
    # Root may start it in no sandbox of its own; the pages are ours, and load nothing.
    sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium", path=debian.PATH), args=sandbox
        )
        yield browser
        browser.close()


class Opened:
    """A report in a browser, with all that the browser said, asked for and was shown."""

    def __init__(self, browser, file, **context):
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 800}, **context}
        )
        self.context.set_default_timeout(10_000)
        self.page = self.context.new_page()
        self.said, self.requests = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append("a dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.context.on("page", lambda _: self.said.append("another page"))
        self.url = file.as_uri()
        self.page.goto(self.url)


@pytest.fixture
def open_file(chromium):
    """A function that opens a file in the browser: the page.

    In the end the browser must have reported nothing, and requested nothing but the file.
    """
    pages = []

    def open_one(file, **context):
        pages.append(Opened(chromium, file, **context))
        return pages[-1].page

    yield open_one
    for one in pages:
        one.context.close()
        assert one.said == []
        assert {url.partition("#")[0] for url in one.requests} == {one.url}


@pytest.fixture
def opened(open_file, tmp_path):
    """A function that renders the report of records and opens it: the page."""

    def open_report(records, certificates=None, html=page.render_report, **context):
        file = tmp_path / f"report-{len(list(tmp_path.iterdir()))}.html"
        file.write_text(html(records, certificates or {}), encoding="utf-8")
        return open_file(file, **context)

    return open_report


@pytest.fixture(scope="session")
def board_file(board, tmp_path_factory):
    """The report of `board`, rendered once."""
    file = tmp_path_factory.mktemp("board") / "report.html"
    file.write_text(page.render_report(*board), encoding="utf-8")
    return file


@pytest.fixture
def opened_board(open_file, board_file):
    """A function that opens the report of `board`: the page."""
    return lambda **context: open_file(board_file, **context)
