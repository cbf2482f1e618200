"""The Markdown of an answer: it starts with the answer, and its tables have short lines."""

import pytest

from tests.studies.thread_launches import SLOW, make_thread_launches
from xfbench.studies import markdown_tables, render

LONG_REASON = "out of memory: RuntimeError was raised: " + "the allocator gave up " * 8
CLAIM = {"source": "Doe20", "text": "Two are faster", "low": 1.5}
RATIO = {"name": "ratio", "over": "threads", "title": "Speed-up", "claim": [CLAIM]}


def list_table_lines(text):
    return [line for line in text.splitlines() if line.startswith("|")]


@pytest.fixture
def thread_answer(make_study, make_launches, make_answer):
    """An answer with a ratio, and a cell without one for a long reason."""
    crash = {"status": "failed", "reason": LONG_REASON, "measurement": None}
    records = [*make_thread_launches(make_launches), *make_launches(0.1, threads=4, fields=crash)]
    return make_answer(make_study(RATIO), records)


def test_the_document_starts_with_the_result_and_the_verdict(thread_answer):
    blocks = render.render_markdown(thread_answer).split("\n\n")
    assert blocks[0].startswith("# ")
    assert blocks[1].startswith("Speed-up: 2 (")
    assert blocks[2] == "Verdict here on 1 published finding: **holds** (1)."
    assert blocks[3].startswith("**q?**")


def test_an_empty_answer_starts_with_the_reason(make_study, make_answer):
    blocks = render.render_markdown(make_answer(make_study({"name": "values"}), [])).split("\n\n")
    assert blocks[1] == "No matching cell was measured here."


def test_a_long_reason_is_in_a_list_below_the_table(thread_answer):
    text = render.render_markdown(thread_answer)
    lines = list_table_lines(text)
    assert len(lines) == 3 and max(map(len, lines)) <= 100
    assert "2 threads" in lines[2] and "against 1 thread" in lines[2]
    assert "- lenet · reference, 4 threads: out of memory: " in " ".join(text.split())


def test_the_mean_of_several_ratios_has_an_interval(make_study, make_launches, make_finding):
    records = [*make_thread_launches(make_launches), *make_launches(*SLOW, threads=4)]
    finding = make_finding(make_study(RATIO), records)
    values = [value.interval for value in finding.values]
    low, high = ((values[0].low * values[1].low) ** 0.5, (values[0].high * values[1].high) ** 0.5)
    assert f"The geometric mean is 1.41 ({low:.3g} – {high:.3g}). Of 2 comp" in finding.sentence


HEADERS = ["configuration", "threads", "images/s", "95 % interval", "launches", ""]


def render_rows(*rows):
    blocks = markdown_tables.render_value_table(HEADERS, rows, over=True)
    assert all(len(line) <= 100 for line in list_table_lines("\n".join(blocks)))
    return blocks


def make_row(name, remark, threads="2 threads"):
    return [name, threads, "1 510", "1 210 – 1 970", "5 (indicative)", remark]


def test_a_narrow_table_stays_whole():
    [table] = render_rows(
        make_row("lenet · torch", "rank 1"), make_row("convnet · torch", "rank 2")
    )
    assert table.count("\n") == 3 and "rank 2" in table


def test_an_empty_column_of_remarks_is_left_out():
    [table] = render_rows(make_row("lenet · torch", ""), make_row("convnet · torch", ""))
    assert table.splitlines()[0].rstrip("| ").endswith("launches")


def test_an_equal_remark_is_written_once():
    remark = "against lmdb"
    table, note = render_rows(make_row("lenet", remark), make_row("convnet", remark))
    assert remark not in table and note == "All rows: against lmdb."


def test_shared_settings_of_a_network_are_above_its_table():
    long = "onednn · batch 100 · photographs"
    blocks = render_rows(
        make_row(f"convnet · tensorflow · {long}", "rank 1"),
        make_row(f"convnet · torch · {long}", "rank 2"),
        make_row(f"lenet · torch · {long}", "rank 1"),
    )
    assert blocks[0] == "convnet · onednn · batch 100 · photographs:"
    assert blocks[1].splitlines()[2].startswith("| tensorflow    | 2 threads")
    assert blocks[2] == f"lenet · torch · {long}:"
    assert blocks[3].splitlines()[2].startswith("| – ")


def test_long_remarks_are_in_a_list():
    remarks = ["the best larger batch gives 1.04 (0.808 – 1.34) times the throughput", "none"]
    table, *items = render_rows(
        make_row("convnet · caffe · openblas", remarks[0]), make_row("lenet · caffe", remarks[1])
    )
    assert "1.04" not in table
    assert items[0] == f"- convnet · caffe · openblas, 2 threads: {remarks[0]}"
    assert items[1].startswith("- lenet")


def test_rows_that_fit_no_table_are_a_list():
    [block] = render_rows(make_row(f"a · {'n' * 90}", ""), make_row(f"a · {'m' * 90}", ""))
    assert block.startswith(f"- a · {'n' * 90}:") and "images/s 1 510" in " ".join(block.split())
    block = markdown_tables.render_table_or_list(["what", "why"], [["cell", LONG_REASON]])
    assert block.startswith("- cell: why out of memory")
