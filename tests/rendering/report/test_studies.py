"""The pages of studies inside the report, in a real browser."""

import itertools
import json
import re

import pytest

from tests.rendering.report.test_page import HOSTILE, poisoned
from tests.sample_records import vary_record
from xfbench.host.machine import describe
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
def asked(tmp_path, monkeypatch):
    """A function that puts a study into the user's folder."""
    folder = tmp_path / "studies"
    folder.mkdir()
    monkeypatch.setenv("XFBENCH_STUDIES", str(folder))

    def put(framework=("reference",), threads=(1,), over="batch_size", plot="bars"):
        text = (
            FILE.replace("OVER", over).replace("PLOT", plot).replace("THREADS", str(list(threads)))
        )
        text = text.replace("FRAMEWORK", str(list(framework)))
        (folder / "batches.toml").write_text(text)
        return folder

    return put


@pytest.fixture
def launched(measured):
    """Launches of both batches, the larger one twice as fast, on two launches each and four."""
    return [
        vary_record(one, request={"launch": launch}, seconds=seconds * (1 + launch / 1000))
        for one, seconds in ((measured[0], 0.01), (measured[-1], 0.01))
        for launch in range(1, 5)
    ]


def pages(records, certificates):
    """The report with the pages of studies, as the command makes it; no file may be wrong."""
    complaints = []
    studies = page.build_sections(records, certificates, complaints.append)
    assert complaints == []
    return report.render_report(records, certificates, (), studies)


@pytest.mark.deep
@pytest.mark.parametrize("keys", [None, "Enter"])
def test_link_at_the_top_opens_the_page_of_a_study(opened, asked, launched, keys):
    asked()
    shown = opened(launched, html=pages)
    for link in (
        shown.get_by_role("navigation").get_by_role("link", name="Studies"),
        shown.locator("#studies").get_by_role("link", name="Batches of mine"),
    ):
        if keys:
            link.focus()
            shown.keyboard.press(keys)
        else:
            link.click()
    shown.wait_for_function("location.hash === '#study-batches'")
    place = shown.get_by_role("region", name="Batches of mine", exact=True)
    text = place.inner_text()
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
    assert place.locator("figure > svg:visible").count() == 1
    named = place.get_by_role("table", name="Measured: Speed-up by the batch")
    assert (
        named.locator("tbody tr").all_inner_texts()[0].startswith("lenet · reference\tbatch 8\t2")
    )


@pytest.mark.deep
def test_study_section_equals_the_standalone_page(opened, asked, launched):
    asked()
    together = opened(launched, html=pages).locator("#study-batches").inner_text()
    found = answer.answer_study(experiment.load("batches"), "laptop", launched, {})
    alone = opened(launched, html=lambda *_: page.render_html(found))
    assert alone.get_by_role("heading", level=1).inner_text() == "Batches of mine"
    assert together.endswith(alone.inner_text("main"))


@pytest.mark.deep
def test_unmatched_study_has_no_page_or_link(opened, asked, launched):
    asked(threads=(64,))
    shown = opened(launched, html=pages)
    assert shown.locator("#studies").count() == 0
    assert shown.get_by_role("link", name="Studies").count() == 0


def test_study_without_valid_launches_has_no_page(asked, launched):
    asked()
    gone = {"status": "crashed", "reason": "rank 0 was killed", "measurement": None}
    assert [one.name for one in page.build_sections(launched, {}, print)] == ["batches"]
    assert page.build_sections([vary_record(one, **gone) for one in launched], {}, print) == []
    # One batch alone is the study's, and leaves nothing to compare.
    assert page.build_sections(launched[:4], {}, print) == []


@pytest.mark.deep
def test_several_studies_are_accessible_to_screen_readers(opened, asked, launched):
    folder = asked()
    other = (folder / "batches.toml").read_text().replace('"batches"', '"again"')
    (folder / "again.toml").write_text(other.replace("Batches of mine", "Batches again"))
    shown = opened(launched, html=pages)
    assert shown.locator(".study").count() == 2
    assert shown.locator("table:not(:has(> caption))").count() == 0
    ids = shown.evaluate("() => [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    for target in shown.locator("a").all():
        assert shown.locator(f"[id='{target.get_attribute('href')[1:]}']").count() == 1
    for name in shown.locator("[aria-labelledby]").all():
        for one in name.get_attribute("aria-labelledby").split():
            assert shown.locator(f"[id='{one}']").count() == 1
    # A table that scrolls can be had by keys, and is told from those of other studies.
    places = shown.locator(".study .scroll")
    labels = [one.get_attribute("aria-label") for one in places.all()]
    assert len(labels) == len(set(labels)) > 2
    assert all(one.get_attribute("tabindex") == "0" for one in places.all())
    levels = shown.evaluate(
        "() => [...document.querySelectorAll('h1,h2,h3,h4,h5')].map(e => Number(e.tagName[1]))"
    )
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


@pytest.mark.deep
def test_study_prints_in_light_colors_and_fits_a_phone(opened, asked, launched):
    asked()
    shown = opened(
        launched, html=pages, color_scheme="dark", viewport={"width": 360, "height": 740}
    )
    for summary in shown.locator(".study summary").all():
        summary.click()
    assert shown.evaluate("document.documentElement.scrollWidth") <= 360
    dark = "getComputedStyle(document.querySelector('.study')).backgroundColor"
    assert shown.evaluate(dark) == "rgb(23, 27, 31)"
    shown.emulate_media(media="print")
    assert shown.evaluate(dark) == "rgb(255, 255, 255)"
    assert shown.locator(".study figure > svg").first.is_visible()
    assert shown.get_by_text("xfbench study run batches --size laptop").is_visible()


@pytest.mark.deep
def test_hostile_study_and_record_text_is_harmless(opened, asked, launched):
    folder = asked()
    quoted = [re.sub(r'[\\"\x00-\x1f\x7f]', "", text)[:2000] for text in HOSTILE]
    file = (folder / "batches.toml").read_text().replace(f'"{LIMIT}"', json.dumps(quoted)[1:-1])
    file = file.replace("Batches of mine", quoted[1]).replace("table 3", quoted[2])
    (folder / "batches.toml").write_text(file)
    kept = ("environment", "data", "device", "framework", "kernel", "precision", "workload")
    bad = []
    for text in HOSTILE:
        for one in launched:
            own = {name: getattr(one.request, name) for name in kept}
            own |= {"ranks": 1, "strategy": "none", "strategy_options": ()}
            whole = poisoned(one, text)
            asked_for = whole.request.model_copy(update=own)
            bad.append(whole.model_copy(update={"request": asked_for, "id": f"{one.id}{text}"}))
        gone = {"status": "failed", "reason": text, "measurement": None, "id": text}
        bad += [bad[-1].model_copy(update=gone), poisoned(launched[0], text)]
    shown = opened(bad, html=pages)
    study = shown.locator(".study")
    rows = study.get_by_role("table", name="Measured").locator("tbody tr")
    assert rows.count() == len(HOSTILE)
    assert all(" times" in row or "\t2\t" in row for row in rows.all_inner_texts())
    assert shown.evaluate("window.owned") is None
    assert shown.locator("script").count() == shown.locator("style").count() == 1
    assert shown.locator("img, iframe, object, embed, base, link, a:not([href^='#'])").count() == 0
    seen = study.evaluate("e => e.textContent")
    assert "<script>window.owned = 1</script>" in seen and "{{ 7 * 7 }}" in seen
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", seen
    )
    assert len(seen) < 100_000


@pytest.mark.deep
@pytest.mark.parametrize("plot", ["bars", "lines"])
def test_study_of_2000_cells_keeps_its_page_small(opened, asked, measured, plot):
    names, threads = ("caffe", "mxnet", "tensorflow", "torch"), range(1, 501)
    asked(names, threads, "threads", plot)
    made = [
        vary_record(
            measured[0],
            request={"threads": one, "framework": name, "kernel": kernel},
            seconds=0.001 * (1 + one % 97),
            machine=describe(),
        )
        for name, kernel in zip(names, ("openblas", "onednn", "onednn", "onednn"), strict=True)
        for one in threads
    ]
    shown = opened(made, html=pages)
    assert len(shown.content().encode()) < 5e6
    study = shown.locator("#study-batches")
    assert len(study.evaluate("e => e.outerHTML")) < 60_000
    table = study.get_by_role("table", name="Measured")
    assert table.locator("tbody tr").count() == MAX_ROWS
    more = f"and {1996 - MAX_ROWS:,} more: xfbench study report batches"
    assert study.get_by_text(more).is_visible()


def test_invalid_study_file_is_reported_beside_the_valid_pages(asked, launched):
    folder = asked()
    (folder / "broken.toml").write_text("name = ")
    text = (folder / "batches.toml").read_text().replace('"ratio"', '"rratio"')
    (folder / "slip.toml").write_text(text.replace('"batches"', '"slip"'))
    said = []
    assert [one.name for one in page.build_sections(launched, {}, said.append)] == ["batches"]
    assert len(said) == 2 and "broken" in said[0] and "rratio" in said[1]
