"""Tests of the values that the report shows, and of the command that repeats a row."""

import json
from xml.etree import ElementTree as ET

import pytest

from tests.sample_records import build_batch_certificate, certify_records, vary_record
from xfbench.analysis.leaderboard import build_tables
from xfbench.model import settings
from xfbench.model.record import Epoch
from xfbench.model.request import Cell, Request
from xfbench.rendering.report import content, figures, repeat, svg
from xfbench.rendering.report.sentences import build_summary


def build_figure(records, certificates, title):
    """Return the figure with this title."""
    [table] = build_tables(records, certificates)
    table_figures = figures.build_speed_and_learning_figures(
        table, {record.id: record for record in records}
    )
    [figure] = [figure for figure in table_figures if figure.title == title]
    return figure


def parse_svg(figure):
    """Return the SVG of a figure as a tree; raise ParseError if it is not well formed."""
    return ET.fromstring(svg.draw_figure(figure, "name"))


def test_thread_sweep_lines_differ_only_in_threads(board):
    sweep = build_figure(*board, "Thread sweep")
    assert [line.name for line in sweep.lines] == ["torch · onednn", "caffe · openblas"]
    assert [point.x for point in sweep.lines[0].points] == [1, 2]
    assert sweep.lines[0].points[0].y == pytest.approx(800, rel=0.02)
    assert len(sweep.data) == 4
    assert (
        "torch · onednn" in parse_svg(sweep).find("{*}desc").text
        or parse_svg(sweep).find("desc").text
    )


def test_sweeps_of_different_lengths_are_separate_lines(measured):
    records = [
        vary_record(
            measured[0], request={"threads": threads, "steps": steps}, seconds=0.01 / threads
        )
        for threads in (1, 2)
        for steps in (4, 8)
    ]
    lines = build_figure(records, {}, "Thread sweep").lines
    assert [line.name for line in lines] == [f"reference · numpy · {n} steps" for n in (4, 8)]
    assert [[point.x for point in line.points] for line in lines] == [[1, 2], [1, 2]]


def test_kernel_figure_compares_kernels_of_the_same_setting(board):
    bars = build_figure(*board, "Kernels").bars
    assert [bar.name for bar in bars] == ["caffe · mkl · 2 threads", "caffe · openblas · 2 threads"]
    assert all(bar.low < bar.value < bar.high for bar in bars)


def test_limit_is_drawn_at_100_percent_and_bars_are_shares(board):
    figure = build_figure(*board, "Share of the limit")
    assert figure.limit[0] == 1.0
    assert all(bar.value > 0 for bar in figure.bars)
    _, share_text, interval_text, *rate_texts, _ = figure.data[0]
    share, achieved, limit = (float(text.rstrip("%")) for text in (share_text, *rate_texts))
    low, high = (float(text.rstrip("%")) for text in interval_text.split(" – "))
    assert low <= share <= high
    assert achieved / limit == pytest.approx(share / 100, rel=0.05)


def test_rows_with_a_disturbed_limit_are_counted_below_the_figure(board):
    records, certificates = board
    product = records[0].limit.matrix_product

    def build_note(mkl_tries):
        changed = []
        for record in records:
            tries = mkl_tries if record.request.kernel == "mkl" else (product,) * 5
            limit = record.limit.model_copy(update={"matrix_product_tries": tries})
            changed.append(vary_record(record, limit=limit))
        return build_figure(changed, certificates, "Share of the limit").note

    assert build_note((product,) * 5) == ""
    assert build_note((product, product / 3)) == (
        "1 row left out: other work disturbed the measurement of the matrix product, so the limit "
        "is unknown."
    )


@pytest.mark.parametrize(("law", "per_rank"), [("strong", (8, 4, 2)), ("weak", (8, 8, 8))])
def test_scaling_figure_includes_the_ideal_line(measured, law, per_rank):
    records = [
        vary_record(
            measured[0],
            request={
                "ranks": ranks,
                "strategy": "mpi" if ranks > 1 else "none",
                "scaling": law,
                "batch_size_per_rank": per_rank_size,
                "global_batch_size": per_rank_size * ranks,
                "launch": launch,
            },
            seconds=0.01 * (1 + launch / 1000),
        )
        for ranks, per_rank_size in zip((1, 2, 4), per_rank, strict=True)
        for launch in (1, 2, 3)
    ]
    figure = build_figure(records, {}, f"{law.title()} scaling")
    measured_line, ideal_line = figure.lines
    assert ideal_line.ideal and [point.x for point in measured_line.points] == [1, 2, 4]
    assert ideal_line.points[-1].y == pytest.approx(4 * measured_line.points[0].y)
    speedup = measured_line.points[-1].y / measured_line.points[0].y
    assert speedup == pytest.approx(1 if law == "strong" else 4, rel=0.01)
    assert len(parse_svg(figure).findall(".//{*}path[@class='ideal']")) == 1


def test_learning_figure_counts_seconds_from_process_start(measured):
    learning = tuple(
        Epoch(epoch=n, seconds=2.0, train_loss=1 / n, test_loss=1.0, test_accuracy=1 - 0.5**n)
        for n in (1, 2, 3)
    )
    request_fields = {"steps": None, "epochs": 3, "data": "digits"}
    record = vary_record(measured[0], request=request_fields, learning=learning)
    [line] = build_figure([record], {}, "Learning").lines
    start_s = record.measurement.startup_seconds + record.measurement.build_seconds
    assert [point.x for point in line.points] == pytest.approx(
        [start_s + 2, start_s + 4, start_s + 6]
    )
    assert [point.y for point in line.points] == [0.5, 0.75, 0.875]


def test_step_figure_has_a_line_per_launch_with_limited_points(measured):
    figure = figures.build_step_time_figure(measured[:2])
    assert [len(line.points) for line in figure.lines] == [4, 4]
    first = 1e3 * measured[0].measurement.step_seconds[0]
    assert figure.data[0][1].startswith(f"{first:.4g} ")
    long_record = vary_record(measured[0], seconds=0.01)
    measurement = long_record.measurement.model_copy(update={"step_seconds": (0.01,) * 5000})
    figure = figures.build_step_time_figure([vary_record(long_record, measurement=measurement)])
    assert len(figure.lines[0].points) == figures.MOST_STEPS
    assert figure.data[0][1].endswith("4940 more in the record")


def test_figures_need_cells_to_compare(measured):
    records = measured[:2]
    [table] = build_tables(records, {})
    table_figures = figures.build_speed_and_learning_figures(
        table, {record.id: record for record in records}
    )
    assert {figure.title for figure in table_figures} <= {"Share of the limit"}


def test_figure_with_extreme_values_is_drawn_without_nan(measured):
    for seconds in ((1e-9, 1e3), (1e-6,) * 2):
        records = [
            vary_record(measured[0], request={"threads": n, "launch": n}, seconds=step_s)
            for n, step_s in enumerate(seconds, 1)
        ]
        tree = parse_svg(build_figure(records, {}, "Thread sweep"))
        assert "nan" not in ET.tostring(tree, encoding="unicode").lower()


def test_summary_is_no_more_certain_than_the_ranks(board, measured):
    records, certificates = board
    [table] = build_tables(records, certificates)
    summary = build_summary(table, ())
    assert summary.ranked and summary.verdict == "is fastest"
    assert summary.certainty[0] == "Rank 1 is certain: all 4 others are slower."
    caffe_records = [record for record in records if record.request.framework == "caffe"]
    openblas_records = [record for record in caffe_records if record.request.kernel == "openblas"]
    [table] = build_tables(openblas_records, certificates)
    summary = build_summary(table, ())
    assert summary.verdict == "leads, but others may be as fast"
    assert summary.certainty[0].startswith("Rank 1–2 of 2: not distinguishable from 1 other.")
    # The sentence names only the settings that differ.
    assert summary.certainty[0].endswith(
        f"These may also be first: {3 - summary.best.threads} threads (0.99–1.00 times as fast, "
        "launch by launch)."
    ), summary
    best_threads = summary.best.threads
    few = [r for r in openblas_records if r.request.threads == best_threads or r.request.launch < 3]
    [table] = build_tables(few, certificates)
    assert build_summary(table, ()).best.threads == best_threads
    assert build_summary(table, ()).certainty[0].endswith(" threads (only 2 launches).")
    [table] = build_tables(openblas_records[:1], certificates)
    assert "the only ranked row" in build_summary(table, ()).certainty[0]
    assert "no interval" in build_summary(table, ()).certainty[1]


def test_network_section_starts_with_the_most_frameworks(board):
    """Two rows of two frameworks come before three rows of one."""
    records, certificates = board
    chosen_settings = {("torch", 1), ("torch", 2), ("caffe", 1), ("caffe", 2)}
    chosen = [
        record
        for record in records
        if (record.request.framework, record.request.threads) in chosen_settings
    ]
    caffe_records = [record for record in chosen if record.request.framework == "caffe"]
    larger = {"batch_size_per_rank": 16, "global_batch_size": 16}
    larger_batch_records = [vary_record(record, request=larger) for record in chosen]
    larger_batch_records = [
        record for record in larger_batch_records if record.request.threads == 1
    ]
    certified_records, new_certificates = certify_records([*caffe_records, *larger_batch_records])
    [network] = content.build_report(certified_records, new_certificates).networks
    assert [len(board_of_batch.ranked) for board_of_batch in network.boards] == [2, 3]
    assert network.boards[0].summary.best.framework == "torch"


def test_unverified_row_is_no_winner(measured):
    [table] = build_tables(measured[:2], {})
    summary = build_summary(table, ())
    assert not summary.ranked and summary.verdict == "is fastest but not ranked"
    assert "no equality certificate" in summary.certainty[0]
    unavailable_fields = {"status": "unavailable", "reason": "no wheel", "measurement": None}
    [table] = build_tables([vary_record(measured[0], **unavailable_fields)], {})
    summary = build_summary(table, ())
    assert summary.best is None and "unavailable: no wheel" in summary.verdict


def test_the_command_repeats_the_launches_of_a_row(measured, run_inline):
    """The command has every setting, because defaults can change."""
    records = measured[:2]
    program, *words = " ".join(repeat.repeat_command_display_parts(records)).split()
    assert program == "xfbench"
    done = run_inline(*words, "--dry-run", "--json")
    requests = [Request(**request) for request in json.loads(done.stdout)["requests"]]
    assert requests == [record.request for record in records]


def test_repeat_command_includes_non_default_settings(measured):
    request_fields = {"seed": 3, "precision": "float64", "checkpoints": 2, "affinity": "cores"}
    words = repeat.repeat_command_display_parts(
        [vary_record(measured[0], request=request_fields, protocol=None)]
    )
    for part in ("--seed 3", "--precision float64", "--checkpoints 2", "--pinning cores"):
        assert part in words
    words = repeat.repeat_command_display_parts(
        [vary_record(measured[0], request={"site": "/shared/mine.toml"})]
    )
    assert words == ()  # no launch stores a folder, and a site file is a program
    words = repeat.repeat_command_display_parts(
        [vary_record(measured[0], request={"site": "mine.toml"})]
    )
    assert "--site ./mine.toml" in words
    weak = {"ranks": 2, "scaling": "weak", "strategy": "mpi", "strategy_options": (("a", 1),)}
    words = repeat.repeat_command_display_parts(
        [
            vary_record(
                measured[0], request={**weak, "batch_size_per_rank": 4, "global_batch_size": 8}
            )
        ]
    )
    for part in ("--ranks 2", "--batch-size 4", "--strategy-options a=1", "--scaling weak"):
        assert part in words


def test_repeat_command_covers_every_cell_field(measured):
    """Every field has an option, except fields that follow from others.

    A probe has none because only its study starts it. An interpreter has none because records have
    no path. The seed is that of all records of a row.
    """
    options = repeat.setting_options(measured[0].request)
    declared = settings.BY_NAME.values()
    fields = {each.cell_field for each in declared if each.option in options} | {"seed"}
    derived_fields = {"environment", "data_set", "probe", "python"}
    derived_fields |= {"global_batch_size", "batch_size_per_rank"}
    assert set(Cell.model_fields) - derived_fields <= fields


@pytest.mark.parametrize("name", ["a b", "$(x)", "a;b", "`x`", "a\nb", "--output", "x" * 300, "é"])
def test_unsafe_name_gives_no_repeat_command(measured, name):
    assert (
        repeat.repeat_command_display_parts([vary_record(measured[0], request={"framework": name})])
        == ()
    )
    assert repeat.repeat_command_display_parts([]) == ()


def test_published_record_has_no_repeat_command(measured):
    assert repeat.repeat_command_display_parts([vary_record(measured[0], source="published")]) == ()


def test_launches_of_many_rows_are_summarized(measured):
    records = [
        vary_record(
            measured[0], request={"threads": threads, "launch": launch}, seconds=0.01 * threads
        )
        for threads in range(1, content.MANY_ROWS + 2)
        for launch in (1, 2)
    ]
    report = content.build_report(records, {})
    [board] = report.boards
    first, last = board.unranked[0], board.unranked[-1]
    assert len(first.launches) == 2 and first.steps and not first.summed
    assert not last.launches and not last.steps
    assert records[-1].id[7:23] in dict(last.summed)["records"]
    assert dict(last.summed)["conditions"]


def test_rows_link_to_the_certificates_on_the_page(board):
    report = content.build_report(*board)
    anchors = {proof.anchor for proof in report.proofs}
    ranked = [entry for table_content in report.boards for entry in table_content.ranked]
    assert len(ranked) == 5 and {entry.proof for entry in ranked} == anchors
    assert all(proof.verdict == "equal" for proof in report.proofs)
    records, _ = certify_records(board[0][:1])
    [proof] = content.build_report(records, {}).proofs
    assert proof.verdict == "not in the results folder"


def test_certificates_of_timed_batches_are_on_the_page(board):
    [record], certificates = certify_records(board[0][:1])
    batch = build_batch_certificate(record)
    report = content.build_report([record], {**certificates, batch.id: batch})
    size, threads = record.request.batch_size_per_rank, record.request.threads
    subjects = [proof.subject for proof in report.proofs]
    assert len(subjects) == 2
    assert [f"batch {size}, {threads} threads" in subject for subject in subjects] == [False, True]


def test_details_say_why_a_batch_was_not_compared(board):
    [record], certificates = certify_records(board[0][:1])
    [entry] = content.build_report([record], certificates).boards[0].ranked
    assert "timed batch" not in dict(entry.facts)
    unproven = vary_record(record, cell=record.cell, batch_unproven_reason="out of memory")
    [entry] = content.build_report([unproven], certificates).boards[0].ranked
    assert dict(entry.facts)["timed batch"] == "batch not compared: out of memory"


def test_an_interval_beyond_the_scale_ends_in_an_arrow():
    """A closed end would look like the end of the interval."""
    clipped, whole = (
        svg.draw_interval_bar(860, 180, 4100, scale_end, "torch") for scale_end in (2100, 5000)
    )
    assert "m-3-3l3 3l-3 3" in clipped and "m0-3v6" not in clipped
    assert "m-3-3l3 3l-3 3" not in whole and "m0-3v6" in whole
    about = {"title": "t", "description": "d", "y": "images/s", "headers": (), "data": ()}
    for high in (150, 900):
        points = (figures.Point(1, 100, 90, high), figures.Point(2, 100))
        for figure in (
            figures.Figure(**about, bars=(figures.Bar("torch", 100, 90, high),)),
            figures.Figure(**about, lines=(figures.Line("torch", points),), at=(1, 2)),
        ):
            [drawn] = parse_svg(figure).findall(".//{*}path[@class='range']")
            assert ("l" in drawn.get("d")) == (high == 900)


def test_a_framework_has_one_colour_in_lines_and_bars(board):
    lines, bars = (
        parse_svg(build_figure(*board, title)).findall("{*}g")
        for title in ("Thread sweep", "Kernels")
    )
    assert [group.get("class") for group in lines] == ["s7 d0", "s2 d1"]  # torch, caffe
    assert [group.get("class") for group in bars] == ["s2 d0", "s2 d0"]


def test_the_name_of_a_bar_is_wrapped_and_not_cut():
    name = " · ".join(["torch", "onednn", *["a long part of a name"] * 6])
    bars = (figures.Bar(name, 1.0),)
    figure = figures.Figure("t", "d", "images/s", headers=(), data=(), bars=bars)
    texts = [each.text for each in parse_svg(figure).findall("{*}text[@class='bar-name']")]
    assert " ".join(texts) == name and max(map(len, texts)) <= svg.NAME_CHARACTERS


def test_the_work_of_a_network_is_in_gflop(board):
    [network] = content.build_report(*board).networks
    assert network.facts.endswith("GFLOP per image in training")
