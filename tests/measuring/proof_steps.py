"""Training steps and the cases of a proof in one process, and the CPU time of both.

Run by `proof.py` in a framework's interpreter: `python proof_steps.py WORKER FRAMEWORK KERNEL JOB`;
prints one JSON object.
"""

import importlib
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from xfbench.worker import check
from xfbench.worker.input import synthetic_batch
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import workload_from_json
from xfbench.workloads.initial import initial_parameters


def main(framework, job):
    """Print the CPU seconds of the steps and of the cases, and what `check.run_cases` returns."""
    request, folder = job["request"], Path(job["folder"])
    options = Options(
        kernel=request["kernel"],
        threads=request["threads"],
        precision=request["precision"],
        device=request["device"],
        dropout="random",
        seed=request["seed"],
    )
    build = importlib.import_module(f"xfbench.adapters.{framework}.train").build
    workload = workload_from_json(job["workload"])
    networks = []

    def build_and_note(network, *others):
        networks.append(network)
        return build(network, *others)

    first_steps = []
    for _ in range(4):  # in the first round, libraries are initialized too
        trainer = build(workload.network, workload.solver, options, Group())
        trainer.assign(initial_parameters(workload.network, 0))
        batch = trainer.load(*synthetic_batch(workload, job["size"], 0))
        first_steps.append(train(trainer, batch, 1))
        train(trainer, batch, 1)
        trainer.runtime_info()  # compiles products that show the precision
    steps_s = train(trainer, batch, job["steps"])
    started = time.process_time()
    inputs = folder / job["inputs"] if job["inputs"] else None
    reply = check.run_cases(
        job["cases"], options, build_and_note, Group(), inputs, folder / job["output"]
    )
    proof_s = time.process_time() - started
    assert all(network.name == workload.network.name for network in networks), "blocks compile less"
    compiling_s = len(networks) * max(0.0, min(first_steps) - steps_s / job["steps"])
    times = {"steps_s": steps_s, "compiling_s": compiling_s, "proof_s": proof_s}
    print(json.dumps({**reply, **times}))


def train(trainer, batch, steps):
    """Return the CPU seconds of this number of steps."""
    started = time.process_time()
    for _ in range(steps):
        trainer.step(batch)
    trainer.wait_for_loss()
    return time.process_time() - started


if __name__ == "__main__":
    main(sys.argv[2], json.loads(Path(sys.argv[4]).read_text()))
