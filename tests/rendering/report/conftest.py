"""Fixtures for tests of the report: measured and varied records, and a real browser."""

import os
import shutil
import subprocess
import sys

import pytest

from tests import debian
from tests.sample_records import certify_records, vary_record
from xfbench.model.record import Conditions
from xfbench.rendering.report import page
from xfbench.store.results_folder import Store

CELLS = ["--framework", "reference", "--workload", "lenet", "--threads", "1"]
LENGTH = ["--batch-size", "4,8", "--steps", "4", "--warmup", "1", "--launches", "2"]


@pytest.fixture(scope="session")
def results_folder(tmp_path_factory):
    """A results folder of four real launches: two cells of the reference, not verified."""
    folder = tmp_path_factory.mktemp("report") / "results"
    command = [sys.executable, "-m", "xfbench", "run", *CELLS, *LENGTH, "--no-verify"]
    completed = subprocess.run(
        [*command, "--results", folder],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return folder


@pytest.fixture(scope="session")
def measured(results_folder):
    """The records of `results_folder`, those of batch 8 first."""
    records = Store(results_folder).records()
    return sorted(records, key=lambda record: -record.request.global_batch_size)


@pytest.fixture(scope="session")
def board(measured):
    """Records and certificates of a leaderboard: five ranked, one unranked and one failed cell.

    One cell is certainly the fastest. Two cells have no certain order. The records are as on a
    quiet machine, whatever disturbs this one.
    """
    quiet = Conditions(load_before=0, load_after=0, steal_seconds=0, swap_bytes=0, seconds=6)
    limit = measured[0].limit.model_copy(
        update={"matrix_product_tries": (measured[0].limit.matrix_product,) * 5}
    )
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
            conditions=quiet,
            limit=limit,
        )
        for (name, kernel, threads), seconds in speeds.items()
        for launch, shift in enumerate(shifts, 1)
    ]
    certified_records, certificates = certify_records(ranked)
    unverified = vary_record(
        measured[0], request={"framework": "mxnet", "threads": 2}, seconds=0.001
    )
    crash_fields = {"status": "crashed", "reason": "rank 0 was killed", "measurement": None}
    failed = vary_record(measured[0], request={"framework": "tensorflow"}, **crash_fields)
    return [*certified_records, unverified, failed], certificates


@pytest.fixture(scope="session")
def chromium():
    """Debian's Chromium, controlled by Playwright."""
    if reason := debian.install_missing(["chromium"], ["chromium", "fonts-dejavu-core"]):
        debian.skip_test(reason)
    sync_api = pytest.importorskip("playwright.sync_api")
    # Chromium has no sandbox for root. The pages are our own and load nothing.
    sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium", path=debian.PATH), args=sandbox
        )
        yield browser
        browser.close()


class BrowserPage:
    """A report in a browser, with the messages and requests of the browser."""

    def __init__(self, browser, file, **context):
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 800}, **context}
        )
        self.context.set_default_timeout(10_000)
        self.page = self.context.new_page()
        self.messages, self.requests = [], []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.messages.append("a dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.context.on("page", lambda _: self.messages.append("another page"))
        self.url = file.as_uri()
        self.page.goto(self.url)


@pytest.fixture
def open_file(chromium):
    """A function that opens a file in the browser and returns the page.

    The fixture fails if the browser reports a message or requests anything but the file.
    """
    pages = []

    def open_page(file, **context):
        pages.append(BrowserPage(chromium, file, **context))
        return pages[-1].page

    yield open_page
    for page_in_browser in pages:
        page_in_browser.context.close()
        assert page_in_browser.messages == []
        assert {url.partition("#")[0] for url in page_in_browser.requests} == {page_in_browser.url}


@pytest.fixture
def open_report(open_file, tmp_path):
    """A function that renders the report of records, opens it and returns the page."""

    def render_and_open(records, certificates=None, html=page.render_report, **context):
        file = tmp_path / f"report-{len(list(tmp_path.iterdir()))}.html"
        file.write_text(html(records, certificates or {}), encoding="utf-8")
        return open_file(file, **context)

    return render_and_open


@pytest.fixture(scope="session")
def board_file(board, tmp_path_factory):
    """The file of the report of `board`, rendered once."""
    file = tmp_path_factory.mktemp("board") / "report.html"
    file.write_text(page.render_report(*board), encoding="utf-8")
    return file


@pytest.fixture
def open_board(open_file, board_file):
    """A function that opens the report of `board` and returns the page."""
    return lambda **context: open_file(board_file, **context)
