"""Tests of the study pages inside the report, in a real browser."""

import itertools
import json
import re

import pytest

from tests.rendering.report.hostile_records import HOSTILE_TEXTS, poison_record
from tests.sample_records import vary_record
from xfbench.host.machine import describe_machine
from xfbench.planning import experiment
from xfbench.rendering.report import page as report
from xfbench.rendering.report.studies import MAX_ROWS
from xfbench.studies import answer, page

METHOD = "The same network is trained with batches that double. " * 7 + "That was all of it."
LIMIT = "One network only, <b>and</b> one machine."
FILE = f"""
name = "batches"
title = "Batches of mine"
question = "What does a larger batch give?"
method = "{METHOD}"
limits = ["{LIMIT}"]

[[matrix]]
framework = FRAMEWORK
workload = ["lenet"]
data = "synthetic"
batch_size = [4, 8]
threads = THREADS
steps = 4
warmup = 1

[[analysis]]
name = "ratio"
title = "Speed-up by the batch"
over = "OVER"
plot = "PLOT"
beside = "speed-up"

[[analysis.claim]]
source = "Doe20"
text = "A larger one is a hundred times as fast"
low = 100.0

[[published]]
citation = {{ key = "Doe20", title = "On batches", where = "table 3" }}
figure = {{ quantity = "speed-up", unit = "times", value = 2.5, relative_to = "a batch of 4" }}
"""


@pytest.fixture
def write_study(tmp_path, monkeypatch):
    """A function that writes a study into the user's folder of studies."""
    folder = tmp_path / "studies"
    folder.mkdir()
    monkeypatch.setenv("XFBENCH_STUDIES", str(folder))

    def write(framework=("reference",), threads=(1,), over="batch_size", plot="bars"):
        text = (
            FILE.replace("OVER", over).replace("PLOT", plot).replace("THREADS", str(list(threads)))
        )
        text = text.replace("FRAMEWORK", str(list(framework)))
        (folder / "batches.toml").write_text(text)
        return folder

    return write


@pytest.fixture
def launches(measured):
    """Four launches of each of two batch sizes; the larger one has twice the throughput."""
    return [
        vary_record(record, request={"launch": launch}, seconds=seconds * (1 + launch / 1000))
        for record, seconds in ((measured[0], 0.01), (measured[-1], 0.01))
        for launch in range(1, 5)
    ]


def render_with_studies(records, certificates):
    """Render the report with its study pages, as the command does; no study may be invalid."""
    complaints = []
    studies = page.build_sections(records, certificates, complaints.append)
    assert complaints == []
    return report.render_report(records, certificates, (), studies)


def show_studies(report_page):
    """Open the details of all studies, which are closed at first."""
    report_page.evaluate(
        "() => document.querySelectorAll('.study > details').forEach(e => { e.open = true })"
    )


@pytest.mark.deep
@pytest.mark.parametrize("keys", [None, "Enter"])
def test_link_at_the_top_opens_the_page_of_a_study(open_report, write_study, launches, keys):
    write_study()
    report_page = open_report(launches, html=render_with_studies)
    for link in (
        report_page.get_by_role("navigation").get_by_role("link", name="Studies"),
        report_page.locator("#studies").get_by_role("link", name="Batches of mine"),
    ):
        if keys:
            link.focus()
            report_page.keyboard.press(keys)
        else:
            link.click()
    report_page.wait_for_function("location.hash === '#study-batches'")
    region = report_page.get_by_role("region", name="Batches of mine", exact=True)
    text = region.inner_text()
    for words in (
        *("What does a larger batch give?", METHOD, "Speed-up by the batch", LIMIT),
        *(
            "the throughput (lenet · reference, batch 8)",
            "Here it does not hold",
            "A larger one is a hundred times as fast",
        ),
        *("Doe20, table 3", "8 launches · size laptop", "xfbench study run batches --size laptop"),
    ):
        assert words in text, words
    assert region.locator("figure > svg:visible").count() == 1
    table = region.get_by_role("table", name="Measured: Speed-up by the batch")
    assert (
        table.locator("tbody tr").all_inner_texts()[0].startswith("lenet · reference\tbatch 8\t2")
    )


@pytest.mark.deep
def test_study_section_equals_the_standalone_page(open_report, write_study, launches):
    write_study()
    report_page = open_report(launches, html=render_with_studies)
    show_studies(report_page)
    section_text = report_page.locator("#study-batches").inner_text()
    study_answer = answer.answer_study(experiment.load("batches"), "laptop", launches, {})
    standalone_page = open_report(launches, html=lambda *_: page.render_html(study_answer))
    assert standalone_page.get_by_role("heading", level=1).inner_text() == "Batches of mine"
    # Only the report has a script, and with it the button that copies the command.
    assert section_text.removesuffix("\nCopy").endswith(standalone_page.inner_text("main"))


@pytest.mark.deep
def test_unmatched_study_has_no_page_or_link(open_report, write_study, launches):
    write_study(threads=(64,))
    report_page = open_report(launches, html=render_with_studies)
    assert report_page.locator("#studies").count() == 0
    assert report_page.get_by_role("link", name="Studies").count() == 0


def test_study_without_valid_launches_has_no_page(write_study, launches):
    write_study()
    crash_fields = {"status": "crashed", "reason": "rank 0 was killed", "measurement": None}
    assert [section.name for section in page.build_sections(launches, {}, print)] == ["batches"]
    assert (
        page.build_sections([vary_record(record, **crash_fields) for record in launches], {}, print)
        == []
    )
    # With a single batch size there is nothing to compare.
    assert page.build_sections(launches[:4], {}, print) == []


@pytest.mark.deep
def test_several_studies_are_accessible_to_screen_readers(open_report, write_study, launches):
    folder = write_study()
    second_study = (folder / "batches.toml").read_text().replace('"batches"', '"again"')
    (folder / "again.toml").write_text(second_study.replace("Batches of mine", "Batches again"))
    report_page = open_report(launches, html=render_with_studies)
    assert report_page.locator(".study").count() == 2
    assert report_page.locator("table:not(:has(> caption))").count() == 0
    ids = report_page.evaluate("() => [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    for target in report_page.locator("a").all():
        assert report_page.locator(f"[id='{target.get_attribute('href')[1:]}']").count() == 1
    for name in report_page.locator("[aria-labelledby]").all():
        for element_id in name.get_attribute("aria-labelledby").split():
            assert report_page.locator(f"[id='{element_id}']").count() == 1
    # A scrolling table is reachable by keyboard, and its label is unique.
    scroll_boxes = report_page.locator(".study .scroll")
    labels = [box.get_attribute("aria-label") for box in scroll_boxes.all()]
    assert len(labels) == len(set(labels)) > 2
    assert all(box.get_attribute("tabindex") == "0" for box in scroll_boxes.all())
    levels = report_page.evaluate(
        "() => [...document.querySelectorAll('h1,h2,h3,h4,h5')].map(e => Number(e.tagName[1]))"
    )
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


@pytest.mark.deep
def test_study_prints_in_light_colors_and_fits_a_phone(open_report, write_study, launches):
    write_study()
    report_page = open_report(
        launches,
        html=render_with_studies,
        color_scheme="dark",
        viewport={"width": 360, "height": 740},
    )
    for summary in report_page.locator(".study summary").all():
        summary.click()
    assert report_page.evaluate("document.documentElement.scrollWidth") <= 360
    background_script = "getComputedStyle(document.querySelector('.study')).backgroundColor"
    assert report_page.evaluate(background_script) == "rgb(23, 27, 31)"
    report_page.emulate_media(media="print")
    assert report_page.evaluate(background_script) == "rgb(255, 255, 255)"
    assert report_page.locator(".study figure > svg").first.is_visible()
    assert report_page.get_by_text("xfbench study run batches --size laptop").is_visible()


@pytest.mark.deep
def test_hostile_study_and_record_text_is_harmless(open_report, write_study, launches):
    folder = write_study()
    quoted = [re.sub(r'[\\"\x00-\x1f\x7f]', "", text)[:2000] for text in HOSTILE_TEXTS]
    file = (folder / "batches.toml").read_text().replace(f'"{LIMIT}"', json.dumps(quoted)[1:-1])
    file = file.replace("Batches of mine", quoted[1]).replace("table 3", quoted[2])
    (folder / "batches.toml").write_text(file)
    plain_fields = ("environment", "data", "device", "framework", "kernel", "precision", "workload")
    hostile_records = []
    for text in HOSTILE_TEXTS:
        for record in launches:
            request_fields = {name: getattr(record.request, name) for name in plain_fields}
            request_fields |= {"ranks": 1, "strategy": "none", "strategy_options": ()}
            hostile_record = poison_record(record, text)
            request = hostile_record.request.model_copy(update=request_fields)
            hostile_records.append(
                hostile_record.model_copy(update={"request": request, "id": f"{record.id}{text}"})
            )
        failure_fields = {"status": "failed", "reason": text, "measurement": None, "id": text}
        hostile_records += [
            hostile_records[-1].model_copy(update=failure_fields),
            poison_record(launches[0], text),
        ]
    report_page = open_report(hostile_records, html=render_with_studies)
    show_studies(report_page)
    study = report_page.locator(".study")
    rows = study.get_by_role("table", name="Measured").locator("tbody tr")
    assert rows.count() == len(HOSTILE_TEXTS)
    assert all(" times" in row or "\t2\t" in row for row in rows.all_inner_texts())
    assert report_page.evaluate("window.owned") is None
    assert report_page.locator("script").count() == report_page.locator("style").count() == 1
    assert (
        report_page.locator("img, iframe, object, embed, base, link, a:not([href^='#'])").count()
        == 0
    )
    section_text = study.evaluate("e => e.textContent")
    assert "<script>window.owned = 1</script>" in section_text and "{{ 7 * 7 }}" in section_text
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", section_text
    )
    assert len(section_text) < 100_000


@pytest.mark.deep
@pytest.mark.parametrize("plot", ["bars", "lines"])
def test_study_of_2000_cells_keeps_its_page_small(open_report, write_study, measured, plot):
    names, threads = ("caffe", "mxnet", "tensorflow", "torch"), range(1, 501)
    write_study(names, threads, "threads", plot)
    records = [
        vary_record(
            measured[0],
            request={"threads": thread_count, "framework": name, "kernel": kernel},
            seconds=0.001 * (1 + thread_count % 97),
            machine=describe_machine(),
        )
        for name, kernel in zip(names, ("openblas", "onednn", "onednn", "onednn"), strict=True)
        for thread_count in threads
    ]
    report_page = open_report(records, html=render_with_studies)
    assert len(report_page.content().encode()) < 5e6
    show_studies(report_page)
    study = report_page.locator("#study-batches")
    assert len(study.evaluate("e => e.outerHTML")) < 60_000
    table = study.get_by_role("table", name="Measured")
    assert table.locator("tbody tr").count() == MAX_ROWS
    more = f"and {1996 - MAX_ROWS:,} more: xfbench study report batches"
    assert study.get_by_text(more).is_visible()


def test_invalid_study_file_is_reported_beside_the_valid_pages(write_study, launches):
    folder = write_study()
    (folder / "broken.toml").write_text("name = ")
    text = (folder / "batches.toml").read_text().replace('"ratio"', '"rratio"')
    (folder / "slip.toml").write_text(text.replace('"batches"', '"slip"'))
    errors = []
    assert [section.name for section in page.build_sections(launches, {}, errors.append)] == [
        "batches"
    ]
    assert len(errors) == 2 and "broken" in errors[0] and "rratio" in errors[1]
