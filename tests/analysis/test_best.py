"""The best configuration of each group: how it is chosen, ranked and described."""

import csv
import io
import json
import random

import numpy as np
import pytest

from tests.sample_records import SOFTWARE, UNKNOWN_CERTIFICATE, certify_records, make_block
from xfbench.analysis import best, slowdown
from xfbench.analysis.leaderboard import build_tables as all_tables
from xfbench.base.errors import UsageError
from xfbench.host.machine import describe_machine
from xfbench.pairwise import rank_cells, rank_groups
from xfbench.rendering import slowdown_tables, tables

HERE = describe_machine()
ELSEWHERE = HERE.model_copy(update={"cpu_model": "Another"})


@pytest.fixture
def make_launches(record):
    """Return a function that makes five launches of a cell at about this speed in images/s."""

    def make_launches(speed, machine=HERE, noise=0.01, fields=None, **request):
        seed = json.dumps([speed, sorted(request.items())])
        rng = random.Random(seed)
        return [
            record(
                steps=(4 / speed * (1 + rng.uniform(-noise, noise)),) * 3,
                launch=n,
                fields={"software": SOFTWARE, "machine": machine, **(fields or {})},
                **request,
            )
            for n in range(1, 6)
        ]

    return make_launches


@pytest.fixture
def boards(make_launches):
    """Return tables of two frameworks with two thread counts each; three cells are ranked."""
    records, certificates = certify_records(
        [
            *make_launches(100, framework="torch", threads=1),
            *make_launches(150, framework="torch", threads=2),
            *make_launches(50, framework="caffe", threads=1),
        ]
    )
    unproven = make_launches(
        900, fields={"certificate": UNKNOWN_CERTIFICATE}, framework="caffe", threads=2
    )
    mxnet_launches = make_launches(10, framework="mxnet")
    return all_tables([*records, *unproven, *mxnet_launches], certificates)


def test_framework_row_shows_its_fastest_ranked_configuration(boards):
    [table] = best.keep_best_row_per_group(boards, best.parse_group_fields("framework"))
    shown = [(row.framework, row.threads, row.rank) for row in table.rows]
    assert shown == [("torch", 2, (1, 1)), ("caffe", 1, (2, 2))]
    assert [row.relative_to_best for row in table.rows] == pytest.approx([1, 1 / 3], rel=0.02)
    assert [row.configurations for row in table.rows] == [2, 2]
    assert [row.configurations_ranked for row in table.rows] == [2, 1]
    [unranked_row] = table.unranked
    assert (unranked_row.framework, unranked_row.configurations_ranked) == ("mxnet", 0)
    assert unranked_row.reason


def test_repeated_configuration_is_preferred_to_single_launch(make_launches):
    """`xfbench tune` leaves single launches of the settings that it eliminated."""
    repeated = make_launches(100, framework="torch", threads=2)
    single = make_launches(140, framework="torch", threads=1)[:1]
    single_caffe = make_launches(120, framework="caffe", threads=1)[:1]
    records, certificates = certify_records([*repeated, *single, *single_caffe])
    [table] = best.keep_best_row_per_group(all_tables(records, certificates), ["framework"])
    shown = {row.framework: (row.threads, row.configurations) for row in table.rows}
    assert shown == {"torch": (2, 2), "caffe": (1, 1)}


def test_group_by_row_keeps_all_and_unknown_field_is_refused(boards):
    assert best.keep_best_row_per_group(boards, best.parse_group_fields("row")) == boards
    with pytest.raises(UsageError, match="framework_version"):
        best.parse_group_fields("framework,xyzzy")
    fields = best.parse_group_fields("batch-size,pinning,threads")
    assert fields == ("global_batch_size", "affinity", "threads")
    for unsupported_field in ("workload", "seed"):
        with pytest.raises(UsageError, match="--by"):
            best.parse_group_fields(unsupported_field)


@pytest.mark.parametrize("name", best.FIELDS)
def test_every_field_groups_rows_in_every_format(boards, name):
    best_tables = best.keep_best_row_per_group(boards, [name])
    assert all(row.group.keys() == {name} for table in best_tables for row in table.rows)
    for write in tables.FORMATS.values():
        assert write(best_tables, "throughput")
    for write in slowdown_tables.FORMATS.values():
        assert write(slowdown.build_slowdown_tables(boards, [name]))


def test_two_fields_group_by_every_combination(boards):
    [table] = best.keep_best_row_per_group(boards, best.parse_group_fields("framework, threads"))
    groups = [tuple(row.group.values()) for row in table.rows]
    assert groups == [("torch", 2), ("torch", 1), ("caffe", 1)]
    assert [tuple(row.group.values()) for row in table.unranked] == [("caffe", 2), ("mxnet", 1)]


def test_grouping_by_machine_joins_machines_in_a_table(make_launches):
    records, certificates = certify_records(
        [
            *make_launches(100, framework="torch"),
            *make_launches(200, framework="caffe"),
            *make_launches(300, machine=ELSEWHERE, framework="torch"),
        ]
    )
    separate_tables = all_tables(records, certificates)
    assert len(separate_tables) == 2
    [table] = best.keep_best_row_per_group(separate_tables, ["machine"])
    assert [row.framework for row in table.rows] == ["torch", "caffe"]
    assert "Another" in table.rows[0].group["machine"] and "Another" not in table.title
    assert table.document()["machine"] is None
    assert [row.rank for row in table.rows] == [(1, 1), (2, 2)]
    assert "Another" in tables.to_text([table])


def test_grouping_by_precision_and_batch_joins_their_tables(make_launches):
    records, certificates = certify_records(
        [
            *make_launches(100, framework="torch"),
            *make_launches(200, framework="torch", precision="bfloat16"),
            *make_launches(300, framework="torch", global_batch_size=8, batch_size_per_rank=8),
        ]
    )
    separate_tables = all_tables(records, certificates)
    assert len(separate_tables) == 3
    by_batch = best.keep_best_row_per_group(separate_tables, ["global_batch_size"])
    assert sorted(len(table.rows) for table in by_batch) == [1, 2]
    [table] = best.keep_best_row_per_group(separate_tables, ["precision", "global_batch_size"])
    groups = [tuple(row.group.values()) for row in table.rows]
    assert groups == [("float32", 8), ("bfloat16", 4), ("float32", 4)]


def test_grouped_json_and_csv_report_configuration_counts(boards):
    [table] = json.loads(tables.to_json(best.keep_best_row_per_group(boards, ["framework"])))[
        "tables"
    ]
    assert table["by"] == ["framework"]
    first_row = table["rows"][0]
    assert first_row["group"] == {"framework": "torch"}
    assert (first_row["configurations"], first_row["configurations_ranked"]) == (2, 2)
    assert "request" not in first_row and "speeds" not in first_row
    [ungrouped] = json.loads(tables.to_json(boards))["tables"]
    assert not {"group", "configurations", "by"} & {*ungrouped, *ungrouped["rows"][0]}
    lines = list(
        csv.DictReader(
            io.StringIO(tables.to_csv(best.keep_best_row_per_group(boards, ["framework"])))
        )
    )
    assert [line["by_framework"] for line in lines] == ["torch", "caffe", "mxnet"]
    assert [line["configurations"] for line in lines] == ["2", "2", "1"]
    assert not any("{" in value for line in lines for value in line.values())


def test_grouped_tables_warn_of_selection_bias(boards):
    best_tables = best.keep_best_row_per_group(boards, ["framework"])
    for name in ("text", "markdown", "latex", "html"):
        assert "same launches select the best" in tables.FORMATS[name](best_tables, "throughput")
        assert "same launches select the best" not in tables.FORMATS[name](boards, "throughput")


def test_group_is_faster_only_if_its_best_beats_all_cells():
    def cell(speed, noise):
        return {make_block(n): speed * (1 + noise * (-1) ** n / (n + 1)) for n in range(8)}

    fast, slow = cell(100, 0.001), cell(50, 0.001)
    unclear = {make_block(n + 100): 99 * (1 + 0.3 * (-1) ** n) for n in range(8)}
    assert rank_groups([[fast], [slow]]).ranks == ((1, 1), (2, 2))
    assert rank_groups([[fast], [slow, unclear]]).ranks == ((1, 2), (1, 2))
    assert rank_groups([[slow], [fast, unclear]]).ranks == ((2, 2), (1, 1))
    assert rank_cells([fast, slow, unclear]) == rank_groups([[fast], [slow], [unclear]])


def test_large_group_gains_no_rank_by_chance():
    """A comparison that ignores the selection of the best is wrong in one of five draws."""
    rng = np.random.default_rng(0)

    def draw_group(count):
        cells = [
            dict(
                zip([make_block(n) for n in range(5)], np.exp(rng.normal(0, 0.03, 5)), strict=True)
            )
            for _ in range(count)
        ]
        return sorted(cells, key=lambda cell: -np.mean([*cell.values()]))

    errors = naive_errors = 0
    for _ in range(200):
        large_group, single_cell = draw_group(40), draw_group(1)
        errors += rank_groups([large_group, single_cell]).ranks != ((1, 2), (1, 2))
        naive_errors += rank_groups([large_group[:1], single_cell]).ranks != ((1, 2), (1, 2))
    assert errors <= 10
    assert naive_errors > 25
