"""Leaderboard tables: grouping of rows, ranks and figures."""

import csv
import io
import json
import math

import numpy as np
import pytest
from scipy import stats

from tests.sample_records import SOFTWARE, UNKNOWN_CERTIFICATE, certify_records, vary_record
from xfbench.analysis.leaderboard import NO_CERTIFICATE
from xfbench.analysis.leaderboard import build_tables as all_tables
from xfbench.host.machine import describe_machine
from xfbench.model.machines import machine_class
from xfbench.model.provenance import impossible_number
from xfbench.model.record import Checkpoints, Conditions, Epoch, Limit
from xfbench.rendering import tables
from xfbench.statistics import Interval


def uncertified_tables(records):
    """Return tables without certificates; ranks are tested in tests/model/test_certificate.py."""
    return all_tables(records, {})


def test_tables_separate_workloads_and_batch_sizes(record):
    records = [
        record(framework="reference", kernel="numpy"),
        record(framework="reference", kernel="numpy", global_batch_size=8, batch_size_per_rank=8),
        record(workload="convnet"),
    ]
    assert [table.title for table in uncertified_tables(records)] == [
        "convnet · synthetic · float32 · cpu · batch 4 · unknown machine",
        "lenet · synthetic · float32 · cpu · batch 4 · unknown machine",
        "lenet · synthetic · float32 · cpu · batch 8 · unknown machine",
    ]


def test_launches_of_a_cell_form_a_single_row(record):
    records = [record(steps=(0.1,), launch=n) for n in (1, 2, 3)]
    records += [record(steps=(0.2,), launch=n, threads=2) for n in (1, 2, 3)]
    [table] = uncertified_tables(records)
    assert [row.relative_to_best for row in table.unranked] == pytest.approx([1.0, 0.5])
    assert [row.images_per_second.launches for row in table.unranked] == [3, 3]


def test_memory_limit_column_appears_only_if_needed(record):
    records = [record(), record(memory_limit=500_000_000)]
    [table] = uncertified_tables(records)
    shown = tables.to_text([table])
    assert "memory limit" in shown and "500 MB" in shown
    assert "memory limit" not in tables.to_text(uncertified_tables(records[:1]))


def test_rows_that_look_alike_show_their_differences(record):
    """Readers could not tell apart two cells that have the same name but different figures."""
    base_record = record()
    more_steps = vary_record(base_record, request={"steps": 9, "affinity": "cores"})
    more_threads = vary_record(base_record, request={"threads": 2})
    [table] = uncertified_tables([base_record, more_steps, more_threads])
    differences = {row.records[0]: row.differs for row in table.unranked}
    first_difference = f"{base_record.request.steps} steps, affinity none"
    assert differences == {
        base_record.id: first_difference,
        more_steps.id: "9 steps, affinity cores",
        more_threads.id: "",
    }
    shown = tables.to_text([table])
    assert "differs" in shown and first_difference in shown
    assert "differs" not in tables.to_text(uncertified_tables([base_record, more_threads]))
    # The same request with a changed adapter.
    software = SOFTWARE.model_copy(update={"adapter_digest": "sha256:5"})
    other_adapter = vary_record(
        base_record,
        software=software,
        cell="sha256:" + "7" * 64,
        created="2026-12-01T18:00:00.000Z",
    )
    [table] = uncertified_tables([base_record, other_adapter])
    assert {row.differs for row in table.unranked} == {
        f"adapter and environment of {base_record.created[:10]} 00:00",
        "adapter and environment of 2026-12-01 18:00",
    }
    same_time = vary_record(other_adapter, created=base_record.created, cell=other_adapter.cell)
    [table] = uncertified_tables([base_record, same_time])
    assert len({row.differs for row in table.unranked}) == 2


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
    """The digest does not reveal a forged number, because a forger can recompute it."""
    limit = Limit(
        threads=1, precision="float32", matrix_product=1e9, memory_bandwidth=1e9, source="measured"
    )
    checkpoints = Checkpoints(
        format="a",
        file_system="b",
        bytes=9,
        save_seconds=(0.1,),
        load_seconds=(0.1,),
        wall_seconds=0.2,
        equal=True,
    )
    valid = record(steps=(0.1,) * 9, fields={"limit": limit, "checkpoints": checkpoints})
    assert impossible_number(valid) is None
    forged_part = getattr(valid, part).model_copy(update={name: value})
    [table] = uncertified_tables([valid.model_copy(update={part: forged_part})])
    [row] = table.unranked
    assert row.reason.startswith("invalid: ") and row.images_per_second is None
    assert name in row.reason or "checkpoints took" in row.reason
    assert tables.to_text([table]) and tables.to_json([table])


@pytest.mark.parametrize("steps", [(), (0.0,), (-1.0,), (1e-300,), (1e300,), (0.1, 1e300)])
def test_impossible_step_times_are_not_counted(record, steps):
    """Records of other users can contain such numbers and still have a valid digest."""
    [table] = uncertified_tables([record(steps=steps, launch=n) for n in (1, 2)])
    [row] = table.unranked
    assert row.images_per_second is None
    zero_reason = f"step_seconds of {min(steps)}" if steps and min(steps) <= 0.0 else None
    assert (zero_reason or ("which is impossible" if steps else "has no timed steps")) in row.reason


def test_seeds_share_a_row_with_an_accuracy_interval(record):

    def trained_launch(seed, launch, accuracy, **fields):
        learning = [Epoch(epoch=1, seconds=1, train_loss=1, test_loss=1, test_accuracy=accuracy)]
        record_fields = {
            "software": SOFTWARE,
            "learning": learning,
            "cell": f"sha256:{seed}",
            **fields,
        }
        return record(seed=seed, launch=launch, fields=record_fields)

    accuracies = {0: (0.97, 0.99), 1: (0.96,), 2: (0.97,)}
    launches = [
        trained_launch(seed, launch, accuracy)
        for seed, seed_accuracies in accuracies.items()
        for launch, accuracy in enumerate(seed_accuracies, 1)
    ]
    other_software = SOFTWARE.model_copy(update={"adapter_digest": "sha256:9"})
    [table] = uncertified_tables([*launches, trained_launch(3, 1, 0.5, software=other_software)])
    row, single_seed_row = sorted(table.unranked, key=lambda row: -row.seeds)
    assert row.seeds == 3 and row.images_per_second.launches == 4
    assert row.accuracy.value == row.test_accuracy == pytest.approx((0.98 + 0.96 + 0.97) / 3)
    half_width = stats.t.ppf(0.975, 2) * np.std([0.98, 0.96, 0.97], ddof=1) / math.sqrt(3)
    assert row.accuracy.high - row.accuracy.value == pytest.approx(half_width)
    assert row.cell == "sha256:0"
    assert single_seed_row.seeds == 1 and single_seed_row.accuracy.low is None
    shown = tables.to_text([table], "accuracy")
    assert "97.00% (94.52%–99.48%)" in shown and "50.00%" in shown
    document = json.loads(tables.FORMATS["json"]([table], "accuracy"))
    assert document["tables"][0]["unranked"][0]["accuracy"]["seeds"] in (1, 3)


def test_rows_without_a_certificate_are_not_ranked(record):
    [table] = uncertified_tables([record()])
    assert not table.rows
    assert table.unranked[0].reason == NO_CERTIFICATE
    assert NO_CERTIFICATE in tables.to_text([table])


def test_unavailable_cell_is_shown_with_its_reason(record):
    unavailable = record(fields={"status": "unavailable", "reason": "no apt", "measurement": None})
    [table] = uncertified_tables([unavailable])
    assert table.unranked[0].images_per_second is None
    assert table.unranked[0].reason == "unavailable: no apt"


def test_invalid_launch_is_not_averaged(record):
    valid = [record(steps=(0.1,), launch=n) for n in (1, 2)]
    invalid = record(steps=(9.0,), launch=3, fields={"status": "invalid", "reason": "swap"})
    [table] = uncertified_tables([*valid, invalid])
    [row] = table.unranked
    assert row.images_per_second.value == pytest.approx(40)
    assert row.reason == "1 of 3 launches invalid: swap"


RISING_STEPS_S = tuple(0.1 * 1.05**n for n in range(20))


@pytest.mark.parametrize("changed", [1, 2, 4])
def test_launches_whose_level_changes_count_and_are_shown(record, changed):
    steps = [RISING_STEPS_S] * changed + [(0.1,) * 20] * (4 - changed)
    launches = [record(steps=of_launch, launch=n) for n, of_launch in enumerate(steps, 1)]
    [table] = uncertified_tables(launches)
    [row] = table.unranked
    assert (row.images_per_second.launches, row.unstable) == (4, changed)
    assert row.images_per_second.low < 40
    assert row.reason == NO_CERTIFICATE
    shown = tables.to_text([table])
    assert "changed level: the steps of a launch became faster or slower for good." in shown
    assert "4 (indicative)" in shown and f"range, {changed} changed level" in shown


@pytest.mark.parametrize(
    ("sessions", "text", "low"),
    [
        (1, "6 (claim)", 37.8),
        (2, "6 (indicative)", 37.8),
        (3, "6 (claim)", 37.1),
    ],
)
def test_rows_say_how_many_sessions_they_have(record, sessions, text, low):
    steps = (0.1, 0.101, 0.1, 0.101, 0.104, 0.105)
    launches = [
        vary_record(record((step_s,), n + 1), request={"session": str(n * sessions // 6)})
        for n, step_s in enumerate(steps)
    ]
    [table] = uncertified_tables(launches)
    [row] = table.unranked
    assert row.sessions == sessions
    shown = tables.to_text([table])
    assert text in shown and (f"{sessions} sessions" in shown) == (sessions > 1)
    assert row.document()["images_per_second"]["label"] == text.split("(")[1].strip(")")
    assert row.images_per_second.low == pytest.approx(low, abs=0.5)


def test_outlier_is_marked_and_counted(record):
    step_times_s = (0.1, 0.101, 0.099, 0.1005, 0.0995, 0.2)
    launches = [record(steps=(step_s,), launch=n) for n, step_s in enumerate(step_times_s, start=1)]
    [table] = uncertified_tables(launches)
    assert table.unranked[0].outliers == 1
    assert table.unranked[0].images_per_second.launches == 6
    shown = tables.to_text([table])
    assert "6 (indicative)" in shown and "1 outlier" in shown


@pytest.mark.parametrize("columns", tables.COLUMNS)
def test_columns_without_data_are_omitted(columns, record):
    shown = tables.to_text(uncertified_tables([record()]), columns)
    assert "images/s" in shown
    absent = ("of peak", "test acc.", "to accuracy", "J/image", "GPU memory", "GPU busy")
    assert not any(word in shown for word in absent)


def test_costs_table_has_the_memory_of_gpus(record):
    launch = record()
    measurement = launch.measurement.model_copy(update={"peak_device_bytes": 3 * 10**9})
    launch = launch.model_copy(update={"measurement": measurement})
    [table] = uncertified_tables([launch])
    shown = tables.to_text([table], "costs")
    assert "GPU memory" in shown and "3 GB" in shown
    assert table.unranked[0].document()["costs"]["peak_device_bytes"] == 3 * 10**9


def test_costs_table_has_the_utilization_of_gpus(record, build_gpu):
    launch = record()
    gpus = (build_gpu("a GPU", utilization=0.023),)
    observed = launch.observed.model_copy(update={"gpus": gpus})
    shown = tables.to_text(
        uncertified_tables([launch.model_copy(update={"observed": observed})]), "costs"
    )
    assert "GPU busy" in shown and "2.3%" in shown


def test_costs_table_has_cost_columns(record):
    shown = tables.to_text(uncertified_tables([record()]), "costs")
    for word in ("start-up", "build", "first step", "memory", "0.1 GB", "0.5 s"):
        assert word in shown


@pytest.mark.parametrize(
    ("interval", "shown"),
    [
        (Interval(9999.4, 9900.6, 10098.2, 5), "9 999 (9 901–10 098)"),
        (Interval(8888.0, 8718.0, 9058.0, 5), "8 890 (8 720–9 060)"),
        (Interval(12.345, 12.302, 12.388, 5), "12.345 (12.302–12.388)"),
        (Interval(2.0, 1.0, 4.0, 2), "2.0 (1.0–4.0)"),
        (Interval(1234.5, None, None, 1), "1 230"),
        (None, "–"),
    ],
)
def test_figures_have_the_digits_their_interval_supports(interval, shown):
    assert tables.format_with_interval(interval) == shown


@pytest.mark.parametrize("name", tables.FORMATS)
def test_every_format_shows_the_throughput(name, record):
    shown = tables.FORMATS[name](uncertified_tables([record(steps=(0.1,))]))
    assert "40" in shown and "reference" in shown


def test_json_has_the_documented_field_names(record):
    document = json.loads(tables.to_json(uncertified_tables([record()])))
    [table] = document["tables"]
    assert {"workload", "device", "precision", "scaling", "rows", "unranked"} <= set(table)
    field_names = (
        "framework framework_version kernel threads ranks nodes batch_size_per_rank "
        "global_batch_size images_per_second share_of_peak relative_to_best certificate cell source"
    )
    assert set(field_names.split()) <= set(table["unranked"][0])
    assert set(table["unranked"][0]["images_per_second"]) == {
        "value",
        "low",
        "high",
        "launches",
        "confidence",
        "label",
    }


def test_csv_escapes_formulas(record):
    """In some languages, a spreadsheet takes what follows a semicolon for a field of its own."""
    failed = record(fields={"status": "failed", "reason": "x", "measurement": None})
    formula = "=cmd|' /C calc'!A0"
    [table] = uncertified_tables([failed.model_copy(update={"source": f"{formula}; {formula}"})])
    [row] = csv.DictReader(io.StringIO(tables.to_csv([table])))
    assert row["source"] == f"'{formula};' {formula}"


def test_row_shows_what_its_latest_launch_observed(record):
    first, latest = record(launch=1), record(launch=2)
    observed = latest.observed.model_copy(update={"threads": 7})
    [table] = uncertified_tables([latest.model_copy(update={"observed": observed}), first])
    [row] = table.unranked
    assert row.records == (first.id, latest.id)
    assert row.threads_observed == 7


@pytest.mark.parametrize(
    ("cpus", "texts"),
    [
        (((2.0, 1.9), (2.0, 2.0)), None),
        (((1.4, 1.2), (2.0, 2.0)), ["1.3", "2.0"]),
        (((2.6, 2.4), (None, None)), ["2.5", "–"]),
        (((None, None), (None, None)), None),
    ],
)
def test_cpus_are_shown_if_a_row_differs_from_its_threads(record, cpus, texts):
    """Helper threads that take turns with others are no parallelism: `threads` is no matter."""
    launches = []
    for framework, numbers in zip(("reference", "torch"), cpus, strict=True):
        for launch, number in enumerate(numbers, 1):
            draft = record(launch=launch, threads=2, framework=framework)
            observed = draft.observed.model_copy(update={"cpus": number, "threads": 5})
            launches.append(vary_record(draft, observed=observed))
    [table] = uncertified_tables(launches)
    readers = dict(tables.group_and_nonempty_columns(table))
    assert ("CPUs busy" in readers) == (texts is not None)
    if texts:
        rows = sorted(table.unranked, key=lambda row: row.framework)
        assert [readers["CPUs busy"](row) for row in rows] == texts


def test_a_row_of_another_adapter_is_no_base_of_an_efficiency(record):
    records = []
    for adapter_digest, ranks, step_s in (("other", 1, 0.1), ("own", 1, 0.4), ("own", 2, 0.5)):
        software = SOFTWARE.model_copy(update={"adapter_digest": f"sha256:{adapter_digest}"})
        draft = record(
            steps=(step_s,),
            fields={"software": software},
            ranks=ranks,
            strategy="none" if ranks == 1 else "ddp",
            scaling="weak",
            global_batch_size=4 * ranks,
        )
        records.append(vary_record(draft, cell=f"{adapter_digest} {ranks}"))
    [table] = uncertified_tables(records)
    [efficiency] = [row.efficiency for row in table.unranked if row.ranks == 2]
    assert efficiency.value == pytest.approx(0.8)


def test_efficiencies_of_different_sessions_are_those_of_the_medians(record):
    """The third launch is far off, which changes a mean, but not a median."""
    records = []
    for ranks, seconds in ((1, (0.1, 0.1, 0.1)), (2, (0.125, 0.125, 0.5))):
        strategy = "none" if ranks == 1 else "ddp"
        for launch, step_s in enumerate(seconds, 1):
            draft = record(
                steps=(step_s,),
                launch=launch,
                ranks=ranks,
                strategy=strategy,
                scaling="weak",
                global_batch_size=4 * ranks,
            )
            records.append(vary_record(draft, request={"session": f"job {ranks}"}))
    [table] = uncertified_tables(records)
    [efficiency] = [row.efficiency for row in table.unranked if row.ranks == 2]
    assert efficiency.value == pytest.approx(0.8)
    assert (efficiency.low, efficiency.high) == (None, None)


@pytest.mark.parametrize(("noisy", "label"), [(2, "claim"), (3, "indicative")])
def test_mostly_noisy_launches_are_no_claim(record, noisy, label):
    disturbed = {"load_before": 0, "load_after": 0, "steal_seconds": 0, "swap_bytes": 10**9}
    fields = {"machine": describe_machine()}
    records = [
        record(
            launch=launch,
            fields={**fields, "conditions": Conditions(**disturbed)} if launch <= noisy else fields,
        )
        for launch in range(1, 6)
    ]
    [table] = uncertified_tables(records)
    [row] = table.unranked
    assert (row.noisy, row.label) == (noisy, label)
    assert ("most launches of a row were noisy" in tables.to_text([table])) == (noisy == 3)


@pytest.mark.parametrize(("cpus", "is_named"), [(2.4, True), (2.6, False)])
def test_threads_that_were_mostly_idle_are_named(record, cpus, is_named):
    draft = record(threads=5)
    observed = draft.observed.model_copy(update={"cpus": cpus, "threads": 5})
    [table] = uncertified_tables([vary_record(draft, observed=observed)])
    text = tables.to_text([table])
    assert ("reference: 2.4 CPUs busy on 5 threads" in text) == is_named


@pytest.mark.parametrize("sessions", [("a", "a"), ("a", "b")])
def test_rows_of_different_runs_are_said_to_be_incomparable(record, sessions):
    fields = {"software": SOFTWARE, "machine": describe_machine()}
    records = [
        vary_record(
            record(launch=launch, threads=threads, fields=fields), request={"session": session}
        )
        for threads, session in zip((1, 2), sessions, strict=True)
        for launch in range(1, 6)
    ]
    [table] = all_tables(*certify_records(records))
    is_said = "Rows whose launches are of different runs are not" in tables.to_text([table])
    assert is_said == (sessions == ("a", "b"))


def test_notes_below_a_table_say_what_lowers_its_certainty(record):
    """Ten launches in two sessions, of which two were noisy."""
    conditions = {"load_before": 0, "load_after": 0, "steal_seconds": 0, "swap_bytes": 10**9}
    records = []
    for launch in range(1, 11):
        fields = {"conditions": Conditions(**conditions)} if launch < 3 else {}
        draft = record(launch=launch, fields={"machine": describe_machine(), **fields})
        records.append(vary_record(draft, request={"session": f"{launch % 2}"}))
    [table] = uncertified_tables(records)
    [row] = table.unranked
    assert (row.noisy, row.label) == (2, "indicative")
    assert "2 noisy" in tables.to_text([table])
    text = tables.to_text([table], layout=tables.Layout(columns=("rank", "images/s", "launches")))
    assert "2 of 10 launches were noisy" in text
    assert "indicative: two sessions do not show how much sessions differ." in text
    assert "wider than" not in text


def test_a_note_says_that_shares_of_the_best_are_of_neighbouring_launches(record):
    """B takes twice as long as A in all launches but the third, after which both are slower."""
    fields = {"software": SOFTWARE, "machine": describe_machine()}
    steps_s = {1: (0.1, 0.1, 0.1, 0.2, 0.2), 2: (0.2, 0.2, 0.4, 0.4, 0.4)}
    ranked, certificates = certify_records(
        [
            record(steps=(step_s,), launch=launch, fields=fields, threads=threads)
            for threads, seconds in steps_s.items()
            for launch, step_s in enumerate(seconds, 1)
        ]
    )
    note = "of best: the mean ratio of launches, of neighbouring ones"
    [table] = all_tables(ranked, certificates)
    assert table.rows[1].relative_to_best == pytest.approx(0.25)
    assert note in tables.to_text([table])
    assert note not in tables.to_text([table], layout=tables.Layout(columns=("rank", "images/s")))
    alike = [each for each in ranked if each.request.launch not in (3,)]
    [table] = all_tables(alike, certificates)
    assert note not in tables.to_text([table])


def test_rows_are_relative_to_the_fastest_ranked_row(record):
    fields = {"software": SOFTWARE, "machine": describe_machine()}
    ranked, certificates = certify_records([record(steps=(0.1,), fields=fields)])
    unproven_fields = {**fields, "certificate": UNKNOWN_CERTIFICATE}
    unproven = record(steps=(0.05,), threads=2, fields=unproven_fields)
    [table] = all_tables([*ranked, unproven], certificates)
    assert [row.relative_to_best for row in table.rows] == [1.0]
    assert [row.relative_to_best for row in table.unranked] == pytest.approx([2.0])


@pytest.mark.parametrize(("has_cell", "shown"), [(True, 2), (False, 1)])
def test_row_without_a_cell_gives_way_to_a_measured_row(record, has_cell, shown):
    """A failed launch has a cell; an unavailable one has none."""
    failed_fields = {"status": "failed", "reason": "x", "measurement": None}
    failed = record(
        affinity="cores", fields=failed_fields if has_cell else {**failed_fields, "cell": None}
    )
    [table] = uncertified_tables([failed, record()])
    assert len(table.unranked) == shown


def test_accuracy_is_that_of_the_last_epoch(record):
    epochs = [
        Epoch(epoch=n, seconds=1, train_loss=1, test_loss=1, test_accuracy=accuracy)
        for n, accuracy in ((1, 0.5), (2, 0.9))
    ]
    [table] = uncertified_tables([record(fields={"learning": epochs})])
    assert table.unranked[0].test_accuracy == pytest.approx(0.9)


def test_machines_with_other_accelerators_have_separate_tables(record):
    cpu_machine = describe_machine()
    gpu_machine = cpu_machine.model_copy(update={"accelerators": ("a GPU",)})
    machine_tables = uncertified_tables(
        [record(fields={"machine": machine}) for machine in (cpu_machine, gpu_machine)]
    )
    assert sorted(table.machine.endswith(" + a GPU") for table in machine_tables) == [False, True]


def test_launches_on_gpus_of_one_model_share_a_table(record, build_gpu):
    """The other GPUs of the machine do not matter. The last launch failed before it used a GPU."""
    launches = []
    for machine_gpus, used in (
        (("V100",), "V100"),
        (("V100",) * 4, "V100"),
        (("V100", "K40"), "V100"),
        (("V100", "K40"), "K40"),
        (("V100",) * 4, None),
    ):
        machine = describe_machine().model_copy(update={"accelerators": machine_gpus})
        observed = record().observed.model_copy(update={"gpus": (build_gpu(used),)})
        fields = {"machine": machine, "observed": observed}
        launches.append(record(fields=fields, device="cuda", framework="torch"))
    names = [(table.machine.partition(" + ")[2]) for table in uncertified_tables(launches)]
    assert sorted(names) == ["K40", "V100"]


def test_equal_gpus_of_a_machine_are_counted_in_its_name():
    accelerators = ("V100", "K40", "V100", "V100")
    machine = describe_machine().model_copy(update={"accelerators": accelerators})
    assert machine_class(machine).endswith(") + 3 × V100 + K40")


def test_rows_with_other_threads_are_no_baseline(record):
    """By default, two ranks have half of the threads each, so that one rank is another setting."""
    sizes = {"global_batch_size": 4, "scaling": "strong"}
    launches = [
        record(launch=1, threads=2, **sizes),
        record(launch=1, threads=1, ranks=2, strategy="mpi", **sizes | {"batch_size_per_rank": 2}),
    ]
    [table] = uncertified_tables(launches)
    assert [row.efficiency for row in table.unranked] == [None, None]
    assert "100%" not in tables.to_text([table])
