"""Tables: what stands together, what is ranked, and figures that say no more than they know."""

import csv
import io
import json
import math

import numpy as np
import pytest
from scipy import stats

from tests.sample_records import SOFTWARE, certify_records, vary_record
from xfbench.analysis.leaderboard import NO_CERTIFICATE
from xfbench.analysis.leaderboard import tables as all_tables
from xfbench.analysis.statistics import Interval
from xfbench.host.machine import describe
from xfbench.layout import tables
from xfbench.records.provenance import impossible_number
from xfbench.records.record import Checkpoints, Epoch, Limit


def leaderboards(records):
    """With no certificate at hand; ranks are the matter of equality/test_certificate.py."""
    return all_tables(records, {})


def test_tables_separate_workloads_and_batch_sizes(record):
    made = [
        record(framework="reference", kernel="numpy"),
        record(framework="reference", kernel="numpy", global_batch_size=8, batch_size_per_rank=8),
        record(workload="convnet"),
    ]
    assert [table.title for table in leaderboards(made)] == [
        "convnet · synthetic · float32 · cpu · batch 4 · unknown machine",
        "lenet · synthetic · float32 · cpu · batch 4 · unknown machine",
        "lenet · synthetic · float32 · cpu · batch 8 · unknown machine",
    ]


def test_launches_of_a_cell_form_a_single_row(record):
    made = [record(steps=(0.1,), launch=n) for n in (1, 2, 3)]
    made += [record(steps=(0.2,), launch=n, threads=2) for n in (1, 2, 3)]
    [table] = leaderboards(made)
    assert [row.relative_to_best for row in table.unranked] == pytest.approx([1.0, 0.5])
    assert [row.images_per_second.launches for row in table.unranked] == [3, 3]


def test_memory_limit_column_appears_only_if_needed(record):
    made = [record(), record(memory_limit=500_000_000)]
    [table] = leaderboards(made)
    shown = tables.to_text([table])
    assert "memory limit" in shown and "500 MB" in shown
    assert "memory limit" not in tables.to_text(leaderboards(made[:1]))


def test_rows_that_look_alike_show_their_differences(record):
    """Two cells of one name, with figures apart, were nothing that anybody could act on."""
    first = record()
    longer = vary_record(first, request={"steps": 9, "affinity": "cores"})
    other = vary_record(first, request={"threads": 2})
    [table] = leaderboards([first, longer, other])
    told = {row.records[0]: row.differs for row in table.unranked}
    own = f"{first.request.steps} steps, affinity none"
    assert told == {first.id: own, longer.id: "9 steps, affinity cores", other.id: ""}
    shown = tables.to_text([table])
    assert "differs" in shown and own in shown
    assert "differs" not in tables.to_text(leaderboards([first, other]))
    # The same was asked for, of another translation.
    software = SOFTWARE.model_copy(update={"adapter_digest": "sha256:5"})
    again = vary_record(first, software=software, cell="sha256:" + "7" * 64)
    [table] = leaderboards([first, again])
    assert {row.differs for row in table.unranked} == {f"cell {first.cell[7:15]}", "cell 77777777"}


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("measurement", "peak_rss_bytes", -1),
        ("measurement", "wall_seconds", 0.0),
        ("measurement", "losses", (1e300,) * 4),
        ("measurement", "phases", {"cpu_seconds": 1e308}),
        ("limit", "matrix_product", 0.0),
        ("request", "warmup", 10**400),
        ("workload", "train_macs_per_image", 10**30),
        ("checkpoints", "save_seconds", ()),
        ("checkpoints", "wall_seconds", 1e6),
    ],
)
def test_impossible_number_is_reported_and_not_counted(record, part, name, value):
    """Whoever forges one writes the digest of what he wrote beside it."""
    limit = Limit(
        threads=1, precision="float32", matrix_product=1e9, memory_bandwidth=1e9, source="measured"
    )
    saved = Checkpoints(
        format="a",
        file_system="b",
        bytes=9,
        save_seconds=(0.1,),
        load_seconds=(0.1,),
        wall_seconds=0.2,
        equal=True,
    )
    good = record(steps=(0.1,) * 9, fields={"limit": limit, "checkpoints": saved})
    assert impossible_number(good) is None
    changed = getattr(good, part).model_copy(update={name: value})
    [table] = leaderboards([good.model_copy(update={part: changed})])
    [row] = table.unranked
    assert row.reason.startswith("invalid: ") and row.images_per_second is None
    assert name in row.reason or "checkpoints that took" in row.reason
    assert tables.to_text([table]) and tables.to_json([table])


@pytest.mark.parametrize("steps", [(), (0.0,), (-1.0,), (1e-300,), (1e300,), (0.1, 1e300)])
def test_impossible_step_times_are_not_counted(record, steps):
    """Records come from others, and have the digest that they say."""
    [table] = leaderboards([record(steps=steps, launch=n) for n in (1, 2)])
    [row] = table.unranked
    assert row.images_per_second is None
    why = f"step_seconds of {min(steps)}" if steps and min(steps) <= 0.0 else None
    assert (why or ("which no launch has" if steps else "never became steady")) in row.reason


def test_seeds_share_a_row_with_an_accuracy_interval(record):

    def trained(seed, launch, accuracy, **fields):
        learning = [Epoch(epoch=1, seconds=1, train_loss=1, test_loss=1, test_accuracy=accuracy)]
        made = {"software": SOFTWARE, "learning": learning, "cell": f"sha256:{seed}", **fields}
        return record(seed=seed, launch=launch, fields=made)

    accuracies = {0: (0.97, 0.99), 1: (0.96,), 2: (0.97,)}
    made = [
        trained(seed, launch, accuracy)
        for seed, of_seed in accuracies.items()
        for launch, accuracy in enumerate(of_seed, 1)
    ]
    other = SOFTWARE.model_copy(update={"adapter_digest": "sha256:9"})
    [table] = leaderboards([*made, trained(3, 1, 0.5, software=other)])
    row, alone = sorted(table.unranked, key=lambda row: -row.seeds)
    assert row.seeds == 3 and row.images_per_second.launches == 4
    assert row.accuracy.value == row.test_accuracy == pytest.approx((0.98 + 0.96 + 0.97) / 3)
    half = stats.t.ppf(0.975, 2) * np.std([0.98, 0.96, 0.97], ddof=1) / math.sqrt(3)
    assert row.accuracy.high - row.accuracy.value == pytest.approx(half)
    assert row.cell == "sha256:0"
    assert alone.seeds == 1 and alone.accuracy.low is None
    shown = tables.to_text([table], "accuracy")
    assert "97.00% (94.52%–99.48%)" in shown and "50.00%" in shown
    document = json.loads(tables.FORMATS["json"]([table], "accuracy"))
    assert document["tables"][0]["unranked"][0]["accuracy"]["seeds"] in (1, 3)


def test_rows_without_a_certificate_are_not_ranked(record):
    [table] = leaderboards([record()])
    assert not table.rows
    assert table.unranked[0].reason == NO_CERTIFICATE
    assert NO_CERTIFICATE in tables.to_text([table])


def test_unavailable_cell_is_shown_with_its_reason(record):
    bad = record(fields={"status": "unavailable", "reason": "no apt", "measurement": None})
    [table] = leaderboards([bad])
    assert table.unranked[0].images_per_second is None
    assert table.unranked[0].reason == "unavailable: no apt"


def test_invalid_launch_is_not_averaged(record):
    good = [record(steps=(0.1,), launch=n) for n in (1, 2)]
    bad = record(steps=(9.0,), launch=3, fields={"status": "invalid", "reason": "swap"})
    [table] = leaderboards([*good, bad])
    [row] = table.unranked
    assert row.images_per_second.value == pytest.approx(40)
    assert row.reason == "1 of 3 launches invalid: swap"


RISING = tuple(0.1 * 1.05**n for n in range(20))


def test_unstable_launch_is_shown_but_not_averaged(record):
    made = [record(steps=(0.1,) * 20, launch=n) for n in (1, 2, 3)]
    made.append(record(steps=RISING, launch=4))
    [table] = leaderboards(made)
    [row] = table.unranked
    assert row.images_per_second.value == pytest.approx(40)
    assert (row.images_per_second.launches, row.unstable) == (3, 1)
    assert row.reason == NO_CERTIFICATE
    assert "3 (indicative, 1 unstable)" in tables.to_text([table])


def test_row_with_half_of_its_launches_unstable_is_not_ranked(record):
    made = [record(steps=(0.1,) * 20), record(steps=RISING, launch=2)]
    [table] = leaderboards(made)
    assert table.unranked[0].reason == "1 of 2 launches never became steady"
    [table] = leaderboards(made[1:])
    assert table.unranked[0].images_per_second is None
    assert "0 (1 unstable)" in tables.to_text([table])


def test_outlier_is_marked_and_counted(record):
    speeds = (0.1, 0.101, 0.099, 0.1005, 0.0995, 0.2)
    made = [record(steps=(each,), launch=n) for n, each in enumerate(speeds, start=1)]
    [table] = leaderboards(made)
    assert table.unranked[0].outliers == 1
    assert table.unranked[0].images_per_second.launches == 6
    assert "6 (claim, 1 far off)" in tables.to_text([table])


@pytest.mark.parametrize("columns", tables.COLUMNS)
def test_columns_without_data_are_omitted(columns, record):
    shown = tables.to_text(leaderboards([record()]), columns)
    assert "images/s" in shown
    assert not any(word in shown for word in ("of peak", "test acc.", "to accuracy", "J/image"))


def test_costs_table_has_cost_columns(record):
    shown = tables.to_text(leaderboards([record()]), "costs")
    for word in ("start-up", "build", "first step", "memory", "0.1 GB", "0.5 s"):
        assert word in shown


@pytest.mark.parametrize(
    ("interval", "shown"),
    [
        (Interval(9999.4, 9900.6, 10098.2, 5), "9 999 ± 99"),
        (Interval(8888.0, 8718.0, 9058.0, 5), "8 890 ± 170"),
        (Interval(12.345, 12.302, 12.388, 5), "12.345 ± 0.043"),
        (Interval(2.0, 1.0, 4.0, 2), "2.0 (1.0–4.0)"),
        (Interval(1234.5, None, None, 1), "1 230"),
        (None, "–"),
    ],
)
def test_figures_have_the_digits_their_interval_supports(interval, shown):
    assert tables.format_speed(interval) == shown


@pytest.mark.parametrize("name", tables.FORMATS)
def test_every_format_shows_the_throughput(name, record):
    shown = tables.FORMATS[name](leaderboards([record(steps=(0.1,))]))
    assert "40" in shown and "reference" in shown


def test_json_has_the_documented_field_names(record):
    document = json.loads(tables.to_json(leaderboards([record()])))
    [table] = document["tables"]
    assert {"workload", "device", "precision", "scaling", "rows", "unranked"} <= set(table)
    fixed = (
        "framework framework_version kernel threads ranks nodes batch_size_per_rank "
        "global_batch_size images_per_second share_of_peak relative_to_best certificate cell source"
    )
    assert set(fixed.split()) <= set(table["unranked"][0])
    assert set(table["unranked"][0]["images_per_second"]) == {
        "value",
        "low",
        "high",
        "launches",
        "label",
    }


def test_csv_escapes_formulas(record):
    bad = record(fields={"status": "failed", "reason": "x", "measurement": None})
    [table] = leaderboards([bad.model_copy(update={"source": "=cmd|' /C calc'!A0"})])
    [row] = csv.DictReader(io.StringIO(tables.to_csv([table])))
    assert row["source"].startswith("'=")


def test_row_shows_what_its_latest_launch_observed(record):
    first, latest = record(launch=1), record(launch=2)
    observed = latest.observed.model_copy(update={"threads": 7})
    [table] = leaderboards([latest.model_copy(update={"observed": observed}), first])
    [row] = table.unranked
    assert row.records == (first.id, latest.id)
    assert row.threads_observed == 7


def test_rows_are_relative_to_the_fastest_ranked_row(record):
    fields = {"software": SOFTWARE, "machine": describe()}
    ranked, certificates = certify_records([record(steps=(0.1,), fields=fields)])
    unproven = record(steps=(0.05,), threads=2, fields=fields)
    [table] = all_tables([*ranked, unproven], certificates)
    assert [row.relative_to_best for row in table.rows] == [1.0]
    assert [row.relative_to_best for row in table.unranked] == pytest.approx([2.0])


@pytest.mark.parametrize(("has_cell", "shown"), [(True, 2), (False, 1)])
def test_row_without_a_cell_gives_way_to_a_measured_row(record, has_cell, shown):
    """A launch that failed has a cell; what was unavailable has none."""
    bad = {"status": "failed", "reason": "x", "measurement": None}
    failed = record(affinity="cores", fields=bad if has_cell else {**bad, "cell": None})
    [table] = leaderboards([failed, record()])
    assert len(table.unranked) == shown


def test_accuracy_is_that_of_the_last_epoch(record):
    epochs = [
        Epoch(epoch=n, seconds=1, train_loss=1, test_loss=1, test_accuracy=accuracy)
        for n, accuracy in ((1, 0.5), (2, 0.9))
    ]
    [table] = leaderboards([record(fields={"learning": epochs})])
    assert table.unranked[0].test_accuracy == pytest.approx(0.9)


def test_machines_with_other_accelerators_have_separate_tables(record):
    here = describe()
    there = here.model_copy(update={"accelerators": ("a GPU",)})
    found = leaderboards([record(fields={"machine": machine}) for machine in (here, there)])
    assert sorted(table.machine.endswith(" + a GPU") for table in found) == [False, True]


def test_share_of_peak_is_that_of_steady_launches(record):
    limit = Limit(
        threads=1, precision="float32", matrix_product=1e9, memory_bandwidth=1e9, source="measured"
    )
    made = [record(steps=(0.1,) * 20, launch=n, fields={"limit": limit}) for n in (1, 2, 3)]
    [steady] = leaderboards(made)
    [table] = leaderboards([*made, record(steps=RISING, launch=4, fields={"limit": limit})])
    assert table.unranked[0].share_of_peak == pytest.approx(steady.unranked[0].share_of_peak)
    assert table.unranked[0].unstable == 1
