"""The columns of a table that fit a width."""

import pytest

from tests.sample_records import SOFTWARE
from xfbench.analysis.leaderboard import build_tables
from xfbench.host.machine import describe_machine
from xfbench.rendering import tables
from xfbench.rendering.fitting import fit_columns, split_columns

TEXTS = {
    "rank": ["1", "2"],
    "framework": ["torch", "tensorflow"],
    "kernel": ["onednn", "onednn"],
    "threads": ["1", "2"],
    "images/s": ["123 (120–126)", "110 (109–111)"],
    "median step": ["1 ms", "2 ms"],
    "version": ["2.13.0+cpu", "2.21.0"],
    "allocator": ["–", "–"],
}


def width(fit):
    return sum(max(len(name) + 2, *map(len, TEXTS[name])) + 2 for name in fit.shown) - 2


def test_equal_settings_go_to_the_heading():
    fit = fit_columns(TEXTS, max_width=1000, gap=2)
    assert fit.common == (("kernel", "onednn"),)
    assert [*fit.shown] == [name for name in TEXTS if name not in ("kernel", "allocator")]
    assert fit.left_out == ()


def test_results_that_are_equal_by_chance_stay_columns():
    fit = fit_columns({**TEXTS, "of best": ["1.00", "1.00"]}, max_width=1000, gap=2)
    assert "of best" in fit.shown


def test_columns_of_a_single_row_stay_columns():
    fit = fit_columns({name: column[:1] for name, column in TEXTS.items()}, 1000, gap=2)
    assert [*fit.shown] == [*TEXTS] and fit.common == ()


@pytest.mark.parametrize(
    ("max_width", "left_out"),
    [
        (72, ()),
        (71, ("version",)),
        (59, ("threads", "version")),
        (48, ("median step", "version")),
    ],
)
def test_least_important_columns_are_left_out(max_width, left_out):
    texts = {name: column for name, column in TEXTS.items() if name != "allocator"}
    fit = fit_columns(texts, max_width, gap=2)
    assert fit.left_out == left_out
    assert width(fit) <= max_width


def test_columns_that_tell_rows_apart_come_before_results():
    texts = {
        "rank": ["1", "2", "3"],
        "framework": ["torch", "torch", "mxnet"],
        "images/s": ["123", "110", "100"],
        "of best": ["1.00", "0.89", "0.81"],
        "threads": ["1", "2", "2"],
        "page cache": ["cold", "warm", "warm"],  # tells no more rows apart than the threads
    }
    fit = fit_columns(texts, max_width=45, gap=2)
    assert "threads" in fit.shown
    assert fit.left_out == ("of best", "page cache")


def test_rank_framework_and_throughput_are_always_shown():
    assert fit_columns(TEXTS, max_width=5, gap=2).shown == ("rank", "framework", "images/s")


@pytest.mark.parametrize(
    ("max_width", "groups"),
    [
        (None, [[0, 1, 2, 3]]),
        (50, [[0, 1, 2, 3]]),
        (49, [[0, 1, 2], [0, 3]]),
        (38, [[0, 1, 2], [0, 3]]),
        (37, [[0, 1], [0, 2], [0, 3]]),
        (1, [[0, 1], [0, 2], [0, 3]]),
    ],
)
def test_wide_table_is_split_and_its_first_column_repeated(max_width, groups):
    columns = [["framework", "torch"], *([name, "1.23 (1.1)"] for name in ("a", "b", "c"))]
    # A column needs its longest text, and a gap of 2 characters. Headers have 2 characters more.
    assert split_columns(columns, max_width, gap=2) == groups


@pytest.fixture
def wide_tables(record):
    """Tables of two frameworks, one of which failed for a long reason."""
    fields = {"software": SOFTWARE, "machine": describe_machine()}
    failed = {"status": "failed", "reason": "out of memory " * 20, "measurement": None}
    launches = [record(launch=launch, fields=fields) for launch in (1, 2)]
    return build_tables([*launches, record(framework="torch", fields={**fields, **failed})], {})


@pytest.mark.parametrize("max_width", [60, 80, 100])
def test_no_line_is_wider_than_the_layout_and_nothing_is_cut(wide_tables, max_width):
    shown = tables.to_text(wide_tables, layout=tables.Layout(max_width=max_width))
    assert max(map(len, shown.splitlines())) <= max_width
    assert " ".join(shown.split()).count("out of memory") == 20
    assert "threads 1" in " ".join(shown.split())
    assert ("Not shown:" in shown and "--wide" in shown) == (max_width == 60)


def test_chosen_columns_have_their_order(wide_tables):
    shown = tables.to_text(wide_tables, layout=tables.Layout(columns=("threads", "framework")))
    assert shown.splitlines()[2].split() == ["threads", "framework"]
    assert "[1] 1" in shown  # a row that is not ranked has the number of its reason
