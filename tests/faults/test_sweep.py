"""A sweep of a thousand cells, of which some go wrong in all the ways there are."""

import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.faults.driver import command
from tests.remaining_processes import list_running
from xfbench.store.results_folder import Store

ROOT = Path(__file__).parents[2]
CELLS, SHARE = 1000, 0.05
MOST_MEMORY = 300e6  # bytes of the driver
# What a trainer does in its first step, and how that ends.
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


def expected(chance):
    """By a thousand times the learning rate, in which cells differ: the fault and the status."""
    found = {}
    for number in range(1, CELLS + 1):
        found[number] = "pass", "ok"
        if chance.random() < SHARE:
            found[number] = chance.choice(list(FAULTS.items()))
    return found


def number(rate):
    """Of a cell; the published rate is none of one's own."""
    return round(1000 * (rate or 0.01))


@pytest.mark.long
def test_sweep_gives_a_record_for_every_cell(odd, tmp_path, capsys):
    """The driver takes no more memory towards the end; how long it took is printed."""
    plan = expected(random.Random(1))
    acts = {one: act for one, (act, _) in plan.items() if act != "pass"}
    lines = f"""
import subprocess
ACTS = {acts!r}
def build(network, solver, options, group):
    global number
    number = round(1000 * solver.learning_rate(0))
    return Trainer(options, group)
def after_step(rank, steps):
    if steps == 1: exec(ACTS.get(number, "pass"))
"""
    results = tmp_path / "results"
    rates = ",".join(str(one / 1000) for one in plan)
    words = odd(lines, results=results, **{"learning-rate": rates, "time-limit": 10})
    started = time.monotonic()
    with subprocess.Popen(
        command(*words), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as driver:
        memory = []
        while driver.poll() is None and time.monotonic() - started < 5400:
            memory.append(psutil.Process(driver.pid).memory_info().rss)
            time.sleep(1)
        driver.kill()
    took = time.monotonic() - started
    records = list(Store(results).records())
    assert {number(one.request.learning_rate): one.status for one in records} == {
        one: status for one, (_, status) in plan.items()
    }
    assert len(records) == CELLS
    assert list_running(tmp_path) == []
    assert max(memory) < MOST_MEMORY
    quarter = len(memory) // 4
    assert max(memory[-quarter:]) < 1.2 * max(memory[quarter : 2 * quarter])
    own = sum(one.measurement.wall_seconds for one in records if one.measurement)
    with capsys.disabled():
        counts = dict(Counter(one.status for one in records))
        print(f"\n{counts}: {took / CELLS:.2f} s a cell, {own / CELLS:.2f} of it in training;")
        print(f"the driver took {max(memory) / 1e6:.0f} MB at most")
