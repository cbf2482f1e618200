"""Steps of the adapter and of loops as a framework's users write them, in turn, in one process.

`python versus_steps.py WORKER FRAMEWORK KERNEL NETWORK ROUNDS BATCH_SIZE THREADS`, in the
framework's interpreter. Prints JSON: seconds of each step by name, "xfbench" being the adapter.
"""

import importlib
import json
import random
import sys
import time
from dataclasses import replace


def main() -> None:
    archive, framework, kernel, network, rounds, batch_size, threads = sys.argv[1:]
    sys.path.insert(0, archive)
    from xfbench.worker.input import synthetic_batch
    from xfbench.worker.protocol import Group, Options
    from xfbench.workloads import workloads
    from xfbench.workloads.initial import initial_parameters

    # Weights that hardly move: what diverges may be slower, and end Caffe (docs/findings.md).
    named = workloads()[network]
    workload = replace(named, solver=replace(named.solver, base_lr=1e-9, policy="fixed"))
    images, labels = synthetic_batch(workload, int(batch_size), 0)
    train = importlib.import_module(f"xfbench.adapters.{framework}.train")
    options = Options(kernel, int(threads))
    trainer = train.build(workload.network, workload.solver, options, Group())
    trainer.assign(initial_parameters(workload.network, 0))
    batch = trainer.load(images, labels)

    def through() -> None:
        trainer.step(batch)
        trainer.wait()

    own = importlib.import_module(f"own_{framework}")
    steps = {"xfbench": through, **own.loops(workload, images, labels, int(threads))}
    found: dict = {name: [] for name in steps}
    order = random.Random(0)
    for number in range(-5, int(rounds)):
        for name in order.sample(list(steps), len(steps)):
            start = time.perf_counter()
            steps[name]()
            if number >= 0:
                found[name].append(time.perf_counter() - start)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
