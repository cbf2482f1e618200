"""When a launch looks at the cores: around the timed steps and between them, never within one."""

import math

import pytest

from xfbench.worker import loop
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import workloads

STEPS, WARMUP = 4, 2
TIMED = ["step", "wait"]


def launched(monkeypatch, apart):
    """What happened in order in a launch that trains nothing, and its reply."""
    order = []

    class Trainer:
        def __getattr__(self, name):
            def call(*_):
                order.append(name)
                return {} if name in {"observed", "parameters"} else 0.0

            return call

    class Cores:
        def seconds(self):
            order.append("look")
            return float(order.count("look"))

    monkeypatch.setattr(loop, "_LOOKS_APART", apart)
    request = {"batch_size_per_rank": 1, "global_batch_size": 1, "seed": 0, "warmup": WARMUP}
    request |= {"data": "synthetic", "epochs": None, "steps": STEPS, "window": 1}
    reply = loop.train(
        workloads()["lenet"],
        request,
        Options("numpy", 1),
        lambda *_: Trainer(),
        Group(),
        cores=Cores(),
    )
    return [one for one in order if one in {*TIMED, "look"}], reply


@pytest.mark.parametrize("apart", [0.0, math.inf])
def test_the_cores_are_looked_at_around_and_between_timed_steps(monkeypatch, apart):
    order, reply = launched(monkeypatch, apart)
    between = [] if apart else ["look"]
    untimed = [*TIMED, *between] * (1 + WARMUP)
    assert order == ["look", *untimed, "look", *([*TIMED, *between] * STEPS), "look"]
    # Only those around and between the timed steps are told.
    first = untimed.count("look") + 2
    seen = reply["observed"]["handover_seconds"]
    assert seen == [float(number) for number in range(first, order.count("look") + 1)]
    assert len(reply["measurement"]["step_seconds"]) == STEPS
