"""What others published, in the report: a list and open marks beside measured lines, no rank."""

from xml.etree import ElementTree as ET

import pytest

from tests.sample_records import certify_records, vary_record
from xfbench import published
from xfbench.analysis.leaderboard import tables
from xfbench.records.elsewhere import About, Citation, Figure
from xfbench.records.facts import workload_facts
from xfbench.records.record import Record
from xfbench.report import content, efficiency, external_data, svg
from xfbench.workloads import workloads

HOSTILE = "<script>window.owned = 1</script>\u202e\x00</style>"


def imported(quantity="efficiency", unit="%", text="theirs", **fields):
    """A record as an import makes it."""
    about = About(**{"workload": "lenet", "scaling": "weak", "ranks": 3, **fields.pop("about", {})})
    figure = Figure(quantity=quantity, unit=unit, about=about, **{"value": 70.0, **fields})
    citation = Citation(key=text, title=text, where=text)
    made = {"source": "imported", "status": "ok", "request": None, "workload": None}
    return Record.make(citation=citation, figure=figure, **made)


@pytest.fixture
def scaled(measured):
    """A function that makes certified launches of a network on 1, 2 and 4 ranks, 90 % efficient."""

    def make(law, workload="lenet", ranks=(1, 2, 4)):
        made = []
        for count in ranks:
            each = 8 // count if law == "strong" else 8
            asked = {
                "workload": workload,
                "ranks": count,
                "strategy": "mpi" if count > 1 else "none",
                "scaling": law,
                "batch_size_per_rank": each,
                "global_batch_size": each * count,
            }
            one_rank = 0.1 / count if law == "strong" else 0.1
            made += [
                vary_record(
                    measured[0],
                    request={**asked, "launch": launch},
                    workload=workload_facts(workloads()[workload]),
                    seconds=one_rank / (1.0 if count == 1 else 0.9) * (1 + launch / 1000),
                )
                for launch in (1, 2, 3)
            ]
        return certify_records(made)

    return make


def drawn(records, certificates, elsewhere=published.records()):  # noqa: B008
    [table] = tables(records, certificates)
    return {one.title: one for one in efficiency.build_figures(table, elsewhere)}


@pytest.mark.parametrize(
    ("law", "at", "share", "word"),
    [
        ("strong", 4, 0.5, "KNL: efficiency, about 50 %"),
        ("weak", 512, 0.8, "relative to 128 ranks"),
    ],
)
def test_published_efficiency_is_drawn_only_for_its_scaling(scaled, law, at, share, word):
    found = drawn(*scaled(law))[f"Efficiency of {law} scaling"]
    own, ideal = found.lines
    assert [point.y for point in own.points] == pytest.approx([1, 0.9, 0.9], rel=1e-6)
    assert ideal.ideal and {point.y for point in ideal.points} == {1.0}
    [mark] = found.marks
    assert (mark.x, mark.y) == (at, share) and mark.name.startswith("Z17")
    assert word in mark.name and "published" in mark.name
    assert f"Not measured here: {mark.name} at {at}" in found.description
    assert found.data[-1] == (mark.name, str(at), mark.printed, "–")


def test_published_speedup_is_drawn_only_for_its_network(scaled):
    assert set(drawn(*scaled("weak"))) == {"Efficiency of weak scaling"}
    found = drawn(*scaled("weak", "resnet101"))["Speed-up"]
    assert [point.y for point in found.lines[0].points] == pytest.approx([1, 1.8, 3.6], rel=1e-6)
    [mark] = found.marks
    assert (mark.x, mark.y) == (4, 3.26) and mark.name.startswith("H19")
    # Over one device: it says nothing about measured ones over two.
    assert "Speed-up" not in drawn(*scaled("weak", "resnet101", ranks=(2, 4)))


def test_no_figure_without_scaling_and_several_ranks(scaled, measured):
    assert drawn(*certify_records(measured[:2])) == {}
    assert drawn(*scaled("weak", ranks=(1,))) == {}


def test_range_is_drawn_with_both_ends_and_open_marks(scaled):
    records, certificates = scaled("weak")
    one = imported(value=None, low=60.0, high=80.0)
    found = drawn(records, certificates, [one])["Efficiency of weak scaling"]
    [mark] = found.marks
    assert (mark.y, mark.low, mark.high) == (None, 0.6, 0.8) and "imported" in mark.name
    tree = ET.fromstring(svg.draw_figure(found, "name"))
    assert len(tree.findall(".//{*}path[@class='other']")) == 3
    assert "60–80 %" in tree.find("{*}desc").text
    names = [name for _, name in svg.build_legend(found)]
    assert names == [found.lines[0].name, mark.name]


@pytest.mark.parametrize(
    "one",
    [
        imported(unit="times"),
        imported(quantity="throughput", unit="images/s"),
        imported(value=None),
        imported(value=None, high=3.0),
        imported(value=-1.0),
        imported(value=1e300),
        imported(about={"ranks": None}),
        imported(about={"ranks": 10**9}),
        imported(about={"workload": "vgg16"}),
        imported(about={"scaling": "strong"}),
        imported(about={"scaling": None}),
    ],
)
def test_figure_that_does_not_fit_the_axes_is_not_drawn(scaled, one):
    records, certificates = scaled("weak")
    assert drawn(records, certificates, [one])["Efficiency of weak scaling"].marks == ()


def test_list_has_published_figures_of_the_report_networks(measured):
    found = external_data.build_external([*published.records(), imported()], ["lenet"])
    assert [group.name for group in found.groups] == ["lenet", ""]
    assert {row.workload for row in found.groups[0].rows} == {"lenet"}
    assert {key for key, _ in found.sources} == {"Z17", "H19", "Y19", "theirs"}
    many = [imported(value=float(n)) for n in range(external_data.MAX_ROWS + 5)]
    [group] = external_data.build_external(many, ["lenet"]).groups
    assert len(group.rows) == external_data.MAX_ROWS and group.omitted_rows == 5


def test_page_lists_published_figures_without_a_rank(opened, scaled):
    records, certificates = scaled("weak", "resnet101")
    shown = opened([*records, imported(about={"workload": "resnet101"})], certificates, literature)
    section = shown.locator("#elsewhere")
    text = section.inner_text()
    for word in ("3.26 times", "93–1 012 %", "About no single network", "Jingoo Han"):
        assert word in text
    assert "Kalyan S. Perumalla" in text and "IPDPSW), 2019 (abstract)" in text
    assert "theirs (imported)" in text and "None was measured here, and none has a rank" in text
    assert "1211" not in text and "1 211" not in text
    assert section.locator("table.board").count() == 0
    assert "rank" not in [one.inner_text() for one in section.locator("thead th").all()]
    boards = " ".join(shown.locator("table.board").all_inner_texts())
    assert "H19" not in boards and "theirs" not in boards
    shown.get_by_role("link", name="Published").click()
    assert shown.url.endswith("#elsewhere")
    figures = shown.locator("figure", has_text="Efficiency of weak scaling")
    legend = figures.locator(".legend").inner_text()
    assert "Z17, Stampede2: efficiency, about 80 %" in legend
    assert "H19" in shown.locator("figure", has_text="Speed-up").locator("desc").text_content()


def literature(*made):
    """As `xfbench report` makes the page."""
    from xfbench.report import page

    return page.render_report(*made, published.records())


def test_published_record_changes_no_launch_or_figure(board, measured):
    records, certificates = board
    fast = next(one for one in records if one.request.framework == "torch")
    cited = Citation(key="X20", title="Somebody", where="page 3")
    fake = vary_record(fast, source="published", citation=cited, seconds=1e-4)
    plain, found = (content.report(some, certificates) for some in (records, [*records, fake]))
    assert (found.records, found.span, found.machines) == (
        plain.records,
        plain.span,
        plain.machines,
    )
    [board_now], [board_before] = found.boards, plain.boards
    assert board_now.ranked == board_before.ranked
    assert board_now.figures == board_before.figures and board_now.summary == board_before.summary
    [entry] = [one for one in board_now.unranked if one.row.source == "published"]
    assert entry.row.reason == "published: X20, not measured by xfbench"
    assert entry.command == () and entry.proof is None and entry.steps is None
    [launch] = entry.launches
    assert launch.images_per_second == "–" and launch.reason == entry.row.reason


def test_external_record_changes_no_machine_or_date(board):
    records, certificates = board
    plain = content.report(records, certificates)
    other = records[0].machine.model_copy(update={"cpu_model": "another processor"})
    fake = vary_record(
        records[0], source="imported", machine=other, created="1999-01-01T00:00:00.000Z"
    )
    found = content.report([*records, fake], certificates)
    assert (found.span, found.machines) == (plain.span, plain.machines)
    assert len(found.boards) == 2


def test_hostile_imported_figures_are_harmless(opened, scaled):
    records, certificates = scaled("weak")
    about = {"machine": HOSTILE, "framework": HOSTILE, "medium": "w" * 10**5}
    bad = [
        imported(text=HOSTILE, about=about, relative_to=HOSTILE),
        imported(quantity=HOSTILE, unit=HOSTILE, text=HOSTILE),
        imported(text="w" * 10**6, about={"workload": HOSTILE}),
    ]
    shown = opened(
        [*records, *bad], certificates, literature, viewport={"width": 360, "height": 740}
    )
    assert shown.evaluate("window.owned") is None
    assert shown.locator("script").count() == shown.locator("style").count() == 1
    text = shown.evaluate("document.body.textContent")
    assert "window.owned" in text and "\u202e" not in text and "\x00" not in text
    assert len(shown.content()) < 500_000
    assert shown.evaluate("document.documentElement.scrollWidth") <= 360


def test_folder_with_only_imported_figures_makes_a_page(opened):
    shown = opened([imported()], {}, literature)
    assert "theirs (imported)" in shown.locator("#elsewhere").inner_text()
