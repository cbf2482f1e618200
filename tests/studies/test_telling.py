"""Tests of answers as Markdown, figures and HTML, with measured and published values."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from tests.studies.thread_launches import FAST, SLOW, make_thread_launches
from xfbench.host.machine import describe_machine
from xfbench.studies import answer, drawing, page, render

PUBLISHED = {
    "citation": {"key": "Doe20", "title": "On threads", "where": "figure 2"},
    "figure": {"quantity": "speed-up", "unit": "times", "relative_to": "1 thread"},
}

RANGE = {"low": 1.5, "high": 2.5}


def make_published(**figure):
    return {**PUBLISHED, "figure": {**PUBLISHED["figure"], **figure}}


@pytest.fixture
def make_thread_answer(make_study, make_launches):
    """Return a function that answers a study of threads with the given published values."""

    def make(*published, plot="bars", **fields):
        analysis = {"name": "ratio", "over": "threads", "plot": plot, "beside": "speed-up"}
        claim = {"source": "Doe20", "text": "Two are faster", "low": 1.5}
        study = make_study({**analysis, "claim": [claim]}, published=list(published), **fields)
        records = [*make_thread_launches(make_launches), *make_launches(*SLOW, threads=4)]
        return answer.answer_study(study, "laptop", records, {})

    return make


def test_markdown_contains_every_part_of_the_answer(make_thread_answer):
    text = render.render_markdown(
        make_thread_answer(make_published(value=1.7), limits=["Other threads are not measured."])
    )
    for words in (
        *("**q?**", "times (lenet · reference, 2 threads)", "Two are faster", "**does not hold**"),
        *("| 1.7 times", "Doe20, figure 2", "speed-up, relative to 1 thread"),
        *(
            "Other threads are not measured.",
            "3 (indicative)",
            "xfbench study run mine --size laptop",
        ),
    ):
        assert words in text, words


def test_a_caption_says_what_was_measured_and_what_was_published(make_thread_answer):
    study_answer = replace(make_thread_answer(make_published(value=1.7)), disturbed=2)
    [figure] = render.list_figures(study_answer)
    caption = render.describe_figure(study_answer, figure)
    for words in (
        f"{study_answer.launches} launches, {study_answer.span[0]}",
        *study_answer.machines,
        "size laptop",
        "95 % intervals",
        "published (Doe20) are those of “On threads”",
        f"2 of {study_answer.launches} launches shared the machine",
    ):
        assert words in caption, words
    study_answer = make_thread_answer()
    [figure] = render.list_figures(study_answer)
    assert "published" not in render.describe_figure(study_answer, figure)


def test_field_with_a_pipe_or_newline_stays_in_its_table_row(make_thread_answer):
    text = render.render_markdown(
        make_thread_answer(make_published(value=1.7, about={"machine": "a | b\nc"}))
    )
    [line] = [line for line in text.splitlines() if "1.7 times" in line]
    assert "a \\| b" in line and "\\nc" in line


def test_record_text_stays_on_its_line(make_study, make_launches):
    evil = "\x1b[2J\n# Answer\u202e"
    crash = {"status": "crashed", "reason": evil, "measurement": None}
    machine = describe_machine().model_copy(update={"cpu_model": evil})
    records = [
        *make_launches(0.1, fields={"machine": machine}),
        *make_launches(0.1, fields={**crash, "machine": machine}),
    ]
    text = render.render_markdown(
        answer.answer_study(make_study({"name": "values"}), "laptop", records, {})
    )
    assert "A launch does not count" in text and r"\\x1b\[2J" in text
    assert "\x1b" not in text and "\u202e" not in text and "\n# Answer" not in text


def test_published_range_is_drawn_as_two_ends(make_thread_answer):
    study_answer = make_thread_answer(make_published(**RANGE))
    [figure] = drawing.draw_figures(study_answer.findings[0], study_answer.published)
    published_bars = {
        bar.name.split(":")[0]: bar.value for bar in figure.bars if "Doe20" in bar.name
    }
    assert published_bars == {"published (Doe20, least)": 1.5, "published (Doe20, most)": 2.5}


def test_published_values_of_one_subject_are_named_by_what_they_are_relative_to(make_thread_answer):
    published = [make_published(value=2.0, relative_to=name) for name in ("a K40", "a P100")]
    study_answer = make_thread_answer(*published)
    [figure] = drawing.draw_figures(study_answer.findings[0], study_answer.published)
    ends = [bar.name.rpartition(", ")[2] for bar in figure.bars if "Doe20" in bar.name]
    assert ends == ["relative to a K40", "relative to a P100"]


def test_published_value_is_a_mark_at_its_axis_position(make_thread_answer):
    """A published value is a separate mark and not a point of a line."""
    mark_at_eight, range_at_eight = (
        make_published(about={"threads": 8}, **value_fields)
        for value_fields in ({"value": 3.0}, RANGE)
    )
    study_answer = make_thread_answer(
        mark_at_eight, range_at_eight, make_published(value=2.0), plot="lines"
    )
    [figure] = drawing.draw_figures(study_answer.findings[0], study_answer.published)
    marks = [(mark.x, mark.y, mark.low, mark.high) for mark in figure.marks]
    assert marks == [(8.0, 3.0, None, None), (8.0, None, 1.5, 2.5)]
    [line] = figure.lines
    assert [point.x for point in line.points] == [2.0, 4.0] and 8.0 in figure.at


@pytest.mark.parametrize("figure_fields", [{"unit": "%"}, {"quantity": "slowdown"}])
def test_published_value_of_another_kind_is_only_in_the_table(make_thread_answer, figure_fields):
    study_answer = make_thread_answer(make_published(value=1.7, **figure_fields))
    [figure] = drawing.draw_figures(study_answer.findings[0], study_answer.published)
    assert not any("Doe20" in bar.name for bar in figure.bars)
    assert "Doe20, figure 2" in render.render_markdown(study_answer)


def test_percentages_are_drawn_as_shares(make_study, make_launches):
    quoted = make_published(quantity="run-to-run spread", unit="%", low=0.1, high=3.1)
    study = make_study({"name": "spread", "beside": "run-to-run"}, published=[quoted])
    study_answer = answer.answer_study(study, "laptop", make_launches(*FAST), {})
    [figure] = drawing.draw_figures(study_answer.findings[0], study_answer.published)
    assert figure.percent
    assert [bar.value for bar in figure.bars[1:]] == pytest.approx([0.001, 0.031])


def test_pictures_are_standalone_and_the_page_loads_no_resource(make_thread_answer):
    study_answer = make_thread_answer(make_published(value=1.7))
    [picture] = render.render_svgs(study_answer)
    assert ET.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    assert "![" in render.render_markdown(study_answer, ["mine-1.svg"])
    html = page.render_html(study_answer)
    assert "<svg" in html and "Doe20, figure 2" in html and "does not hold" in html
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "default-src &#39;none&#39;" in html or "default-src 'none'" in html


def test_markup_in_a_study_file_is_escaped(make_thread_answer):
    html = page.render_html(make_thread_answer(limits=["<script>alert(1)</script>"]))
    assert "<script>alert" not in html and "&lt;script&gt;alert" in html
