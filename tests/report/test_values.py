"""What the report says and draws, as values, and the command that repeats a row."""

import inspect
import json
import re
from xml.etree import ElementTree as ET

import pytest

from tests import command_runner
from tests.sample_records import certify_records, vary_record
from xfbench.analysis.leaderboard import tables
from xfbench.records.record import Epoch
from xfbench.report import content, figures, repeat, svg
from xfbench.report.sentences import build_summary
from xfbench.request import Cell


def drawn(records, certificates, title):
    """The one figure of that title."""
    [table] = tables(records, certificates)
    found = figures.figures(table, {one.id: one for one in records})
    [one] = [figure for figure in found if figure.title == title]
    return one


def parsed(figure):
    """Its SVG as a tree: well formed, whatever is in it."""
    return ET.fromstring(svg.draw_figure(figure, "name"))


def test_thread_sweep_lines_differ_only_in_threads(board):
    sweep = drawn(*board, "Thread sweep")
    assert [line.name for line in sweep.lines] == ["torch · onednn", "caffe · openblas"]
    assert [point.x for point in sweep.lines[0].points] == [1, 2]
    assert sweep.lines[0].points[0].y == pytest.approx(800, rel=0.02)
    assert len(sweep.data) == 4
    assert "torch · onednn" in parsed(sweep).find("{*}desc").text or parsed(sweep).find("desc").text


def test_sweeps_of_different_lengths_are_separate_lines(measured):
    made = [
        vary_record(
            measured[0], request={"threads": threads, "steps": steps}, seconds=0.01 / threads
        )
        for threads in (1, 2)
        for steps in (4, 8)
    ]
    lines = drawn(made, {}, "Thread sweep").lines
    assert [line.name for line in lines] == [f"reference · numpy · {n} steps" for n in (4, 8)]
    assert [[point.x for point in line.points] for line in lines] == [[1, 2], [1, 2]]


def test_kernel_figure_compares_kernels_of_the_same_setting(board):
    bars = drawn(*board, "Kernels").bars
    assert [bar.name for bar in bars] == ["caffe · mkl · 2 threads", "caffe · openblas · 2 threads"]
    assert all(bar.low < bar.value < bar.high for bar in bars)


def test_limit_is_drawn_at_100_percent_and_bars_are_shares(board):
    found = drawn(*board, "Share of the limit")
    assert found.limit[0] == 1.0
    assert all(bar.value > 0 for bar in found.bars)
    share, done, possible = (float(text.rstrip("%")) for text in found.data[0][1:4])
    assert done / possible == pytest.approx(share / 100, rel=0.05)


@pytest.mark.parametrize(("law", "per_rank"), [("strong", (8, 4, 2)), ("weak", (8, 8, 8))])
def test_scaling_figure_includes_the_ideal_line(measured, law, per_rank):
    made = [
        vary_record(
            measured[0],
            request={
                "ranks": ranks,
                "strategy": "mpi" if ranks > 1 else "none",
                "scaling": law,
                "batch_size_per_rank": each,
                "global_batch_size": each * ranks,
                "launch": launch,
            },
            seconds=0.01 * (1 + launch / 1000),
        )
        for ranks, each in zip((1, 2, 4), per_rank, strict=True)
        for launch in (1, 2, 3)
    ]
    found = drawn(made, {}, f"{law.title()} scaling")
    own, ideal = found.lines
    assert ideal.ideal and [point.x for point in own.points] == [1, 2, 4]
    assert ideal.points[-1].y == pytest.approx(4 * own.points[0].y)
    reached = own.points[-1].y / own.points[0].y
    assert reached == pytest.approx(1 if law == "strong" else 4, rel=0.01)
    assert len(parsed(found).findall(".//{*}path[@class='ideal']")) == 1


def test_learning_figure_counts_seconds_from_process_start(measured):
    learning = tuple(
        Epoch(epoch=n, seconds=2.0, train_loss=1 / n, test_loss=1.0, test_accuracy=1 - 0.5**n)
        for n in (1, 2, 3)
    )
    asked = {"steps": None, "epochs": 3, "data": "digits"}
    one = vary_record(measured[0], request=asked, learning=learning)
    [line] = drawn([one], {}, "Learning").lines
    begun = one.measurement.startup_seconds + one.measurement.build_seconds
    assert [point.x for point in line.points] == pytest.approx([begun + 2, begun + 4, begun + 6])
    assert [point.y for point in line.points] == [0.5, 0.75, 0.875]


def test_step_figure_has_a_line_per_launch_with_limited_points(measured):
    found = figures.steps(measured[:2])
    assert [len(line.points) for line in found.lines] == [4, 4]
    first = 1e3 * measured[0].measurement.step_seconds[0]
    assert found.data[0][1].startswith(f"{first:.4g} ")
    long = vary_record(measured[0], seconds=0.01)
    many = long.measurement.model_copy(update={"step_seconds": (0.01,) * 5000})
    found = figures.steps([vary_record(long, measurement=many)])
    assert len(found.lines[0].points) == figures.MOST_STEPS
    assert found.data[0][1].endswith("4940 more in the record")


def test_figures_need_cells_to_compare(measured):
    alone = measured[:2]
    [table] = tables(alone, {})
    found = figures.figures(table, {one.id: one for one in alone})
    assert {one.title for one in found} <= {"Share of the limit"}


def test_figure_with_extreme_values_is_drawn_without_nan(measured):
    for seconds in ((1e-9, 1e3), (1e-6,) * 2):
        made = [
            vary_record(measured[0], request={"threads": n, "launch": n}, seconds=each)
            for n, each in enumerate(seconds, 1)
        ]
        tree = parsed(drawn(made, {}, "Thread sweep"))
        assert "nan" not in ET.tostring(tree, encoding="unicode").lower()


def test_summary_is_no_more_certain_than_the_ranks(board, measured):
    records, certificates = board
    [table] = tables(records, certificates)
    said = build_summary(table, ())
    assert said.ranked and said.verdict == "is fastest"
    assert said.certainty[0] == "Rank 1 is certain: all 4 others are slower."
    slow = [one for one in records if one.request.framework == "caffe"]
    alike = [one for one in slow if one.request.kernel == "openblas"]
    [table] = tables(alike, certificates)
    said = build_summary(table, ())
    assert said.verdict == "leads, but others may be as fast"
    assert said.certainty[0].startswith("Rank 1–2 of 2: not distinguishable from 1 other.")
    # What they have in common is not said again.
    assert said.certainty[0].endswith(
        f"These may also be first: {3 - said.best.threads} threads."
    ), said
    [table] = tables(alike[:1], certificates)
    assert "the only one" in build_summary(table, ()).certainty[0]
    assert "no interval" in build_summary(table, ()).certainty[1]


def test_network_section_starts_with_the_most_frameworks(board):
    """Three rows of one framework say less of who is fastest than two of two."""
    records, certificates = board
    kept = {("torch", 1), ("torch", 2), ("caffe", 1), ("caffe", 2)}
    chosen = [one for one in records if (one.request.framework, one.request.threads) in kept]
    of_caffe = [one for one in chosen if one.request.framework == "caffe"]
    larger = {"batch_size_per_rank": 16, "global_batch_size": 16}
    of_both = [vary_record(one, request=larger) for one in chosen]
    of_both = [one for one in of_both if one.request.threads == 1]
    found, proofs = certify_records([*of_caffe, *of_both])
    [network] = content.report(found, proofs).networks
    assert [len(one.ranked) for one in network.boards] == [2, 3]
    assert network.boards[0].summary.best.framework == "torch"


def test_unverified_row_is_no_winner(measured):
    [table] = tables(measured[:2], {})
    said = build_summary(table, ())
    assert not said.ranked and said.verdict == "is fastest but not ranked"
    assert "no equality certificate" in said.certainty[0]
    gone = {"status": "unavailable", "reason": "no wheel", "measurement": None}
    [table] = tables([vary_record(measured[0], **gone)], {})
    said = build_summary(table, ())
    assert said.best is None and "unavailable: no wheel" in said.verdict


def test_the_command_repeats_the_launches_of_a_row(measured, monkeypatch, capsys, tmp_path):
    """With nothing left to a default that may change."""
    own = measured[:2]
    program, *words = " ".join(repeat.build_repeat_command(own)).split()
    assert program == "xfbench"
    done = command_runner.make_runner(monkeypatch, capsys, tmp_path)(*words, "--dry-run", "--json")
    asked = json.loads(done.stdout)["requests"]
    assert asked == [one.request.model_dump(mode="json") for one in own]


def test_repeat_command_includes_non_default_settings(measured):
    other = {"seed": 3, "precision": "float64", "checkpoints": 2, "affinity": "cores"}
    words = repeat.build_repeat_command([vary_record(measured[0], request=other, protocol=None)])
    for part in ("--seed 3", "--precision float64", "--checkpoints 2", "--affinity cores"):
        assert part in words
    weak = {"ranks": 2, "scaling": "weak", "strategy": "mpi", "strategy_options": (("a", 1),)}
    words = repeat.build_repeat_command(
        [
            vary_record(
                measured[0], request={**weak, "batch_size_per_rank": 4, "global_batch_size": 8}
            )
        ]
    )
    for part in ("--ranks 2", "--batch-size 4", "--strategy-options a=1", "--scaling weak"):
        assert part in words


def test_repeat_command_covers_every_cell_field():
    """A new field needs an option; batch sizes, environment and data set follow from others.

    Probes are started by their study alone.
    """
    told = set(re.findall('"--([a-z-]+)"', inspect.getsource(repeat)))
    follow = {"environment", "data_set", "global_batch_size", "batch_size_per_rank", "probe"}
    follow.add("profile")  # which comes after all that is measured, and is of no cell
    assert {name.replace("_", "-") for name in set(Cell.model_fields) - follow} <= told


@pytest.mark.parametrize("name", ["a b", "$(x)", "a;b", "`x`", "a\nb", "--output", "x" * 300, "é"])
def test_unsafe_name_gives_no_repeat_command(measured, name):
    assert (
        repeat.build_repeat_command([vary_record(measured[0], request={"framework": name})]) == ()
    )
    assert repeat.build_repeat_command([]) == ()


def test_published_record_has_no_repeat_command(measured):
    assert repeat.build_repeat_command([vary_record(measured[0], source="published")]) == ()


def test_launches_of_many_rows_are_summarized(measured):
    made = [
        vary_record(
            measured[0], request={"threads": threads, "launch": launch}, seconds=0.01 * threads
        )
        for threads in range(1, content.MANY_ROWS + 2)
        for launch in (1, 2)
    ]
    found = content.report(made, {})
    [board] = found.boards
    first, last = board.unranked[0], board.unranked[-1]
    assert len(first.launches) == 2 and first.steps and not first.summed
    assert not last.launches and not last.steps
    assert made[-1].id[7:23] in dict(last.summed)["records"]
    assert dict(last.summed)["conditions"]


def test_rows_link_to_the_certificates_on_the_page(board):
    found = content.report(*board)
    places = {proof.anchor for proof in found.proofs}
    ranked = [entry for one in found.boards for entry in one.ranked]
    assert len(ranked) == 5 and {entry.proof for entry in ranked} == places
    assert all(proof.verdict == "equal" for proof in found.proofs)
    records, _ = certify_records(board[0][:1])
    [proof] = content.report(records, {}).proofs
    assert proof.verdict == "not in the results folder"
