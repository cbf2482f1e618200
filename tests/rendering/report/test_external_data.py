"""Published figures in the report: a list and open marks next to measured lines, no rank."""

from xml.etree import ElementTree as ET

import pytest

from tests.sample_records import certify_records, vary_record
from xfbench.analysis.leaderboard import build_tables
from xfbench.model.external_record import About, Citation, Figure
from xfbench.model.facts import workload_facts
from xfbench.model.record import Record
from xfbench.rendering.report import content, efficiency, external_data, svg
from xfbench.store import published
from xfbench.workloads import workloads

HOSTILE_TEXT = "<script>window.owned = 1</script>\u202e\x00</style>"


def build_imported(quantity="efficiency", unit="%", text="theirs", **fields):
    """Return a record as `xfbench results import` makes it."""
    about = About(**{"workload": "lenet", "scaling": "weak", "ranks": 3, **fields.pop("about", {})})
    figure = Figure(quantity=quantity, unit=unit, about=about, **{"value": 70.0, **fields})
    citation = Citation(key=text, title=text, where=text)
    record_fields = {"source": "imported", "status": "ok", "request": None, "workload": None}
    return Record.make(citation=citation, figure=figure, **record_fields)


@pytest.fixture
def make_scaled_records(measured):
    """A function that makes certified launches on 1, 2 and 4 ranks with an efficiency of 90 %."""

    def make(law, workload="lenet", ranks=(1, 2, 4)):
        records = []
        for count in ranks:
            per_rank = 8 // count if law == "strong" else 8
            request_fields = {
                "workload": workload,
                "ranks": count,
                "strategy": "mpi" if count > 1 else "none",
                "scaling": law,
                "batch_size_per_rank": per_rank,
                "global_batch_size": per_rank * count,
            }
            single_rank_s = 0.1 / count if law == "strong" else 0.1
            records += [
                vary_record(
                    measured[0],
                    request={**request_fields, "launch": launch},
                    workload=workload_facts(workloads()[workload]),
                    seconds=single_rank_s / (1.0 if count == 1 else 0.9) * (1 + launch / 1000),
                )
                for launch in (1, 2, 3)
            ]
        return certify_records(records)

    return make


def build_figures(records, certificates, elsewhere=published.records()):  # noqa: B008
    [table] = build_tables(records, certificates)
    return {
        figure.title: figure for figure in efficiency.build_efficiency_figures(table, elsewhere)
    }


@pytest.mark.parametrize(
    ("law", "ranks", "mark_ranks", "share", "word"),
    [
        ("strong", (1, 2, 4), 4, 0.5, "KNL: efficiency, about 50 %"),
        ("weak", (1, 2, 64), 512, 0.8, "KNL: efficiency, about 80 %"),
    ],
)
def test_published_efficiency_is_drawn_only_for_its_scaling(
    make_scaled_records, law, ranks, mark_ranks, share, word
):
    records = make_scaled_records(law, ranks=ranks)
    figure = build_figures(*records)[f"Efficiency of {law} scaling"]
    measured_line, ideal_line = figure.lines
    assert [point.y for point in measured_line.points] == pytest.approx([1, 0.9, 0.9], rel=1e-6)
    assert ideal_line.ideal and {point.y for point in ideal_line.points} == {1.0}
    [mark] = figure.marks
    assert (mark.x, mark.y) == (mark_ranks, share) and mark.name.startswith("Z17")
    assert word in mark.name and "published" in mark.name
    assert f"Not measured here: {mark.name} at {mark_ranks}" in figure.description
    assert figure.data[-1] == (mark.name, str(mark_ranks), mark.printed, "–")


def test_published_efficiency_far_from_the_measured_ranks_is_not_drawn(make_scaled_records):
    """It would squeeze what was measured into a corner."""
    figure = build_figures(*make_scaled_records("weak"))["Efficiency of weak scaling"]
    assert not figure.marks and max(figure.at) == 4


def test_published_speedup_is_drawn_only_for_its_network(make_scaled_records):
    assert set(build_figures(*make_scaled_records("weak"))) == {"Efficiency of weak scaling"}
    figure = build_figures(*make_scaled_records("weak", "resnet101"))["Speed-up"]
    assert [point.y for point in figure.lines[0].points] == pytest.approx([1, 1.8, 3.6], rel=1e-6)
    [mark] = figure.marks
    assert (mark.x, mark.y) == (4, 3.26) and mark.name.startswith("H19")
    # The published speed-up is relative to one device, the measured one to two ranks.
    assert "Speed-up" not in build_figures(*make_scaled_records("weak", "resnet101", ranks=(2, 4)))


def test_no_figure_without_scaling_and_several_ranks(make_scaled_records, measured):
    assert build_figures(*certify_records(measured[:2])) == {}
    assert build_figures(*make_scaled_records("weak", ranks=(1,))) == {}


def test_range_is_drawn_with_both_ends_and_open_marks(make_scaled_records):
    records, certificates = make_scaled_records("weak")
    external_record = build_imported(value=None, low=60.0, high=80.0)
    figure = build_figures(records, certificates, [external_record])["Efficiency of weak scaling"]
    [mark] = figure.marks
    assert (mark.y, mark.low, mark.high) == (None, 0.6, 0.8) and "imported" in mark.name
    tree = ET.fromstring(svg.draw_figure(figure, "name"))
    assert len(tree.findall(".//{*}path[@class='other']")) == 3
    assert "60–80 %" in tree.find("{*}desc").text
    names = [name for _, name in svg.build_legend(figure)]
    assert names == [figure.lines[0].name, mark.name]


@pytest.mark.parametrize(
    "external_record",
    [
        build_imported(unit="times"),
        build_imported(quantity="throughput", unit="images/s"),
        build_imported(value=None),
        build_imported(value=None, high=3.0),
        build_imported(value=-1.0),
        build_imported(value=1e300),
        build_imported(about={"ranks": None}),
        build_imported(about={"ranks": 10**9}),
        build_imported(about={"workload": "vgg16"}),
        build_imported(about={"scaling": "strong"}),
        build_imported(about={"scaling": None}),
    ],
)
def test_figure_that_does_not_fit_the_axes_is_not_drawn(make_scaled_records, external_record):
    records, certificates = make_scaled_records("weak")
    assert (
        build_figures(records, certificates, [external_record])["Efficiency of weak scaling"].marks
        == ()
    )


def test_list_has_published_figures_of_the_report_networks(measured):
    section = external_data.group_external_figures(
        [*published.records(), build_imported()], ["lenet"]
    )
    assert [group.name for group in section.groups] == ["lenet", ""]
    assert {row.workload for row in section.groups[0].rows} == {"lenet"}
    assert {key for key, _ in section.sources} == {"Z17", "H19", "Y19", "theirs"}
    many = [build_imported(value=float(n)) for n in range(external_data.MAX_ROWS + 5)]
    [group] = external_data.group_external_figures(many, ["lenet"]).groups
    assert len(group.rows) == external_data.MAX_ROWS and group.omitted_rows == 5


def test_page_lists_published_figures_without_a_rank(open_report, make_scaled_records):
    records, certificates = make_scaled_records("weak", "resnet101", ranks=(1, 2, 64))
    report_page = open_report(
        [*records, build_imported(about={"workload": "resnet101"})],
        certificates,
        render_with_published,
    )
    section = report_page.locator("#elsewhere")
    text = section.inner_text()
    for word in ("3.26 times", "93–1 012 %", "Figures about no single network", "Jingoo Han"):
        assert word in text
    assert "Kalyan S. Perumalla" in text and "IPDPSW), 2019 (abstract)" in text
    assert "theirs (imported)" in text and "They were not measured here and are not ranked" in text
    assert "1211" not in text and "1 211" not in text
    assert section.locator("table.board").count() == 0
    assert "rank" not in [
        header_cell.inner_text() for header_cell in section.locator("thead th").all()
    ]
    boards = " ".join(report_page.locator("table.board").all_inner_texts())
    assert "H19" not in boards and "theirs" not in boards
    report_page.get_by_role("link", name="Published").click()
    assert report_page.url.endswith("#elsewhere")
    figures = report_page.locator("figure", has_text="Efficiency of weak scaling")
    legend = figures.locator(".legend").inner_text()
    assert "KNL: efficiency, about 80 %" in legend
    assert (
        "H19" in report_page.locator("figure", has_text="Speed-up").locator("desc").text_content()
    )


def render_with_published(*report_arguments):
    """Render the page as `xfbench report` does."""
    from xfbench.rendering.report import page

    return page.render_report(*report_arguments, published.records())


def test_published_record_changes_no_launch_or_figure(board, measured):
    records, certificates = board
    fast_record = next(record for record in records if record.request.framework == "torch")
    cited = Citation(key="X20", title="Somebody", where="page 3")
    external_record = vary_record(fast_record, source="published", citation=cited, seconds=1e-4)
    report_before, report_after = (
        content.build_report(chosen_records, certificates)
        for chosen_records in (records, [*records, external_record])
    )
    assert (report_after.records, report_after.span, report_after.machines) == (
        report_before.records,
        report_before.span,
        report_before.machines,
    )
    [board_now], [board_before] = report_after.boards, report_before.boards
    assert board_now.ranked == board_before.ranked
    assert board_now.figures == board_before.figures and board_now.summary == board_before.summary
    [entry] = [entry for entry in board_now.unranked if entry.row.source == "published"]
    assert entry.row.reason == "published: X20, not measured by xfbench"
    assert entry.command == () and entry.proof is None and entry.steps is None
    [launch] = entry.launches
    assert launch.images_per_second == "–" and launch.reason == entry.row.reason


def test_external_record_changes_no_machine_or_date(board):
    records, certificates = board
    report_before = content.build_report(records, certificates)
    other_machine = records[0].machine.model_copy(update={"cpu_model": "another processor"})
    external_record = vary_record(
        records[0], source="imported", machine=other_machine, created="1999-01-01T00:00:00.000Z"
    )
    report_after = content.build_report([*records, external_record], certificates)
    assert (report_after.span, report_after.machines) == (
        report_before.span,
        report_before.machines,
    )
    assert len(report_after.boards) == 2


def test_hostile_imported_figures_are_harmless(open_report, make_scaled_records):
    records, certificates = make_scaled_records("weak")
    about = {"machine": HOSTILE_TEXT, "framework": HOSTILE_TEXT, "medium": "w" * 10**5}
    hostile_records = [
        build_imported(text=HOSTILE_TEXT, about=about, relative_to=HOSTILE_TEXT),
        build_imported(quantity=HOSTILE_TEXT, unit=HOSTILE_TEXT, text=HOSTILE_TEXT),
        build_imported(text="w" * 10**6, about={"workload": HOSTILE_TEXT}),
    ]
    report_page = open_report(
        [*records, *hostile_records],
        certificates,
        render_with_published,
        viewport={"width": 360, "height": 740},
    )
    assert report_page.evaluate("window.owned") is None
    assert report_page.locator("script").count() == report_page.locator("style").count() == 1
    text = report_page.evaluate("document.body.textContent")
    assert "window.owned" in text and "\u202e" not in text and "\x00" not in text
    assert len(report_page.content()) < 500_000
    assert report_page.evaluate("document.documentElement.scrollWidth") <= 360


def test_folder_with_only_imported_figures_makes_a_page(open_report):
    report_page = open_report([build_imported()], {}, render_with_published)
    assert "theirs (imported)" in report_page.locator("#elsewhere").inner_text()
