"""Tests of the report's section on slowdown, some of them in a real browser."""

import pytest

from tests.rendering.report.hostile_records import HOSTILE_TEXTS
from tests.sample_records import certify_records, vary_record
from xfbench.analysis.leaderboard import build_tables
from xfbench.rendering.report import page, slowdowns


@pytest.fixture
def networks(board, measured):
    """`board`, and two of its frameworks on a second network of the same size."""
    records, certificates = board
    other_network_records = [
        vary_record(
            record,
            request={"workload": "convnet"},
            workload=record.workload.model_copy(update={"name": "convnet"}),
            seconds=0.02 if record.request.framework == "torch" else 0.005,
        )
        for record in records[:5] + records[10:15]
    ]
    certified_records, more_certificates = certify_records(other_network_records)
    return [*records, *certified_records], {**certificates, **more_certificates}


@pytest.mark.deep
def test_slowdown_table_shows_ratios_settings_and_reasons(open_report, networks):
    report_page = open_report(*networks)
    report_page.get_by_role("link", name="Slowdown").click()
    [table] = report_page.locator("table.slowdown").all()
    rows = {row.locator("th").inner_text(): row for row in table.locator("tbody tr").all()}
    assert list(rows)[:2] == ["caffe", "torch"]
    torch = rows["torch"].locator("td").all_inner_texts()
    assert table.locator("caption").inner_text().startswith("slowdown against torch")
    assert torch[0].startswith("1.00") and "onednn, 1 thread" in torch[0]
    assert torch[1].startswith("1.00") and "onednn, 2 threads" in torch[1]
    caffe = rows["caffe"].locator("td").all_inner_texts()
    assert caffe[0].startswith("0.25") and float(caffe[1].split()[0]) > 1
    assert rows["tensorflow"].locator("td").all_inner_texts()[:2] == ["not measured", "crashed"]
    assert report_page.get_by_text("tensorflow in lenet: crashed: rank 0 was killed").is_visible()
    assert report_page.get_by_text("over convnet, lenet").is_visible()


@pytest.mark.deep
def test_single_framework_has_no_slowdown_section(open_report, board):
    records, certificates = board
    framework_records = [record for record in records if record.request.framework == "torch"]
    report_page = open_report(framework_records, certificates)
    assert report_page.locator("#slowdown").count() == 0
    assert report_page.get_by_role("link", name="Slowdown").count() == 0


@pytest.mark.deep
def test_hostile_names_are_harmless_in_the_slowdown_table(open_report, measured):
    records = [
        vary_record(
            measured[0],
            request={"framework": text, "launch": launch},
            seconds=0.01 + 0.001 * n,
            observed=measured[0].observed.model_copy(update={"kernel": text}),
        )
        for n, text in enumerate(HOSTILE_TEXTS)
        for launch in (1, 2)
    ]
    report_page = open_report(*certify_records(records))
    assert report_page.locator("table.slowdown tbody tr").count() == len(HOSTILE_TEXTS)
    assert report_page.evaluate("window.owned") is None
    assert report_page.locator("#slowdown script, #slowdown img, #slowdown svg").count() == 0


def copy_to_machines(board, count):
    """Return two launches of the board on each of `count` machines, and their certificates."""
    records, _ = board
    return certify_records(
        [
            vary_record(
                record, machine=record.machine.model_copy(update={"cpu_model": f"Processor {n:02}"})
            )
            for n in range(count)
            for record in (records[0], records[10])
        ]
    )


def test_slowdown_data_has_a_table_per_machine(board):
    records, certificates = copy_to_machines(board, 3)
    assert len(slowdowns.build_tables(build_tables(records, certificates))) == 3


def test_report_shows_the_first_slowdown_tables_and_counts_the_rest(board):
    html = page.render_report(*copy_to_machines(board, slowdowns.MAX_TABLES + 2))
    assert html.count('<table class="data slowdown">') == slowdowns.MAX_TABLES
    assert "and 2 more: xfbench leaderboard --view slowdown" in html
