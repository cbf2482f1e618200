"""Files of pytest-benchmark with the cells of a results folder, read by pytest-benchmark itself."""

import json
import statistics
import subprocess
import sys

import pytest

from tests.sample_records import SOFTWARE, UNKNOWN_CERTIFICATE, certify_records
from xfbench.analysis.leaderboard import build_tables
from xfbench.base.errors import UsageError
from xfbench.benchmarks import storage
from xfbench.host import machine
from xfbench.store.results_folder import Store
from xfbench.workloads import workloads

FIELDS = {"software": SOFTWARE, "machine": machine.describe_machine()}
BATCH = workloads()["lenet"].batch_size
# The batch size of the plugin's benchmarks.
USUAL = {"global_batch_size": BATCH, "batch_size_per_rank": BATCH}
GROUP = f"lenet · synthetic · float32 · cpu · batch {BATCH}"


def build_file(records, say=pytest.fail):
    ranked, certificates = certify_records(records)
    return storage.build_file(build_tables(ranked, certificates), ranked, say)


@pytest.fixture
def results(record, tmp_path):
    """A results folder with two launches of the plugin's cell, and one of a smaller batch."""
    launches = [
        record((0.1, 0.2, 0.3), 1, FIELDS, **USUAL),
        record((0.2, 0.4, 0.6), 2, FIELDS, **USUAL),
        record((0.05,) * 3, 1, FIELDS),
    ]
    ranked, certificates = certify_records(launches)
    unproven_fields = {**FIELDS, "certificate": UNKNOWN_CERTIFICATE}
    unproven = record((0.01,) * 3, 1, unproven_fields, threads=2)
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    for each in [*ranked, unproven]:
        store.add(each)
    for certificate in certificates.values():
        certificate.write(store.certificate_path(certificate.id))
    return store


def test_pytest_benchmark_compares_the_ranked_cells(results, run_inline, tmp_path):
    printed = run_inline("results", "references", "--format", "pytest-benchmark")
    assert printed.returncode == 0 and printed.stderr == ""
    by_name = {each["name"]: each for each in json.loads(printed.stdout)["benchmarks"]}
    usual = "test_training[lenet-reference-numpy-cpu-1]"
    small = "test_training[lenet-reference-numpy-cpu-1-global_batch_size=4]"
    assert set(by_name) == {usual, small}
    stats = by_name[usual]["stats"]
    assert (stats["rounds"], stats["min"], stats["max"]) == (6, 0.1, 0.6)
    assert stats["median"] == statistics.median((0.1, 0.2, 0.3, 0.2, 0.4, 0.6))
    assert by_name[usual]["group"] == GROUP
    assert len(by_name[usual]["extra_info"]["records"]) == 2

    (tmp_path / "before.json").write_text(printed.stdout)
    compared = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", "before.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"benchmark '{GROUP}': 1 tests" in compared.stdout
    for name in (usual, small):
        [line] = [line for line in compared.stdout.splitlines() if line.startswith(f"{name} ")]
        shown = f"{by_name[name]['stats']['median'] * 1000:,.4f}"  # milliseconds
        assert shown in line


def test_a_cell_of_other_settings_never_has_a_name_of_the_plugin(record):
    changes = {
        "": {"warmup": 4, "min_seconds": 5.0, "seed": 1, "profile": True},
        "-precision=bfloat16": {"precision": "bfloat16"},
        "-data=digits": {"data": "digits"},
        "-allocator=jemalloc": {"allocator": "jemalloc"},
        "-learning_rate=0.5": {"learning_rate": 0.5},
        "-python=old": {"python": "old"},
    }
    records = [record(fields=FIELDS, **{**USUAL, **change}) for change in changes.values()]
    params = {each["param"] for each in build_file(records)["benchmarks"]}
    assert params == {f"lenet-reference-numpy-cpu-1{addition}" for addition in changes}


def test_records_of_two_kinds_of_machine_are_refused(record):
    other = machine.describe_machine().model_copy(update={"cpu_model": "another"})
    records = [record(fields={**FIELDS, "machine": each}) for each in (FIELDS["machine"], other)]
    with pytest.raises(UsageError, match=r"2 kinds of machine .*another.*--where"):
        build_file(records)


def test_a_cell_of_an_unknown_framework_is_left_out_with_a_message(record):
    messages = []
    records = [record(fields=FIELDS, framework=name) for name in ("reference", "elsewhere")]
    [benchmark] = build_file(records, messages.append)["benchmarks"]
    assert benchmark["extra_info"]["framework"] == "reference"
    [message] = messages
    assert "elsewhere" in message and "left out" in message


def test_without_a_ranked_cell_the_file_is_empty(run_inline, tmp_path, record):
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    store.add(record(fields=FIELDS))
    printed = run_inline("results", "references", "--format", "pytest-benchmark")
    assert json.loads(printed.stdout)["benchmarks"] == []
    assert printed.returncode == 0 and "no cell is ranked" in printed.stderr


def test_options_of_another_format_are_refused(results, run_inline):
    wrong = run_inline("results", "references", "--format", "junit")
    assert wrong.returncode == 2 and "choose from pytest-benchmark, reframe" in wrong.stderr
    mixed = run_inline(
        *("results", "references", "--format", "pytest-benchmark", "--system", "a:b")
    )
    assert mixed.returncode == 2 and "--system needs --format reframe" in mixed.stderr
    usual = json.loads(run_inline("results", "references").stdout)
    assert list(usual) == ["workstation:default"] and len(usual["workstation:default"]) == 2
