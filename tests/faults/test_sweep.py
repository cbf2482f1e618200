"""A sweep of a thousand cells, some of which have faults of every kind."""

import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.faults.driver import build_command
from tests.remaining_processes import list_running
from xfbench.store.results_folder import Store

ROOT = Path(__file__).parents[2]
CELLS, SHARE = 1000, 0.05
MAX_MEMORY_BYTES = 300e6  # bytes of the driver
# Code that a trainer runs in its first step, and the status of the record.
FAULTS = {
    "raise RuntimeError('a fault')": "failed",
    "os._exit(3)": "crashed",
    "os.kill(os.getpid(), 9)": "crashed",
    "os.kill(os.getpid(), 11)": "crashed",
    "print('x' * 10**7)": "ok",
    "os.write(1, bytes(range(256)) * 100)": "ok",
    "subprocess.Popen(['sleep', '1234.5'], start_new_session=True)": "ok",
    "open('reply.json.partial', 'w').write('{')": "ok",
    "time.sleep(600)": "timed_out",
}


def draw_faults(generator):
    """Return each cell's fault and status, by 1000 times the cell's learning rate."""
    faults = {}
    for number in range(1, CELLS + 1):
        faults[number] = "pass", "ok"
        if generator.random() < SHARE:
            faults[number] = generator.choice(list(FAULTS.items()))
    return faults


def cell_number(rate):
    """Return the number of a cell; a rate of None means the published rate, 0.01."""
    return round(1000 * (rate or 0.01))


@pytest.mark.long
def test_sweep_gives_a_record_for_every_cell(run_arguments, tmp_path, capsys):
    """The driver's memory does not grow towards the end. The duration is printed."""
    faults = draw_faults(random.Random(1))
    fault_lines = {
        cell: fault_line for cell, (fault_line, _) in faults.items() if fault_line != "pass"
    }
    lines = f"""
import subprocess
ACTS = {fault_lines!r}
def build(network, solver, options, group):
    global number
    number = round(1000 * solver.learning_rate(0))
    return Trainer(options, group)
def after_step(rank, steps):
    if steps == 1: exec(ACTS.get(number, "pass"))
"""
    results = tmp_path / "results"
    rates = ",".join(str(cell / 1000) for cell in faults)
    arguments = run_arguments(lines, results=results, **{"learning-rate": rates, "time-limit": 10})
    started_s = time.monotonic()
    with subprocess.Popen(
        build_command(*arguments), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as driver:
        memory_bytes = []
        while driver.poll() is None and time.monotonic() - started_s < 5400:
            memory_bytes.append(psutil.Process(driver.pid).memory_info().rss)
            time.sleep(1)
        driver.kill()
    duration_s = time.monotonic() - started_s
    records = list(Store(results).records())
    assert {cell_number(record.request.learning_rate): record.status for record in records} == {
        cell: status for cell, (_, status) in faults.items()
    }
    assert len(records) == CELLS
    assert list_running(tmp_path) == []
    assert max(memory_bytes) < MAX_MEMORY_BYTES
    quarter = len(memory_bytes) // 4
    assert max(memory_bytes[-quarter:]) < 1.2 * max(memory_bytes[quarter : 2 * quarter])
    training_s = sum(record.measurement.wall_seconds for record in records if record.measurement)
    with capsys.disabled():
        counts = dict(Counter(record.status for record in records))
        print(
            f"\n{counts}: {duration_s / CELLS:.2f} s a cell, "
            f"{training_s / CELLS:.2f} of it in training;"
        )
        print(f"the driver took {max(memory_bytes) / 1e6:.0f} MB at most")
