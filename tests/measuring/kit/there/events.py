"""Compare xfbench's times of windows with CUDA events: `python events.py` in a launch's folder.

It does the launch of request.json with PyTorch, and records an event where each window begins and
where it ends. reply.json has both times of each timed window.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path("worker.pyz").absolute()))


class TrainerWithEvents:
    """A trainer that records events around each window of the loop."""

    def __init__(self, trainer, create_event):
        self.trainer, self.create_event = trainer, create_event
        self.windows, self.first = [], None

    def __getattr__(self, name):
        return getattr(self.trainer, name)

    def step(self, batch):
        self.first = self.first or self.create_event()
        self.trainer.step(batch)

    def wait_for_loss(self):
        if self.first:
            self.windows.append((self.first, self.create_event()))
        self.first = None
        return self.trainer.wait_for_loss()


def main():
    import torch

    from xfbench.adapters.torch import train
    from xfbench.worker import loop
    from xfbench.worker.protocol import Group, Options, Unavailable
    from xfbench.workloads import workload_from_json

    job = json.loads(Path("request.json").read_text())
    request = job["request"]
    names = ("kernel", "threads", "precision", "device", "seed")
    options = Options(**{name: request[name] for name in names})
    built = []

    def create_event():
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def build(*arguments):
        built.append(TrainerWithEvents(train.build(*arguments), create_event))
        return built[0]

    try:
        workload = workload_from_json(job["workload"])
        measurement = loop.train_and_measure(workload, request, options, build, Group())[
            "measurement"
        ]
    except Unavailable as error:
        return {"status": "unavailable", "reason": str(error)}
    by_windows = measurement["step_seconds"]
    # The first windows are the warm-up's; others may follow for further measurements.
    warm = 1 + len(measurement["warmup_seconds"])
    timed = built[0].windows[warm : warm + len(by_windows)]
    torch.cuda.synchronize()
    by_events = [a.elapsed_time(b) / 1e3 / request["window"] for a, b in timed]
    ratio = sum(by_windows) / sum(by_events)
    return {
        "status": "ok",
        "summary": f"time by windows / time by events: {ratio:.4f}",
        "window_seconds": by_windows,
        "event_seconds": by_events,
        "ratio": ratio,
    }


Path("reply.json").write_text(json.dumps({"reason": None, **main()}))
